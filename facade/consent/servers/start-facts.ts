/**
 * The facts that decide what a server runs. They can be hashed, stored and compared. They contain no value of its
 * environment, its headers or outside variables, and no text in the form of a key.
 */
import { createHash } from 'node:crypto';
import type { DigestStore, ServerSettings, StartFiles, StartInspector } from '../../../adapters/port.ts';
import { canonicalJson } from '../../../catalogs/tools/definition-pin.ts';
import type { ServerConfig } from '../../config/config.ts';
import type { OutsideValues } from '../../config/reading/outside-values.ts';
import { keyMask, maskAddress, maskArguments } from '../../config/servers/secret-shapes.ts';

/**
 * The settings that decide what runs, and how the policy classifies its tools. Times, labels and exposure do not count.
 */
export type StartSettings = Pick<
  ServerSettings,
  | 'name'
  | 'transport'
  | 'command'
  | 'args'
  | 'env'
  | 'environments'
  | 'cwd'
  | 'url'
  | 'socket'
  | 'trust'
  | 'pin'
  | 'headers'
  | 'oauth'
  | 'secretSources'
  | 'isolation'
  | 'sandbox'
> &
  Partial<Pick<ServerConfig, 'semantics' | 'mapping'>> & { readonly filled?: OutsideValues };

/** What facts are made from. */
export interface FactSources {
  /** The folder in which a program starts if its settings name none. */
  readonly folder: string;
  readonly inspect: StartInspector;
  /** Keyed, because a short value could be guessed from a plain hash. */
  readonly digest: (text: string) => string;
  /** Cache of the digests of large files. */
  readonly store?: DigestStore;
}

/**
 * All facts that decide what a server runs. Keyed digests replace the values of `env` and `headers`, outside values in
 * arguments and address, and texts in the form of a key. Absent facts are absent fields.
 */
export interface StartFacts
  extends Partial<StartFiles>,
    Pick<ServerSettings, 'transport' | 'command' | 'args' | 'env' | 'headers' | 'url' | 'socket'> {
  readonly server: string;
  readonly trust?: string;
  readonly pin?: string;
  readonly oauth?: Readonly<Record<string, unknown>>;
  readonly secretSources?: Readonly<Record<string, unknown>>;
  /** The files of programs that print its secrets. They run at the start, outside every sandbox. */
  readonly secretPrograms?: Readonly<Record<string, StartFiles>>;
  readonly isolation?: string;
  readonly sandbox?: ServerSettings['sandbox'];
  /** The owner's classification of its tools, in the order in which the patterns are tried: `wipe: read`. */
  readonly semantics?: readonly string[];
  readonly mapping?: string;
  /** Profile → the variables that it changes, as digests, and the files that these make the program load. */
  readonly environments?: Readonly<Record<string, Pick<StartFacts, 'env'> & Pick<StartFiles, 'scripts'>>>;
}

/** Keys of `oauth` whose texts may be secret, at any depth. */
const SIGN_IN_SECRETS: ReadonlySet<string> = new Set(['clientSecret', 'privateKey', 'idToken']);

/**
 * Returns what a start would run now. A `${secret:NAME}` is kept as written: a new value of the secret makes no new
 * server.
 */
export async function startFacts(
  settings: StartSettings,
  { folder, inspect, digest, store }: FactSources,
): Promise<StartFacts> {
  const {
    name,
    transport,
    command,
    args,
    env,
    environments,
    url,
    socket,
    trust,
    pin,
    headers,
    oauth,
    secretSources,
    isolation = 'sandbox',
    sandbox,
    semantics = [],
    mapping,
    filled = {},
  } = settings;
  const star = keyMask(digest);
  const shown = (at: string, value: string, masked: string): string =>
    filled[at] === undefined ? masked : `${masked} (digest ${digest(`${at}\0${value}`).slice(0, 32)})`;
  const written = maskArguments(
    args.map((arg, index) => filled[`args.${index}`] ?? arg),
    star,
  );
  const masked = (part: string, values: Readonly<Record<string, string>>): Record<string, string> =>
    Object.fromEntries(Object.entries(values).map(([key, value]) => [key, digest(`${part}\0${key}\0${value}`)]));
  const facts = {
    server: name,
    transport,
    command,
    args: args.map((arg, index) => shown(`args.${index}`, arg, written[index] ?? '')),
    env: masked('env', env),
    headers: masked('headers', headers),
    url: url === undefined ? undefined : shown('url', url, maskAddress(filled.url ?? url, star)),
    socket,
    trust,
    pin,
    mapping,
    secretSources,
    secretPrograms: await programsOf(secretSources, (start, from) => inspect(start, from, store)),
    ...(oauth !== undefined && {
      oauth: JSON.parse(
        JSON.stringify(oauth, (key, value) =>
          SIGN_IN_SECRETS.has(key) ? digest(`oauth\0${String(value)}`) : (value as unknown),
        ),
      ) as unknown,
    }),
    ...(semantics.length > 0 && { semantics: semantics.map(semanticsText) }),
    ...(transport === 'stdio' && { isolation, sandbox, ...(await inspect(settings, folder, store)) }),
    ...(environments !== undefined && {
      environments: await environmentFacts(environments, async (env) => {
        const { scripts } = await inspect({ ...settings, env }, folder, store);
        return { env: masked('env', env), scripts };
      }),
    }),
  };
  // An absent field and an undefined field must give the same hash.
  return JSON.parse(JSON.stringify(facts)) as StartFacts;
}

