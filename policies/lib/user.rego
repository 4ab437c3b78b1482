# METADATA
# title: Rego of the user
# description: >-
#   Combines the sets `deny`, `ask` and `allow` of every package below `policy`. Members are strings, or objects with
#   `id` and `message`. Anything else is a fault of the policy, and a fault denies.
package tollgate.user

import data.tollgate.sources

# The sets as they count for this call.
found := sources.found if input.effect.kind == "tool"

found := opening(sources.found, input.effect.kind) if input.effect.kind != "tool"

# A member of `allow` counts for other kinds than tools only if its rule reads `input.effect.kind`. So a rule that was
# written for tools opens nothing else.
opening(sets, "tool") := sets

opening(sets, kind) := [object.union(set, {"members": {pair | some pair in set.members; opens(set.outcome, pair)}}) | some set in sets] if kind != "tool"

opens(outcome, _) if outcome != "allow"

opens("allow", pair) if data.config.kindRules[pair[0]]

# Obligations of the members that allow the call or ask. lib/call.rego joins them with those of YAML.
obligations := [obligations_of(pair[1]) |
	some set in found
	set.outcome in {"allow", "ask"}
	mode(set.name) == "enforce"
	some pair in set.members
]

# These are functions because the types of members are unknown when a package is checked.
obligations_of(member) := member.obligations

keys_of(member) := object.keys(member) if is_object(member)

# Members with more than a reason. policies/rego/set-members.ts checks them against the schema of rules. An invalid one
# refuses the call, because a misspelled key must not make the rule do less than its author wrote.
extended := sort({entry |
	some set in sources.found
	mode(set.name) == "enforce"
	some pair in set.members
	count(keys_of(pair[1]) - {"id", "message", "approval"}) > 0
	entry := {"place": known(pair), "package": set.name, "set": set.outcome, "member": pair[1]}
})

enforced(outcome) := sort(reasons_of(found, outcome))

shadow := sort({object.union(reason, {"would": set.outcome, "mode": set_mode}) |
	some set in found
	set_mode := mode(set.name)
	set_mode in data.tollgate.modes.reported
	some pair in set.members
	reason := readable(set.name, pair)
})

faults := sort(faults_of(sources.found))

reasons_of(sets, outcome) := {reason |
	some set in sets
	set.outcome == outcome
	mode(set.name) == "enforce"
	some pair in set.members
	reason := readable(set.name, pair)
}

faults_of(sets) := {object.union(place(pair[0]), {"id": "policy-shape", "message": message}) |
	some set in sets
	mode(set.name) == "enforce"
	some pair in set.members
	not readable(set.name, pair)
	message := concat("", ["`", set.outcome, "` of package policy.", set.name, " is not a set of strings or of {id, message}; `approval` is call, group or server."])
}

# The results for a list (lib/list.rego): reasons, faults as reasons to deny, and the outcomes that only a call can
# cause.
list_results(sets, kind) := {
	"deny": reasons_of(sets, "deny") | faults_of(sets),
	"ask": reasons_of(sets, "ask"),
	"allow": reasons_of(opening(sets, kind), "allow"),
	"open": {outcome |
		some set in sets
		mode(set.name) == "enforce"
		some pair in set.open
		some outcome in pair[1]
		may_open(outcome, pair, kind)
	} | {"deny" |
		some set in sets
		mode(set.name) == "enforce"
		some pair in set.members
		count(keys_of(pair[1]) - known_keys(set.outcome)) > 0
	},
}

may_open(_, _, "tool")

may_open(outcome, pair, kind) if {
	kind != "tool"
	opens(outcome, pair)
}

# A member with another key refuses each call that it matches.
known_keys("deny") := {"id", "message"}

known_keys(outcome) := {"id", "message", "approval", "obligations"} if outcome != "deny"

# Which packages are enforced for this caller; "" stands for all others. A failing built-in refuses the call if its
# package is enforced.
enforces := object.union({"": counts("")}, {name: counts(name) | some name, _ in data.config.modes})

counts(name) := mode(name) == "enforce"

mode(name) := data.tollgate.modes.of(object.get(data.config.modes, name, data.config.mode))

# How tools are shown (lib/exposure.rego). Members read only the caller, so that a list and a call agree.
# policies/rego/expose-members.ts checks them when a list is read, and every call comes after its list.
exposures := {entry | some entry in exposed; is_string(entry.member.tool)}

exposed := sort({object.union(place(pair[0]), {"package": set.name, "member": pair[1]}) |
	some set in exposing
	mode(set.name) == "enforce"
	some pair in set.members
})

exposing := sets if {
	sets := sources.exposed with input as {"version": 2, "phase": "list", "principal": input.principal}
}

# A string gets the id of its rule's METADATA, otherwise that of its package, otherwise the name of the package.
readable(name, pair) := object.union({"id": concat(".", ["policy", name])}, object.union(place(pair[0]), {"message": pair[1]})) if is_string(pair[1])

readable(_, pair) := object.union_n([known(pair), {"id": pair[1].id, "message": pair[1].message}, approval_of(pair[1])]) if {
	is_string(pair[1].id)
	is_string(pair[1].message)
}

# How much one approval may cover. Undefined for an unknown word, which is then a fault, so that it never counts as a
# wider scope.
approval_of(member) := {} if not member.approval

approval_of(member) := {"approval": member.approval} if member.approval in {"call", "group", "server"}

known(pair) := place(pair[0]) if pair[0] != ""

known(pair) := object.get(data.config.places, pair[1].id, {}) if pair[0] == ""

# The facts about the rule with this number: id, file, line, severity, remediation.
place(number) := object.get(data.config, ["regoRules", number], {})
