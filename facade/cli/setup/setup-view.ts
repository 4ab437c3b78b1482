/** The screens of a setup: the plan, one screen for each server, and the end. They show no value of a secret. */
import { copyLines } from '../client-files/import-view.ts';
import type { Io } from '../command-io.ts';
import { paint, plural, printable, table, wrapWords } from '../print.ts';
import { quoted, startScreen, toolsScreen } from '../server-consent/consent-screens.ts';
import { inRows, screenColumns } from '../terminal-rows.ts';
import type { OutsideFolder } from './folder-exceptions.ts';
import type { Bypass, ClientReplacement } from './setup-clients.ts';
import type { SetupPlan, SetupServer } from './setup-plan.ts';
import type { ReviewedServer } from './setup-servers.ts';

/** A screen fits a terminal of this many rows, with its question. */
const SCREEN_ROWS = 40;

/** Where the plan writes the configuration, as it is shown. */
export interface PlanScreen {
  readonly file: string;
  readonly isNew: boolean;
  readonly io: Io;
}

/** The plan for a person. */
export function planScreen({ servers, stays, unread }: SetupPlan, { file, isNew, io }: PlanScreen): string {
  const rows = servers.map(({ name, from, draft }) => [name, placesOf(from), runsOf(draft)]);
  const addresses = servers.flatMap(({ draft: { entry } }) =>
    entry.url === undefined ? [] : [new URL(entry.url).host],
  );
  const lines = [
    ...servers.flatMap((server) => {
      const facts = planFacts(server);
      return facts.length === 0 ? [] : [server.name, ...facts.map((fact) => `  ${fact}`)];
    }),
    ...stays.map(({ former: { found, entry }, why }) => `stays in ${found.shown}: ${entry.original}, because ${why}`),
    ...unread.map(({ found, why }) => `stays as it is: ${found.shown}: ${why}`),
  ];
  const isShared = new Set(servers.flatMap(({ from }) => from.map(({ found }) => found.file))).size > 1;
  const contacts =
    addresses.length === 0
      ? ''
      : ` These addresses are contacted, with their headers: ${[...new Set(addresses)].join(', ')}.`;
  return [
    rowsOf(io, `Tollgate takes the place of these servers. Its configuration: ${file}${isNew ? ' (new)' : ''}`),
    '\n',
    table(io, ['SERVER', 'FROM', 'BECOMES'], rows),
    '\n',
    isShared ? `${rowsOf(io, 'Each client gets all of these servers, with these keys.')}\n` : '',
    ...lines.map((line) => rowsOf(io, line)),
    lines.length === 0 ? '' : '\n',
    rowsOf(
      io,
      'Next, the packages are installed without running their scripts, and each program starts once, offline in a ' +
        `sandbox and without your credentials, to list its tools.${contacts} You then decide about each server.`,
    ),
  ].join('');
}

function planFacts({ name, copy, secrets, wanted }: SetupServer): readonly string[] {
  return [
    ...copyLines(name, copy)
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== '' && !line.startsWith('installs ')),
    ...(secrets.length === 0 ? [] : [`moves to the vault: ${secrets.map((secret) => secret.name).join(', ')}`]),
    ...(wanted.length === 0 ? [] : [`asks you for: ${wanted.join(', ')}`]),
  ];
}

/** Own sentences in rows: what comes from a file is printable, and cannot begin a row. */
export function rowsOf(io: Io, text: string): string {
  const indent = /^ */.exec(text)?.[0] ?? '';
  return `${wrapWords(printable(text), screenColumns(io.isTTY, io.out), `${indent}  `)}\n`;
}

function placesOf(from: SetupServer['from']): string {
  return [...new Set(from.map(({ found }) => found.client?.title ?? found.shown))].join(', ');
}

function runsOf({ package: pkg, entry }: SetupServer['draft']): string {
  if (pkg !== undefined) return `${pkg.kind}:${pkg.name} ${pkg.version}`;
  return entry.url === undefined ? (entry.command ?? '') : entry.url;
}

/** The plan as data: names only. */
export function setupData({ servers, stays, unread, hash }: SetupPlan): Readonly<Record<string, unknown>> {
  return {
    plan: hash,
    servers: servers.map(({ name, draft, copy, secrets, wanted, from }) => ({
      name,
      from: from.map(({ found, entry }) => ({ client: found.client?.id, file: found.shown, name: entry.original })),
      runs: runsOf(draft),
      ...(draft.package !== undefined && { integrity: draft.package.integrity }),
      secrets: secrets.map((secret) => secret.name),
      wanted,
      unkept: copy.unkept,
    })),
    stays: stays.map(({ former, why }) => ({ file: former.found.shown, name: former.entry.original, why })),
    unread: unread.map(({ found, why }) => ({ file: found.shown, why })),
  };
}

/** What one server is and what is proposed to be shown of it. `at` and `of`: its number. */
export interface ServerScreen {
  readonly reviewed: ReviewedServer;
  /** Names of tools. */
  readonly shown: readonly string[];
  /** What it gets outside the workspace. */
  readonly folders: readonly OutsideFolder[];
  readonly at: number;
  readonly of: number;
  /** The name of the file whose `expose.tools` shows more tools. */
  readonly file: string;
}

/** Names of hidden tools that a screen shows. */
const MAX_HIDDEN = 12;

/**
 * The screen of one server: what starts, what is remarkable about its tools, and which of them the agent sees. It fits
 * 40 rows; what does not fit is counted, and the full screens show it.
 */
