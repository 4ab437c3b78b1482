# METADATA
# title: Why a call was decided so
# description: >-
#   For every rule of YAML, which of its conditions do not hold, asked of the very predicates that decide. Decides nothing,
#   and is an entry point of the shipped module only, so that modules of users stay small.
package tollgate.why

import data.tollgate.rules

explain := {"rules": [told |
	some rule in data.config.rules.list
	told := {
		"id": rule.reason.id,
		"mode": data.tollgate.modes.of(rule.mode),
		"failed": {
			"principal": [number | some number, condition in rule.principal; not data.tollgate.principal.holds(condition)],
			"target": [number | some number, condition in rule.target; not data.tollgate.match.aims(condition, rules.target)],
			"call": [number | some number, condition in rule.call; not data.tollgate.facts.holds(condition)],
		},
	}
]}
