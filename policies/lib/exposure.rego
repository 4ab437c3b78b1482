# METADATA
# title: Exposures
# description: >-
#   Under which names a tool is shown, and which arguments are pinned. A rule that names the tool hides rules with `*`, so that
#   `git.*` never shows again what `git.push` shows with pinned arguments.
package tollgate.exposure

import data.tollgate.match
import data.tollgate.principal

rules(target) := exact(target) if count(exact(target)) > 0

rules(target) := sort({show |
	some profile in principal.profiles
	some rule in profile.expose.patterns[target.server]
	match.text(rule.tool, target.tool)
	show := rule.show
}) if {
	count(exact(target)) == 0
}

exact(target) := sort({show |
	some profile in principal.profiles
	some show in profile.expose.exact[target.id]
})

# Pins of the exposures whose pins the arguments carry; reading on in a spill carries the arguments of `read`.
carried := [show.pins |
	some show in rules(data.tollgate.rules.target)
	every name, value in show.pins {
		input.effect.arguments[name] == value
	}
]

default pins := {}

pins := carried[0] if not input.effect.spill

unpinned if {
	not input.effect.spill
	count(rules(data.tollgate.rules.target)) > 0
	count(carried) == 0
}
