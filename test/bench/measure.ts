/** Measures in turns, with reversed order in every second round, so that noise is the same for all. */
import { startCpu, type Target } from './client.ts';

/** Method and parameters of the call with a number. */
export type Request = (number: number) => readonly [method: string, params: unknown];

/** One kind of call to one target. */
export interface Lane {
  readonly name: string;
  readonly target: Target;
  readonly request: Request;
}

/** A block of calls: the latency of each, µs; processor time of the proxy per call, µs; calls per second. */
export interface Block {
  readonly us: readonly number[];
  readonly cpu: number;
  readonly rate: number;
}

/** Returns the value below which the share `q` of the values lies. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? Number.NaN;
}

/** Returns the median. */
export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** Runs `work` for each item in turns. Returns the results of each item, by round. */
export async function takeTurns<T, R>(
  items: readonly T[],
  rounds: number,
  work: (item: T, round: number) => Promise<R>,
): Promise<R[][]> {
  const results: R[][] = items.map(() => []);
  const order = items.map((item, index) => [item, results[index] as R[]] as const);
  for (let round = 0; round < rounds; round += 1) {
    for (const [item, found] of order) found.push(await work(item, round));
    order.reverse();
  }
  return results;
}

/** Returns the median over rounds of the ratio to the base. */
export function pairedRatio<T>(values: readonly T[], base: readonly T[], of: (value: T) => number): number {
  return median(values.map((value, round) => of(value) / of(base[round] as T)));
}

/** Makes calls with `flight` at once. Throws if the last reply is an error. */
export async function runBlock(lane: Lane, calls: number, flight = 1): Promise<Block> {
  const { target, request } = lane;
  const us: number[] = [];
  let next = 0;
  let last: Buffer = Buffer.alloc(0);
  const usedCpu = startCpu(target);
  const began = performance.now();
  const work = async (): Promise<void> => {
    while (next < calls) {
      next += 1;
      const start = performance.now();
      last = await target.ask(...request(next));
      us.push((performance.now() - start) * 1000);
    }
  };
  await Promise.all(Array.from({ length: flight }, work));
  const seconds = (performance.now() - began) / 1000;
  const used = usedCpu();
  if (last.includes('"isError":true') || last.includes('"error":{'))
    throw new Error(`${lane.name}: ${last.toString('utf8').slice(0, 400)}`);
  return { us, cpu: used / 1000 / calls, rate: calls / seconds };
}

/** Measures blocks of the lanes in turns, after `warm` calls of each. */
export async function measureLanes(
  lanes: readonly Lane[],
  plan: { readonly rounds: number; readonly calls: number; readonly flight?: number; readonly warm?: number },
): Promise<Block[][]> {
  const { warm = 0 } = plan;
  if (warm > 0) await takeTurns(lanes, 1, (lane) => runBlock(lane, warm, 1));
  return takeTurns(lanes, plan.rounds, (lane) => runBlock(lane, plan.calls, plan.flight));
}

/** Runs something again and again, a fifth more than `rounds`. Returns p50, p99 and the least processor time, µs. */
export async function timeRuns(rounds: number, run: (round: number) => unknown): Promise<readonly string[]> {
  const times: number[] = [];
  const cpu: number[] = [];
  for (let round = 0; round < rounds * 1.2; round += 1) {
    const used = process.cpuUsage();
    const start = performance.now();
    await run(round);
    if (round < rounds * 0.2) continue;
    times.push((performance.now() - start) * 1000);
    const { user, system } = process.cpuUsage(used);
    cpu.push(user + system);
  }
  return [quantile(times, 0.5), quantile(times, 0.99), Math.min(...cpu)].map((us) => us.toFixed(0));
}
