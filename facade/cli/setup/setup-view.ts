/** The screens of a setup: the plan, one screen for each server, and the end. They show no value of a secret. */
import type { ProposedTool } from '../../exposure/exposure-proposal.ts';
import { copyLines } from '../client-files/import-view.ts';
import type { Io } from '../command-io.ts';
import { paint, plural, printable, table } from '../print.ts';
import { startScreen, toolsScreen } from '../server-consent/consent-screens.ts';
import { inRows } from '../terminal-rows.ts';
import type { Bypass, Replacement } from './setup-clients.ts';
import type { SetupPlan, SetupServer } from './setup-plan.ts';
import type { ReviewedServer } from './setup-servers.ts';

/** A screen fits a terminal of this many rows, with its question. */
const SCREEN_ROWS = 40;

/** The plan for a person. `file`: the configuration, as it is shown. */
export function planScreen(
  plan: SetupPlan,
  { file, isNew, io }: { readonly file: string; readonly isNew: boolean; readonly io: Io },
): string {
  const { servers, stays, unread } = plan;
  const rows = servers.map(({ name, from, draft }) => [name, placesOf(from), runsOf(draft)]);
  const addresses = servers.flatMap(({ draft }) =>
    draft.entry.url === undefined ? [] : [new URL(draft.entry.url).host],
  );
  const lines = [
    `Tollgate becomes the only server of these clients. Its configuration: ${file}${isNew ? ' (new)' : ''}\n\n`,
    table(io, ['SERVER', 'FROM', 'BECOMES'], rows),
    ...servers.map(({ name, copy, secrets, wanted }) =>
      section(name, [
        ...copyLines(name, copy)
          .split('\n')
          .map((line) => line.trim())
          .filter((line) => line !== ''),
        ...(secrets.length === 0 ? [] : [`moves to the vault: ${secrets.map((secret) => secret.name).join(', ')}`]),
        ...(wanted.length === 0 ? [] : [`asks you for: ${wanted.join(', ')}`]),
      ]),
    ),
    ...stays.map(({ former, why }) =>
      paint(io, 'yellow', `${printable(`stays in ${former.found.shown}: ${former.entry.original}, because ${why}`)}\n`),
    ),
    ...unread.map(({ found, why }) => paint(io, 'yellow', `${printable(`stays as it is: ${found.shown}: ${why}`)}\n`)),
    '\nThen each program starts once, offline in a sandbox, without your credentials, to list its tools',
    addresses.length === 0
      ? ''
      : `, and these addresses are contacted: ${printable([...new Set(addresses)].join(', '))}`,
    '. You decide about each server before an agent can use it, and before a client changes.\n',
  ];
  return inRows(io, lines.join(''));
}

function section(name: string, lines: readonly string[]): string {
  return lines.length === 0 ? '' : `${printable(name)}\n${lines.map((line) => `  ${printable(line)}\n`).join('')}`;
}

function placesOf(from: SetupServer['from']): string {
  return [...new Set(from.map(({ found }) => found.client?.title ?? found.shown))].join(', ');
}

function runsOf({ package: pkg, entry }: SetupServer['draft']): string {
  if (pkg !== undefined) return `${pkg.kind}:${pkg.name} ${pkg.version}`;
  return entry.url === undefined ? (entry.command ?? '') : entry.url;
}

/** The plan as data: names only. */
export function planData({ servers, stays, unread, hash }: SetupPlan): Readonly<Record<string, unknown>> {
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
  readonly shown: readonly ProposedTool[];
  readonly at: number;
  readonly of: number;
}

/**
 * The screen of one server: what starts, what is remarkable about its tools, and which of them the agent sees. It fits
 * 40 rows; what does not fit is counted, and the full screens show it.
 */
export function serverScreen({ reviewed, shown, at, of }: ServerScreen, io: Io): string {
  const { setup, server, start, tools } = reviewed;
  const counts = new Map<string, number>();
  for (const { semantics } of tools.tools) counts.set(semantics.verb, (counts.get(semantics.verb) ?? 0) + 1);
  const quarantined = tools.tools.flatMap(({ tool, audit }) =>
    audit.quarantine === undefined ? [] : [`${JSON.stringify(tool.name)} is in quarantine: ${audit.quarantine}`],
  );
  const noted = tools.tools.filter(({ audit }) => audit.notes.length > 0).map(({ tool }) => tool.name);
  const hidden = tools.tools.length - shown.length;
  const heading = paint(
    io,
    'bold',
    `${at} of ${of}: ${printable(setup.name)}, from ${printable(placesOf(setup.from))}`,
  );
  const [, ...startLines] = startScreen(server, start).trimEnd().split('\n');
  const remarks = startLines.filter((line) => line.startsWith('  ! '));
  const rest = [
    ...quarantined.map((line) => `  ! ${printable(line)}`),
    ...(noted.length === 0 ? [] : [`  ? read the texts of ${printable(noted.join(', '))} (d)`]),
    `  tools    ${plural(tools.tools.length, 'tool')}: ${[...counts].map(([verb, count]) => `${count} ${verb}`).join(', ')}`,
    shown.length === 0
      ? '  shown    none; show some with `expose` in tollgate.yaml'
      : `  shown    ${printable(shown.map(({ tool }) => tool.name).join(', '))}${hidden === 0 ? '' : `; ${hidden} more behind expose`}`,
    `  hash     ${reviewHash(reviewed)}`,
  ];
  const facts = startLines.filter((line) => !remarks.includes(line) && !line.startsWith('  start hash'));
  const fixed = inRows(io, [heading, ...remarks, ...rest].join('\n')).split('\n').length;
  const rows = inRows(io, facts.join('\n')).split('\n');
  const room = Math.max(4, SCREEN_ROWS - 3 - fixed);
  const cut = rows.length <= room ? rows : [...rows.slice(0, room - 1), `  … ${rows.length - room + 1} more rows (d)`];
  return `\n${inRows(io, heading)}\n${inRows(io, remarks.join('\n'))}${remarks.length === 0 ? '' : '\n'}${cut.join('\n')}\n${inRows(io, rest.join('\n'))}\n`;
}

/** Both screens of `approve` in full. */
export function fullScreens({ server, start, tools }: ReviewedServer, io: Io): string {
  return inRows(io, startScreen(server, start) + toolsScreen(server, tools));
}

/** One hash for both questions about a server: start, then tools. */
export function reviewHash({ setup, start, tools }: ReviewedServer): string {
  return `${setup.name}=${start.hash.slice(0, 32)}${tools.hash.slice(0, 32)}`;
}

/** What changes in the clients' files. */
export function replacementText(replacements: readonly Replacement[], io: Io): string {
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
  return paint(
    io,
    'yellow',
    `These bypass Tollgate:\n${bypasses.map(({ shown, name, why }) => `  ${printable(`${name}, in ${shown}: ${why}`)}\n`).join('')}`,
  );
}
