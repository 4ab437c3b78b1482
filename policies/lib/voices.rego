# METADATA
# title: What Rego of the user says in a list
# description: >-
#   Rules that read no more of a call than its caller, its tool and its verb are asked before there is a call, by the very code
#   that decides calls. Rules that read more are asked with the part of their body that reads no more.
package tollgate.voices

import data.tollgate.sources
import data.tollgate.user

# Over every verb that a call of the tool may have: reasons by outcome, those that every call has and those that some have, and
# the outcomes that the rest leaves open.
of(_) := unheard if blind

of(target) := {
	"certain": {outcome: always(heard, outcome) | some outcome, _ in silence},
	"possible": {outcome: union({voice[outcome] | some voice in heard}) | some outcome, _ in silence},
	"open": union({voice.open | some voice in heard}),
} if {
	not blind
	heard := [voice | some verb in target.verbs; voice := voice_of(target.server, object.get(target, "tool", null), verb)]
	count(heard) == count(target.verbs)
}

# Nothing where one verb is without.
always(heard, outcome) := union(told) if {
	told := {voice[outcome] | some voice in heard}
	not set() in told
}

always(heard, outcome) := set() if set() in {voice[outcome] | some voice in heard}

# Once for all tools. A member that none can read denies, whatever its set is for.
unheard := {"certain": silence, "possible": silence, "open": {outcome | some set, _ in silence; data.config.rego[set]; some outcome in {set, "deny"}}}

silence := {"deny": set(), "ask": set(), "allow": set()}

# Nobody has marked what rules read, or they could not be evaluated so: then each may bring any outcome that its set is for.
blind if not sources.marked

blind if input.blind

# A kind of tools has no name.
voice_of(server, tool, verb) := both(of_kind[[server, verb]], of_tool[[server, tool, verb]])

voice_of(server, tool, verb) := of_kind[[server, verb]] if not of_tool[[server, tool, verb]]

both(one, other) := {part: union({said, other[part]}) | some part, said in one}

of_kind := {[server, verb]: user.told(sets) |
	not blind
	some [server, verb] in {[tool.server, verb] | some tool in input.tools; some verb in tool.verbs}
	sets := sources.of_kind with input as known({"server": server, "verb": verb})
}

# Only tools of which it says something.
of_tool := {[tool.server, tool.tool, verb]: said |
	sources.reads_tool
	not blind
	some tool in input.tools
	some verb in tool.verbs
	sets := sources.of_tool with input as known({"server": tool.server, "tool": tool.tool, "verb": verb})
	said := user.told(sets)
	some part in said
	count(part) > 0
}

# What is known of a call before it is made. What rules read of it beyond that was found out when they were built.
known(effect) := {"version": 1, "phase": "call", "principal": input.principal, "effect": effect}

# Could Rego bring one of these outcomes to some call of the tool?
may(said, outcomes) if {
	some outcome in outcomes
	outcome in said.open
}

may(said, outcomes) if {
	some outcome in outcomes
	count(said.possible[outcome]) > 0
}
