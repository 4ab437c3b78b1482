# METADATA
# title: Check of patterns
# description: >-
#   Returns the regular expressions that the engine cannot compile. In a decision, such a pattern would silently match
#   nothing.
package tollgate.patterns

# METADATA
# entrypoint: true
check := {"broken": [pattern |
	some pattern in input.patterns
	not regex.is_valid(pattern)
]}
