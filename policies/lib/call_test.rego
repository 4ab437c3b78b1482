package tollgate.call_test

import data.tollgate.call

config(rules) := {
	"version": 1, "caps": {}, "schemaProfile": "portable", "budgets": [], "servers": {}, "modes": {}, "mode": "enforce", "places": {}, "rego": {},
	"profiles": {"work": {"servers": ["git"], "primitives": {}, "caps": {}, "budgets": [], "expose": {"exact": {}, "patterns": {}}}},
	"rules": {"list": rules, "index": {"tools": index_of(rules), "others": index_of(rules)}}, "kindRules": {},
}

index_of(rules) := {"tool": {}, "server": {}, "verb": {}, "any": [number | some number, _ in rules]}

rule(id, outcome) := {"outcome": outcome, "mode": "enforce", "reason": {"id": id, "message": id}, "principal": [], "target": [], "call": [], "obligations": {}}

asked := {
	"version": 2, "phase": "call", "run": "r", "labels": [], "time": "",
	"principal": {"id": "mia", "role": "dev", "groups": [], "profiles": ["work"], "origin": ""},
	"effect": {"kind": "tool", "verb": "read", "server": "git", "tool": "status", "paths": [], "urls": [], "arguments": {}},
}

outcome(rules) := said if {
	said := call.decision.outcome with input as asked with data.config as config(rules)
}

test_precedence if {
	outcome([]) == "deny"
	outcome([rule("a", "allow")]) == "allow"
	outcome([rule("a", "allow"), rule("b", "ask")]) == "ask"
	outcome([rule("a", "allow"), rule("b", "ask"), rule("c", "deny")]) == "deny"
}

test_nothing_matched_says_so if {
	decision := call.decision with input as asked with data.config as config([])
	decision.reasons == [{"id": "default-deny", "message": "No rule allows this call."}]
}

test_no_decision_without_a_whole_input if {
	all := config([rule("a", "allow")])
	not call.decision with input as {} with data.config as all
	not call.decision with input as object.union(asked, {"version": 1}) with data.config as all
	not call.decision with input as object.union(asked, {"phase": "list"}) with data.config as all
	not call.decision with input as asked with data.config as object.union(all, {"version": 2})
}

test_user_sets_are_folded if {
	decision := call.decision with input as asked with data.config as config([rule("a", "allow")]) with data.policy as {"team": {"deny": {"no"}}}
	decision.outcome == "deny"
	decision.reasons == [{"id": "policy.team", "message": "no"}]
}

test_user_rego_opens_other_kinds_only_by_rules_that_read_the_kind if {
	resource := object.union(asked, {"effect": {"kind": "resource", "tool": "resources/read"}})
	sets := [
		{"name": "team", "outcome": "allow", "members": {["0", "for tools"], ["1", "for resources"]}},
		{"name": "team", "outcome": "deny", "members": set()},
	]
	plain := config([])
	opened := object.union(plain, {"kindRules": {"1": true}})
	every kind_and_count in [[asked, plain, 2], [resource, plain, 0], [resource, opened, 1]] {
		count(call.allowances) == kind_and_count[2] with input as kind_and_count[0] with data.config as kind_and_count[1] with data.tollgate.sources.found as sets
	}
}

test_a_set_that_is_none_denies if {
	decision := call.decision with input as asked with data.config as config([rule("a", "allow")]) with data.policy as {"team": {"deny": true}}
	decision.reasons[0].id == "policy-shape"
}
