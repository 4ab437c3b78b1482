/** Shows an import before it is done: servers, what is left out and why, what is written. It shows no value. */
import { loadAllKnown } from '../../../catalogs/servers/known-server.ts';
import { fetchedPackage, showEntry } from '../../clients/client-entry-view.ts';
import { isDefaultPlace, shownPath } from '../../clients/client-places.ts';
import { sandboxKeys } from '../../clients/client-sandbox.ts';
import type { HandedFolders } from '../../clients/folder-arguments.ts';
import type { FoundClientFile } from '../../clients/found-client-files.ts';
import type { ImportPlan, Outcome, ServerCopy } from '../../clients/import-plan.ts';
import type { Config } from '../../config/config.ts';
import type { Io } from '../command-io.ts';
import { connectWords } from '../connect/same-service.ts';
import { commandLine, type Listing, paint, plural, printable } from '../print.ts';

/** Returns the servers by client, for a table and as data. */
export function listOf(files: readonly FoundClientFile[]): Pick<Listing, 'data' | 'columns' | 'rows'> {
  const rows = files.flatMap((found) => {
    const { client, shown, servers, content } = found;
    const title = client?.title ?? '';
    if (servers.length === 0)
      return [
        [
          title,
          shown,
          '',
          content.entries.length > 0 ? 'only Tollgate' : (content.warnings[0]?.message ?? 'no server'),
          '',
        ],
      ];
    return servers.map((entry) => {
      const { name, runs, variables, headers, unusable } = showEntry(entry);
      return [
        title,
        shown,
        name,
        unusable === undefined ? runs : `cannot be used: ${unusable}`,
        [...variables, ...headers].join(', '),
      ];
    });
  });
  const data = files.map(({ client, shown, servers }) => ({
    client: client?.id,
    file: shown,
    servers: servers.map(showEntry),
  }));
  return { data, columns: ['CLIENT', 'FILE', 'SERVER', 'RUNS', 'SETS'], rows };
}

interface View {
  readonly io: Io;
  readonly config: Config;
  readonly fromVariables: boolean;
}

/** The preview of an import. */
export function importReport(plan: ImportPlan, view: View & { readonly files: readonly FoundClientFile[] }): string {
  const imported = view.files.filter(
    ({ shown }) =>
      plan.changes.length > 0 && plan.outcomes.some(({ file, left }) => file === shown && left === undefined),
  );
  const exports = imported.flatMap(({ client, ofProject }) => {
    if (client === undefined) return [];
    const place = isDefaultPlace({ client, ofProject }) ? '' : ' --user';
    return [`  tollgate export --client ${client.id}${place} --replace\n`];
  });
  return [
    ...plan.outcomes.map((outcome) => lineOf(outcome, view.io)),
    plan.changes.length === 0 ? 'There is nothing to write.\n' : '',
    planLines(plan, view),
    ...new Set(exports),
  ].join('');
}

/** Returns what is written, and what is left to do. */
export function planLines(plan: ImportPlan, { io, config, fromVariables }: View): string {
  const { changes, outcomes, secrets, wanted } = plan;
  const names = addedNames(plan);
  const isCopy = changes.length > 1 || changes.some(({ file }) => file !== config.file);
  const isClosed = outcomes.some(
    ({ copy }) => copy?.server.command !== undefined && copy.server.sandbox?.network?.allowedDomains === undefined,
  );
  return [
    changes.length === 0
      ? ''
      : `Writes: ${changes.map(({ file }) => shownPath(file, { cwd: config.folder, home: io.home })).join(', ')}.\n`,
    secretsLine(secrets, fromVariables),
    ...remarksOn(outcomes),
    isCopy && isClosed
      ? 'Programs have no network until sandbox.network.allowedDomains of their server lists hosts.\n'
      : '',
    names.length === 0
      ? ''
      : `Next:\n${wanted.map((name) => `  tollgate secret set ${name}\n`).join('')}${nextLines(outcomes)
          .map((line) => `  ${line}\n`)
          .join('')}`,
  ].join('');
}

/** A sandbox has no network to download a package; connect installs the packages that it knows. */
function remarksOn(outcomes: readonly Outcome[]): readonly string[] {
  const entries = outcomes
    .filter(({ left, copy }) => left === undefined && copy?.pinned === undefined)
    .map(({ entry }) => entry);
  const catalog = entries.length === 0 ? [] : loadAllKnown();
  return entries.flatMap((entry) => {
    const fetched = fetchedPackage(entry);
    const words = connectWords(catalog, entry);
    const better =
      words === undefined ? '' : `\`${commandLine(['tollgate', ...words])}\` knows its hosts and what its tools do`;
    if (fetched === undefined) return better === '' ? [] : [`${entry.name}: ${better}.\n`];
    const fix = better === '' ? 'install it and name its own program' : `${better}, and installs it`;
    const command = printable(entry.command ?? '');
    return [`${entry.name}: ${command} downloads its package at each start, which a sandbox refuses; ${fix}.\n`];
  });
}

/** A server that no sandbox can download is connected, not approved. */
function nextLines(outcomes: readonly Outcome[]): readonly string[] {
  const catalog = loadAllKnown();
  const lines = new Map<string, string>();
  for (const { entry, left, copy } of outcomes) {
    const words = copy !== undefined || fetchedPackage(entry) === undefined ? undefined : connectWords(catalog, entry);
    if (left === undefined && !lines.has(entry.name))
      lines.set(entry.name, commandLine(['tollgate', ...(words ?? ['approve', entry.name])]));
  }
  return [...lines.values()];
}

