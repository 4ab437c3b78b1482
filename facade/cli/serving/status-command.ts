/** Runs `status`: what runs, and what needs attention, on one screen. It starts no server and changes nothing. */
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { type AttentionItem, listAttention } from '../../attention/attention-list.ts';
import { type ProcessReport, readProcesses } from '../../attention/attention-watch.ts';
import { AUDIT_INDEX } from '../../audit/index/audit-index.ts';
import { openAuditReader } from '../../audit/index/audit-reader.ts';
import type { Config } from '../../config/config.ts';
import { Redactor } from '../../output/redactor.ts';
import { readReports, runsServer } from '../../runtime/servers/server-reports.ts';
import { registerSecrets } from '../../runtime/shared-services.ts';
import type { State } from '../../state/state-port.ts';
import { type CommonOptions, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { withState } from '../command-state.ts';
import { ownerAttention } from '../owner-attention.ts';
import { type Colour, json, plural, printable, table } from '../print.ts';
import type { Wiring } from '../wiring.ts';

/** Options of `status`. Tests look more often. */
export interface StatusOptions extends CommonOptions {
  readonly watch?: true;
  readonly lookMs?: number;
}

/** What the screen shows. */
interface StatusView {
  readonly processes: readonly ProcessReport[];
  readonly sessions: number;
  readonly servers: { readonly running: number; readonly configured: number };
  readonly callsLastHour: number;
  readonly items: readonly AttentionItem[];
}

/** Milliseconds between two looks with `--watch`, and after which calls are counted again. */
const [LOOK_MS, COUNT_MS] = [1_000, 10_000];
const HOUR_MS = 3_600_000;
const CLEAR = '\u001b[2J\u001b[H';
const WORDS = ['', 'urgent', 'now', 'soon', 'later'] as const;
const COLOURS: Readonly<Record<string, Colour>> = { urgent: 'red', now: 'yellow', soon: 'yellow', later: 'dim' };

/**
 * Prints the screen, and with `--watch` again at each change until a signal. The exit code does not tell whether
 * something needs attention. Throws CONFIG_INVALID, CONFIG_NOT_ACCEPTED, STATE_FAILED.
 */
export async function runStatus(options: StatusOptions, io: Io, { inspect }: Pick<Wiring, 'inspect'>): Promise<number> {
  const config = readForOwner(options, io);
  const redactor = new Redactor();
  registerSecrets(redactor, config);
  return withState(config, async (state) => {
    const sources = ownerAttention({ config, state }, io, { inspect });
    const look = async (calls: number): Promise<StatusView> =>
      viewOf({ config, state, calls, items: await listAttention(sources, redactor) });
    if (options.watch !== true) {
      show(await look(countCalls(config)), options, io);
      return EXIT.ok;
    }
    await watch({ look, count: () => countCalls(config) }, options, io);
    return EXIT.ok;
  });
}

interface Watched {
  readonly look: (calls: number) => Promise<StatusView>;
  readonly count: () => number;
}

async function watch({ look, count }: Watched, options: StatusOptions, io: Io): Promise<void> {
  const { stopped } = io;
  const end = new AbortController();
  void stopped.then(() => end.abort());
  let [before, calls, countedAt] = ['', 0, -Infinity];
  while (!end.signal.aborted) {
    const now = performance.now();
    if (now - countedAt >= COUNT_MS) [calls, countedAt] = [count(), now];
    const view = await look(calls);
    const text = JSON.stringify(view);
    if (text !== before) {
      if (options.json === true) io.stdout(`${text}\n`);
      else {
        io.stdout(io.isTTY ? CLEAR : '\n');
        show(view, options, io);
      }
    }
    before = text;
    await pause(options.lookMs ?? LOOK_MS, undefined, { signal: end.signal }).catch(() => undefined);
  }
}

async function viewOf({
  config,
  state,
  calls,
  items,
}: {
  readonly config: Config;
  readonly state: State;
  readonly calls: number;
  readonly items: readonly AttentionItem[];
}): Promise<StatusView> {
  const processes = readProcesses(state);
  const reports = await readReports(state);
  const running = [...reports].filter(([server, all]) => config.servers.has(server) && all.some(runsServer));
  return {
    processes,
    sessions: processes.reduce((sum, { sessions }) => sum + sessions, 0),
    servers: { running: running.length, configured: config.servers.size },
    callsLastHour: calls,
    items,
  };
}

function countCalls({ audit, state }: Pick<Config, 'audit' | 'state'>): number {
  const reader = openAuditReader(audit.folder, path.join(state, AUDIT_INDEX));
  try {
    return reader.stats({ since: new Date(Date.now() - HOUR_MS).toISOString() }).calls;
  } finally {
    reader.close();
  }
}

function show(view: StatusView, options: StatusOptions, io: Io): void {
  if (options.json === true) return io.stdout(json(view));
  const { processes, sessions, servers, callsLastHour, items } = view;
  const pids = processes.length === 0 ? 'no Tollgate serves agents' : `serving as ${listPids(processes)}`;
  const header =
    `${pids}; ${plural(sessions, 'session')}; ${servers.running} of ${plural(servers.configured, 'server')} running; ` +
    `${plural(callsLastHour, 'call')} in the last hour`;
  io.stdout(`${header}\n\n`);
  if (items.length === 0) return io.stdout('Nothing needs attention.\n');
  io.stdout(
    table(
      io,
      ['WHEN', 'WHAT', 'SINCE', 'SEE'],
      items.map(({ rank, title, since, next }) => {
        const word = WORDS[rank];
        return [{ text: word, colour: COLOURS[word] ?? 'dim' }, printable(title), since?.slice(5, 16) ?? '', next];
      }),
    ),
  );
}

const MOST_PIDS = 4;

function listPids(processes: readonly ProcessReport[]): string {
  const more = processes.length - MOST_PIDS;
  const pids = processes.slice(0, MOST_PIDS).map(({ pid }) => pid);
  return `${processes.length === 1 ? 'process' : 'processes'} ${pids.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}
