# METADATA
# title: Check of patterns
# description: >-
#   Tells which regular expressions the engine cannot compile; at a decision such a pattern would be silently no match.
package tollgate.patterns

# METADATA
# entrypoint: true
check := {"broken": [pattern |
	some pattern in input.patterns
	not regex.is_valid(pattern)
]}
