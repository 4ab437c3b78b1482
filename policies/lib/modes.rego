# METADATA
# title: Modes
# description: >-
#   How much a rule or a package counts for this caller: enforce, warn, shadow or off. A mode stands for everybody, or is a
#   list of modes for some callers, of which the first that fits counts, and one for all others.
package tollgate.modes

of(mode) := mode if is_string(mode)

of(mode) := fitting(mode)[0] if not is_string(mode)

fitting(mode) := array.concat([entry.mode | some entry in mode.first; fits(entry)], [mode.otherwise])

fits(entry) if {
	every condition in entry.principal {
		data.tollgate.principal.holds(condition)
	}
}

# What is evaluated beside the enforced rules.
beside := {"warn", "shadow"}
