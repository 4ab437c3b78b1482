/** The soak: very many calls to one gateway, whose heap and descriptors must not grow. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { loadConfig } from '../../facade/config/load-config.ts';
import { approveAll } from '../consent/approve-servers.ts';
import { acceptNow } from '../stories/accept-configuration.ts';
import { openHttp, openStdio, type Reading, ROOT, type Soaked } from './client.ts';

/** The number of calls and sessions. */
export interface Plan {
  readonly transport: 'stdio' | 'http';
  readonly calls: number;
  /** Sessions that are open at once, over HTTP. */
  readonly sessions: number;
  readonly inFlight: number;
}

/** A reading after a number of calls. */
export interface Sample extends Reading {
  readonly calls: number;
}

/** The number of samples, evenly spread over the calls. */
const SAMPLES = 20;
/** The allowed growth of the heap from the first third to the last, for late compilation and noise. */
const HEAP_BYTES = 4 * 1_048_576;
const DESCRIPTORS = 2;
/** How long something that grew may take to be given back, ms. */
const REST_MS = 30_000;
const BACKEND = path.join(ROOT, 'test', 'bench', 'backend.mjs');
/** One of this many calls is refused by the policy, because it takes another path through the gateway. */
const REFUSED_EVERY = 50;

/**
 * Soaks a new gateway, and prints a line for each sample. Returns what grew. Rejects if an answer is missing or wrong.
 */
export async function soak(plan: Plan, say: (line: string) => void): Promise<readonly string[]> {
  const folder = await prepare(plan);
  try {
    const soaked =
      plan.transport === 'stdio'
        ? await openStdio(folder)
        : await openHttp(folder, { sessions: plan.sessions, sockets: plan.inFlight });
    try {
      const samples = await sampled(plan, soaked, say);
      return await growthAtRest(samples, soaked);
    } finally {
      await soaked.close();
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * Returns what grew: compares the first and the last third, without the first tenth (the start). Of the heap the
 * medians, of descriptors the smallest numbers, because a thread that counts tokens has some for a while.
 */
export function growthIn(samples: readonly Sample[]): readonly string[] {
  const warm = samples.slice(Math.ceil(samples.length / 10));
  const third = Math.ceil(warm.length / 3);
  const [first, last] = [warm.slice(0, third), warm.slice(-third)];
  const heap = [first, last].map((part) => median(part.map((sample) => sample.heap))) as [number, number];
  const descriptors = [first, last].map((part) => Math.min(...part.map((one) => one.descriptors))) as [number, number];
  return [
    ...(heap[1] - heap[0] > HEAP_BYTES ? [`the heap grew from ${megabytes(heap[0])} to ${megabytes(heap[1])} MB`] : []),
    ...(descriptors[1] - descriptors[0] > DESCRIPTORS
      ? [`descriptors grew from ${descriptors[0]} to ${descriptors[1]}`]
      : []),
  ];
}

/**
 * Returns what grew, and what is still there when the gateway is at rest: a thread that counts tokens ends when it has
 * nothing to do, and then gives back its descriptors and its heap.
 */
async function growthAtRest(samples: readonly Sample[], soaked: Soaked): Promise<readonly string[]> {
  // The first half stays, with which the last third is compared.
  const first = samples.slice(0, samples.length / 2);
  let last = samples.slice(first.length);
  for (const until = Date.now() + REST_MS; ; await sleep(REST_MS / 15)) {
    const grown = growthIn([...first, ...last]);
    if (grown.length === 0 || Date.now() > until) return grown;
    const { calls } = samples.at(-1) as Sample;
    last = [...last.slice(1), { calls, ...(await soaked.read()) }];
  }
}

async function prepare({ sessions, inFlight }: Plan): Promise<string> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-soak-'));
  mkdirSync(path.join(folder, 'work'));
  const file = path.join(folder, 'tollgate.yaml');
  writeFileSync(
    file,
    `version: 1
workspace: ./work
state: ./state
servers: {soak: {command: ${process.execPath}, args: [${BACKEND}, "10"], isolation: direct}}
profiles: {default: {servers: [soak], expose: {tools: ["soak.*"]}}}
rules:
  - {id: all, outcome: allow, when: {}}
  - {id: not, outcome: deny, when: {tools: [soak.echo], args: {text: {in: ["no"]}}}}
caps: {concurrent: ${inFlight}}
listen: {port: 0, maxSessions: ${sessions + 10}, maxSessionsPerPrincipal: ${sessions + 10}}
`,
  );
  const world = { env: process.env, home: folder };
  await approveAll(loadConfig(file, world));
  acceptNow(file, world);
  return folder;
}

async function sampled(
  { transport, calls, sessions, inFlight }: Plan,
  soaked: Soaked,
  say: (line: string) => void,
): Promise<readonly Sample[]> {
  const samples: Sample[] = [{ calls: 0, ...(await soaked.read()) }];
  let made = 0;
  for (let step = 1; step <= SAMPLES; step += 1) {
    const until = Math.round((calls * step) / SAMPLES);
    const before = performance.now();
    await Promise.all(
      Array.from({ length: inFlight }, async () => {
        while (made < until) await one(soaked, (made += 1), sessions);
      }),
    );
    const seconds = (performance.now() - before) / 1000;
    const last = samples.at(-1) as Sample;
    const sample = { calls: made, ...(await soaked.read()) };
    samples.push(sample);
    const since = sample.calls - last.calls;
    say(
      `${transport}: ${made} calls, heap ${megabytes(sample.heap)} MB, resident ${megabytes(sample.rss)} MB, ` +
        `${sample.descriptors} descriptors, ${Math.round((sample.cpuUs - last.cpuUs) / since)} µs of processor ` +
        `time a call, ${Math.round(since / seconds)} calls/s`,
    );
  }
  return samples;
}

async function one(soaked: Soaked, number: number, sessions: number): Promise<void> {
  const isRefused = number % REFUSED_EVERY === 0;
  const given = isRefused ? 'no' : `call ${number}`;
  const text = await soaked.call(number % sessions, {
    name: 'soak_echo',
    arguments: { text: given },
  });
  if (text.includes(isRefused ? '"tollgate/code":"DENIED"' : `"text":"${given}"`)) return;
  throw new Error(`call ${number}: ${text}`);
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

function megabytes(bytes: number): string {
  return (bytes / 1_048_576).toFixed(1);
}
