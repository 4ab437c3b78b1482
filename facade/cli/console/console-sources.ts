/** What the console shows without running a command: the log by its index, and the present state of everything. */

import path from 'node:path';
import { Writable } from 'node:stream';
import { stripVTControlCharacters } from 'node:util';
import { type AttentionItem, type AttentionKind, listAttention } from '../../attention/attention-list.ts';
import { readAuditFilter } from '../../audit/index/audit-filter.ts';
import { AUDIT_INDEX, shownRecord } from '../../audit/index/audit-index.ts';
import { type AuditSearch, openAuditSearch } from '../../audit/index/audit-search.ts';
import { proofStatus } from '../../audit/proof/proof-status.ts';
import type { Config } from '../../config/config.ts';
import { Suspensions } from '../../consent/switch/suspensions.ts';
import { Redactor } from '../../output/redactor.ts';
import { readContextReport } from '../../runtime/metrics/context-report.ts';
import { readReports } from '../../runtime/servers/server-reports.ts';
import { registerSecrets } from '../../runtime/shared-services.ts';
import { openOwnerState } from '../../secrets/opened-state.ts';
import { type CommandAnswerData, commandText } from '../../serve/console/console-commands.ts';
import type { ConsoleApproval, ConsoleSources } from '../../serve/console/console-routes.ts';
import type { State } from '../../state/state-port.ts';
import { runApproveCall } from '../approval-commands/approvals-actions.ts';
import { type OwnerOptions, readConfig, readForOwner } from '../command-facade.ts';
import type { Io } from '../command-io.ts';
import { reportError } from '../failure-report.ts';
import { ownerAttention } from '../owner-attention.ts';
import type { Wiring } from '../wiring.ts';

/** The sources, which are open until `close`. */
export interface OpenConsoleSources extends ConsoleSources {
  close(): Promise<void>;
}

/** Records of one page of a search. */
const PAGE = 100;
/** What the page Now counts: the last hour, by minute. */
const [STEP_MS, STEPS] = [60_000, 60];

/** Opens the sources of a console. `options.as`: the owner who opened it. Throws STATE_FAILED. */
export async function openConsoleSources(
  options: OwnerOptions,
  io: Io,
  wiring: Pick<Wiring, 'inspect'>,
): Promise<OpenConsoleSources> {
  const config = readForOwner(options, io);
  const remarks = new Set<string>();
  const search = openAuditSearch({
    folder: config.audit.folder,
    index: path.join(config.state, AUDIT_INDEX),
    tell: (what) => void remarks.add(what),
  });
  const state = await openOwnerState(config);
  const redactor = new Redactor();
  registerSecrets(redactor, config);
  const attention = ownerAttention({ config, state }, io, wiring);
  return {
    records: async ({ before, ...texts }) => {
      const { records, next } = await search.page(readAuditFilter(texts), {
        limit: PAGE,
        ...(before !== undefined && { before }),
      });
      return {
        records: records.map((one) => ({ ...shownRecord(one), ...(!one.intact && { changed: true }) })),
        ...(next !== undefined && { next }),
        remarks: [...remarks],
      };
    },
    session: async (id) => {
      const timeline = await search.timeline(id);
      return {
        isCut: timeline?.isCut ?? false,
        isClockBack: timeline?.isClockBack ?? false,
        entries: (timeline?.events ?? []).map(({ found, intent }) => ({ ...intent?.record, ...found.record })),
      };
    },
    now: async () => {
      const items = await listAttention(attention, redactor);
      return { attention: items.map(reviewed), ...(await readNow({ config, search, state, items })) };
    },
    principals: () => {
      const suspended = new Map(new Suspensions(state).list().map((one) => [one.principal, one]));
      const known = readForOwner(options, io).principals.map(({ id, role, profiles, owner, client }) => ({
        id,
        role,
        profiles,
        owner,
        origin: client,
        isYou: id === options.as,
      }));
      const others = [...suspended.keys()].filter((id) => !known.some((one) => one.id === id)).map((id) => ({ id }));
      return { principals: [...known, ...others].map((one) => ({ ...one, suspended: suspended.get(one.id) })) };
    },
    proof: () => proofStatus(config),
    policyFiles: () => policyFiles(options, io),
    approve: (approval) => approveHere(approval, options, io),
    close: async () => {
      await search.close();
      await state.close();
    },
  };
}

