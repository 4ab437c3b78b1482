# METADATA
# title: Why a call was decided so
# description: >-
#   For every YAML rule, which of its conditions do not hold, by the same predicates that decide. It decides nothing.
#   Only the shipped module has this entry point, so that modules with user Rego stay small.
package tollgate.why

import data.tollgate.rules

is_of_kind(rule) := false if {
	rule.toolsOnly
	input.effect.kind != "tool"
} else := true

explain := {"rules": [evaluated |
	some rule in data.config.rules.list
	evaluated := {
		"id": rule.reason.id,
		"mode": data.tollgate.modes.of(rule.mode),
		"isOfKind": is_of_kind(rule),
		"failed": {
			"principal": [number | some number, condition in rule.principal; not data.tollgate.principal.holds(condition)],
			"target": [number | some number, condition in rule.target; not data.tollgate.match.meets_target(condition, rules.target)],
			"call": [number | some number, condition in rule.call; not data.tollgate.facts.holds(condition)],
		},
	}
]}
