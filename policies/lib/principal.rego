# METADATA
# title: The caller
# description: >-
#   What the principal's profiles give it. Stacked profiles take the union of their servers; where they set the same
#   thing, the later one wins. A profile that the configuration does not know gives nothing.
package tollgate.principal

profiles := [profile |
	some name in input.principal.profiles
	profile := data.config.profiles[name]
]

# The servers behind each primitive.
primitives := object.union_n([profile.primitives | some profile in profiles])

# A backend of a primitive counts as a server of the profile: the effect is the same whichever way a call came in.
servers := {name | some profile in profiles; some name in profile.servers} | {name | some names in primitives; some name in names}

# One profile in plan mode suffices: a later one cannot lift it.
default plans := false

plans if {
	some profile in profiles
	profile.plan
}

caps := object.union_n(array.concat([data.config.caps], [profile.caps | some profile in profiles]))

default schema_profile := "portable"

schema_profile := name if {
	names := array.concat([data.config.schemaProfile], [profile.schemaProfile | some profile in profiles])
	name := names[count(names) - 1]
}

# Of budgets with the same id the one of the later profile holds.
budgets := [by_id[id] | some id in sort(object.keys(by_id))]

by_id := object.union_n([{budget.limit.id: budget} | some budget in array.concat(
	data.config.budgets,
	[budget | some profile in profiles; some budget in profile.budgets],
)])

subjects := {
	"role": [input.principal.role],
	"group": input.principal.groups,
	"principal": [input.principal.id],
	"origin": [input.principal.origin],
	"profile": input.principal.profiles,
}

# Holds when one of the values that the principal has is among those that the condition names.
holds(condition) if {
	some value in subjects[condition.of]
	condition.any[value]
}

holds(condition) if condition.owner == owner

default owner := false

owner if input.principal.owner
