# METADATA
# title: Conditions on other requests than calls of tools
# description: >-
#   The URI of a resource, and what a server asks of the client. An empty text stands for what cannot be read: it matches
#   rules that deny or ask, and no rule that allows.
package tollgate.requests

holds(condition) if {
	condition.need == "any"
	some value in values[condition.request]
	fits(condition, value)
}

holds(condition) if {
	condition.need == "any"
	some value in values[condition.request]
	value == ""
}

holds(condition) if {
	condition.need == "every"
	all := values[condition.request]
	count(all) > 0
	every value in all {
		value != ""
		fits(condition, value)
	}
}

# An elicitation in URL mode has no fields.
values["uri"] := [input.effect.address] if input.effect.uri

values["mode"] := [asked("mode", "")] if input.effect.kind == "elicitation"

values["fields"] := asked("fields", [""]) if {
	input.effect.kind == "elicitation"
	asked("mode", "") != "url"
}

values["maxTokens"] := [asked("maxTokens", "")] if input.effect.kind == "sampling"

asked(name, otherwise) := object.get(input.effect, ["asks", name], otherwise)

fits(condition, value) if data.tollgate.match.text(condition.text, value)

fits(condition, value) if {
	is_number(value)
	every test in condition.tests {
		data.tollgate.facts.passes(test, value)
	}
}
