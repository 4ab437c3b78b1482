/** The end of a setup: shows the approved servers to agents, replaces the clients' entries, and proves the result. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ClientFormat } from '../../clients/client-formats.ts';
import { rootsAt, shownPath } from '../../clients/client-places.ts';
import { UNPINNED } from '../../clients/package-copies.ts';
import type { Config } from '../../config/config.ts';
import { applyConfirmed } from '../client-files/client-files.ts';
import { entryTargetOf } from '../client-files/export-command.ts';
import { askFacade, readConfig, readForOwner, readPrincipal } from '../command-facade.ts';
import { EXIT } from '../command-io.ts';
import { plural, printable } from '../print.ts';
import { askKey } from '../terminal-prompt.ts';
import type { FormerEntry } from './former-entries.ts';
import { type ClientReplacement, planReplacements, proveReplacement } from './setup-clients.ts';
import { codeOf, decidedText, nextCommand, type SetupDecisions } from './setup-decisions.ts';
import type { SetupPlan } from './setup-plan.ts';
import { accepted, mayAsk, type SetupRun, setupCommand } from './setup-run.ts';
import type { ReviewedServer } from './setup-servers.ts';
import { trialsText, tryServers } from './setup-trials.ts';
import { bypassText, replacementText, rowsOf } from './setup-view.ts';
import { showApproved } from './shown-servers.ts';

/** What a setup has planned and decided. */
export interface SetupEnd {
  readonly plan: SetupPlan;
  readonly all: readonly FormerEntry[];
  readonly decided: SetupDecisions;
}

/** Shows servers, replaces entries, proves it and tells the result. Returns the exit code. */
export async function finishSetup(end: SetupEnd, run: SetupRun): Promise<number> {
  const { options, io, data } = run;
  const { decided } = end;
  if (decided.approved.length > 0) await accepted(run, () => showApproved(decided, run));
  const fronted = decided.approved.flatMap(({ setup }) => setup.from);
  const roots = rootsAt(readConfig(options, io).workspace, io);
  const targetOf = (client: ClientFormat) => entryTargetOf(options, { client, config: readConfig(options, io), io });
  const { replacements, unwritten } = planReplacements(fronted, { roots, targetOf });
  const written = await replace(replacements, run);
  for (const sentence of [...unwritten, ...written.unwritten])
    if (options.json !== true) io.stderr(`Not changed: ${printable(sentence)}\n`);
  const isReplaced = written.isAgreed && unwritten.length + written.unwritten.length === 0;
  const { accounts, bypasses } = proveReplacement(end.all, { roots, fronted, whyOf: whyOf(end, isReplaced) });
  const isOpen = decided.open.length > 0 || !isReplaced;
  const seen = await seenBy(end, run);
  const isDone = replacements.length > 0 && isReplaced;
  const undo = setupCommand({ ...run, given: undoConfig(run) }, ['--undo']);
  Object.assign(data, {
    approved: decided.approved.map(({ setup }) => setup.name),
    declined: decided.declined.map(({ setup }) => setup.name),
    open: decided.open.map(({ setup, start, tools }) => ({ name: setup.name, start: start.hash, tools: tools.hash })),
    failed: decided.failed.map(({ setup, why }) => ({ name: setup.name, why })),
    replaced: isReplaced,
    unwritten: [...unwritten, ...written.unwritten],
    accounts: accounts.map(({ former, state }) => ({
      file: former.found.shown,
      name: former.entry.original,
      server: former.server,
      state,
    })),
    bypasses,
    agent: seen,
    undo,
    ...(isOpen && { next: nextCommand(decided, run) }),
  });
  if (options.json !== true) {
    io.stdout(decidedText(decided) + bypassText(bypasses, io) + seenText(seen) + hiddenText(seen, run));
    io.stderr(nextText(end, { isOpen, isDone, replacements, undo, run }));
  }
  const names = decided.approved.map(({ setup }) => setup.name);
  const trials = isDone || options.test === true ? await tryServers(names, run) : undefined;
  if (trials !== undefined) Object.assign(data, { trials });
  if (trials !== undefined && options.json !== true) io.stdout(trialsText(trials, io));
  if (isOpen) return EXIT.approval;
  const code = hasUnpinned(end) ? EXIT.server : codeOf(decided);
  return code === EXIT.ok && trials?.some(({ ok }) => ok === false) === true ? EXIT.toolError : code;
}

/** The commands that continue, and the one that undoes. */
function nextText(
  end: SetupEnd,
  {
    isOpen,
    isDone,
    replacements,
    undo,
    run,
  }: {
    readonly isOpen: boolean;
    readonly isDone: boolean;
    readonly replacements: readonly ClientReplacement[];
    readonly undo: string;
    readonly run: SetupRun;
  },
): string {
  const isUnset = end.decided.failed.length > 0 || hasUnpinned(end);
  const clients = replacements.map(({ client }) => client.title).join(', ');
  return [
    isOpen ? `Still to agree to:\n  ${nextCommand(end.decided, run)}\n` : '',
    isUnset ? `To try again what was not set up:\n  ${setupCommand(run, [])}\n` : '',
    isDone ? `Restart ${clients}. To undo:\n  ${undo}\n` : '',
  ].join('');
}

/** Whether a package could not be looked up, which a later run may be able to. */
function hasUnpinned({ plan }: SetupEnd): boolean {
  return plan.stays.some(({ why }) => why.startsWith(UNPINNED));
}

/** Undoing may be needed from another folder, so a configuration that is elsewhere is named. */
function undoConfig({ options, io, given }: SetupRun): string {
  return options.config === path.join(io.cwd, 'tollgate.yaml') ? given : options.config;
}

