# METADATA
# title: Patterns
# description: >-
#   Patterns as the YAML compiler writes them (policies/rules/rule-patterns.ts): prefixes, suffixes and exact words wherever they
#   suffice, because a regular expression costs thirty times as much; wasm has no rule index to hide that cost.
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

# Could a call of this tool meet the condition? `target` is {id, server, tool, verbs}: all verbs that a call may have.
aims(condition, target) if condition.servers[target.server]

aims(condition, target) if condition.trust[data.tollgate.servers.trust(target.server)]

aims(condition, target) if {
	some verb in target.verbs
	condition.verbs[verb]
}

aims(condition, target) if condition.exact[target.id]

aims(condition, target) if {
	some pattern in condition.patterns
	text(pattern.server, target.server)
	text(pattern.tool, target.tool)
}

# Does every call of this tool meet the condition? Only verbs can differ between calls of one tool.
always_aims(condition, target) if {
	not condition.verbs
	aims(condition, target)
}

always_aims(condition, target) if {
	every verb in target.verbs {
		condition.verbs[verb]
	}
}
