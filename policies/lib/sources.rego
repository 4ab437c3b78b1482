# METADATA
# title: Where the sets of the user stand
# description: >-
#   Members come as pairs: the number of the rule that gave them, in `data.config.regoRules`, and what it gave. This file is
#   the plain way, without numbers. Where Tollgate builds Rego itself, a file made for its packages stands in this one's place.
package tollgate.sources

# The three names stand here one by one: a variable in their place would make opa plan every rule of the packages, helpers
# too, and a helper that is a function becomes wasm that does not load.
found := array.concat(
	[{"name": name, "outcome": "deny", "members": pairs(members)} | some name; members := data.policy[name].deny],
	array.concat(
		[{"name": name, "outcome": "ask", "members": pairs(members)} | some name; members := data.policy[name].ask],
		[{"name": name, "outcome": "allow", "members": pairs(members)} | some name; members := data.policy[name].allow],
	),
)

exposed := [{"name": name, "members": pairs(members)} | some name; members := data.policy[name].expose]

pairs(members) := {["", member] | some member in members} if is_set(members)

# What is no set becomes a member that nobody can read: a fault.
pairs(members) := {["", null]} if not is_set(members)

# What a list can ask for, and the outcomes that the rest leaves open: of rules that read no more than caller, server and verb,
# and of those that read the name of the tool too. Here nobody has marked what rules read.
marked := false

reads_tool := false

of_kind := []

of_tool := []
