# METADATA
# title: Rules that fire
# description: >-
#   Rules of YAML stand in `data.config.rules.list`; an index names the rules of a tool, of a server, of a verb, and those of
#   neither, so that a decision looks at its candidates only. The index only narrows: every condition is judged here.
package tollgate.rules

target := {
	"id": concat(".", [input.effect.server, input.effect.tool]),
	"server": input.effect.server,
	"tool": input.effect.tool,
	"verbs": [input.effect.verb],
}

index := data.config.rules.index

candidates := array.concat(
	array.concat(object.get(index.tool, target.id, []), object.get(index.server, target.server, [])),
	array.concat(object.get(index.verb, input.effect.verb, []), index.any),
)

# Rules for this principal and this tool, whatever the call carries.
aimed := [rule |
	some number in candidates
	rule := data.config.rules.list[number]
	aims(rule)
]

aims(rule) if {
	every condition in rule.principal {
		data.tollgate.principal.holds(condition)
	}
	every condition in rule.target {
		data.tollgate.match.aims(condition, target)
	}
}

fired := [rule |
	some rule in aimed
	every condition in rule.call {
		data.tollgate.facts.holds(condition)
	}
]

# No rule reads the call: every call of this tool with this verb by this principal is decided alike.
constant if {
	every rule in aimed {
		count(rule.call) == 0
	}
}

enforced(outcome) := [rule.reason |
	some rule in fired
	rule.outcome == outcome
	data.tollgate.modes.of(rule.mode) == "enforce"
]

shadow := [object.union(rule.reason, {"would": rule.outcome, "mode": mode}) |
	some rule in fired
	mode := data.tollgate.modes.of(rule.mode)
	mode in data.tollgate.modes.beside
]

obligations := [rule.obligations |
	some rule in fired
	data.tollgate.modes.of(rule.mode) == "enforce"
]
