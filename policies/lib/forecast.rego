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
of(_) := unknown_results if blind

of(target) := {
	"certain": {outcome: always(results, outcome) | some outcome, _ in no_reasons},
	"possible": {outcome: union({result[outcome] | some result in results}) | some outcome, _ in no_reasons},
	"open": union({result.open | some result in results}),
} if {
	not blind
	results := [result | some verb in target.verbs; result := result_of(target.server, object.get(target, "tool", null), verb)]
	count(results) == count(target.verbs)
}

# Empty if one verb has no reason.
always(results, outcome) := union(reasons) if {
	reasons := {result[outcome] | some result in results}
	not set() in reasons
}

always(results, outcome) := set() if set() in {result[outcome] | some result in results}

# The same for all tools. An invalid member denies, in whatever set it is.
unknown_results := {"certain": no_reasons, "possible": no_reasons, "open": {outcome | some set, _ in no_reasons; data.config.rego[set]; some outcome in {set, "deny"}}}

no_reasons := {"deny": set(), "ask": set(), "allow": set()}

# It is unknown what rules read, or their evaluation failed. Then each rule may cause any outcome of its set.
blind if not sources.marked

blind if input.blind

# A kind of tools has no name.
result_of(server, tool, verb) := both(of_kind[[server, verb]], of_tool[[server, tool, verb]])

result_of(server, tool, verb) := of_kind[[server, verb]] if not of_tool[[server, tool, verb]]

both(one, other) := {part: union({result, other[part]}) | some part, result in one}

of_kind := {[server, verb]: user.list_results(sets) |
	not blind
	some [server, verb] in {[tool.server, verb] | some tool in input.tools; some verb in tool.verbs}
	sets := sources.of_kind with input as known({"server": server, "verb": verb})
}

# Only tools with a result.
of_tool := {[tool.server, tool.tool, verb]: result |
	sources.reads_tool
	not blind
	some tool in input.tools
	some verb in tool.verbs
	sets := sources.of_tool with input as known({"server": tool.server, "tool": tool.tool, "verb": verb})
	result := user.list_results(sets)
	some part in result
	count(part) > 0
}

# What is known of a call before it is made. The build found out which rules read more.
known(effect) := {"version": 1, "phase": "call", "principal": input.principal, "effect": effect}

# Whether user Rego can cause one of these outcomes for some call of the tool.
may(result, outcomes) if {
	some outcome in outcomes
	outcome in result.open
}

may(result, outcomes) if {
	some outcome in outcomes
	count(result.possible[outcome]) > 0
}
