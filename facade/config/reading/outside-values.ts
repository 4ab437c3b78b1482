/** Finds texts of a server that contain values of variables, and replaces these values where the texts are shown. */
import type { WrittenServer } from '../written-config.ts';

/**
 * Texts as they are written, before variables were filled in, by their place: `args.0`, `env.TOKEN`, `headers.X-Key`,
 * `url`, `environments.PROFILE.TOKEN`.
 */
export type OutsideValues = Readonly<Record<string, string>>;

/** The parts of a server that may contain variables. */
export type ServerTexts = Pick<WrittenServer, 'args' | 'env' | 'headers'> & { readonly url?: string | undefined };

const REFERENCE = /\$\$|\$\{(?:(env|input):)?([A-Za-z_][\w.-]*)(?::[-?][^{}]*)?\}/g;
/** Variables that are no secrets: those that every program knows, and those that Tollgate fills in itself. */
const PLAIN = new RegExp(
  '^(?:HOME|USERPROFILE|USER|LOGNAME|PWD|TMPDIR|TEMP|TMP|LANG|LC_\\w+|TZ|SHELL|XDG_\\w+|' +
    'workspaceFolder|userHome|configDir|stateFolder|tollgateFolder)$',
);

/** Returns the written texts of a server that contain a value from outside; undefined if none does. */
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

/** Returns the written text with `placeholder` for each variable. */
export function withPlaceholder(written: string, placeholder: string): string {
  return written.replace(REFERENCE, (whole) => (whole === '$$' ? '$' : placeholder));
}

function isFromOutside(text: string): boolean {
  return [...text.matchAll(REFERENCE)].some(
    ([, kind, name]) => name !== undefined && (kind === 'input' || !PLAIN.test(name)),
  );
}
