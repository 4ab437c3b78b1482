/** Tests /metrics of a facade: the text format, every documented metric, and their values. */

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { createAccess } from '../../facade/cli/serving/client-access.ts';
import { serveHttp } from '../../facade/serve/http/http-listener.ts';
import { server as entry } from '../cli/terminal.ts';
import { inFull } from '../harness/full-tests.ts';
import { initialize, request } from '../serve/fake-facade.ts';
import { unpackProgram } from '../servers/system.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const TOKENS = { boss: 'boss-token-0123456789abcdef', ann: 'ann-token-0123456789abcdef' } as const;
const CONFIG = `version: 1
workspace: ./workspace
state: ./state
servers: {chaos: ${entry(['chaos.mjs'])}}
principals:
  - {id: boss, profiles: [p], token: "\${env:BOSS}", owner: true, stdio: true}
  - {id: ann, profiles: [p], token: "\${env:ANN}", stdio: true}
profiles: {p: {servers: [chaos], expose: {primitives: workspace, tools: ["chaos.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
listen: {port: 0}
`;

/** Its package is unpacked, not installed: that would start a service. */
const promtool = (): string => unpackProgram('promtool', 'prometheus');

let ends: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ends) await end();
  ends = [];
});

interface Front {
  readonly facade: TestFacade;
  ask(
    token: string,
    route: string,
    body?: unknown,
    session?: string,
  ): Promise<{ readonly status: number; readonly text: string; readonly session: string }>;
  page(token: string): Promise<string>;
}

