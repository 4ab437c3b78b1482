/** Tests when telemetry is exported, and that a call never depends on its exporter. */

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { PROGRAM } from '../../catalogs/programs/own-code.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { createLog } from '../../facade/runtime/process-log.ts';
import { loadTelemetry, otlpSettings } from '../../facade/runtime/telemetry/telemetry-settings.ts';
import { inFull } from '../harness/full-tests.ts';
import { ACT, type RawFacade, startRaw } from '../properties/raw-facade.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { type Plain, receiveOtlp } from './otlp-receiver.ts';

const ANSWER = '{"content":[{"type":"text","text":"hello"}]}';

async function startTraced(env: Readonly<Record<string, string>>): Promise<RawFacade> {
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
  onTestFinished(() => void vi.unstubAllEnvs());
  const facade = await startRaw({ web: { tools: [ACT] } });
  onTestFinished(() => facade.close());
  return facade;
}

describe('the variables of OpenTelemetry', () => {
  it('turn each signal on, by endpoint, exporter and protocol' + verifies('AD-77'), () => {
    const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318' };
    const both = { traces: 'http/protobuf', metrics: 'http/protobuf' };
    expect(otlpSettings({})).toEqual({});
    expect(otlpSettings({ OTEL_SERVICE_NAME: 'x', OTEL_EXPORTER_OTLP_HEADERS: 'a=b' })).toEqual({});
    expect(otlpSettings(endpoint)).toEqual({ otlp: both });
    expect(otlpSettings({ ...endpoint, OTEL_SDK_DISABLED: 'true' })).toEqual({});
    expect(otlpSettings({ ...endpoint, OTEL_TRACES_EXPORTER: 'none' }).otlp).toEqual({ metrics: 'http/protobuf' });
    expect(otlpSettings({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://a.example/x' }).otlp).toEqual({
      traces: 'http/protobuf',
    });
    expect(otlpSettings({ ...endpoint, OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: 'http/json' }).otlp).toEqual({
      ...both,
      metrics: 'http/json',
    });
    for (const [name, value] of [
      ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc'],
      ['OTEL_EXPORTER_OTLP_ENDPOINT', 'collector:4317'],
      ['OTEL_EXPORTER_OTLP_ENDPOINT', 'file:///etc/passwd'],
    ] as const) {
      const { otlp, problem } = otlpSettings({ ...endpoint, [name]: value });
      expect(otlp).toBeUndefined();
      expect(problem).toMatch(/^Telemetry is off: .* Write /);
      expect(problem).not.toContain('passwd');
    }
  });

  it('hold secrets that are redacted' + verifies('AD-67'), () => {
    const redactor = new Redactor();
    const said: string[] = [];
    const env = {
      OTEL_EXPORTER_OTLP_ENDPOINT: 'grpc://user:pass-word-1@collector',
      OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'authorization=Bearer%20token-abcdef,x=second-value',
    };
    const log = createLog(redactor, (line) => said.push(line), { level: 'debug' });
    expect(loadTelemetry(env, { redactor, log, tell: (line) => said.push(line) })).toBeUndefined();
    for (const secret of ['pass-word-1', 'token-abcdef', 'second-value'])
      expect(redactor.redact(`a ${secret} b`).value).not.toContain(secret);
    expect(said.join()).toMatch(/Telemetry is off/);
  });
});

describe('an exporter', () => {
  inFull(
    'that is down, slow, or hostile delays no call; what is lost is counted, and reported once' + verifies('AD-78'),
    async () => {
      const hostile = await receiveOtlp((response) => {
        response.writeHead(200);
        const flood = setInterval(() => response.write('x'.repeat(65_536)), 1);
        response.once('close', () => clearInterval(flood));
      });
      const hanging = await receiveOtlp(() => undefined);
      onTestFinished(() => hostile.close());
      onTestFinished(() => hanging.close());
      for (const url of ['http://127.0.0.1:1', hostile.url, hanging.url]) {
        const facade = await startTraced({
          OTEL_EXPORTER_OTLP_ENDPOINT: url,
          OTEL_EXPORTER_OTLP_TIMEOUT: '200',
          OTEL_BSP_SCHEDULE_DELAY: '10',
          OTEL_BSP_MAX_QUEUE_SIZE: '20',
          OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '10',
        });
        const session = facade.open('me');
        const calls = Array.from({ length: 30 }, () => facade.call(session, 'web_act', { raw: ANSWER }));
        for (const { text } of await Promise.all(calls)) expect(text).toBe('hello');
        await vi.waitFor(() => {
          const { gateway } = facade.assembled;
          const page = gateway.metrics({ ...session.principal, owner: true });
          expect(Number(/^tollgate_telemetry_dropped_total (\d+)$/m.exec(page)?.[1])).toBeGreaterThan(0);
        }, 20_000);
        const began = performance.now();
        await facade.close();
        expect(performance.now() - began).toBeLessThan(10_000);
      }
    },
    60_000,
  );

  it('gets protobuf by default' + verifies('AD-77'), async () => {
    const receiver = await receiveOtlp();
    onTestFinished(() => receiver.close());
    const facade = await startTraced({ OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_SERVICE_NAME: 'my-gate' });
    await facade.call(facade.open('me'), 'web_act', { raw: ANSWER });
    await facade.close();
    const paths = receiver.bodies.map(({ path: place, headers }) => `${place} ${headers['content-type']}`);
    expect(new Set(paths)).toEqual(
      new Set(['/v1/traces application/x-protobuf', '/v1/metrics application/x-protobuf']),
    );
    // A field of length 2 in wire type, with the name of the service in it.
    for (const { body } of receiver.bodies) {
      expect(body[0]).toBe(0x0a);
      expect(body.includes('my-gate')).toBe(true);
    }
    expect(receiver.bodies.some(({ body }) => body.includes('mcp.client.operation.duration'))).toBe(true);
  });
});

describe('an SDK that the operator has registered', () => {
  const register = (provider: unknown): void => {
    const key = Symbol.for('opentelemetry.js.api.1');
    const world = globalThis as Record<symbol, unknown>;
    world[key] = { version: '1.9.1', trace: provider };
    onTestFinished(() => void delete world[key]);
  };

  it('gets the spans of a call, and does no harm if it fails' + verifies('AD-77', 'AD-78'), async () => {
    const exporter = new InMemorySpanExporter();
    register(new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] }));
    const facade = await startTraced({});
    const follow = async (one: RawFacade): Promise<string> => {
      const session = one.open('me');
      const request = { id: 1, method: 'tools/call', params: { value: { name: 'web_act' } } };
      const trace = one.assembled.gateway.follow?.(session, request, { version: '2025-11-25' });
      const args = { text: JSON.stringify({ raw: ANSWER }), value: { raw: ANSWER }, exact: true };
      const reply = await one.assembled.gateway.perform(session, {
        name: 'web_act',
        args,
        signal: session.closed,
        trace,
      });
      trace?.answered('{}');
      return reply.kind;
    };
    expect(await follow(facade)).toBe('result');
    expect(exporter.getFinishedSpans().map(({ name }) => name)).toEqual(
      expect.arrayContaining(['tools/call web_act', 'tools/call act', 'tollgate.decide']),
    );
    const fail = (): never => {
      throw new Error('broken');
    };
    const spans = [
      fail,
      () => undefined,
      () => ({ spanContext: fail, setAttributes: fail, end: fail, updateName: fail, setStatus: fail }),
    ];
    for (const startSpan of spans) {
      register({ getTracer: () => ({ startSpan }) });
      expect(await follow(await startTraced({}))).toBe('result');
    }
  }, 60_000);
});

