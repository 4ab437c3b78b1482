/** Generates random client files for property tests: JSON with comments, tabs, CRLF, byte order marks, and servers. */
import fc from 'fast-check';

/** One server map as text, and the names in it. */
export interface RandomFile {
  readonly text: string;
  readonly names: readonly string[];
}

const blank = fc.constantFrom(' ', '\t', '  ', '\n', ' // a "comment", with {brackets}\n', ' /* and\n another */ ', '');
const name = fc.string({ minLength: 1, maxLength: 8 });
const value = fc.oneof(
  fc.string({ maxLength: 12 }),
  fc.constant('C:\\x "y" // no comment'),
  fc.integer(),
  fc.boolean(),
);

function jsonOf(
  entries: readonly (readonly [string, string])[],
  pieces: { readonly blanks: readonly string[]; readonly trailing: boolean },
): string {
  const { blanks, trailing } = pieces;
  const at = (index: number): string => blanks[index % blanks.length] ?? '';
  const body = entries
    .map(
      ([key, text], index) =>
        `${at(index)}${JSON.stringify(key)}${at(index + 1).replace(/\/\/.*/, '')}:${at(index + 2)}${text}${at(index + 3)}`,
    )
    .join(',');
  return `{${body}${trailing && entries.length > 0 ? ',' : ''}${at(4)}\n}`;
}

/** A file with `container` among other keys. */
export function randomFile(container: string): fc.Arbitrary<RandomFile> {
  return fc
    .record({
      names: fc
        .uniqueArray(name, { maxLength: 5 })
        .map((names) => names.filter((one) => one !== 'tollgate' && one !== '__proto__')),
      args: fc.array(value, { minLength: 1, maxLength: 4 }),
      blanks: fc.array(blank, { minLength: 5, maxLength: 9 }),
      others: fc.uniqueArray(
        name.filter((one) => one !== container && one !== '__proto__'),
        { maxLength: 3 },
      ),
      trailing: fc.boolean(),
      bom: fc.boolean(),
      crlf: fc.boolean(),
      last: fc.boolean(),
    })
    .map(({ names, args, blanks, others, trailing, bom, crlf, last }) => {
      const server = jsonOf(
        [
          ['command', '"x"'],
          ['args', JSON.stringify(args.map(String))],
          ['env', jsonOf([['K', JSON.stringify(String(args[0]))]], { blanks, trailing })],
        ],
        { blanks, trailing },
      );
      const servers = jsonOf(
        names.map((one) => [one, server] as const),
        { blanks, trailing },
      );
      const rest = others.map((key, index) => [key, JSON.stringify(args[index % args.length])] as const);
      const text = jsonOf(last ? [...rest, [container, servers]] : [[container, servers], ...rest], {
        blanks,
        trailing,
      });
      return { text: `${bom ? '\uFEFF' : ''}${crlf ? text.replaceAll('\n', '\r\n') : text}`, names };
    });
}
