/** Measures targets in turns, with reversed order in every round, so that noise is the same for all. */
import { cpuOf, type Target } from './client.ts';

/** Microseconds and ratios of one target in an experiment. */
export interface Figures {
  readonly name: string;
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
  readonly cpu: number;
  /** The median over rounds of the ratio to the base. */
  readonly ratio: number;
}

export function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? 0;
}

/** Measures one request at a time, in blocks that take turns. */
export async function measureSequential(
  targets: readonly Target[],
  base: string,
  plan: { rounds: number; calls: number; request: () => [string, unknown] },
): Promise<Figures[]> {
  const samples = new Map(
    targets.map((target) => [target.name, { all: [] as number[], medians: [] as number[], cpu: 0 }]),
  );
  for (const target of targets) for (let index = 0; index < plan.calls; index += 1) await target.ask(...plan.request());
  for (let round = 0; round < plan.rounds; round += 1) {
    for (const target of round % 2 === 0 ? targets : [...targets].reverse()) {
      const sample = samples.get(target.name);
      const block: number[] = [];
      const cpu = cpuOf(target.child);
      for (let index = 0; index < plan.calls; index += 1) {
        const start = process.hrtime.bigint();
        await target.ask(...plan.request());
        block.push(Number(process.hrtime.bigint() - start) / 1000);
      }
      if (sample === undefined) continue;
      sample.cpu += cpuOf(target.child) - cpu;
      sample.all.push(...block);
      sample.medians.push(quantile(block, 0.5));
    }
  }
  const baseline = samples.get(base)?.medians ?? [];
  return targets.map(({ name }) => {
    const sample = samples.get(name) ?? { all: [], medians: [], cpu: 0 };
    const ratios = sample.medians.map((median, round) => median / (baseline[round] ?? Number.NaN));
    return {
      name,
      p50: quantile(sample.all, 0.5),
      p95: quantile(sample.all, 0.95),
      p99: quantile(sample.all, 0.99),
      cpu: sample.cpu / 1000 / (plan.rounds * plan.calls),
      ratio: quantile(ratios, 0.5),
    };
  });
}

/** Measures calls per second with `flight` requests at once: the median of the rounds, and the ratio to the base. */
export async function measureThroughput(
  targets: readonly Target[],
  base: string,
  plan: { rounds: number; calls: number; flight: number; request: () => [string, unknown] },
): Promise<{ name: string; rate: number; cpu: number; ratio: number }[]> {
  const rates = new Map(targets.map((target) => [target.name, { rates: [] as number[], cpu: 0 }]));
  for (let round = 0; round < plan.rounds; round += 1) {
    for (const target of round % 2 === 0 ? targets : [...targets].reverse()) {
      const cpu = cpuOf(target.child);
      const start = process.hrtime.bigint();
      let left = plan.calls;
      await Promise.all(
        Array.from({ length: plan.flight }, async () => {
          while ((left -= 1) >= 0) await target.ask(...plan.request());
        }),
      );
      const sample = rates.get(target.name);
      sample?.rates.push(plan.calls / (Number(process.hrtime.bigint() - start) / 1e9));
      if (sample !== undefined) sample.cpu += cpuOf(target.child) - cpu;
    }
  }
  const baseline = rates.get(base)?.rates ?? [];
  return targets.map(({ name }) => {
    const sample = rates.get(name) ?? { rates: [], cpu: 0 };
    const ratio = quantile(
      sample.rates.map((rate, round) => rate / (baseline[round] ?? Number.NaN)),
      0.5,
    );
    return { name, rate: quantile(sample.rates, 0.5), cpu: sample.cpu / 1000 / (plan.rounds * plan.calls), ratio };
  });
}
