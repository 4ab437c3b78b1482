/** Tests that counts reach Prometheus and an OpenTelemetry SDK: the real one, with an exporter in memory. */

import { metrics } from '@opentelemetry/api';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { ContextReport } from '../../facade/runtime/metrics/context-report.ts';
import { inFull } from '../harness/full-tests.ts';
import { ACT, startRaw } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

const PRINCIPALS = [
  { id: 'me', profiles: ['all'], stdio: true, owner: true },
  { id: 'ann', profiles: ['all'], stdio: true },
];

describe('the counts of sessions as metrics', () => {
  inFull('are in OpenTelemetry and in /metrics, where a principal sees its own' + verifies('CM-54'), async () => {
    const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
    const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 600_000 });
    const provider = new MeterProvider({ readers: [reader] });
    metrics.setGlobalMeterProvider(provider);
    onTestFinished(async () => {
      metrics.disable();
      await provider.shutdown();
    });
    const facade = await startRaw({ web: { tools: [ACT] } }, { principals: PRINCIPALS });
    onTestFinished(() => facade.close());
    const [me, ann] = [facade.open('me'), facade.open('ann')];
    await facade.list(me);
    await facade.call(me, 'web_act', {});
    await facade.call(ann, 'web_act', {});
    const { gateway, deps } = facade.assembled;
    const report = async (): Promise<ContextReport> => deps.metrics.context.report();
    await expect.poll(async () => (await report()).total.lists.shown.tokens, { timeout: 30_000 }).toBeGreaterThan(0);
    const { total } = await report();
    const wanted = (['lists', 'calls', 'results'] as const).flatMap((kind) =>
      (['shown', 'without'] as const).map((side) => [kind, side, total[kind][side]] as const),
    );

    await reader.forceFlush();
    const exported = exporter
      .getMetrics()
      .flatMap(({ scopeMetrics }) => scopeMetrics)
      .filter(({ scope }) => scope.name === 'tollgate')
      .flatMap((scope) => scope.metrics);
    const valuesOf = (name: string): ReadonlyMap<string, unknown> =>
      new Map(
        exported
          .filter(({ descriptor }) => descriptor.name === name)
          .flatMap(({ dataPoints }) => [...dataPoints])
          .map(({ attributes, value }) => [`${attributes.kind} ${attributes.side}`, value]),
      );
    const [bytes, tokens] = [valuesOf('tollgate.context.bytes'), valuesOf('tollgate.context.tokens')];
    const page = gateway.metrics(me.principal);
    for (const [kind, side, amount] of wanted) {
      expect(bytes.get(`${kind} ${side}`)).toBe(amount.bytes);
      expect(Math.abs(Number(tokens.get(`${kind} ${side}`)) - (amount.tokens ?? NaN))).toBeLessThanOrEqual(2);
      expect(page).toContain(`tollgate_context_bytes_total{kind="${kind}",side="${side}"} ${amount.bytes}\n`);
    }
    expect(page).toMatch(/^tollgate_context_tokens_total\{kind="lists",side="shown"\} [1-9]/m);
    const own = gateway.metrics(ann.principal);
    expect(own).toContain('tollgate_context_bytes_total{kind="lists",side="shown"} 0\n');
    expect(own).toContain('tollgate_context_bytes_total{kind="calls",side="shown"} 2\n');
  });

  it('do no harm if an SDK fails, or registers what is no provider' + verifies('CM-54'), async () => {
    const key = Symbol.for('opentelemetry.js.api.1');
    const world = globalThis as Record<symbol, unknown>;
    const before = world[key];
    onTestFinished(() => void (world[key] = before));
    for (const broken of [{ metrics: { getMeter: () => Promise.reject } }, { metrics: null }, 'nothing']) {
      world[key] = broken;
      const facade = await startRaw({ web: { tools: [ACT] } });
      expect((await facade.call(facade.open('me'), 'web_act', {})).code).toBe('');
      await facade.close();
    }
  });
});
