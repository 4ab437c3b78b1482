# METADATA
# title: What a call touches
# description: >-
#   The conditions that read a call. One logic for all of them: a rule that denies or asks (need "any") fires when any
#   fact matches or cannot be read; a rule that allows (need "every") fires when there is a fact, every one can be read
#   and every one matches. So what a policy cannot see never opens anything.
package tollgate.facts

holds(condition) if {
	condition.need == "any"
	some item in items(condition)
	suits(condition, item)
}

holds(condition) if {
	condition.need == "any"
	some item in items(condition)
	unreadable(condition, item)
}

# Rules that deny or ask look into lists too. There may be many values, so nothing that reads other facts is asked of each.
holds(condition) if {
	condition.over == "argument"
	condition.need == "any"
	some item in anywhere(condition.path)
	caught(condition, item)
}

caught(condition, item) if meets(condition, item)

caught(condition, item) if misread(condition, item)

holds(condition) if {
	condition.need == "every"
	all := items(condition)
	count(all) > 0
	every item in all {
		suits(condition, item)
		not unreadable(condition, item)
	}
}

holds(condition) if condition.opaque == input.effect.command.opaque

holds(condition) if {
	condition.readable == true
	worded
}

holds(condition) if {
	condition.readable == false
	input.effect.command
	not worded
}

holds(condition) if {
	minute := input.clock[condition.zone]
	some span in condition.spans
	span[0] <= minute
	minute < span[1]
}

# Without a clock no window is known to be closed, nor to be open.
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
	stands(condition.path)
}

holds(condition) if {
	condition.present == "not plainly"
	not stands(condition.path)
}

items(condition) := input.effect.paths if condition.over == "paths"

items(condition) := input.effect.urls if condition.over in {"hosts", "urls"}

items(condition) := input.labels if condition.over == "labels"

items(condition) := input.effect.command.words if {
	condition.over == "commands"
	legible(condition)
}

items(condition) := [{"hidden": true}] if {
	condition.over == "commands"
	input.effect.command.opaque
	not legible(condition)
}

# Rules that allow go through objects only.
items(condition) := [object.get(input.effect.arguments, condition.path, null)] if {
	condition.over == "argument"
	condition.need == "every"
	stands(condition.path)
}

worded if count(input.effect.command.words) > 0

# An opaque command has words where it only starts other programs. Rules that deny or ask read them. Rules that allow do
# where they say `opaque: true`.
legible(_) if not input.effect.command.opaque

legible(condition) if {
	worded
	condition.need == "any"
}

legible(condition) if {
	worded
	condition.starts
}

# Two defaults that differ: only a value that is there gives the same answer to both.
stands(path) if object.get(input.effect.arguments, path, 0) == object.get(input.effect.arguments, path, 1)

# Most arguments are a text or a number: these are not walked through.
anywhere(path) := found if {
	found := [value | value := input.effect.arguments[path[0]]]
	flat(found, path)
} else := object.get(places, [path], {})

flat([], _)

flat([value], [_]) if {
	not is_array(value)
	not is_object(value)
}

# Every value of the arguments by the names that lead to it, places in lists left out: walked through once for all rules. Equal
# values are kept once, by their text: the engine's hash of nested lists is the same for all.
places[names][json.marshal(value)] := value if {
	walk(input.effect.arguments, [trail, value])
	names := [step | some step in trail; is_string(step)]
	count(names) > 0
}

# A command without words may be any command, a URL that does not parse may name any host, a long text may hold anything.
unreadable(condition, item) if {
	condition.over == "commands"
	item.hidden
}

unreadable(condition, item) if {
	condition.over == "paths"
	not item.inside
	strange(item.path)
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
	misread(condition, item)
}

misread(_, item) if item.tollgate_long

# A path that could not be resolved stands as it was written, and two readers may take it for two places.
strange(path) if not startswith(path, "/")

strange(path) if contains(path, "//")

strange(path) if {
	some step in ["/./", "/../"]
	contains(path, step)
}

strange(path) if {
	some end in ["/.", "/.."]
	endswith(path, end)
}

# The type that the test reads is not the type that came: a number written as text, an object in place of a text.
misread(condition, item) if {
	condition.reads
	not type_name(item) in {condition.reads, "null", "array"}
}

suits(condition, item) if {
	condition.over == "paths"
	item.inside
	data.tollgate.match.text(condition.inside, item.path)
}

suits(condition, item) if {
	condition.over == "paths"
	not item.inside
	data.tollgate.match.text(condition.outside, item.path)
}

suits(condition, item) if {
	condition.over == "hosts"
	data.tollgate.match.text(condition.hosts, item.host)
	among(condition, item)
}

suits(condition, item) if {
	condition.over == "urls"
	data.tollgate.match.text(condition.urls, item.address)
}

suits(condition, item) if {
	condition.over == "labels"
	condition.labels[item]
}

suits(condition, item) if {
	condition.over == "commands"
	some rest in condition.first[spelling(condition, item[0])[_]]
	array.slice(item, 1, 1 + count(rest)) == rest
}

# Options before a subcommand hide where it stands, `git -C . push`: any later word may be the one that a refusal is about.
suits(condition, item) if {
	condition.over == "commands"
	condition.need == "any"
	some rest in condition.first[spelling(condition, item[0])[_]]
	some option in array.slice(item, 1, 1 + count(rest))
	startswith(option, "-")
	every word in rest {
		word in item
	}
}

# A program that starts others may take the name of one as any of its words, `env git push`: a rule that denies looks there too.
suits(condition, item) if {
	condition.over == "commands"
	condition.anywhere
	input.effect.command.opaque
	some head in {spelt | some word in item; some spelt in program(word)}
	some rest in condition.first[head]
	every word in rest {
		word in item
	}
}

suits(condition, item) if {
	condition.over == "commands"
	condition.except
	not excepted(condition, item)
}

excepted(condition, item) if {
	some rest in condition.except[item[0]]
	array.slice(item, 1, 1 + count(rest)) == rest
}

suits(condition, item) if {
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

# `/bin/rm` is `rm` to a rule that denies; to a rule that allows, `./git` is not `git`.
spelling(condition, word) := {word} if condition.need == "every"

spelling(condition, word) := {word, parts[count(parts) - 1]} if {
	condition.need == "any"
	parts := split(word, "/")
}

# Files of the workspace are named by relative paths; they are no programs of the system.
program(word) := {word} if not startswith(word, "/")

program(word) := {word, parts[count(parts) - 1]} if {
	startswith(word, "/")
	parts := split(word, "/")
}

passes(test, item) if test.equals == item

passes(test, item) if item in test.among

passes(test, item) if startswith(item, test.prefix)

passes(test, item) if regex.match(test.pattern, item)

# Rego orders values of different types, so the type comes first.
passes(test, item) if {
	is_number(item)
	item >= test.min
}

passes(test, item) if {
	is_number(item)
	item <= test.max
}
