# METADATA
# title: The decision of a list
# description: >-
#   One verdict for each tool, from what can be known before a call: the principal and the tool. A rule is possible when some
#   call of the tool could fire it, and certain when every call does. "never" and "always" are promises; "maybe" is none.
package tollgate.list

import data.tollgate.exposure
import data.tollgate.match
import data.tollgate.plan
import data.tollgate.principal
import data.tollgate.servers

# METADATA
# entrypoint: true
decisions := {
	"version": 1,
	"schemaProfile": principal.schema_profile,
	"tools": [decide(tool) | some tool in input.tools],
} if {
	input.version == 1
	input.phase == "list"
	data.config.version == 1
}

decide(tool) := verdict if {
	target := object.union(tool, {"id": concat(".", [tool.server, tool.tool])})
	verdict := judge(target)
}

judge(target) := {"verdict": "never", "reasons": [servers.refusal(target)], "expose": []}

judge(target) := weigh(target, {outcome: [rule | some rule in rules; rule.outcome == outcome] | some outcome in ["deny", "ask", "allow"]}) if {
	not servers.refusal(target)
	rules := possible(target)
}

weigh(target, found) := {"verdict": "never", "reasons": reasons(sure), "expose": []} if {
	sure := certain(target, found.deny)
	count(sure) > 0
} else := {"verdict": "never", "reasons": [{"id": "default-deny", "message": "No rule allows any call of this tool."}], "expose": []} if {
	count(found.allow) + count(found.ask) == 0
	not data.config.rego.allow
	not data.config.rego.ask
} else := {"verdict": "always", "reasons": reasons(sure), "expose": expose(target)} if {
	count(found.deny) + count(found.ask) == 0
	not data.config.rego.deny
	not data.config.rego.ask
	not plan.condition(target)
	sure := certain(target, found.allow)
	count(sure) > 0
} else := object.union(shown(target, found), {"verdict": "maybe", "reasons": reasons(conditions), "expose": expose(target)}) if {
	conditions := array.concat([{"reason": reason} | reason := plan.condition(target)], array.concat(found.deny, found.ask))
	count(conditions) > 0
} else := object.union(shown(target, found), {"verdict": "maybe", "reasons": reasons(found.allow), "expose": expose(target)})

# What the model is told before it calls: the first conditions of each outcome, and the bounds of arguments that hold for every
# call that is allowed.
shown(target, found) := {
	"says": array.concat(array.concat(said("deny", [rule | some rule in found.deny; not bars(rule, target)]), said("ask", found.ask)), ways(found)),
	"bounds": array.slice(array.concat(barriers(target, found), demands(found)), 0, 16),
}

said(outcome, rules) := [{"outcome": outcome, "say": rule.shows.say} |
	some rule in array.slice(rules, 0, 4)
	rule.shows.say
]

# Only where each way to be allowed can be said are the ways a condition.
default ways(_) := []

ways(found) := said("allow", found.allow) if {
	count(found.allow) <= 4
	not data.config.rego.allow
	not demanded(found)
	every rule in found.allow {
		rule.shows.say
	}
}

# The bounds say all of it.
demanded(found) if {
	count(demands(found)) > 0
	found.allow[0].shows.whole
}

barriers(target, found) := [bound |
	some rule in found.deny
	bars(rule, target)
	some bound in rule.shows.bounds
]

# A rule that its bounds say whole, and that meets every call of the tool.
bars(rule, target) if {
	count(rule.shows.bounds) > 0
	every condition in rule.target {
		match.always_aims(condition, target)
	}
}

default demands(_) := []

demands(found) := found.allow[0].shows.bounds if {
	count(found.allow) == 1
	count(found.ask) == 0
	not data.config.rego.allow
	not data.config.rego.ask
}

# The first few: a list of a thousand tools would else carry every rule a thousand times.
reasons(rules) := [rule.reason | some rule in array.slice(rules, 0, 5)]

# Enforced rules that this principal can meet, by number; read once for the whole list.
live := {number |
	some number, rule in data.config.rules.list
	data.tollgate.modes.of(rule.mode) == "enforce"
	every condition in rule.principal {
		principal.holds(condition)
	}
}

index := data.config.rules.index

by_server := {name: [number | some number in numbers; number in live] | some name, numbers in index.server}

by_verb := {name: [number | some number in numbers; number in live] | some name, numbers in index.verb}

by_nothing := [number | some number in index.any; number in live]

candidates(target) := array.concat(
	array.concat([number | some number in index.tool[target.id]; number in live], object.get(by_server, target.server, [])),
	array.concat(by_verbs(target.verbs), by_nothing),
)

by_verbs(verbs) := object.get(by_verb, verbs[0], []) if count(verbs) == 1

by_verbs(verbs) := sort({number | some verb in verbs; some number in by_verb[verb]}) if count(verbs) > 1

possible(target) := [rule |
	some number in candidates(target)
	rule := data.config.rules.list[number]
	every condition in rule.target {
		match.aims(condition, target)
	}
	every condition in rule.call {
		reaches(condition, target)
	}
]

# Could a call of this tool carry what the condition reads? Without `facts` nothing is known of the tool.
reaches(_, target) if not target.facts

reaches(condition, _) if not reads(condition)

reaches(condition, target) if reads(condition) in target.facts

reads(condition) := {"paths": "paths", "hosts": "urls", "urls": "urls", "commands": "command"}[condition.over]

reads(condition) := "command" if is_boolean(condition.opaque)

certain(target, rules) := [rule |
	some rule in rules
	count(rule.call) == 0
	every condition in rule.target {
		match.always_aims(condition, target)
	}
]

# A primitive is shown where a profile puts this server behind it; other tools where a rule shows them.
expose(target) := [{"name": target.primitive, "pins": {}} | principal.primitives[target.primitive] == target.server] if target.primitive

expose(target) := exposure.rules(target) if not target.primitive