/** The pages on which items of a kind can be reviewed. Others have a command only. */
const PAGES: Readonly<Partial<Record<AttentionKind, (subject: string) => string>>> = {
  approval: (id) => `/approvals/${encodeURIComponent(id)}`,
  plan: () => '/approvals',
  'service-proposed': () => '/approvals',
  ...each(
    (name) => `/servers/${encodeURIComponent(name)}`,
    'server-failed',
    'server-killed',
    'server-unapproved',
    'server-requested',
    'server-disabled',
    'server-changed',
    'tools-changed',
  ),
  suspended: (id) => `/agents/${encodeURIComponent(id)}`,
  ...each(budgetPage, 'budget-spent', 'budget-low'),
  ...each(() => '/policy', 'rules-unused', 'policy-failed', 'reload-refused'),
  ...each(() => '/proof', 'audit-fault', 'audit-unproven', 'key-exposed'),
};

/** The subject of a budget is its name, scope, unit and key. A cut key names no one. */
function budgetPage(subject: string): string {
  const [, scope, , ...key] = subject.split(' ');
  return scope === 'principal' && !subject.endsWith('…') ? `/agents/${encodeURIComponent(key.join(' '))}` : '/agents';
}

function each<Value>(value: Value, ...kinds: readonly AttentionKind[]): Partial<Record<AttentionKind, Value>> {
  return Object.fromEntries(kinds.map((kind) => [kind, value]));
}

/** Adds the page of an item. An item that counts others leads to their list. */
function reviewed(item: AttentionItem): object {
  const { kind, subject } = item;
  const page = PAGES[kind]?.(subject).replace(/\/$/, '');
  return { ...item, ...(page !== undefined && { page }) };
}

/** Reads what the page Now shows. */
async function readNow({
  config,
  search,
  state,
  items,
}: {
  readonly config: Config;
  readonly search: AuditSearch;
  readonly state: State;
  readonly items: readonly AttentionItem[];
}): Promise<object> {
  await state.refresh();
  const minute = Math.floor(Date.now() / STEP_MS) - STEPS + 1;
  const [overview, running, reports] = await Promise.all([
    search.overview({ since: new Date(minute * STEP_MS).toISOString(), stepMs: STEP_MS, steps: STEPS }),
    search.running(),
    readReports(state),
  ]);
  const { times, outcomes, tools } = overview;
  const { shown, without } = readContextReport(state).total.total;
  const changed = new Map(items.flatMap((one) => (one.kind === 'server-changed' ? [[one.subject, one.title]] : [])));
  return {
    running: running.map(({ record }) => {
      const { id, ts, exposed, principal, server } = record as unknown as Readonly<Record<string, unknown>>;
      return { id, ts, exposed, server, principal: (principal as { readonly id?: unknown } | undefined)?.id };
    }),
    servers: [...config.servers.keys()].map((name) => {
      const [report] = reports.get(name) ?? [];
      const why = changed.get(name);
      return { name, state: report?.state ?? (why === undefined ? 'idle' : 'changed'), reason: report?.reason ?? why };
    }),
    series: { times, outcomes },
    tools,
    kept: { shown: shown.bytes, without: without.bytes },
  };
}

/** The files of rules that can be edited, by the names that people read. */
function policyFiles(options: OwnerOptions, io: Io): ReadonlyMap<string, string> {
  const { policies, folder } = readConfig(options, io);
  return new Map(
    policies.filter(({ kind }) => kind === 'yaml').map((source) => [path.relative(folder, source.path), source.path]),
  );
}

/**
 * Approves in this process. A person opened the console at this terminal, so this is an answer at the terminal: the
 * principal who asked for the call may give it, as with `tollgate approvals approve`.
 */
async function approveHere(
  { id, binding, scope, loop }: ConsoleApproval,
  options: OwnerOptions,
  io: Io,
): Promise<CommandAnswerData> {
  let [stdout, stderr] = ['', ''];
  const here: Io = {
    ...io,
    stdout: (text) => void (stdout += text),
    stderr: (text) => void (stderr += text),
    out: new Writable({ write: (_chunk, _encoding, done) => done() }),
  };
  const covers =
    loop === undefined
      ? [`--for=${scope}`]
      : ['--loop', ...Object.entries(loop).map(([name, value]) => `--${name}=${value}`)];
  const asked = {
    config: options.config,
    ...(options.as !== undefined && { as: options.as }),
    json: true as const,
    id,
    yes: binding,
    ...(loop === undefined ? { for: scope as 'call' | 'group' | 'server' } : { loop: true as const, ...loop }),
  };
  const exit = await runApproveCall(asked, here).catch((thrown: unknown) =>
    reportError(thrown, { json: true, io: here }),
  );
  return {
    command: commandText(['approvals', 'approve', `--yes=${binding.slice(0, 12)}`, ...covers, id]),
    exit,
    ...(stdout !== '' && { data: JSON.parse(stdout) as unknown }),
    messages: stripVTControlCharacters(stderr),
  };
}
