# METADATA
# title: Rules that match
# description: >-
#   The YAML rules are in `data.config.rules.list`. An index gives the rules of a tool, a server or a verb, and the
#   others, so that a decision evaluates only candidates. The index only narrows: every condition is evaluated here.
package tollgate.rules

target := {
	"id": concat(".", [input.effect.server, input.effect.tool]),
	"kind": input.effect.kind,
	"server": input.effect.server,
	"tool": input.effect.tool,
	"verbs": [input.effect.verb],
}

index := data.config.rules.index[part(input.effect.kind)]

# Rules about tools, and rules about other kinds of effects, have an index each. A rule may be in both.
part("tool") := "tools"

part(kind) := "others" if kind != "tool"

indexed := array.concat(
	array.concat(object.get(index.tool, target.id, []), object.get(index.server, target.server, [])),
	array.concat(object.get(index.verb, input.effect.verb, []), index.any),
)

candidates := indexed if input.effect.kind == "tool"

candidates := [number | some number in indexed; not list[number].toolsOnly] if input.effect.kind != "tool"

list := data.config.rules.list

# Numbers of the rules about this principal and this tool, whatever the call carries.
relevant := [number |
	some number in candidates
	concerns(list[number])
]

concerns(rule) if {
	every condition in rule.principal {
		data.tollgate.principal.holds(condition)
	}
	every condition in rule.target {
		data.tollgate.match.meets_target(condition, target)
	}
}

# Those of the numbers whose rule has no condition on the call, or only conditions that hold.
matching(numbers) := [number |
	some number in numbers
	every condition in list[number].call {
		data.tollgate.facts.holds(condition)
	}
]

matched := matching(relevant)

fired := [list[number] | some number in matched]

enforced(outcome) := [rule.reason |
	some rule in fired
	rule.outcome == outcome
	data.tollgate.modes.of(rule.mode) == "enforce"
]

shadow := [object.union(rule.reason, {"would": rule.outcome, "mode": mode}) |
	some rule in fired
	mode := data.tollgate.modes.of(rule.mode)
	mode in data.tollgate.modes.reported
]

obligations := [rule.obligations |
	some rule in fired
	data.tollgate.modes.of(rule.mode) == "enforce"
]
