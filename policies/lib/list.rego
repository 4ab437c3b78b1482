# METADATA
# title: The decision of a list
# description: >-
#   One verdict for each tool, from what is known before a call: the principal and the tool. A rule is possible if some
#   call of the tool can match it, and certain if every call does. "never" and "always" are guaranteed; "maybe" is not.
package tollgate.list

import data.tollgate.exposure
import data.tollgate.forecast
import data.tollgate.gate
import data.tollgate.match
import data.tollgate.plan
import data.tollgate.principal
import data.tollgate.servers
import data.tollgate.sources
import data.tollgate.user

# METADATA
# entrypoint: true
decisions := {
	"version": 1,
	"schemaProfile": principal.schema_profile,
	"verdicts": [groups[key].verdict | some key in numbered],
	"tools": [decide(tool) | some tool in input.tools],
	"enforced": user.enforces,
	"exposed": user.exposed,
	"unshown": exposure.unshown,
} if {
	input.version == 2
	input.phase == "list"
	data.config.version == 1
}

# Tools of one group differ only in their name. The verdict of a group is computed once, however many tools it has. Only
# if a rule names tools, each of them gets a verdict of its own. The exposures of a hidden tool are the names under
# which it is hidden. The audit uses them to say why a call was refused.
decide(tool) := {"verdict": "never", "reasons": [servers.refusal(tool)], "expose": expose(object.union(tool, {"id": concat(".", [tool.server, tool.tool])}))}

decide(tool) := answer(object.union(tool, {"id": concat(".", [tool.server, tool.tool])}), group_of(tool)) if not servers.refusal(tool)

answer(target, key) := {"same": number[key], "expose": expose(target)} if not particular(target, key)

answer(target, key) := object.union(verdict, {"expose": expose(target)}) if {
	particular(target, key)
	group := groups[key]
	verdict := weigh(target, outcomes(array.concat(possible(by_tool(target), target), array.concat(possible(group.naming, target), group.rules))), forecast.of(target))
}

# The engine hashes all arguments of a function, so functions take short ones.
particular(_, key) if count(groups[key].naming) > 0

particular(target, _) if data.config.rules.index[data.tollgate.rules.part(target.kind)].tool[target.id]

particular(target, _) if {
	sources.reads_tool
	some verb in target.verbs
	forecast.of_tool[[target.server, target.tool, verb, target.kind]]
}

particular(target, _) if gate.high(target)

group_of(tool) := [tool.server, tool.verbs, object.get(tool, "facts", null), tool.kind]

groups := {key: group |
	some key in {group_of(tool) | some tool in input.tools}
	target := object.union({"server": key[0], "verbs": key[1], "kind": key[3]}, known_facts(key[2]))
	found := candidates(target)
	rules := possible([rule | some rule in found; not names_tools(rule)], target)
	group := {
		"rules": rules,
		"naming": [rule | some rule in found; names_tools(rule)],
		"verdict": weigh(target, outcomes(rules), forecast.of(target)),
	}
}

# Sorted, because each engine has its own order of object keys.
numbered := sort(object.keys(groups))

number := {key: place | some place, key in numbered}

known_facts(null) := {}

known_facts(facts) := {"facts": facts} if facts != null

names_tools(rule) if {
	some condition in rule.target
	condition.patterns
}

outcomes(rules) := {outcome: [rule | some rule in rules; rule.outcome == outcome] | some outcome in ["deny", "ask", "allow"]}

weigh(target, found, user_results) := {"verdict": "never", "reasons": first(sure)} if {
	sure := array.concat(reasons(certain(target, found.deny)), sort(user_results.certain.deny))
	count(sure) > 0
} else := {"verdict": "never", "reasons": [{"id": "default-deny", "message": nothing_allowed(target.kind)}]} if {
	count(found.allow) + count(found.ask) == 0
	not forecast.may(user_results, {"allow", "ask"})
} else := {"verdict": "never", "reasons": [gate.reason]} if {
	gate.high(target)
	count([rule | some rule in array.concat(found.allow, found.ask); gate.names(rule, target.id)]) == 0
} else := {"verdict": "always", "reasons": first(sure)} if {
	count(found.deny) + count(found.ask) == 0
	not forecast.may(user_results, {"deny", "ask"})
	not plan.condition(target)
	sure := array.concat(reasons([rule | some rule in certain(target, found.allow); gate.passes(rule, target)]), ungated(user_results.certain.allow, target))
	count(sure) > 0
} else := object.union(shown(target, found, user_results), {"verdict": "maybe", "reasons": first(conditions)}) if {
	conditions := array.concat(
		array.concat([reason | reason := plan.condition(target)], reasons(array.concat(found.deny, found.ask))),
		array.concat(sort(user_results.possible.deny), sort(user_results.possible.ask)),
	)
	count(conditions) > 0
} else := object.union(shown(target, found, user_results), {"verdict": "maybe", "reasons": first(array.concat(reasons(found.allow), sort(user_results.possible.allow)))})

nothing_allowed("tool") := "No rule allows any call of this tool."

nothing_allowed(kind) := concat("", ["No rule allows any request of the kind ", kind, " here."]) if kind != "tool"

ungated(allowances, target) := sort(allowances) if not gate.high(target)

ungated(_, target) := [] if gate.high(target)

