/** Owns values of arguments after which a rule's tests may pass or fail; guesses like those of atoms.ts. */
import type { ArgumentTests } from '../arguments.ts';
import type { CallInput } from '../port.ts';
import type { Atom } from './atoms.ts';
import { withArgument } from './edits.ts';
import { factsOf } from './groups.ts';

const OTHER = 'example';

/** Changes of one argument, by its dotted name. A pattern is passed by none: nobody writes texts from expressions here. */
export function argumentAtoms(
  name: string,
  tests: ArgumentTests,
  { input, hold }: { readonly input: CallInput; readonly hold: boolean },
): readonly Atom[] {
  const fact = `arguments.${name}`;
  const from = factsOf(`args.${name}`, input)[0]?.value;
  const at = (to: unknown, text: string): Atom => ({
    fact,
    from,
    to: to ?? '(absent)',
    text: `${fact} ${text}`,
    apply: withArgument(name.split('.'), to),
  });
  return hold ? passing(tests, at) : failing(tests, at);
}

type At = (to: unknown, text: string) => Atom;

function passing({ equals, in: any, prefix, min, max, present, ...rest }: ArgumentTests, at: At): readonly Atom[] {
  const one = at(
    min ?? max,
    `were ${[...(min === undefined ? [] : [`at least ${min}`]), ...(max === undefined ? [] : [`at most ${max}`])].join(' and ')}`,
  );
  return [
    ...(equals === undefined && !('equals' in rest) ? [] : [at(equals, `were ${JSON.stringify(equals)}`)]),
    ...(any ?? []).map((value) => at(value, `were ${JSON.stringify(value)}`)),
    ...(prefix === undefined ? [] : [at(`${prefix}${OTHER}`, `began with ${JSON.stringify(prefix)}`)]),
    ...(min === undefined && max === undefined ? [] : [one]),
    ...presence(present, at),
  ];
}

function failing({ equals, in: any, prefix, pattern, min, max, present }: ArgumentTests, at: At): readonly Atom[] {
  const named = [...(equals === undefined ? [] : [equals]), ...(any ?? [])];
  const numeric = named.every((value) => typeof value === 'number');
  return [
    ...(named.length === 0
      ? []
      : [
          at(
            numeric ? Math.max(...(named as number[])) + 1 : OTHER,
            `were not ${named.map((value) => JSON.stringify(value)).join(' or ')}`,
          ),
        ]),
    ...(prefix === undefined ? [] : [at(OTHER, `did not begin with ${JSON.stringify(prefix)}`)]),
    ...(pattern === undefined ? [] : [at(OTHER, `did not match ${pattern}`), at('', `did not match ${pattern}`)]),
    ...(min === undefined ? [] : [at(min - 1, `were less than ${min}`)]),
    ...(max === undefined ? [] : [at(max + 1, `were more than ${max}`)]),
    ...(present === undefined ? [at(undefined, 'were absent')] : presence(!present, at)),
  ];
}

function presence(present: boolean | undefined, at: At): readonly Atom[] {
  if (present === undefined) return [];
  return [present ? at(OTHER, 'were given') : at(undefined, 'were absent')];
}
