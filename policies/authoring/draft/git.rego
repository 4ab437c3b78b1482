# METADATA
# title: Rules for git
# description: >-
#   What rules in YAML cannot say: words of a command together with data. Sets `deny`, `ask` and `allow` count, with the same
#   precedence as in YAML.
package policy.git

protected := {"main", "release"}

# METADATA
# title: Protected branches are pushed by people
# custom:
#   id: protected-branch
#   severity: high
#   remediation: Push to a branch of your own and open a pull request.
deny contains "Pushes to main and release are made by people." if {
	input.effect.verb == "execute"
	some words in input.effect.command.words
	is_push(words)
	some word in words
	word in protected
}

# METADATA
# title: A person looks before history is rewritten
# custom:
#   id: forced-push
#   severity: medium
ask contains "A forced push rewrites what others have." if {
	input.effect.verb == "execute"
	some words in input.effect.command.words
	is_push(words)
	some word in words
	word in {"-f", "--force", "--force-with-lease"}
}

is_push(words) if array.slice(words, 0, 2) == ["git", "push"]