describe('a process', () => {
  it('has the SDK in the bundle of telemetry only' + verifies('AD-79'), () => {
    const code = path.join(PROGRAM, 'code');
    const bundles = readdirSync(code).filter((name) => name.endsWith('.cjs'));
    const withSdk = bundles.filter((name) => readFileSync(path.join(code, name)).includes('application/x-protobuf'));
    expect(withSdk).toEqual(['telemetry.cjs']);
  });

  inFull(
    'loads the code of telemetry only if it is exported, and traces the real client to the server' +
      verifies('AD-61', 'AD-79', 'AD-145'),
    async () => {
      const receiver = await receiveOtlp();
      onTestFinished(() => receiver.close());
      const folder = temporaryFolder();
      mkdirSync(path.join(folder, 'ws'));
      writeFileSync(path.join(folder, 'ws', 'a.txt'), 'text');
      const probe = path.join(folder, 'probe.cjs');
      writeFileSync(
        probe,
        `process.once('exit', () => process.stderr.write('telemetry:' + Object.keys(require.cache).some((name) => name.endsWith('telemetry.cjs')) + '\\n'));`,
      );
      writeFileSync(
        path.join(folder, 'tollgate.yaml'),
        JSON.stringify({
          version: 1,
          workspace: './ws',
          state: './state',
          principals: [{ id: 'me', profiles: ['p'], stdio: true }],
          profiles: { p: { expose: { primitives: 'workspace' } } },
          bash: { isolation: 'direct' },
          rules: [{ id: 'all', outcome: 'allow', when: {} }],
        }),
      );
      const base = {
        PATH: process.env.PATH ?? '',
        HOME: folder,
        XDG_STATE_HOME: path.join(folder, 'xdg'),
        NODE_OPTIONS: `--require=${probe}`,
      };
      const main = path.join(PROGRAM, 'facade', 'main.js');
      const config = path.join(folder, 'tollgate.yaml');
      const logged = new Map<boolean, readonly Plain[]>();
      for (const isOn of [false, true]) {
        const transport = new StdioClientTransport({
          command: process.execPath,
          args: [main, 'run', '--config', config, '--as', 'me'],
          env: {
            ...base,
            TOLLGATE_LOG: 'debug',
            ...(isOn && {
              OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
              OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
            }),
          },
          stderr: 'pipe',
        });
        let said = '';
        transport.stderr?.on('data', (chunk: Buffer) => (said += chunk.toString()));
        const client = new Client({ name: 'test', version: '1' });
        await client.connect(transport);
        const traceparent = `00-${'ef'.repeat(16)}-${'12'.repeat(8)}-01`;
        const result = await client.callTool({ name: 'read', arguments: { path: 'a.txt' }, _meta: { traceparent } });
        expect(result.isError ?? false).toBe(false);
        await client.callTool({ name: 'read', arguments: { path: '../outside' } });
        await client.callTool({ name: 'nothing', arguments: {} }).catch(() => undefined);
        await client.close();
        await vi.waitFor(() => expect(said).toContain(`telemetry:${isOn}`), 20_000);
        logged.set(isOn, callLinesOf(said));
      }
      const names = receiver
        .spans()
        .filter(({ traceId }) => traceId === 'ef'.repeat(16))
        .map(({ name }) => name);
      expect(names).toEqual(
        expect.arrayContaining(['tools/call read', 'tollgate.decide', 'tollgate.reserve', 'tollgate.shape']),
      );
      expect(receiver.series().map(({ name }) => name)).toContain('mcp.server.session.duration');
      const [off = [], on = []] = [logged.get(false), logged.get(true)];
      expect([off.length, on.length]).toEqual([3, 3]);
      for (const line of off) expect(line).not.toHaveProperty('trace_id');
      expect(on[0]?.trace_id).toBe('ef'.repeat(16));
      for (const { trace_id: traceId, span_id: spanId, id } of on)
        expect(receiver.spans().find((span) => span.spanId === spanId)).toMatchObject({
          traceId,
          kind: 2,
          attributes: { 'tollgate.decision.id': id },
        });
    },
    60_000,
  );
});

/** Returns the lines of the log about calls. */
function callLinesOf(log: string): readonly Plain[] {
  return log
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Plain)
    .filter(({ msg }) => msg === 'call');
}
