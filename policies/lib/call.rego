# METADATA
# title: The decision of one call
# description: >-
#   Deny goes before ask, ask before allow, and where nothing matches the call is denied.
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
	"constant": constant,
} if {
	input.version == 1
	input.phase == "call"
	data.config.version == 1
}

# True when nothing that the call carries had a part in the decision. User Rego may read anything, so the engine keeps only
# decisions of the library alone.
default constant := false

constant if {
	not input.effect.spill
	not plan.waits
	rules.constant
	every show in exposure.rules(rules.target) {
		count(show.pins) == 0
	}
}

default outcome := "deny"

outcome := "deny" if {
	count(denials) > 0
} else := "ask" if {
	count(asks) > 0
} else := "allow" if {
	count(allowances) > 0
}

reasons := {"deny": explained, "ask": asks, "allow": allowances}

explained := denials if count(denials) > 0

explained := [{"id": "default-deny", "message": "No rule allows this call."}] if count(denials) == 0

denials := array.concat(own, array.concat(rules.enforced("deny"), array.concat(user.enforced("deny"), user.faults)))

asks := array.concat(rules.enforced("ask"), user.enforced("ask"))

allowances := array.concat(spill, array.concat(rules.enforced("allow"), user.enforced("allow")))

spill := [{"id": "spill", "message": "Reads on in the result of an allowed call."} | input.effect.spill == true]

# What the configuration itself refuses.
own := array.concat(
	array.concat([reason | reason := data.tollgate.servers.refusal(rules.target)], array.concat([reason | reason := plan.refusal], [reason | reason := gate.refusal])),
	array.concat([{"id": "pin", "message": "An argument that is pinned has another value."} | exposure.unpinned], contradictions),
)

# Of obligations that cannot both be met none is: the call is refused.
contradictions := array.concat(
	[{"id": "obligations", "message": sprintf("Rules set the argument %s to different values.", [name])} | some name, values in pinned; count(values) > 1],
	[{"id": "obligations", "message": sprintf("Rules give the budget %s different limits.", [id])} | some id, limits in limited; count(limits) > 1],
)

obligations := object.union_n([
	{"caps": caps, "pins": pins, "budgets": budgets, "labels": sort(labels)},
	timeout,
	validation,
])

# Rules only tighten; a profile can raise.
caps := {name: min(values) |
	some name in ["bytes", "lines"]
	values := array.concat(
		[principal.caps[name] | principal.caps[name]],
		[value | some duty in duties; value := duty.caps[name]],
	)
	count(values) > 0
}

timeout := {"timeoutMs": milliseconds |
	values := [duty.timeoutMs | some duty in duties]
	milliseconds := min(values)
}

validation := {"validateOutput": data.tollgate.servers.validation(input.effect.server)}

default validation := {}

labels := data.tollgate.servers.labels(input.effect.server) | {label |
	some duty in duties
	some label in duty.labels
}

configured := {budget.limit |
	some budget in principal.budgets
	every condition in budget.principal {
		principal.holds(condition)
	}
	every condition in budget.target {
		data.tollgate.match.aims(condition, rules.target)
	}
}

# What every rule that lets the call pass demands.
duties := array.concat(rules.obligations, user.obligations)

pinned[name] contains value if some name, value in exposure.pins

pinned[name] contains value if {
	some duty in duties
	some name, value in duty.pins
}

pins := {name: value | some name, values in pinned; count(values) == 1; some value in values}

limited[limit.id] contains limit if some limit in configured

limited[limit.id] contains limit if {
	some duty in duties
	some limit in duty.budgets
}

budgets := [limit | some id in sort(object.keys(limited)); some limit in limited[id]]
