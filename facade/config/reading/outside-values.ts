/** Owns which texts of a server hold values from outside, and what may stand for them where somebody looks; refuses to tell such a value from a secret by its name. */

/** Texts as they are written, before variables were filled in, by their place: `args.0`, `env.TOKEN`, `headers.X-Key`, `url`. */
export type OutsideValues = Readonly<Record<string, string>>;

/** The part of a server that may be filled from outside. */
export interface ServerTexts {
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly url?: string | undefined;
}

const REFERENCE = /\$\$|\$\{(?:(env|input):)?([A-Za-z_][\w.-]*)(?::[-?][^{}]*)?\}/g;
/** What every program knows, or Tollgate fills in itself. */
const PLAIN =
  /^(?:HOME|USERPROFILE|USER|LOGNAME|PWD|TMPDIR|TEMP|TMP|LANG|LC_\w+|TZ|SHELL|XDG_\w+|workspaceFolder|userHome|configDir|stateFolder|tollgateFolder)$/;

/** The texts of a server, as it is written, that hold a value from outside; undefined when none does. */
export function outsideValuesOf({ args, env, headers, url }: ServerTexts): OutsideValues | undefined {
  const texts: [string, unknown][] = [
    ...Object.entries(args ?? {}).map(([at, text]): [string, unknown] => [`args.${at}`, text]),
    ...Object.entries(env ?? {}).map(([name, text]): [string, unknown] => [`env.${name}`, text]),
    ...Object.entries(headers ?? {}).map(([name, text]): [string, unknown] => [`headers.${name}`, text]),
    ['url', url],
  ];
  const filled = texts.filter(
    (entry): entry is [string, string] => typeof entry[1] === 'string' && isFromOutside(entry[1]),
  );
  return filled.length === 0 ? undefined : Object.fromEntries(filled);
}

/** The text with a word in the place of each value from outside. */
export function withWord(written: string, word: string): string {
  return written.replace(REFERENCE, (whole) => (whole === '$$' ? '$' : word));
}

function isFromOutside(text: string): boolean {
  return [...text.matchAll(REFERENCE)].some(
    ([, kind, name]) => name !== undefined && (kind === 'input' || !PLAIN.test(name)),
  );
}
