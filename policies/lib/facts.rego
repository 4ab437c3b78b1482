# METADATA
# title: Conditions on a call
# description: >-
#   All conditions on a call use the same logic. A rule that denies or asks (need "any") matches if any fact matches or
#   cannot be read. A rule that allows (need "every") matches if there is a fact, and every fact can be read and
#   matches. So what a policy cannot see never allows a call.
package tollgate.facts

holds(condition) if {
	condition.need == "any"
	some item in items(condition)
	fits(condition, item)
}

holds(condition) if {
	condition.need == "any"
	some item in items(condition)
	unreadable(condition, item)
}

# Rules that deny or ask also search lists. There may be many values, so each is tested with little work.
holds(condition) if {
	condition.over == "argument"
	condition.need == "any"
	some item in anywhere(condition.path)
	fits_or_unclear(condition, item)
}

fits_or_unclear(condition, item) if meets(condition, item)

fits_or_unclear(condition, item) if unclear(condition, item)

holds(condition) if {
	condition.need == "every"
	all := items(condition)
	count(all) > 0
	every item in all {
		fits(condition, item)
		not unreadable(condition, item)
	}
}

holds(condition) if {
	condition.request
	data.tollgate.requests.holds(condition)
}

holds(condition) if condition.opaque == input.effect.command.opaque

holds(condition) if {
	condition.readable == true
	has_words
}

holds(condition) if {
	condition.readable == false
	input.effect.command
	not has_words
}

holds(condition) if {
	minute := input.clock[condition.zone]
	some span in condition.spans
	span[0] <= minute
	minute < span[1]
}

# Without a clock, a window may be open or closed.
holds(condition) if {
	condition.need == "any"
	condition.zone
	not input.clock[condition.zone]
}

holds(condition) if {
	condition.present == "somewhere"
	count(anywhere(condition.path)) > 0
}

holds(condition) if {
	condition.present == "nowhere"
	count(anywhere(condition.path)) == 0
}

holds(condition) if {
	condition.present == "plainly"
	is_present(condition.path)
}

holds(condition) if {
	condition.present == "not plainly"
	not is_present(condition.path)
}

items(condition) := input.effect.paths if condition.over == "paths"

items(condition) := input.effect.urls if condition.over in {"hosts", "urls"}

items(condition) := input.labels if condition.over == "labels"

items(condition) := input.effect.command.words if {
	condition.over == "commands"
	has_readable_words(condition)
}

items(condition) := [{"hidden": true}] if {
	condition.over == "commands"
	input.effect.command.opaque
	not has_readable_words(condition)
}

# Rules that allow do not search lists.
items(condition) := [object.get(input.effect.arguments, condition.path, null)] if {
	condition.over == "argument"
	condition.need == "every"
	is_present(condition.path)
}

# The part of the input that a condition reads.
part(condition) := parts[condition.over] if {
	true
} else := "command" if {
	is_boolean(condition.opaque)
} else := "command" if {
	is_boolean(condition.readable)
} else := "clock" if {
	condition.zone
} else := "arguments" if {
	condition.present
} else := "uri" if {
	condition.request == "uri"
} else := "asks" if {
	condition.request in {"mode", "fields", "maxTokens"}
} else := "unknown"

parts := {"paths": "paths", "hosts": "urls", "urls": "urls", "commands": "command", "labels": "labels", "argument": "arguments"}

has_words if count(input.effect.command.words) > 0

# An opaque command has words if it only starts other programs. Rules that deny or ask read these words. Rules that
# allow read them if they say `opaque: true`.
has_readable_words(_) if not input.effect.command.opaque

has_readable_words(condition) if {
	has_words
	condition.need == "any"
}

has_readable_words(condition) if {
	has_words
	condition.starts
}

# Two different defaults: the results are equal only if the value is present.
is_present(path) if object.get(input.effect.arguments, path, 0) == object.get(input.effect.arguments, path, 1)

# Most arguments are a string or a number, which need no search.
anywhere(path) := found if {
	found := [value | value := input.effect.arguments[path[0]]]
	flat(found, path)
} else := object.get(places, [path], {})

flat([], _)

flat([value], [_]) if {
	not is_array(value)
	not is_object(value)
}

# Every value of the arguments, by the names that lead to it without list positions. Computed once for all rules. Equal
# values are kept once, by their text, because the engine gives all nested lists the same hash.
places[names][json.marshal(value)] := value if {
	walk(input.effect.arguments, [trail, value])
	names := [step | some step in trail; is_string(step)]
	count(names) > 0
}

