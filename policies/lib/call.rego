# METADATA
# title: The decision on one call
# description: >-
#   Deny overrides ask, and ask overrides allow. If no rule matches, the call is denied.
package tollgate.call

import data.tollgate.exposure
import data.tollgate.gate
import data.tollgate.plan
import data.tollgate.principal
import data.tollgate.rules
import data.tollgate.user

# METADATA
# entrypoint: true
decision := {
	"version": 1,
	"outcome": outcome,
	"reasons": reasons[outcome],
	"obligations": obligations,
	"shadow": array.concat(rules.shadow, user.shadow),
	"extended": user.extended,
	"enforced": user.enforces,
} if {
	input.version == 2
	input.phase == "call"
	data.config.version == 1
}

default outcome := "deny"

outcome := "deny" if {
	count(denials) > 0
} else := "ask" if {
	count(asks) > 0
} else := "allow" if {
	count(allowances) > 0
}

reasons := {"deny": denial_reasons, "ask": asks, "allow": allowances}

denial_reasons := denials if count(denials) > 0

denial_reasons := [{"id": "default-deny", "message": "No rule allows this call."}] if count(denials) == 0

denials := array.concat(configured_refusals, array.concat(rules.enforced("deny"), array.concat(user.enforced("deny"), user.faults)))

asks := array.concat(rules.enforced("ask"), user.enforced("ask"))

allowances := array.concat(spill, array.concat(rules.enforced("allow"), user.enforced("allow")))

spill := [{"id": "spill", "message": "Reads more of the result of an allowed call."} | input.effect.spill == true]

# Refusals by the configuration itself.
configured_refusals := array.concat(
	array.concat([reason | reason := data.tollgate.servers.refusal(rules.target)], array.concat([reason | reason := plan.refusal], [reason | reason := gate.refusal])),
	array.concat([{"id": "pin", "message": "A pinned argument has another value."} | exposure.unpinned], contradictions),
)

# If obligations contradict each other, the call is refused.
contradictions := array.concat(
	[{"id": "obligations", "message": sprintf("Rules set the argument %s to different values.", [name])} | some name, values in pinned; count(values) > 1],
	[{"id": "obligations", "message": sprintf("Rules give the budget %s different limits.", [id])} | some id, limits in limited; count(limits) > 1],
)

obligations := object.union_n([
	{"caps": caps, "pins": pins, "budgets": budgets, "labels": sort(labels)},
	timeout,
	validation,
])

# Rules can only lower caps. A profile can raise them.
caps := {name: min(values) |
	some name in ["bytes", "lines"]
	values := array.concat(
		[principal.caps[name] | principal.caps[name]],
		[value | some given in rule_obligations; value := given.caps[name]],
	)
	count(values) > 0
}

timeout := {"timeoutMs": milliseconds |
	values := [given.timeoutMs | some given in rule_obligations]
	milliseconds := min(values)
}

validation := {"validateOutput": data.tollgate.servers.validation(input.effect.server)}

default validation := {}

labels := data.tollgate.servers.labels(input.effect.server) | {label |
	some given in rule_obligations
	some label in given.labels
}

configured := {budget.limit |
	some budget in principal.budgets
	every condition in budget.principal {
		principal.holds(condition)
	}
	every condition in budget.target {
		data.tollgate.match.meets_target(condition, rules.target)
	}
}

# Obligations of every rule that allows the call or asks about it.
rule_obligations := array.concat(rules.obligations, user.obligations)

pinned[name] contains value if some name, value in exposure.pins

pinned[name] contains value if {
	some given in rule_obligations
	some name, value in given.pins
}

pins := {name: value | some name, values in pinned; count(values) == 1; some value in values}

limited[limit.id] contains limit if some limit in configured

limited[limit.id] contains limit if {
	some given in rule_obligations
	some limit in given.budgets
}

budgets := [limit | some id in sort(object.keys(limited)); some limit in limited[id]]
