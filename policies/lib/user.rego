# METADATA
# title: Policies of the user
# description: >-
#   Folds the sets `deny`, `ask` and `allow` of every package `policy.<name>`. Members are texts or objects with `id` and
#   `message`. Anything else under these names is a fault of the policy, and a fault denies.
package tollgate.user

# The three names stand here one by one: a variable in their place would make opa plan every rule of the packages, helpers
# too, and a helper that is a function becomes wasm that does not load.
found := array.concat(
	[{"name": name, "outcome": "deny", "members": members} | some name; members := data.policy[name].deny],
	array.concat(
		[{"name": name, "outcome": "ask", "members": members} | some name; members := data.policy[name].ask],
		[{"name": name, "outcome": "allow", "members": members} | some name; members := data.policy[name].allow],
	),
)

enforced(outcome) := sort({reason |
	some set in found
	set.outcome == outcome
	mode(set.name) == "enforce"
	some member in set.members
	reason := readable(set.name, member)
})

shadow := sort({object.union(reason, {"would": set.outcome}) |
	some set in found
	mode(set.name) in ["warn", "shadow"]
	some member in set.members
	reason := readable(set.name, member)
})

faults := sort({{"id": "policy-shape", "message": message} |
	some set in found
	mode(set.name) == "enforce"
	not sound(set.members)
	message := concat("", ["`", set.outcome, "` of package policy.", set.name, " is not a set of texts or of {id, message}."])
})

sound(members) if {
	is_set(members)
	every member in members {
		readable("", member)
	}
}

mode(name) := object.get(data.config.modes, name, data.config.mode)

readable(name, member) := {"id": concat(".", ["policy", name]), "message": member} if is_string(member)

readable(_, member) := object.union({"id": member.id, "message": member.message}, object.get(data.config.places, member.id, {})) if {
	is_string(member.id)
	is_string(member.message)
}