# What the model is told before it calls: the first conditions of each outcome, and the bounds of arguments that every
# allowed call meets.
shown(target, found, user_results) := {
	"says": array.concat(
		array.concat(planned(target), says("deny", [rule | some rule in found.deny; not bars(rule, target)])),
		array.concat(asking(target, found, user_results), ways(target, found, user_results)),
	),
	"bounds": array.slice(array.concat(barriers(target, found), demands(found, user_results)), 0, 16),
}

planned(target) := [{"outcome": "deny", "say": "the plan of this run is not approved and the call does more than read"} | plan.condition(target)]

# If every call is asked about, other conditions to ask add nothing.
asking(target, found, user_results) := [{"outcome": "ask", "say": ""}] if each_asked(target, found, user_results)

asking(target, found, user_results) := says("ask", found.ask) if not each_asked(target, found, user_results)

each_asked(target, found, _) if {
	some rule in certain(target, found.ask)
	gate.passes(rule, target)
}

each_asked(target, _, user_results) if {
	count(user_results.certain.ask) > 0
	not gate.high(target)
}

says(outcome, rules) := [{"outcome": outcome, "say": rule.shows.say} |
	some rule in array.slice(rules, 0, 4)
	rule.shows.say
]

# Only if every way to be allowed has words, the ways are a condition.
default ways(_, _, _) := []

ways(target, found, user_results) := says("allow", found.allow) if {
	not each_asked(target, found, user_results)
	count(found.allow) <= 4
	not forecast.may(user_results, {"allow"})
	not demanded(found, user_results)
	every rule in found.allow {
		rule.shows.say
	}
}

# The bounds state the whole rule.
demanded(found, user_results) if {
	count(demands(found, user_results)) > 0
	found.allow[0].shows.whole
}

barriers(target, found) := [bound |
	some rule in found.deny
	bars(rule, target)
	some bound in rule.shows.bounds
]

# The bounds state the whole rule, and the rule is about every call of the tool.
bars(rule, target) if {
	count(rule.shows.bounds) > 0
	every condition in rule.target {
		match.always_meets_target(condition, target)
	}
}

default demands(_, _) := []

demands(found, user_results) := found.allow[0].shows.bounds if {
	count(found.allow) == 1
	count(found.ask) == 0
	not forecast.may(user_results, {"allow", "ask"})
}

reasons(rules) := first([rule.reason | some rule in rules])

# Only the first few. Otherwise a list of a thousand tools would contain every reason a thousand times.
first(all) := array.slice(all, 0, 5)

# The rules that are enforced for this principal.
enforced(rules) := [rule |
	some rule in rules
	data.tollgate.modes.of(rule.mode) == "enforce"
	every condition in rule.principal {
		principal.holds(condition)
	}
]

enforced_numbers("tools", numbers) := enforced([data.config.rules.list[number] | some number in numbers])

enforced_numbers("others", numbers) := enforced([rule | some number in numbers; rule := data.config.rules.list[number]; not rule.toolsOnly])

listed_servers := {tool.server | some tool in input.tools}

# By the part of the index: rules about tools, and rules about other kinds.
listed_parts := {data.tollgate.rules.part(tool.kind) | some tool in input.tools}

by_server := {part: {name: enforced_numbers(part, object.get(data.config.rules.index[part].server, name, [])) | some name in listed_servers} | some part in listed_parts}

by_verb := {part: {name: enforced_numbers(part, numbers) | some name, numbers in data.config.rules.index[part].verb} | some part in listed_parts}

by_nothing := {part: enforced_numbers(part, data.config.rules.index[part].any) | some part in listed_parts}

by_tool(target) := enforced_numbers(part, object.get(data.config.rules.index[part].tool, target.id, [])) if {
	part := data.tollgate.rules.part(target.kind)
}

candidates(target) := array.concat(object.get(by_server[part], target.server, []), array.concat(by_verbs(part, target.verbs), by_nothing[part])) if {
	part := data.tollgate.rules.part(target.kind)
}

by_verbs(part, verbs) := object.get(by_verb[part], verbs[0], []) if count(verbs) == 1

# A rule about several of the verbs is included once.
by_verbs(part, verbs) := [rule | some rule in {rule | some verb in verbs; some rule in by_verb[part][verb]}] if count(verbs) > 1

possible(rules, target) := [rule |
	some rule in rules
	every condition in rule.target {
		match.meets_target(condition, target)
	}
	every condition in rule.call {
		reaches(condition, target)
	}
]

# Whether a call of this tool can carry what the condition reads. Without `facts`, it can carry anything.
reaches(_, target) if not target.facts

reaches(condition, _) if not data.tollgate.facts.part(condition) in {"paths", "urls", "command"}

reaches(condition, target) if data.tollgate.facts.part(condition) in target.facts

certain(target, rules) := [rule |
	some rule in rules
	count(rule.call) == 0
	every condition in rule.target {
		match.always_meets_target(condition, target)
	}
]

# A primitive is shown if a profile puts this server behind it, alone or with others. Other tools are shown if an entry
# shows them.
expose(target) := [{"name": target.primitive, "pins": {}} | target.server in principal.primitives[target.primitive]] if target.primitive

expose(target) := [object.union(risk_of(target), show) | some show in exposure.rules(target)] if not target.primitive

default risk_of(_) := {}

risk_of(target) := {"risk": data.config.servers[target.server].gated[target.tool]} if gate.high(target)
