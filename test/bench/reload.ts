/** Measures how long a reload blocks the event loop, by number of rules. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { openThreadClock, ownThread } from '../../catalogs/text/thread-clock.ts';
import { assembleFacade } from '../../facade/app.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { median } from './measure.ts';
import type { Part } from './tables.ts';

const SIZES = [20, 1000, 10_000] as const;

/** The part of the benchmark about how long a reload blocks the event loop. */
export const RELOAD_PART: Part = {
  name: 'reload',
  tables: [
    {
      title: 'Reload',
      head: ['rules', 'start, ms', 'reload, ms', 'calls held, ms', 'of processor time', 'at most'],
      rows: SIZES.map(String),
    },
  ],
  measure: async ({ quick, say }) => {
    const cells: string[][] = [];
    for (const rules of SIZES) {
      say(`reload: ${rules} rules`);
      cells.push((await measureOne(rules, quick ? 2 : 5)).map((ms) => ms.toFixed(0)));
    }
    return { cells: [cells] };
  },
};

/** The most rules of one file, which has as many values as the reader accepts. */
const A_FILE = 1000;

/** Rules for tools of ten servers; `edit` changes the message of the last one. */
function ruleText(file: number, count: number, edit: number): string {
  const rules = Array.from({ length: count }, (_, number) => {
    const message = number === count - 1 ? `Edit ${edit}.` : 'It is so.';
    return (
      `  - id: r${file}-${number}\n    outcome: ${number % 5 === 0 ? 'allow' : 'deny'}\n    message: ` +
      `${message}\n    when:\n      tools: [s${number % 10}.t${file}-${number}]\n      paths: ` +
      `["src/${number}/**", "**/*.pem"]\n`
    );
  });
  return `rules:\n${rules.join('')}`;
}

/**
 * Returns milliseconds: until the first configuration is in force; medians over the reloads from the edit to the next
 * one, of the longest blocking of calls, and of that as processor time of the main thread; and the maximum of the latter.
 */
async function measureOne(rules: number, rounds: number): Promise<readonly number[]> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-bench-'));
  mkdirSync(path.join(folder, 'work'));
  const names = Array.from({ length: Math.ceil(rules / A_FILE) }, (_, file) => `rules-${file}.yaml`);
  const write = (edit: number): void =>
    names.forEach((name, file) =>
      writeFileSync(path.join(folder, name), ruleText(file, Math.min(A_FILE, rules - file * A_FILE), edit)),
    );
  write(0);
  const servers = Array.from({ length: 10 }, (_, number) => `s${number}: {command: none}`);
  const file = path.join(folder, 'tollgate.yaml');
  writeFileSync(
    file,
    `version: 1\nworkspace: ./work\nstate: ./state\nservers: {${servers.join(', ')}}\nprincipals: [{id: bench, ` +
      'role: agent, profiles: [default], stdio: true}]\nprofiles: {default: {servers: [s0, s1, s2, s3, s4, s5, ' +
      `s6, s7, s8, s9]}}\npolicies: [${names.join(', ')}]\n`,
  );
  const read = () => loadConfig(file, { env: process.env, home: '/nowhere' });
  const began = performance.now();
  const assembled = await assembleFacade(read(), {});
  const start = performance.now() - began;
  const times: { readonly reload: number; readonly held: number; readonly worked: number }[] = [];
  for (let round = 1; round <= rounds; round += 1) {
    write(round);
    await sleep(200);
    const delay = monitorEventLoopDelay({ resolution: 1 });
    delay.enable();
    const holds = watchHolds();
    const asked = performance.now();
    await assembled.reload(read, false);
    const reload = performance.now() - asked;
    await sleep(50);
    delay.disable();
    times.push({ reload, held: delay.max / 1e6, worked: holds.stop() });
  }
  await assembled.gateway.close();
  rmSync(folder, { recursive: true, force: true });
  const worked = times.map((one) => one.worked);
  return [
    start,
    median(times.map((one) => one.reload)),
    median(times.map((one) => one.held)),
    median(worked),
    Math.max(...worked),
  ];
}

/** Runs a timer every millisecond. The work of the thread between two turns has blocked all calls. */
function watchHolds(): { stop(): number } {
  const clock = openThreadClock(ownThread());
  let [last, most] = [clock.ms() ?? NaN, 0];
  const timer = setInterval(() => {
    const now = clock.ms() ?? NaN;
    most = Math.max(most, now - last);
    last = now;
  }, 1);
  return {
    stop: () => {
      clearInterval(timer);
      clock.close();
      return most;
    },
  };
}
