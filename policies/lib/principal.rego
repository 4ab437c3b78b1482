# METADATA
# title: The caller
# description: >-
#   What the principal's profiles give it. Several profiles together give all of their servers. If they set the same
#   thing, the later one counts. An unknown profile gives nothing.
package tollgate.principal

profiles := [profile |
	some name in input.principal.profiles
	profile := data.config.profiles[name]
]

# The servers behind each primitive.
primitives := object.union_n([profile.primitives | some profile in profiles])

# A server behind a primitive counts as a server of the profile, because the effect of a call is the same either way.
servers := {name | some profile in profiles; some name in profile.servers} | {name | some names in primitives; some name in names}

# One profile in plan mode is enough. A later profile cannot end it.
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

# Of budgets with the same id, the one of the later profile counts.
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

# True if the principal has one of the values that the condition names.
holds(condition) if {
	some value in subjects[condition.of]
	condition.any[value]
}

holds(condition) if condition.owner == owner

default owner := false

owner if input.principal.owner
