# METADATA
# title: Policies of the user
# description: >-
#   Folds the sets `deny`, `ask` and `allow` of every package `policy.<name>`. Members are texts or objects with `id` and
#   `message`. Anything else under these names is a fault of the policy, and a fault denies.
package tollgate.user

enforced(outcome) := sort({reason |
	some name
	some entry in data.policy[name][outcome]
	mode(name) == "enforce"
	reason := readable(name, entry)
})

shadow := sort({object.union(reason, {"would": outcome}) |
	some name
	some outcome in ["deny", "ask", "allow"]
	some entry in data.policy[name][outcome]
	mode(name) in ["warn", "shadow"]
	reason := readable(name, entry)
})

faults := sort({{"id": "policy-shape", "message": concat("", ["`", outcome, "` of package policy.", name, " is not a set of texts or of {id, message}."])} |
	some name
	some outcome in ["deny", "ask", "allow"]
	found := data.policy[name][outcome]
	mode(name) == "enforce"
	not sound(found)
})

sound(found) if {
	is_set(found)
	every entry in found {
		readable("", entry)
	}
}

mode(name) := object.get(data.config.modes, name, data.config.mode)

readable(name, entry) := {"id": concat(".", ["policy", name]), "message": entry} if is_string(entry)

readable(_, entry) := object.union({"id": entry.id, "message": entry.message}, object.get(data.config.places, entry.id, {})) if {
	is_string(entry.id)
	is_string(entry.message)
}