async function start(yaml = CONFIG): Promise<Front> {
  const facade = await startFacade(yaml, { env: { BOSS: TOKENS.boss, ANN: TOKENS.ann } });
  const { config } = facade.assembled;
  const served = {
    facade: facade.assembled.gateway,
    listen: config.listen,
    ...createAccess(() => config, config.listen),
  };
  const server = await serveHttp({
    ...served,
    tenants: new Map([['acme', served]]),
    drainMs: 100,
    onFault: (thrown) => {
      throw thrown;
    },
  });
  ends = [() => server.close(), () => facade.close()];
  const ask: Front['ask'] = async (token, route, body, session) => {
    const response = await fetch(new URL(route, server.url), {
      method: body === undefined ? 'GET' : 'POST',
      headers: {
        authorization: `Bearer ${token}`,
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        ...(session !== undefined && { 'mcp-session-id': session }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return {
      status: response.status,
      text: await response.text(),
      session: response.headers.get('mcp-session-id') ?? '',
    };
  };
  return { facade, ask, page: async (token) => (await ask(token, '/metrics')).text };
}

const documented = (): ReadonlyMap<string, { readonly type: string; readonly labels: readonly string[] }> =>
  new Map(
    [
      ...readFileSync(path.join(import.meta.dirname, '..', '..', 'docs', 'metrics.md'), 'utf8').matchAll(
        /^\| `([a-z_]+)` \| (counter|gauge|histogram) \|([^|]*)\|/gm,
      ),
    ].map(([, name = '', type = '', labels = '']) => [
      name,
      { type, labels: [...labels.matchAll(/`(\w+)`/g)].map(([, label = '']) => label) },
    ]),
  );

/** Parses a page as Prometheus does. Throws an error for another format. */
function parse(
  text: string,
): ReadonlyMap<string, { readonly type: string; readonly samples: ReadonlyMap<string, number> }> {
  const found = new Map<string, { type: string; samples: Map<string, number> }>();
  if (!text.endsWith('\n') || text.includes('\n\n')) throw new Error('no line end, or an empty line');
  let current = '';
  for (const line of text.trimEnd().split('\n')) {
    const [, help] = /^# HELP (\w+) \S.*$/.exec(line) ?? [];
    const [, name, type = ''] = /^# TYPE (\w+) (counter|gauge|histogram)$/.exec(line) ?? [];
    const [, sample = '', labels = '', value] =
      /^(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (-?[\d.]+(?:e[+-]?\d+)?)$/.exec(line) ?? [];
    if (help !== undefined) {
      if (found.has(help)) throw new Error(`${help} stands twice`);
      found.set((current = help), { type: '', samples: new Map() });
    } else if (name !== undefined && name === current) found.get(name)!.type = type;
    else if (
      value !== undefined &&
      sample.replace(/_(bucket|sum|count)$/, (end) => (found.get(current)?.type === 'histogram' ? '' : end)) === current
    ) {
      const { samples } = found.get(current)!;
      const key = `${sample}{${labels}}`;
      if (samples.has(key)) throw new Error(`${key} stands twice`);
      samples.set(key, Number(value));
    } else throw new Error(`not a line of the format: ${line}`);
  }
  return found;
}

describe('/metrics', () => {
  it(
    'is in the text format, and has each documented metric with its type and labels, and no other' + verifies('ST-32'),
    async () => {
      const { ask, page, facade } = await start();
      const { session } = await ask(TOKENS.boss, '/mcp', initialize());
      await ask(
        TOKENS.boss,
        '/mcp',
        request(1, 'tools/call', { name: 'chaos_big', arguments: { bytes: 100_000 } }),
        session,
      );
      const ended = facade.open('boss');
      await facade.call(ended, 'chaos_crash', {});
      await facade.assembled.gateway.closeSession(ended);
      await expect
        .poll(async () => parse(await page(TOKENS.boss)).get('tollgate_server_events_total')?.samples.size)
        .toBeGreaterThan(0);
      // Refused connections and drains have other tests; here their values are 0.
      const seen = parse(await page(TOKENS.boss));
      const docs = documented();
      expect([...seen.keys()].sort()).toEqual([...docs.keys()].sort());
      for (const [name, { type, samples }] of seen) {
        expect([name, type]).toEqual([name, docs.get(name)?.type]);
        if (type === 'counter') expect(name).toMatch(/_total$/);
        for (const key of samples.keys())
          expect(
            [...key.matchAll(/[{,](\w+)="/g)].map(([, label]) => label).filter((label) => label !== 'le'),
            key,
          ).toEqual(docs.get(name)?.labels);
        expect(samples.size, name).toBeGreaterThan(0);
      }
    },
  );

  it(
    'counts sessions, connections, statuses, whole durations and spilled bytes; the process is measured in base units' +
      verifies('ST-32', 'ST-33'),
    async () => {
      const { ask, page, facade } = await start();
      const { session } = await ask(TOKENS.boss, '/mcp', initialize());
      facade.open('ann');
      const call = await ask(
        TOKENS.boss,
        '/mcp',
        request(1, 'tools/call', { name: 'chaos_big', arguments: { bytes: 100_000 } }),
        session,
      );
      expect(call.status).toBe(200);
      expect((await ask('wrong', '/mcp', initialize())).status).toBe(401);
      await expect
        .poll(async () =>
          parse(await page(TOKENS.boss))
            .get('tollgate_http_responses_total')
            ?.samples.get('tollgate_http_responses_total{status="401"}'),
        )
        .toBe(1);
      const values = new Map([...parse(await page(TOKENS.boss)).values()].flatMap(({ samples }) => [...samples]));
      expect(values.get('tollgate_sessions{transport="http"}')).toBe(1);
      expect(values.get('tollgate_sessions{transport="stdio"}')).toBe(1);
      expect(values.get('tollgate_http_connections{}')).toBeGreaterThan(0);
      expect(values.get('tollgate_http_responses_total{status="200"}')).toBeGreaterThanOrEqual(2);
      const big = (side: 'server' | 'client', part: string): number => {
        const [tool, server] = side === 'server' ? ['chaos_big', ''] : ['big', ',tollgate_server="chaos"'];
        const labels = `mcp_method_name="tools/call",gen_ai_tool_name="${tool}",gen_ai_prompt_name="",error_type=""`;
        return values.get(`mcp_${side}_operation_duration_seconds_${part}{${labels}${server}}`) ?? Number.NaN;
      };
      expect([big('server', 'count'), big('client', 'count')]).toEqual([1, 1]);
      expect(big('server', 'sum')).toBeGreaterThanOrEqual(big('client', 'sum') - 0.002);
      expect(values.get('tollgate_principal_calls_total{principal="boss",outcome="ok"}')).toBe(1);
      expect(values.get('tollgate_spilled_bytes_total{}')).toBeGreaterThan(60_000);
      expect([values.get('tollgate_spill_files{}'), values.get('tollgate_spill_bytes{}')]).toEqual([
        1,
        values.get('tollgate_spilled_bytes_total{}'),
      ]);
      expect(values.get('process_resident_memory_bytes{}')).toBeGreaterThan(20_000_000);
      expect(
        Math.abs((values.get('process_start_time_seconds{}') ?? 0) - (Date.now() / 1000 - process.uptime())),
      ).toBeLessThan(5);
      expect(values.get('process_cpu_seconds_total{}')).toBeLessThan(100_000);
      expect(values.get('tollgate_event_loop_delay_seconds{percentile="100"}')).toBeGreaterThanOrEqual(
        values.get('tollgate_event_loop_delay_seconds{percentile="50"}') ?? Infinity,
      );
      expect(parse(await page(TOKENS.ann)).has('tollgate_sessions')).toBe(false);
      expect([...parse(await page(TOKENS.ann)).keys()]).toEqual([
        'tollgate_calls_total',
        'mcp_server_operation_duration_seconds',
        'mcp_client_operation_duration_seconds',
        'tollgate_server_state',
        'tollgate_context_bytes_total',
        'tollgate_context_tokens_total',
      ]);
    },
  );

  inFull(
    'passes promtool, with the buckets and units of the conventions, and the lists of a client' + verifies('AD-69'),
    async () => {
      const { ask, page, facade } = await start();
      const { session } = await ask(TOKENS.ann, '/mcp', initialize());
      await ask(TOKENS.ann, '/mcp', request(1, 'tools/list', {}), session);
      for (const [name, args] of [
        ['chaos_big', { bytes: 10 }],
        ['no such tool "\\n', {}],
      ] as const)
        await ask(TOKENS.ann, '/mcp', request(2, 'tools/call', { name, arguments: args }), session);
      await facade.assembled.gateway.closeSession(facade.open('boss'));
      const text = await page(TOKENS.boss);
      const { status, stdout, stderr } = spawnSync(promtool(), ['check', 'metrics'], { input: text, encoding: 'utf8' });
      expect([stdout, stderr, status]).toEqual(['', '', 0]);
      const bounds = [
        ...text.matchAll(
          /^mcp_server_operation_duration_seconds_bucket\{mcp_method_name="tools\/list".*le="([^"]+)"/gm,
        ),
      ];
      expect(bounds.map(([, bound]) => bound).join(' ')).toBe('0.01 0.02 0.05 0.1 0.2 0.5 1 2 5 10 30 60 120 300 +Inf');
      const own = await page(TOKENS.ann);
      expect(own).toContain('mcp_method_name="tools/list"');
      expect(own).not.toMatch(/principal|session/);
    },
  );

  inFull(
    'counts the calls in flight, without those that wait for a person, until they end' + verifies('FL-18'),
    async () => {
      const { page, facade } = await start(
        CONFIG.replace('rules: [', 'rules: [{id: echo, outcome: ask, when: {tools: [chaos.echo]}}, '),
      );
      const gauges = async (): Promise<readonly (number | undefined)[]> => {
        const families = parse(await page(TOKENS.boss));
        return ['tollgate_calls_in_flight', 'tollgate_approvals_waiting'].map((name) =>
          families.get(name)?.samples.get(`${name}{}`),
        );
      };
      const session = facade.open('boss');
      const cancel = new AbortController();
      await facade.call(session, 'chaos_crash', {});
      expect(await gauges()).toEqual([0, 0]);
      const calls = [
        facade.call(session, 'chaos_hang', {}),
        facade.call(session, 'chaos_hang', {}, { signal: cancel.signal }),
        facade.call(session, 'chaos_echo', {}),
      ];
      await expect.poll(gauges, { timeout: 20_000 }).toEqual([2, 1]);
      cancel.abort();
      await expect.poll(gauges, { timeout: 20_000 }).toEqual([1, 1]);
      await facade.assembled.gateway.closeSession(session);
      await Promise.all(calls);
      expect(await gauges()).toEqual([0, 0]);
    },
  );

  it('shows the delay of a blocked event loop' + verifies('ST-33'), async () => {
    const { page } = await start();
    // Blocks between two measurements, which run in the event loop.
    await expect
      .poll(
        async () => {
          for (const end = performance.now() + 200; performance.now() < end; );
          return (
            parse(await page(TOKENS.boss))
              .get('tollgate_event_loop_delay_seconds')
              ?.samples.get('tollgate_event_loop_delay_seconds{percentile="100"}') ?? 0
          );
        },
        { timeout: 20_000 },
      )
      .toBeGreaterThan(0.1);
  });
});

describe('faults of audit and state' + verifies('ST-34'), () => {
  it('appear in /metrics', async () => {
    const { facade, page } = await start();
    const session = facade.open('boss');
    const faults = async (): Promise<number> =>
      parse(await page(TOKENS.boss))
        .get('tollgate_audit_faults_total')
        ?.samples.get('tollgate_audit_faults_total{}') ?? -1;
    expect(await faults()).toBe(0);
    await facade.assembled.deps.audit.close();
    // The end of the session cannot be recorded either.
    ends[1] = () => facade.close().catch(() => undefined);
    await facade.call(session, 'read', { path: 'x' });
    expect(await faults()).toBeGreaterThan(0);
  });
});