# A command without words may be any command. An invalid URL may name any host. A long string may contain anything.
unreadable(condition, item) if {
	condition.over == "commands"
	item.hidden
}

unreadable(condition, item) if {
	condition.over == "paths"
	not item.inside
	unresolved(item.path)
}

unreadable(condition, item) if {
	condition.over == "hosts"
	item.host == ""
}

unreadable(condition, item) if {
	condition.over == "urls"
	object.get(item, "address", "") == ""
}

unreadable(condition, item) if {
	condition.over == "argument"
	unclear(condition, item)
}

unclear(_, item) if item.tollgate_long

# A path that could not be resolved is in its original form, and two programs may read it as two places.
unresolved(path) if not startswith(path, "/")

unresolved(path) if contains(path, "//")

unresolved(path) if {
	some step in ["/./", "/../"]
	contains(path, step)
}

unresolved(path) if {
	some end in ["/.", "/.."]
	endswith(path, end)
}

# The value has another type than the test reads, such as a number as a string, or an object instead of a string.
unclear(condition, item) if {
	condition.reads
	not type_name(item) in {condition.reads, "null", "array"}
}

fits(condition, item) if {
	condition.over == "paths"
	placed(condition, item)
	not spared(condition, item)
}

spared(condition, item) if placed(condition.except, item)

# `globs` has one form for each side of the workspace.
placed(globs, item) if {
	item.inside
	data.tollgate.match.text(globs.inside, item.path)
}

placed(globs, item) if {
	not item.inside
	data.tollgate.match.text(globs.outside, item.path)
}

fits(condition, item) if {
	condition.over == "hosts"
	data.tollgate.match.text(condition.hosts, item.host)
	among(condition, item)
}

fits(condition, item) if {
	condition.over == "urls"
	data.tollgate.match.text(condition.urls, item.address)
}

fits(condition, item) if {
	condition.over == "labels"
	condition.labels[item]
}

fits(condition, item) if {
	condition.over == "commands"
	some rest in condition.first[spelling(condition, item[0])[_]]
	array.slice(item, 1, 1 + count(rest)) == rest
}

# Options before a subcommand hide its position, as in `git -C . push`. So a deny or ask compares any later word.
fits(condition, item) if {
	condition.over == "commands"
	condition.need == "any"
	some rest in condition.first[spelling(condition, item[0])[_]]
	some option in array.slice(item, 1, 1 + count(rest))
	startswith(option, "-")
	every word in rest {
		word in item
	}
}

# A program that starts others may have their name as any word, as in `env git push`. So a deny reads every word.
fits(condition, item) if {
	condition.over == "commands"
	condition.anywhere
	input.effect.command.opaque
	some head in {name | some word in item; some name in program(word)}
	some rest in condition.first[head]
	every word in rest {
		word in item
	}
}

fits(condition, item) if {
	condition.over == "commands"
	condition.except
	not excepted(condition, item)
}

excepted(condition, item) if {
	some rest in condition.except[item[0]]
	array.slice(item, 1, 1 + count(rest)) == rest
}

fits(condition, item) if {
	condition.over == "argument"
	meets(condition, item)
}

among(condition, _) if not condition.schemes

among(condition, item) if condition.schemes[item.scheme]

meets(condition, item) if {
	every test in condition.tests {
		passes(test, item)
	}
}

# For a deny or ask, `/bin/rm` is also `rm`. For an allow, `./git` is not `git`.
spelling(condition, word) := {word} if condition.need == "every"

spelling(condition, word) := {word, parts[count(parts) - 1]} if {
	condition.need == "any"
	parts := split(word, "/")
}

# Relative paths name files of the workspace, not programs of the system.
program(word) := {word} if not startswith(word, "/")

program(word) := {word, parts[count(parts) - 1]} if {
	startswith(word, "/")
	parts := split(word, "/")
}

passes(test, item) if test.equals == item

passes(test, item) if item in test.among

passes(test, item) if startswith(item, test.prefix)

passes(test, item) if data.tollgate.match.text(test.text, item)

passes(test, item) if {
	pattern := test.pattern
	is_near(test, item)
	regex.match(pattern, item)
}

# Every match of the pattern contains one of these texts. To look for them takes a fraction of the time, because the
# engine compiles a regular expression again for each decision.
is_near(test, _) if not test.contain

is_near(test, item) if {
	some part in test.contain
	contains(item, part)
}

# Rego can compare values of different types, so the type is tested first.
passes(test, item) if {
	is_number(item)
	item >= test.min
}

passes(test, item) if {
	is_number(item)
	item <= test.max
}
