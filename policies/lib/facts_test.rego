package tollgate.facts_test

import data.tollgate.facts

effect(over) := {"effect": object.union({"paths": [], "urls": [], "arguments": {}}, over), "labels": []}

pem(need) := {"over": "paths", "need": need, "inside": {"suffix": [".pem"]}, "outside": {}}

test_any_path_denies_every_path_allows if {
	both := effect({"paths": [{"path": "a.pem", "inside": true}, {"path": "b.txt", "inside": true}]})
	facts.holds(pem("any")) with input as both
	not facts.holds(pem("every")) with input as both
	none := effect({})
	not facts.holds(pem("any")) with input as none
	not facts.holds(pem("every")) with input as none
}

test_an_opaque_command_denies_and_never_allows if {
	opaque := effect({"command": {"text": "$X", "opaque": true, "words": []}})
	facts.holds({"over": "commands", "need": "any", "first": {"rm": [[]]}}) with input as opaque
	not facts.holds({"over": "commands", "need": "every", "first": {"rm": [[]]}}) with input as opaque
}

test_a_command_that_starts_others_is_read_to_deny_and_allowed_where_the_rule_says_so if {
	make := effect({"command": {"text": "make x", "opaque": true, "words": [["make", "x"]]}})
	facts.holds({"over": "commands", "need": "any", "first": {"make": [[]]}}) with input as make
	not facts.holds({"over": "commands", "need": "any", "first": {"rm": [[]]}}) with input as make
	not facts.holds({"over": "commands", "need": "every", "first": {"make": [[]]}}) with input as make
	facts.holds({"over": "commands", "need": "every", "starts": true, "first": {"make": [[]]}}) with input as make
}

test_a_long_value_denies_and_never_allows if {
	long := effect({"arguments": {"body": {"tollgate_long": true, "bytes": 100000}}})
	facts.holds({"over": "argument", "need": "any", "path": ["body"], "tests": [{"equals": "x"}]}) with input as long
	not facts.holds({"over": "argument", "need": "every", "path": ["body"], "tests": [{"equals": "x"}]}) with input as long
}

test_lists_are_searched_to_deny_only if {
	listed := effect({"arguments": {"to": [{"mail": "a@b"}]}})
	facts.holds({"over": "argument", "need": "any", "path": ["to", "mail"], "tests": [{"equals": "a@b"}]}) with input as listed
	not facts.holds({"over": "argument", "need": "every", "path": ["to", "mail"], "tests": [{"equals": "a@b"}]}) with input as listed
}

test_an_unknown_condition_never_holds if {
	not facts.holds({"over": "moon", "need": "any"}) with input as effect({})
	not facts.holds({}) with input as effect({})
}
