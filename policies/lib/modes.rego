# METADATA
# title: Modes
# description: >-
#   How a rule or a package counts for this caller: enforce, warn, shadow or off. A mode is one word for all callers, or
#   a list of modes for some callers (the first that fits counts) and one for all others.
package tollgate.modes

of(mode) := mode if is_string(mode)

of(mode) := fitting(mode)[0] if not is_string(mode)

fitting(mode) := array.concat([entry.mode | some entry in mode.first; fits(entry)], [mode.otherwise])

fits(entry) if {
	every condition in entry.principal {
		data.tollgate.principal.holds(condition)
	}
}

# Modes of rules that are evaluated and reported, but not enforced.
reported := {"warn", "shadow"}
