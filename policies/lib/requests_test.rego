package tollgate.requests_test

import data.tollgate.facts
import data.tollgate.requests

manual(need) := {"request": "uri", "need": need, "text": {"prefix": ["docs://manual/"]}}

resource(address) := {"effect": {"kind": "resource", "uri": "u", "address": address}}

test_a_uri_is_matched_in_canonical_form if {
	facts.holds(manual("every")) with input as resource("docs://manual/a")
	facts.holds(manual("any")) with input as resource("docs://manual/a")
	not facts.holds(manual("every")) with input as resource("docs://other")
	not facts.holds(manual("any")) with input as resource("docs://other")
}

test_a_uri_that_cannot_be_read_denies_and_never_allows if {
	facts.holds(manual("any")) with input as resource("")
	not facts.holds({"request": "uri", "need": "every", "text": {"all": true}}) with input as resource("")
}

test_a_call_of_a_tool_has_no_uri if {
	tool := {"effect": {"kind": "tool"}}
	not facts.holds(manual("any")) with input as tool
	not facts.holds(manual("every")) with input as tool
}

form(asks) := {"effect": {"kind": "elicitation", "asks": asks}}

passwords(need) := {"request": "fields", "need": need, "text": {"contain": ["password"]}}

test_any_field_denies_every_field_allows if {
	both := form({"mode": "form", "fields": ["name", "password2"]})
	requests.holds(passwords("any")) with input as both
	not requests.holds(passwords("every")) with input as both
	requests.holds(passwords("every")) with input as form({"mode": "form", "fields": ["password"]})
	not requests.holds(passwords("every")) with input as form({"mode": "form", "fields": []})
}

test_fields_that_are_not_known_deny_and_never_allow if {
	unknown := form({})
	requests.holds(passwords("any")) with input as unknown
	not requests.holds({"request": "fields", "need": "every", "text": {"all": true}}) with input as unknown
	not requests.holds(passwords("any")) with input as form({"mode": "url"})
	requests.holds(passwords("any")) with input as {"effect": {"kind": "elicitation"}}
}

many(need) := {"request": "maxTokens", "need": need, "tests": [{"min": 1000}]}

test_tokens_are_asked_for_by_sampling_only if {
	requests.holds(many("any")) with input as {"effect": {"kind": "sampling", "asks": {"maxTokens": 1000}}}
	not requests.holds(many("any")) with input as {"effect": {"kind": "sampling", "asks": {"maxTokens": 999}}}
	requests.holds(many("any")) with input as {"effect": {"kind": "sampling", "asks": {}}}
	not requests.holds(many("every")) with input as {"effect": {"kind": "sampling", "asks": {}}}
	not requests.holds(many("any")) with input as form({"mode": "form"})
}
