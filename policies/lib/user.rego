# METADATA
# title: Rego of the user
# description: >-
#   Folds the sets `deny`, `ask` and `allow` of every package below `policy`. Members are texts or objects with `id` and
#   `message`. Anything else under these names is a fault of the policy, and a fault denies.
package tollgate.user

import data.tollgate.sources

# Obligations of the members that let a call pass; lib/call.rego joins them with those of YAML.
obligations := [owed(pair[1]) |
	some set in sources.found
	set.outcome in {"allow", "ask"}
	mode(set.name) == "enforce"
	some pair in set.members
]

# Functions: what members are is not known when a package is checked.
owed(member) := member.obligations

keys_of(member) := object.keys(member) if is_object(member)

# Members with more than a reason. Their keys and obligations are judged by the schema of rules (policies/rego/set-members.ts), and one
# that does not fit refuses the call: a misspelled key must not make the rule do less than its author wrote.
extended := sort({entry |
	some set in sources.found
	mode(set.name) == "enforce"
	some pair in set.members
	count(keys_of(pair[1]) - {"id", "message", "approval"}) > 0
	entry := {"place": known(pair), "package": set.name, "set": set.outcome, "member": pair[1]}
})

enforced(outcome) := sort(spoken(sources.found, outcome))

shadow := sort({object.union(reason, {"would": set.outcome, "mode": beside}) |
	some set in sources.found
	beside := mode(set.name)
	beside in data.tollgate.modes.beside
	some pair in set.members
	reason := readable(set.name, pair)
})

faults := sort(misshapen(sources.found))

spoken(sets, outcome) := {reason |
	some set in sets
	set.outcome == outcome
	mode(set.name) == "enforce"
	some pair in set.members
	reason := readable(set.name, pair)
}

misshapen(sets) := {object.union(place(pair[0]), {"id": "policy-shape", "message": message}) |
	some set in sets
	mode(set.name) == "enforce"
	some pair in set.members
	not readable(set.name, pair)
	message := concat("", ["`", set.outcome, "` of package policy.", set.name, " is not a set of texts or of {id, message}; `approval` is call, group or server."])
}

# What sets say in a list (lib/list.rego): reasons, a fault among those to deny, and the outcomes that only a call can bring.
told(sets) := {
	"deny": spoken(sets, "deny") | misshapen(sets),
	"ask": spoken(sets, "ask"),
	"allow": spoken(sets, "allow"),
	"open": {outcome |
		some set in sets
		mode(set.name) == "enforce"
		some pair in set.open
		some outcome in pair[1]
	} | {"deny" |
		some set in sets
		mode(set.name) == "enforce"
		some pair in set.members
		count(keys_of(pair[1]) - known_keys(set.outcome)) > 0
	},
}

# A member with another key refuses each call that it is part of.
known_keys("deny") := {"id", "message"}

known_keys(outcome) := {"id", "message", "approval", "obligations"} if outcome != "deny"

# Which packages count for this caller; "" stands for all others. A built-in that fails refuses the call where its package counts.
enforces := object.union({"": counts("")}, {name: counts(name) | some name, _ in data.config.modes})

counts(name) := mode(name) == "enforce"

mode(name) := data.tollgate.modes.of(object.get(data.config.modes, name, data.config.mode))

# How tools are shown (lib/exposure.rego). Members see the caller and nothing else, so that a list and a call agree.
# Their form is judged where a list is read (policies/rego/expose-members.ts), and no call comes before its list.
exposures := {entry | some entry in exposed; is_string(entry.member.tool)}

exposed := sort({object.union(place(pair[0]), {"package": set.name, "member": pair[1]}) |
	some set in exposing
	mode(set.name) == "enforce"
	some pair in set.members
})

exposing := sets if {
	sets := sources.exposed with input as {"version": 1, "phase": "list", "principal": input.principal}
}

# A text has the id of its rule's METADATA, else of its package's, else the package's name.
readable(name, pair) := object.union({"id": concat(".", ["policy", name])}, object.union(place(pair[0]), {"message": pair[1]})) if is_string(pair[1])

readable(_, pair) := object.union_n([known(pair), {"id": pair[1].id, "message": pair[1].message}, reach(pair[1])]) if {
	is_string(pair[1].id)
	is_string(pair[1].message)
}

# How much one approval may cover. Undefined for another word, and so a fault: it must not be taken for a wider one.
reach(member) := {} if not member.approval

reach(member) := {"approval": member.approval} if member.approval in {"call", "group", "server"}

known(pair) := place(pair[0]) if pair[0] != ""

known(pair) := object.get(data.config.places, pair[1].id, {}) if pair[0] == ""

# What is known of the rule with this number: id, file, line, severity, remediation.
place(number) := object.get(data.config, ["regoRules", number], {})
