package tollgate.call_test

import data.tollgate.call

config(rules) := {
	"version": 1, "caps": {}, "schemaProfile": "portable", "budgets": [], "servers": {}, "modes": {}, "mode": "enforce", "places": {}, "rego": {},
	"profiles": {"work": {"servers": ["git"], "primitives": {}, "caps": {}, "budgets": [], "expose": {"exact": {}, "patterns": {}}}},
	"rules": {"list": rules, "index": {"tool": {}, "server": {}, "verb": {}, "any": [number | some number, _ in rules]}},
}

rule(id, outcome) := {"outcome": outcome, "mode": "enforce", "reason": {"id": id, "message": id}, "principal": [], "target": [], "call": [], "obligations": {}}

asked := {
	"version": 1, "phase": "call", "run": "r", "labels": [], "time": "",
	"principal": {"id": "mia", "role": "dev", "groups": [], "profiles": ["work"], "origin": ""},
	"effect": {"verb": "read", "server": "git", "tool": "status", "paths": [], "urls": [], "arguments": {}},
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
	not call.decision with input as object.union(asked, {"version": 2}) with data.config as all
	not call.decision with input as object.union(asked, {"phase": "list"}) with data.config as all
	not call.decision with input as asked with data.config as object.union(all, {"version": 2})
}

test_user_sets_are_folded if {
	decision := call.decision with input as asked with data.config as config([rule("a", "allow")]) with data.policy as {"team": {"deny": {"no"}}}
	decision.outcome == "deny"
	decision.reasons == [{"id": "policy.team", "message": "no"}]
}

test_a_set_that_is_none_denies if {
	decision := call.decision with input as asked with data.config as config([rule("a", "allow")]) with data.policy as {"team": {"deny": true}}
	decision.reasons[0].id == "policy-shape"
}
