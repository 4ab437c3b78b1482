package tollgate.match_test

import data.tollgate.match

test_forms if {
	match.text({"equal": {"a": true}}, "a")
	not match.text({"equal": {"a": true}}, "b")
	match.text({"prefix": ["src/"]}, "src/a")
	match.text({"suffix": [".pem"]}, "x/y.pem")
	match.text({"contain": ["/.git/"]}, "a/.git/b")
	match.text({"regex": ["^a[^/]*$"]}, "abc")
	not match.text({"regex": ["^a[^/]*$"]}, "a/b")
	match.text({"all": true}, "anything")
	not match.text({}, "anything")
}

target := {"id": "git.push", "kind": "tool", "server": "git", "tool": "push", "verbs": ["write", "read"]}

test_aims if {
	match.meets_target({"servers": {"git": true}}, target)
	match.meets_target({"verbs": {"read": true}}, target)
	match.meets_target({"kinds": {"tool": true}}, target)
	not match.meets_target({"kinds": {"resource": true}}, target)
	match.meets_target({"exact": {"git.push": true}, "patterns": []}, target)
	match.meets_target({"exact": {}, "patterns": [{"server": {"all": true}, "tool": {"prefix": ["pu"]}}]}, target)
	not match.meets_target({"servers": {"mail": true}}, target)
	not match.meets_target({"unknown": true}, target)
}

test_only_verbs_differ_between_calls if {
	match.always_meets_target({"servers": {"git": true}}, target)
	not match.always_meets_target({"verbs": {"read": true}}, target)
	match.always_meets_target({"verbs": {"read": true, "write": true}}, target)
}
