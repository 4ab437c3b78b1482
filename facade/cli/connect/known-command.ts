/** Runs `tollgate known`: prints the catalog of known servers, or one of them completely. */
import { type KnownServer, loadAllKnown, loadKnown } from '../../../catalogs/servers/known-server.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json, table } from '../print.ts';

/** Options of the command. */
export interface KnownOptions {
  readonly name?: string;
  readonly json?: true;
}

/** Prints the catalog. Throws USAGE for a name that is not in it. */
export function runKnown({ name, json: asJson }: KnownOptions, io: Io): number {
  if (name !== undefined) {
    const known = loadKnown(name);
    io.stdout(asJson === true ? json(known) : wholeOf(known));
    return EXIT.ok;
  }
  const all = loadAllKnown();
  if (asJson === true) io.stdout(json({ servers: all }));
  else
    io.stdout(
      table(
        io,
        ['NAME', 'NEEDS', 'WHAT IT IS'],
        all.map((known) => [known.name, needsOf(known), known.description]),
      ),
    );
  return EXIT.ok;
}

function needsOf({ credentials = [], choices = [], login }: KnownServer): string {
  const needed = credentials.filter(({ optional }) => optional !== true).length;
  const parts = [
    ...(login === true ? ['sign-in'] : []),
    ...(needed > 0 ? ['credential'] : []),
    ...choices.filter((choice) => choice.default === undefined).map(({ name }) => name),
  ];
  return parts.length === 0 ? 'nothing' : parts.join(', ');
}

function wholeOf(known: KnownServer): string {
  const {
    title,
    description,
    note,
    package: pkg,
    url,
    license,
    homepage,
    domains = [],
    labels,
    choices = [],
    credentials = [],
    verified,
  } = known;
  const lines: readonly (readonly [string, string])[] = [
    [title, description],
    ...(note === undefined ? [] : [['note', note] as const]),
    ['home', homepage],
    ...(pkg === undefined
      ? []
      : [
          ['package', `${pkg.name} ${pkg.version} (${license ?? 'no license'})`] as const,
          ['integrity', pkg.integrity] as const,
        ]),
    ...(url === undefined ? [] : [['address', url] as const]),
    [
      'reaches',
      domains.length === 0 && url === undefined && !choices.some(({ kind }) => kind === 'url')
        ? 'nothing: it has no network'
        : [
            ...domains,
            ...choices.filter(({ kind }) => kind === 'url').map(({ name }) => `the host of ${name}`),
            ...(url === undefined ? [] : [new URL(url).host]),
          ].join(', '),
    ],
    ['labels', labels.join(', ')],
    ...choices.map(
      ({ name, title: what, default: preset }) =>
        ['choose', `--set ${name}=…: ${what}${preset === undefined ? '' : ` (${preset})`}`] as const,
    ),
    ...credentials.map(
      ({ env, header, title: what, get, hint, optional }) =>
        [
          'credential',
          `${env ?? header ?? ''}: ${what}${optional === true ? ' (optional)' : ''}, from ${get}${hint === undefined ? '' : `\n${' '.repeat(14)}${hint}`}`,
        ] as const,
    ),
    ...(known.login === true ? [['sign-in', `tollgate login ${known.name}, in a browser`] as const] : []),
    [
      'verified',
      verified === undefined
        ? 'its provider publishes its address; it was not tried for this catalog'
        : `${verified.date}: it installs${verified.lists === undefined ? '' : verified.lists ? `, and lists ${verified.tools ?? 0} tools without a network` : ', and lists nothing without a network'}`,
    ],
  ];
  return lines.map(([key, value]) => `${key.padEnd(12)}  ${value}\n`).join('');
}
