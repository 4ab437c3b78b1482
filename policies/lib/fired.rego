# METADATA
# title: Rules that a call fires
# description: >-
#   On which rules a decision depends, and which of them match another call. So the engine finds the decision on that call
#   without evaluating the rest. Only the shipped module has these entry points: user Rego may read anything.
package tollgate.fired

import data.tollgate.facts
import data.tollgate.rules

# The decision on a call, and what it depends on.
decision := {"decision": data.tollgate.call.decision, "reading": reading}

# The numbers of the rules that read the call, of those that match, and the parts of the input that they read. Calls of
# this tool with this verb by this principal get the same decision if the same rules match. Null if the decision depends
# on more.
default reading := null

reading := {"rules": open, "matched": [number | some number in rules.matched; count(rules.list[number].call) > 0], "parts": parts} if {
	not input.effect.spill
	not data.tollgate.plan.is_restricted
	every show in data.tollgate.exposure.rules(rules.target) {
		count(show.pins) == 0
	}
	open := [number | some number in rules.relevant; count(rules.list[number].call) > 0]
	parts := {facts.part(condition) | some number in open; some condition in rules.list[number].call}
	not "unknown" in parts
}

# Which of the rules match a call. The input has only their numbers, and the parts of the call that they read.
answer := {"matched": rules.matching(input.rules)}
