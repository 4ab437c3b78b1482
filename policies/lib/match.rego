# METADATA
# title: Patterns
# description: >-
#   Patterns in the form that policies/rules/rule-patterns.ts writes: prefixes, suffixes and exact words where they
#   suffice. A regular expression costs thirty times as much, and WebAssembly has no rule index.
package tollgate.match

text(forms, _) if forms.all

text(forms, value) if forms.equal[value]

text(forms, value) if {
	some prefix in forms.prefix
	startswith(value, prefix)
}

text(forms, value) if {
	some suffix in forms.suffix
	endswith(value, suffix)
}

text(forms, value) if {
	some part in forms.contain
	contains(value, part)
}

text(forms, value) if {
	some pattern in forms.regex
	regex.match(pattern, value)
}

# Whether a call of this tool can match the condition. `target` is {id, kind, server, tool, verbs}, with all verbs that a
# call may have.
meets_target(condition, target) if condition.servers[target.server]

meets_target(condition, target) if {
	condition.exceptTools
	not names_tool(condition.exceptTools, target)
}

meets_target(condition, target) if condition.trust[data.tollgate.servers.trust(target.server)]

meets_target(condition, target) if {
	some verb in target.verbs
	condition.verbs[verb]
}

meets_target(condition, target) if condition.kinds[target.kind]

meets_target(condition, target) if names_tool(condition, target)

names_tool(names, target) if names.exact[target.id]

names_tool(names, target) if {
	some pattern in names.patterns
	text(pattern.server, target.server)
	text(pattern.tool, target.tool)
}

# Whether every call of this tool matches the condition. Only the verb can differ between calls of one tool.
always_meets_target(condition, target) if {
	not condition.verbs
	meets_target(condition, target)
}

always_meets_target(condition, target) if {
	every verb in target.verbs {
		condition.verbs[verb]
	}
}
