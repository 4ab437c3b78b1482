# METADATA
# title: Rules for git
# description: >-
#   Rules that YAML cannot express: they compare the words of a command with data. The sets `deny`, `ask` and `allow`
#   have the same precedence as in YAML.
package policy.git

protected := {"main", "release"}

# METADATA
# title: Only people push to protected branches
# custom:
#   id: protected-branch
#   severity: high
#   remediation: Push to a branch of your own and open a pull request.
deny contains "Only people push to main and release." if {
	input.effect.verb == "execute"
	some words in input.effect.command.words
	is_push(words)
	some word in words
	word in protected
}

# METADATA
# title: A person approves rewritten history
# custom:
#   id: forced-push
#   severity: medium
ask contains "A forced push rewrites commits that others have." if {
	input.effect.verb == "execute"
	some words in input.effect.command.words
	is_push(words)
	some word in words
	word in {"-f", "--force", "--force-with-lease"}
}

is_push(words) if array.slice(words, 0, 2) == ["git", "push"]
