# METADATA
# title: The sets of the user
# description: >-
#   Members are pairs: the number of their rule in `data.config.regoRules`, and the member itself. This file is the
#   simple version, without numbers. A build of Tollgate replaces it by one that is made for the user's packages.
package tollgate.sources

# The three names are written one by one. With a variable, opa would compile every rule of the packages, and a helper
# function would become WebAssembly that does not load.
found := array.concat(
	[{"name": name, "outcome": "deny", "members": pairs(members)} | some name; members := data.policy[name].deny],
	array.concat(
		[{"name": name, "outcome": "ask", "members": pairs(members)} | some name; members := data.policy[name].ask],
		[{"name": name, "outcome": "allow", "members": pairs(members)} | some name; members := data.policy[name].allow],
	),
)

exposed := [{"name": name, "members": pairs(members)} | some name; members := data.policy[name].expose]

pairs(members) := {["", member] | some member in members} if is_set(members)

# A value that is not a set becomes an invalid member, which is a fault.
pairs(members) := {["", null]} if not is_set(members)

# The sets for lists, and the outcomes that other rules may cause. `of_group` is about rules that read only caller,
# server, verb and kind; `of_tool` is about rules that also read the tool. In this
# version, nothing is known about what rules read.
marked := false

reads_tool := false

of_group := []

of_tool := []