function addedNames({ outcomes }: ImportPlan): readonly string[] {
  return [...new Set(outcomes.filter(({ left }) => left === undefined).map(({ entry }) => entry.name))];
}

function folderLines(name: string, { allowRead, allowWrite, outside }: HandedFolders): readonly string[] {
  const list = (folders: readonly string[]): string => folders.map((folder) => JSON.stringify(folder)).join(', ');
  const of = (wanted: 'read' | 'write'): readonly string[] =>
    outside.filter(({ access }) => access === wanted).map(({ folder }) => folder);
  const key = { read: 'allowRead', write: 'allowWrite' } as const;
  return [
    ...(allowRead.length === 0
      ? []
      : [
          `reads ${list(allowRead)}, which its arguments or variables name; ` +
            'to let it write there, use allowWrite in its file',
        ]),
    ...(allowWrite.length === 0 ? [] : [`reads and writes ${list(allowWrite)}, which its arguments or variables name`]),
    ...(['read', 'write'] as const).flatMap((access) =>
      of(access).length === 0
        ? []
        : [
            `does not see ${list(of(access))}, outside the workspace; to allow it, ` +
              `write in servers/${name}.yaml: sandbox: {filesystem: {${key[access]}: [${list(of(access))}]}}`,
          ],
    ),
  ];
}

/** What a copy runs, reaches, sees and loses, in indented lines. */
export function copyLines(name: string, { server, pinned, known, filled, folders, unkept }: ServerCopy): string {
  const hosts = server.sandbox?.network?.allowedDomains ?? [];
  const lines = [
    ...(pinned === undefined ? [] : [`installs ${pinned.name} ${pinned.version}, without running its scripts`]),
    ...(known === undefined
      ? []
      : [`has the labels and tool semantics of ${known.name} in the catalog, and reaches ${hostsText(hosts)}`]),
    ...Object.entries(filled).map(
      ([variable, value]) =>
        `sets ${variable} to ${JSON.stringify(value)}, as the catalog says; ` +
        'what the server has saved in another place until now is not moved',
    ),
    ...folderLines(name, folders),
    ...unkept.map((one) => `not kept: ${one}`),
    ...(pinned?.notes ?? []).map((note) => `note: ${note}`),
  ];
  return lines.map((line) => `    ${printable(line)}\n`).join('');
}

function hostsText(hosts: readonly string[]): string {
  return hosts.length === 0 ? 'no network' : hosts.join(', ');
}

function lineOf({ entry, file, left, copy }: Outcome, io: Io): string {
  const { runs, variables, headers } = showEntry(entry);
  const sets = [...variables, ...headers];
  const notes = [
    ...(entry.name === entry.original ? [] : [`called ${JSON.stringify(entry.original)} in its file`]),
    ...(sets.length === 0 ? [] : [`sets ${sets.join(', ')}`]),
    ...(entry.sandbox === undefined ? [] : [`keeps ${sandboxKeys(entry.sandbox).join(', ')} of its sandbox`]),
    ...(entry.tools === undefined ? [] : ['keeps the restriction of its tools']),
    ...(entry.unread.length === 0 ? [] : [`without ${entry.unread.join(', ')}, which Tollgate does not use`]),
    ...(entry.dropped.length === 0 ? [] : [`without ${entry.dropped.join(', ')}: a file grants no trust`]),
  ];
  const text = printable(`${entry.name}: ${runs}${notes.length === 0 ? '' : ` (${notes.join('; ')})`}, from ${file}`);
  return left === undefined
    ? `${paint(io, 'green', `+ ${text}\n`)}${copy === undefined ? '' : copyLines(entry.name, copy)}`
    : `${paint(io, 'yellow', `- ${text}`)}\n    left out: ${printable(left)}\n`;
}

function secretsLine(secrets: ImportPlan['secrets'], fromVariables: boolean): string {
  if (secrets.length === 0) return '';
  const names = secrets.map(({ name }) => name).join(', ');
  const variables = new Set(secrets.map(({ key }) => key.replace(/\W/g, '_')));
  return fromVariables
    ? `Set these variables where Tollgate runs: ${[...variables].join(', ')}.\n`
    : `To the vault: ${printable(names)} (${plural(secrets.length, 'value')}).\n`;
}

/** The plan as data: names only. */
export function planData(
  { changes, outcomes, secrets, wanted }: ImportPlan,
  config: Config,
): Readonly<Record<string, unknown>> {
  return {
    servers: outcomes.map(({ entry, file, left, copy }) => ({
      ...showEntry(entry),
      file,
      dropped: entry.dropped,
      ...(entry.unread.length > 0 && { unread: entry.unread }),
      ...(copy?.pinned !== undefined && {
        package: { kind: copy.pinned.kind, name: copy.pinned.name, version: copy.pinned.version },
      }),
      ...(copy !== undefined && { outside: copy.folders.outside, unkept: copy.unkept }),
      ...(left !== undefined && { left }),
    })),
    files: changes.map(({ file }) => shownPath(file, { cwd: config.folder, home: config.folder })),
    secrets: secrets.map(({ name }) => name),
    wanted,
  };
}