/**
 * Returns one text per pattern, for the screen and for differences. Two rules never have the same text: a verb contains
 * no colon, and canonical JSON has spaces only inside strings.
 */
function semanticsText({ pattern, semantics }: ServerConfig['semantics'][number]): string {
  const { verb, ...more } = semantics;
  return `${pattern}: ${Object.keys(more).length === 0 ? verb : canonicalJson(semantics)}`;
}

async function environmentFacts<Facts>(
  environments: NonNullable<StartSettings['environments']>,
  factsOf: (env: Readonly<Record<string, string>>) => Promise<Facts>,
): Promise<Readonly<Record<string, Facts>>> {
  const all = Object.entries(environments).map(async ([profile, env]) => [profile, await factsOf(env)] as const);
  return Object.fromEntries(await Promise.all(all));
}

/** These programs start in `/` (facade/secrets/secret-program.ts), whatever the server's folder is. */
async function programsOf(
  sources: StartSettings['secretSources'],
  inspect: StartInspector,
): Promise<StartFacts['secretPrograms']> {
  const programs = Object.entries(sources ?? {}).flatMap(([name, source]) =>
    isProgram(source) ? [[name, source.command] as const] : [],
  );
  const files = await Promise.all(
    programs.map(
      async ([name, [command = '', ...args]]) =>
        [name, await inspect({ command, args, cwd: '/', isolation: 'direct' }, '/')] as const,
    ),
  );
  return files.length === 0 ? undefined : Object.fromEntries(files);
}

function isProgram(source: unknown): source is { readonly command: readonly string[] } {
  return isNode(source) && (source as { readonly from?: unknown }).from === 'exec';
}

/**
 * Returns the SHA-256 of the facts as hex, independent of the order of keys. `data` is left out: a data file may appear
 * later, and the arguments contain its name.
 * The number is raised with the format; then all approvals are asked for again.
 */
export function startHash({ data: _data, ...facts }: StartFacts): string {
  return createHash('sha256')
    .update(`tollgate-start\0${2}\0${canonicalJson(facts)}`)
    .digest('hex');
}

/**
 * Returns where two facts differ, as a person finds it in tollgate.yaml: `args[2]`, `env.TOKEN`, `program.sha256`. It
 * never returns a value.
 */
export function startDifferences(before: unknown, after: unknown, at = ''): readonly string[] {
  if (canonicalOf(before) === canonicalOf(after)) return [];
  if (!isNode(before) || !isNode(after) || Array.isArray(before) !== Array.isArray(after)) return [at];
  const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter(
    (key) => at !== '' || key !== 'data',
  );
  return keys.flatMap((key) =>
    startDifferences(
      (before as Record<string, unknown>)[key],
      (after as Record<string, unknown>)[key],
      Array.isArray(after) ? `${at}[${key}]` : at === '' ? key : `${at}.${key}`,
    ),
  );
}

/** What a person calls the facts that are not settings of tollgate.yaml. Each text fits before "differs". */
const WORDS: readonly (readonly [RegExp, string])[] = [
  [/^program\b/, 'the file of its program'],
  [/^(?:scripts|gone)\b/, 'a file that it runs'],
  [/^environments\..*\.scripts\b/, 'a file that it runs'],
  [/^unbound\b/, 'the program that chooses its code'],
  [/^places\b/, 'code that it loads from a folder that agents may write'],
  [/^folder\b/, 'the folder that it starts in'],
  [/^given\b/, 'what its sandbox lets it read'],
  [/^secretPrograms\b/, 'a program that prints a secret for it'],
  [/^secretSources\b/, 'the source of a secret'],
];

/** Returns a difference in words, without values. A setting keeps its name in tollgate.yaml: `args[2]`, `env.TOKEN`. */
export function differenceWords(difference: string): string {
  return WORDS.find(([pattern]) => pattern.test(difference))?.[1] ?? difference;
}

/**
 * Returns which file of the command does not exist, in words. A program in a folder that agents may write counts as
 * missing.
 */
export function missingFile({ transport, isolation, program, gone }: StartFacts): string | undefined {
  if (transport !== 'stdio' || isolation === 'container') return undefined;
  if (program === undefined) return 'the program';
  return gone === undefined ? undefined : 'the script';
}

function canonicalOf(value: unknown): string | undefined {
  return value === undefined ? undefined : canonicalJson(value);
}

function isNode(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
