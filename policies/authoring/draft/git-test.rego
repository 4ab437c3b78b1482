package policy.git_test

import data.policy.git

test_push_to_main_is_denied if {
	count(git.deny) == 1 with input as command(["git", "push", "origin", "main"])
}

test_push_to_another_branch_is_not_denied if {
	count(git.deny) == 0 with input as command(["git", "push", "origin", "feature"])
}

test_forced_push_asks if {
	count(git.ask) == 1 with input as command(["git", "push", "--force", "origin", "feature"])
}

command(words) := {"effect": {"verb": "execute", "command": {"text": concat(" ", words), "opaque": false, "words": [words]}}}