export function serverScreen({ reviewed, shown, folders, at, of, file }: ServerScreen, io: Io): string {
  const { setup, server, start, tools } = reviewed;
  const counts = new Map<string, number>();
  for (const { semantics } of tools.tools) counts.set(semantics.verb, (counts.get(semantics.verb) ?? 0) + 1);
  const verbs = [...counts].map(([verb, count]) => `${count} ${verb}`).join(', ');
  const noted = tools.tools.filter(({ audit }) => audit.notes.length > 0).map(({ tool }) => tool.name);
  const facts = factsOf(reviewed, startScreen(server, start).trimEnd().split('\n').slice(1));
  const last = [
    ...facts.filter(isRemark),
    ...folders.map(folderRow),
    ...tools.tools.flatMap(({ tool, audit }) =>
      audit.quarantine === undefined
        ? []
        : [`  ! ${quoted(tool.name)} is in quarantine: ${printable(audit.quarantine)}`],
    ),
    ...(noted.length === 0 ? [] : [`  ? worth reading (d): the texts of ${noted.map(printable).join(', ')}`]),
    `  tools    ${plural(tools.tools.length, 'tool')}: ${verbs}`,
    `  shown    ${shown.length === 0 ? 'none' : shown.map(printable).join(', ')}`,
    ...hiddenRow(reviewed, shown, file),
    `  hash     ${reviewHash(reviewed)}`,
  ];
  const end = inRows(io, last.join('\n'));
  const rows = inRows(io, facts.filter((line) => !isRemark(line)).join('\n')).split('\n');
  const room = Math.max(4, SCREEN_ROWS - 4 - end.split('\n').length);
  const cut = rows.length <= room ? rows : [...rows.slice(0, room - 1), `  … ${rows.length - room + 1} more rows (d)`];
  const heading = `${at} of ${of}: ${setup.name}, from ${placesOf(setup.from)}`;
  return `\n${paint(io, 'bold', rowsOf(io, heading))}${cut.join('\n')}\n${end}\n`;
}

function hiddenRow({ setup, tools }: ReviewedServer, shown: readonly string[], file: string): readonly string[] {
  const hidden = tools.tools.filter(({ tool, audit }) => audit.quarantine === undefined && !shown.includes(tool.name));
  if (hidden.length === 0) return [];
  const names = hidden.slice(0, MAX_HIDDEN).map(({ tool }) => printable(tool.name));
  const more = hidden.length > MAX_HIDDEN ? ` and ${hidden.length - MAX_HIDDEN} more` : '';
  return [`  hidden   ${names.join(', ')}${more} (to show one, add ${setup.name}.TOOL to expose.tools in ${file})`];
}

function folderRow({ folder, access, refused }: OutsideFolder): string {
  if (refused !== undefined) return `  ! no call may use ${quoted(folder)}: ${refused}`;
  const use = access === 'write' ? 'read and write' : 'read';
  return `  opens    ${quoted(folder)}: an agent may ${use} there, through this server only`;
}

function isRemark(line: string): boolean {
  return line.startsWith('  ! ');
}

/** The rows of the start, without what every server of a package has: long folders, and the hashes of its files. */
function factsOf({ setup, start }: ReviewedServer, rows: readonly string[]): readonly string[] {
  const { package: pkg } = setup.draft;
  const kept = rows.filter(
    (row) => isRemark(row) || !/^ {2}(?:start hash|approved by|folder |tools |changed since| {2}semantics)/.test(row),
  );
  if (pkg === undefined) return kept;
  const inside = /[^"]*\/packages\/[^"]*?\/node_modules/g;
  const own = kept.filter((row) => !/^ {2}(?:command|program|script|sha256) /.test(row) || start.remarks.length > 0);
  return [
    `  package  ${pkg.kind}:${printable(pkg.name)} ${printable(pkg.version)}`,
    `  digest   ${printable(pkg.integrity)}`,
    ...own.map((row) => row.replace(inside, 'PACKAGE')),
  ];
}

/** Both screens of `approve` in full. */
export function fullScreens({ server, start, tools }: ReviewedServer, io: Io): string {
  // Only the one start that the plan covers is approved so far.
  const { approved: _, ...asked } = start;
  return inRows(io, startScreen(server, asked) + toolsScreen(server, tools));
}

/** One hash for both questions about a server: start, then tools. */
export function reviewHash({ setup, start, tools }: ReviewedServer): string {
  return `${setup.name}=${start.hash.slice(0, 32)}${tools.hash.slice(0, 32)}`;
}

/** What changes in the clients' files. */
export function replacementText(replacements: readonly ClientReplacement[], io: Io): string {
  return replacements
    .map(
      ({ client, shown, servers }) =>
        `${printable(`${client.title} (${shown})`)}\n` +
        paint(io, 'green', '  + tollgate\n') +
        paint(io, 'yellow', servers.map((name) => `  - ${printable(name)}\n`).join('')),
    )
    .join('');
}

/** What each client reaches besides Tollgate. */
export function bypassText(bypasses: readonly Bypass[], io: Io): string {
  if (bypasses.length === 0)
    return paint(io, 'green', 'Nothing bypasses Tollgate: every former entry is accounted for.\n');
  const rows = bypasses.map(({ shown, name, why }) => rowsOf(io, `  ${name}, in ${shown}: ${why}`));
  return paint(io, 'yellow', `These bypass Tollgate:\n${rows.join('')}`);
}
