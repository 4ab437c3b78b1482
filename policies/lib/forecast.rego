# METADATA
# title: User Rego in a list
# description: >-
#   Rules that read only the caller, the tool and the verb are evaluated before there is a call, by the code that
#   decides calls. Of other rules, the first part that reads no more is evaluated.
package tollgate.forecast

import data.tollgate.sources
import data.tollgate.user

# The results for all verbs that a call of the tool may have. `certain` has the reasons of every call, `possible` the
# reasons of some calls, and `open` the outcomes that other rules may cause.
of(target) := unknown_results(target.kind) if blind

of(target) := {
	"certain": {outcome: always(results, outcome) | some outcome, _ in no_reasons},
	"possible": {outcome: union({result[outcome] | some result in results}) | some outcome, _ in no_reasons},
	"open": union({result.open | some result in results}),
} if {
	not blind
	results := [result | some verb in target.verbs; result := result_of(target, verb)]
	count(results) == count(target.verbs)
}

# Empty if one verb has no reason.
always(results, outcome) := union(reasons) if {
	reasons := {result[outcome] | some result in results}
	not set() in reasons
}

always(results, outcome) := set() if set() in {result[outcome] | some result in results}

# The same for all tools. An invalid member denies, in whatever set it is.
unknown_results(kind) := {"certain": no_reasons, "possible": no_reasons, "open": {outcome |
	some set, _ in no_reasons
	data.config.rego[set]
	some outcome in {set, "deny"}
	may_count(outcome, kind)
}}

may_count(outcome, _) if outcome != "allow"

may_count("allow", "tool")

may_count("allow", kind) if {
	kind != "tool"
	count(data.config.kindRules) > 0
}

no_reasons := {"deny": set(), "ask": set(), "allow": set()}

# It is unknown what rules read, or their evaluation failed. Then each rule may cause any outcome of its set.
blind if not sources.marked

blind if input.blind

# A group of tools has no name.
result_of(target, verb) := both(of_group[[target.server, verb, target.kind]], of_tool[own_key(target, verb)])

result_of(target, verb) := of_group[[target.server, verb, target.kind]] if not of_tool[own_key(target, verb)]

own_key(target, verb) := [target.server, object.get(target, "tool", null), verb, target.kind]

both(one, other) := {part: union({result, other[part]}) | some part, result in one}

of_group := {[server, verb, kind]: user.list_results(sets, kind) |
	not blind
	some [server, verb, kind] in {[tool.server, verb, tool.kind] | some tool in input.tools; some verb in tool.verbs}
	sets := sources.of_group with input as known({"server": server, "verb": verb, "kind": kind})
}

# Only tools with a result.
of_tool := {[tool.server, tool.tool, verb, tool.kind]: result |
	sources.reads_tool
	not blind
	some tool in input.tools
	some verb in tool.verbs
	sets := sources.of_tool with input as known({"server": tool.server, "tool": tool.tool, "verb": verb, "kind": tool.kind})
	result := user.list_results(sets, tool.kind)
	some part in result
	count(part) > 0
}

# What is known of a call before it is made. The build found out which rules read more.
known(effect) := {"version": 2, "phase": "call", "principal": input.principal, "effect": effect}

# Whether user Rego can cause one of these outcomes for some call of the tool.
may(result, outcomes) if {
	some outcome in outcomes
	outcome in result.open
}

may(result, outcomes) if {
	some outcome in outcomes
	count(result.possible[outcome]) > 0
}
