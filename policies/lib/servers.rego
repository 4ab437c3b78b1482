# METADATA
# title: Servers in the configuration
# description: >-
#   Which servers and tools the principal can reach before any rule counts, and the labels of their results.
package tollgate.servers

import data.tollgate.match
import data.tollgate.principal

refusal(target) := {"id": "profile", "message": "No profile of this principal has the server."} if {
	not target.server in principal.servers
}

refusal(target) := {"id": "server-tools", "message": "The server is configured without this tool."} if {
	target.kind == "tool"
	target.server in principal.servers
	closed(target)
}

closed(target) if match.text(data.config.servers[target.server].deny, target.tool)

closed(target) if {
	open := data.config.servers[target.server].allow
	not match.text(open, target.tool)
}

# A server is external unless it is known to be internal.
trust(name) := object.get(data.config.servers, [name, "trust"], "external")

labels(name) := {label | some label in data.config.servers[name].labels}

# The server's own setting overrides that of a profile.
validation(name) := data.config.servers[name].validateOutput

validation(name) := principal.caps.validateOutput if not data.config.servers[name].validateOutput
