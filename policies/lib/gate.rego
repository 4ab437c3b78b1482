# METADATA
# title: The second gate
# description: >-
#   High-risk tools of a server that a profile shows as a group of tools (CY-07). Only a rule that names the tool,
#   without a pattern, can allow them. A server behind a primitive shows no such tool; there, the sandbox of the server
#   limits it.
package tollgate.gate

import data.tollgate.principal
import data.tollgate.rules

high(target) if {
	target.kind == "tool"
	data.config.servers[target.server].gated[target.tool]
	not wrapped(target.server)
}

wrapped(server) if {
	some names in principal.primitives
	server in names
}

names(rule, id) if {
	rule.outcome != "deny"
	some condition in rule.target
	condition.exact[id]
}

# Whether the rule can allow a call of the tool.
passes(_, target) if not high(target)

passes(rule, target) if names(rule, target.id)

reason := {"id": "second-gate", "message": "The tool is of high risk: only a rule that names it can allow it or ask."}

refusal := reason if {
	high(rules.target)
	not input.effect.spill
	not opened
}

opened if {
	some rule in rules.fired
	names(rule, rules.target.id)
	data.tollgate.modes.of(rule.mode) == "enforce"
}
