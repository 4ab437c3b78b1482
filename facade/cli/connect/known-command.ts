/** Runs `tollgate known`: prints the catalog of known servers, or one of them completely. */
import { type KnownServer, loadAllKnown, loadKnown } from '../../../catalogs/servers/known-server.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json, MAX_COLUMNS, plural, printList, wrapWords } from '../print.ts';

/** Options of the command. */
export interface KnownOptions {
  readonly name?: string;
  readonly json?: true;
}

/** Prints the catalog. Throws USAGE for a name that is not in it. */
export function runKnown(options: KnownOptions, io: Io): number {
  if (options.name !== undefined) {
    const known = loadKnown(options.name);
    io.stdout(options.json === true ? json(known) : knownText(known));
    return EXIT.ok;
  }
  const servers = loadAllKnown();
  printList(
    { io, options },
    {
      data: { servers },
      columns: ['NAME', 'NEEDS', 'WHAT IT IS'],
      rows: servers.map((known) => [known.name, needsText(known), known.description]),
      empty: 'The catalog is empty.',
      summary: `${servers.length} known servers. To connect one: tollgate connect NAME`,
    },
  );
  return EXIT.ok;
}

/** Returns what a person must give to connect a server; `nothing` if nothing. */
export function needsText({ credentials = [], choices = [], login }: KnownServer): string {
  const needed = credentials.filter(({ optional }) => optional !== true).length;
  const parts = [
    ...(login === true ? ['sign-in'] : []),
    ...(needed > 0 ? ['credential'] : []),
    ...choices.filter((choice) => choice.default === undefined).map(({ name }) => name),
  ];
  return parts.length === 0 ? 'nothing' : parts.join(', ');
}

function knownText(known: KnownServer): string {
  const { title, description, note, package: pkg, url, license, homepage, labels, choices = [], login } = known;
  const { credentials = [], tools, verified } = known;
  const lines: readonly (readonly [string, string])[] = [
    [title, description],
    ...(note === undefined ? [] : [['note', note] as const]),
    ['home', homepage],
    ...(pkg === undefined
      ? []
      : [
          ['package', `${pkg.name} ${pkg.version} (${license ?? 'no license'})`] as const,
          ['integrity', pkg.integrity] as const,
          ...(pkg.node === undefined ? [] : [['Node.js', `${pkg.node} or later`] as const]),
        ]),
    ...(url === undefined ? [] : [['address', url] as const]),
    ['reaches', reachText(known)],
    ['labels', labels.join(', ')],
    ...(tools === undefined ? [] : [['tools', `only ${tools.join(', ')}`] as const]),
    ...choices.map(
      ({ name, title: meaning, default: preset }) =>
        ['choose', `--set ${name}=…: ${meaning}${preset === undefined ? '' : ` (${preset})`}`] as const,
    ),
    ...credentials.flatMap(({ env, header, title: meaning, get, hint, optional }) => [
      [
        'credential',
        `${env ?? header ?? ''}: ${meaning}${optional === true ? ' (optional)' : ''}, from ${get}`,
      ] as const,
      ...(hint === undefined ? [] : [['', hint] as const]),
    ]),
    ...(login === true ? [['sign-in', `tollgate login ${known.name}, in a browser`] as const] : []),
    ['verified', verifiedText(verified)],
  ];
  const column = ' '.repeat(14);
  return lines.map(([key, value]) => `${wrapWords(`${key.padEnd(12)}  ${value}`, MAX_COLUMNS, column)}\n`).join('');
}

function reachText({ domains = [], choices = [], url }: KnownServer): string {
  const hosts = [
    ...domains,
    ...choices.filter(({ kind }) => kind === 'url').map(({ name }) => `the host of ${name}`),
    ...(url === undefined ? [] : [new URL(url).host]),
  ];
  return hosts.length === 0 ? 'nothing: it has no network' : hosts.join(', ');
}

const LISTS_WITH = {
  credentials: 'with credentials of the right form',
  network: 'only with its credentials and its network',
  node: 'only with a newer Node.js',
} as const;

function verifiedText(verified: KnownServer['verified']): string {
  if (verified === undefined) return 'its provider publishes its address; it was not tried for this catalog';
  const { date, needs, tools } = verified;
  const how = needs === undefined ? 'without a network' : LISTS_WITH[needs];
  return `${date}: it installs, and lists ${tools === undefined ? 'its tools' : plural(tools.length, 'tool')} ${how}`;
}
