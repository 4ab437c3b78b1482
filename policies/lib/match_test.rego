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

target := {"id": "git.push", "server": "git", "tool": "push", "verbs": ["write", "read"]}

test_aims if {
	match.aims({"servers": {"git": true}}, target)
	match.aims({"verbs": {"read": true}}, target)
	match.aims({"exact": {"git.push": true}, "patterns": []}, target)
	match.aims({"exact": {}, "patterns": [{"server": {"all": true}, "tool": {"prefix": ["pu"]}}]}, target)
	not match.aims({"servers": {"mail": true}}, target)
	not match.aims({"unknown": true}, target)
}

test_only_verbs_differ_between_calls if {
	match.always_aims({"servers": {"git": true}}, target)
	not match.always_aims({"verbs": {"read": true}}, target)
	match.always_aims({"verbs": {"read": true, "write": true}}, target)
}
