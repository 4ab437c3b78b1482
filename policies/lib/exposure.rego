# METADATA
# title: Exposures
# description: >-
#   The names under which a tool is shown, and its pinned arguments. An entry that names the tool hides entries with
#   `*`, so that `git.*` does not show again what `git.push` shows with pinned arguments. User Rego can change how a
#   tool of tollgate.yaml is shown. It reads only the caller, so a list and a call get the same answer. Only tools have
#   exposures.
package tollgate.exposure

import data.tollgate.match
import data.tollgate.principal
import data.tollgate.user

rules(target) := [] if {
	target.kind != "tool"
} else := admitted(target, wanted_exact[target.id]) if {
	count(wanted_exact[target.id]) > 0
} else := exact(target) if {
	count(exact(target)) > 0
} else := admitted(target, wanted_pattern(target)) if {
	count(wanted_pattern(target)) > 0
} else := patterns(target)

patterns(target) := sort({show |
	some profile in principal.profiles
	some rule in profile.expose.patterns[target.server]
	match.text(rule.tool, target.tool)
	show := rule.show
})

exact(target) := sort({show |
	some profile in principal.profiles
	some show in profile.expose.exact[target.id]
})

# Exposures of tollgate.yaml.
configured(target) := exact(target) if {
	count(exact(target)) > 0
} else := patterns(target)

# Exposures in user Rego, by the tool that they name.
wanted_exact[tool] contains show if {
	some entry in user.exposures
	tool := entry.member.tool
	not contains(tool, "*")
	show := object.union({"pins": {}}, object.remove(entry.member, ["tool"]))
}

wanted_pattern(target) := {show |
	some entry in user.exposures
	contains(entry.member.tool, "*")
	covers(entry.member.tool, target.id)
	show := object.union({"pins": {}}, object.remove(entry.member, ["tool"]))
}

# Other characters could have a meaning in a regular expression. policies/rego/expose-members.ts refuses them too.
covers(pattern, id) if {
	regex.match(`^[a-z0-9-]+\.[A-Za-z0-9_*-]+$`, pattern)
	regex.match(concat("", ["^", replace(replace(pattern, ".", "[.]"), "*", ".*"), "$"]), id)
}

# User Rego never shows more than tollgate.yaml: the pins of its entry stay. A member shows nothing if no entry or
# several fit it, or if two members give one tool the same name.
admitted(target, shows) := sort({object.union(show, {"pins": pins}) |
	some show in shows
	not is_reserved(show)
	not doubled(show, shows)
	found := joined(show, target)
	count(found) == 1
	some pins in found
})

joined(show, target) := {object.union(show.pins, one.pins) |
	some one in configured(target)
	not contradicts(show.pins, one.pins)
}

contradicts(pins, others) if {
	some name, value in pins
	others[name] != value
}

doubled(show, shows) if {
	some other in shows
	other != show
	object.get(other, "name", "") == object.get(show, "name", "")
}

# Compares names as catalogs/tools/exposed-names.ts does. A second tool with such a name would hide the primitive.
is_reserved(show) if replace(lower(show.name), "-", "_") in {"read", "write", "edit", "bash", "read_spill"}

# Members that show nothing, and why. A list tells the owner.
unshown := sort({object.union(entry, {"why": why}) |
	some entry in user.exposures
	not contains(entry.member.tool, "*")
	parts := split(entry.member.tool, ".")
	target := {"id": entry.member.tool, "server": parts[0], "tool": concat(".", array.slice(parts, 1, count(parts)))}
	show := object.union({"pins": {}}, object.remove(entry.member, ["tool"]))
	why := fault(show, target)
})

fault(show, target) := "reserved" if {
	is_reserved(show)
} else := "doubled" if {
	doubled(show, wanted_exact[target.id])
} else := "beyond" if {
	count(configured(target)) == 0
} else := "contradicts" if {
	count(joined(show, target)) == 0
} else := "several" if {
	count(joined(show, target)) > 1
}

# Pins of the exposures that the arguments match. A call that reads more of a spill carries the arguments of `read`.
carried := [show.pins |
	some show in rules(data.tollgate.rules.target)
	every name, value in show.pins {
		input.effect.arguments[name] == value
	}
]

default pins := {}

pins := carried[0] if not input.effect.spill

# Also true if Rego names a tool that tollgate.yaml shows, and no member is admitted.
unpinned if {
	input.effect.kind == "tool"
	not input.effect.spill
	count(carried) == 0
	count(configured(data.tollgate.rules.target)) > 0
}