/** What became of the clients' files. `unwritten`: why files could not be written; the others are. */
interface Written {
  readonly isAgreed: boolean;
  readonly unwritten: readonly string[];
}

/** Writes the clients' files, each with a backup of its own, if a person agrees. */
async function replace(replacements: readonly ClientReplacement[], run: SetupRun): Promise<Written> {
  const { options, io } = run;
  const unwritten: string[] = [];
  if (replacements.length === 0) return { isAgreed: true, unwritten };
  if (options.json !== true) io.stdout(`\n${replacementText(replacements, io)}`);
  const isAgreed = mayAsk(run) ? (await askKey(io, 'Write these files?', 'yn')) === 'y' : options.yesTo !== undefined;
  if (!isAgreed) return { isAgreed, unwritten };
  const config: Config = readForOwner(options, io);
  for (const { client, change, servers } of replacements)
    try {
      await applyConfirmed(
        { changer: 'export', changes: [change], of: { clients: [client.id], servers } },
        { config, io },
      );
    } catch (thrown) {
      // Another program has changed this file since the question. The others are written.
      if (!(thrown instanceof TollgateError) || thrown.code !== 'USAGE') throw thrown;
      unwritten.push(`${thrown.message} ${thrown.next}`);
    }
  return { isAgreed, unwritten };
}

/** Says why an entry can still be started without Tollgate. */
function whyOf({ plan, decided }: SetupEnd, isReplaced: boolean): Parameters<typeof proveReplacement>[1]['whyOf'] {
  return (found, name) => {
    const isIt = ({ found: one, entry }: FormerEntry): boolean => one.file === found.file && entry.original === name;
    const failed = decided.failed.find(({ setup }) => setup.from.some(isIt));
    const stays = plan.stays.find(({ former }) => isIt(former));
    if (stays !== undefined) return stays.why;
    if (failed !== undefined) return `it was not set up: ${failed.why}`;
    if (decided.declined.some(({ setup }) => setup.from.some(isIt))) return 'you declined it; remove it there too';
    if (decided.open.some(({ setup }) => setup.from.some(isIt))) return 'you have not decided about it yet';
    return isReplaced ? 'it is new since the plan; run setup again' : 'its file was not changed';
  };
}

/** A number of tools with the size of their list. */
interface Seen {
  readonly tools: number;
  readonly bytes: number;
}

/** What an agent saw in each client, and what it sees now. */
interface SeenChange {
  readonly before: readonly (Seen & { readonly client: string })[];
  readonly after: Seen;
  /** The tools of each approved server that no list shows, without those in quarantine. */
  readonly hidden: Readonly<Record<string, readonly string[]>>;
}

async function seenBy({ all, decided }: SetupEnd, run: SetupRun): Promise<SeenChange> {
  const { options, io, wiring } = run;
  const reviewed = [...decided.approved, ...decided.declined, ...decided.open];
  const clients = [...new Set(all.map(({ found }) => found.client?.title ?? found.shown))];
  const before = clients.map((client) => {
    const names = new Set(
      all.filter(({ found }) => (found.client?.title ?? found.shown) === client).map(({ server }) => server),
    );
    const tools = reviewed.filter(({ setup }) => names.has(setup.name)).flatMap(toolTexts);
    return { client, tools: tools.length, bytes: tools.reduce((sum, text) => sum + Buffer.byteLength(text), 0) };
  });
  const config = readForOwner(options, io);
  const principal = readPrincipal(config, options, io);
  let after: Seen = { tools: 0, bytes: 0 };
  let hidden: SeenChange['hidden'] = {};
  await askFacade(
    { config, options, io: { ...io, stderr: () => undefined }, assemble: wiring.assemble },
    async ({ deps }) => {
      const view = await deps.nameTables.tableFor(principal);
      after = { tools: view.listed.length, bytes: Buffer.byteLength(view.text) };
      const seen = new Set(view.visible.map(({ server, entry }) => `${server.name}.${entry?.tool.name ?? ''}`));
      hidden = Object.fromEntries(
        decided.approved.flatMap(({ setup: { name }, tools: { tools } }) => {
          const names = tools.filter(({ audit }) => audit.quarantine === undefined).map(({ tool }) => tool.name);
          const left = names.filter((tool) => !seen.has(`${name}.${tool}`));
          return left.length === 0 ? [] : [[name, left] as const];
        }),
      );
      return { data: '', remarks: [], code: EXIT.ok };
    },
  );
  return { before, after, hidden };
}

function toolTexts({ tools }: ReviewedServer): readonly string[] {
  return tools.tools.map(({ tool }) => JSON.stringify(tool));
}

function seenText({ before, after }: Pick<SeenChange, 'before' | 'after'>): string {
  const size = ({ tools, bytes }: Seen): string => `${plural(tools, 'tool')}, ${(bytes / 1000).toFixed(1)} kB`;
  return [
    ...before.map(({ client, ...seen }) => `An agent in ${client} saw ${size(seen)}.\n`),
    `An agent sees now: ${size(after)}.\n`,
  ].join('');
}

/** Names the servers with hidden tools, and how an owner shows one. */
function hiddenText({ hidden }: SeenChange, { options, io }: SetupRun): string {
  const [[server, [first = ''] = []] = []] = Object.entries(hidden);
  if (server === undefined) return '';
  const counts = Object.entries(hidden).map(([name, { length }]) => `${plural(length, 'tool')} of ${name}`);
  const file = shownPath(options.config, { cwd: io.cwd, home: io.home });
  return rowsOf(
    io,
    `Hidden from agents: ${counts.join(', ')}. To show one, add it to expose.tools in ${file}, ` +
      `for example ${server}.${first}. All of them: tollgate servers info NAME`,
  );
}
