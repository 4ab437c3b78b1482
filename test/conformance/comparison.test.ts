/** Tests that a pass that proves nothing counts as a failure, and that the page of two equal runs is the same. */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { compareWith, countChecks, passes, type Row, type ScenarioRun } from './comparison.ts';
import { ScenarioReader } from './official-suite.ts';
import { type Exchange, type Injector, startInjector } from './recording-injector.ts';
import { linesOf, pageOf } from './report.ts';

const exchange = (request: string, answer: string, more: Partial<Exchange> = {}): Exchange => ({
  scenario: 's',
  request,
  method: request.split(' ')[0] ?? '',
  answer,
  succeeded: !answer.includes('error'),
  asks: [],
  ...more,
});
const run = (more: Partial<ScenarioRun>): ScenarioRun => ({
  checks: [{ id: 'a', name: 'a', status: 'SUCCESS' }],
  exchanges: [],
  records: [],
  ...more,
});

describe('a pass is hollow', () => {
  const call = exchange('tools/call t', '200 result aaaaaaaa');
  const intent = { type: 'intent', tool: 't' };
  const direct = run({ exchanges: [call] });

  it('not if answers and records are as they must be', () => {
    const cell = compareWith(direct, run({ exchanges: [call], records: [intent] }));
    expect([cell.hollow, passes(cell)]).toEqual([[], true]);
  });

  it('not if the call is of a tool that the owner was told is refused' + verifies('PR-C01'), () => {
    const hollow = (quarantined: readonly string[]): readonly string[] =>
      compareWith(direct, run({ records: [intent], quarantined })).hollow;
    expect([hollow(['t']), hollow(['other'])]).toEqual([[], ['tools/call t: not sent']]);
  });

  it.each([
    [
      'if a list is empty',
      '200 3 resources aaaaaaaa',
      '200 0 resources bbbbbbbb',
      '200 0 resources, directly 200 3 resources',
    ],
    ['if an error satisfies it', '200 result aaaaaaaa', '200 error -32601', '200 error -32601, directly 200 result'],
    ['if the error is another one', '200 error -32602', '200 error -32601', 'directly 200 error -32602'],
    ['if the status is another one', '404 error -32601', '200 error -32601', 'directly 404 error -32601'],
    ['if a member is another one', '200 result content=aaaaaaaa', '200 result content=bbbbbbbb', 'another content'],
    ['if a member is new', '200 result a=aaaaaaaa', '200 result a=aaaaaaaa b=bbbbbbbb', '200 result with another b'],
    ['if the names are others', '200 1 tools aaaaaaaa', '200 1 tools bbbbbbbb', 'with another list of names'],
  ])('%s' + verifies('PR-C01'), (_when, expected, got, why) => {
    const cell = compareWith(
      run({ exchanges: [exchange('resources/list', expected)] }),
      run({ exchanges: [exchange('resources/list', got)] }),
    );
    expect(cell.hollow.join()).toContain(why);
    expect(passes(cell)).toBe(false);
  });

  it('if a request was not sent, or a question not asked' + verifies('PR-C01'), () => {
    const asking = exchange('tools/call t', '200 result aaaaaaaa', { asks: ['elicitation/create'] });
    expect(compareWith(direct, run({})).hollow).toEqual(['tools/call t: not sent']);
    expect(compareWith(run({ exchanges: [asking] }), run({ exchanges: [call], records: [intent] })).hollow).toEqual([
      'tools/call t: 200 result, directly 200 result, asks elicitation/create',
    ]);
  });

  it('if a check ran directly only, and not if it became information' + verifies('PR-C01'), () => {
    const two = run({ checks: [...direct.checks, { id: 'b', name: 'b', status: 'SUCCESS' }] });
    expect(compareWith(two, run({})).hollow).toEqual(['check b did not run']);
    expect(
      compareWith(two, run({ checks: [...direct.checks, { id: 'b', name: 'b', status: 'SKIPPED' }] })).hollow,
    ).toHaveLength(1);
    expect(
      compareWith(two, run({ checks: [...direct.checks, { id: 'b', name: 'b', status: 'INFO' }] })).hollow,
    ).toEqual([]);
  });

  it.each([
    ['a call', call, 'tool'],
    ['a resource', exchange('resources/read test://a', '200 result aaaaaaaa'), 'resource'],
    ['a prompt', exchange('prompts/get p', '200 result aaaaaaaa'), 'prompt'],
    ['a refusal', exchange('tools/call t', '200 error -32602'), 'tool'],
  ])('if %s left no record of its kind' + verifies('PR-C01'), (_what, one, kind) => {
    const found = (records: ScenarioRun['records']): readonly string[] =>
      compareWith(run({ exchanges: [one] }), run({ exchanges: [one], records })).hollow;
    expect(found([])).toEqual([`1 requests about a ${kind}, 0 records`]);
    expect(found([{ type: 'outcome', kind }])).toHaveLength(1);
    expect(found([{ type: 'intent', kind: 'roots' }])).toHaveLength(1);
    expect(found([{ type: 'intent', ...(kind === 'tool' ? {} : { kind }) }])).toEqual([]);
    expect(found([{ type: 'decision', ...(kind === 'tool' ? {} : { kind }) }])).toEqual([]);
  });

  it('if Tollgate accepts what refused the client of the SDK', () => {
    const refused = run({ exchanges: [exchange('tools/list', 'error')] });
    expect(compareWith(refused, run({ exchanges: [exchange('connect', 'error')] })).hollow).toEqual([]);
    expect(compareWith(refused, run({ exchanges: [call] })).hollow).toEqual(['accepted, directly refused']);
  });

  it('if a check failed once', () => {
    const [a, b] = ['SUCCESS', 'FAILURE'].map((status) => ({ id: 'a', name: 'a', status }));
    expect(countChecks(run({ checks: [a, b, a].filter((one) => one !== undefined) }))).toMatchObject({
      passed: 0,
      total: 1,
    });
  });

  it('if it has no checks, and a scenario without a run fails' + verifies('PR-C01'), () => {
    expect(passes(countChecks(run({ checks: [] })))).toBe(false);
    expect(passes(compareWith(direct, undefined))).toBe(false);
    expect(passes(countChecks(run({ checks: [{ id: 'a', name: 'a', status: 'WARNING' }] })))).toBe(false);
  });
});

describe('the report', () => {
  const row = (at: string): Row => ({
    side: 'server',
    revision: '2025-11-25',
    scenario: 'tools-list',
    scored: true,
    direct: { passed: 2, total: 2, failures: [], hollow: [] },
    through: {
      http: { passed: 2, total: 2, failures: [], hollow: [] },
      stdio: { passed: 1, total: 2, failures: [`tools: no answer of http://localhost:${at}/mcp`], hollow: [] },
    },
  });

  it('has no ports, and names the upstream that differs', () => {
    expect(pageOf([row('4711')])).toBe(pageOf([row('4712')]));
    expect(pageOf([row('4711')])).toContain('stdio: tools: no answer of http://localhost:PORT/mcp');
    expect(pageOf([row('4711')])).toContain('| **scored scenarios that pass** | 1/1 | 1/1 | 0/1 |  |');
  });

  it('has at most 100 columns on a terminal', () => {
    expect(linesOf([row('4711'.repeat(40))]).filter((line) => line.length > 100)).toEqual([]);
  });
});

// A complete run writes the page.
it('docs/conformance.md shows that every scored scenario passes through Tollgate' + verifies('PR-C04'), () => {
  const page = readFileSync(path.join(import.meta.dirname, '..', '..', 'docs', 'conformance.md'), 'utf8');
  const sums = [...page.matchAll(/^\| \*\*scored scenarios that pass\*\* \|(.*)\|$/gm)].map(([, cells = '']) => cells);
  expect(sums).toHaveLength(4);
  for (const [passed, all] of sums.flatMap((cells) => [...cells.matchAll(/(\d+)\/(\d+)/g)].map(([, a, b]) => [a, b])))
    expect(passed).toBe(all);
});

describe('the injector', () => {
  let target: Server;
  let injector: Injector;
  const got: { readonly host: string | undefined; readonly authorization: string | undefined }[] = [];
  let answer = { type: 'application/json', body: '' };

  beforeAll(async () => {
    target = createServer((request, response) => {
      got.push({ host: request.headers.host, authorization: request.headers.authorization });
      response.writeHead(200, { 'content-type': answer.type }).end(answer.body);
    });
    await new Promise<void>((resolve) => target.listen(0, '127.0.0.1', resolve));
    const { port } = target.address() as AddressInfo;
    injector = await startInjector({ target: `http://127.0.0.1:${port}/mcp`, token: 'a-token', scenario: () => 'one' });
  });
  afterAll(async () => {
    await injector.close();
    target.close();
  });

  async function send(body: unknown): Promise<Exchange | undefined> {
    await (await fetch(injector.url, { method: 'POST', body: JSON.stringify(body) })).text();
    await expect.poll(() => injector.exchanges.length).toBe(got.length);
    return injector.exchanges.at(-1);
  }

  it('adds the token, and names the target as the host', async () => {
    answer = { type: 'application/json', body: '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"}]}}' };
    const seen = await send({ jsonrpc: '2.0', id: 1, method: 'tools/list' });
    expect(got.at(-1)).toEqual({
      host: `localhost:${(target.address() as AddressInfo).port}`,
      authorization: 'Bearer a-token',
    });
    expect(seen).toMatchObject({ scenario: 'one', request: 'tools/list', succeeded: true });
    expect(seen?.answer).toMatch(/^200 1 tools [0-9a-f]{8}$/);
  });

  it('reads streams, and the questions in them', async () => {
    const question = '{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}';
    const result = '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}';
    answer = { type: 'text/event-stream', body: `id: 1\ndata: ${question}\n\ndata: ${result}\n\n` };
    expect(await send({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 't' } })).toMatchObject({
      request: 'tools/call t',
      succeeded: true,
      asks: ['elicitation/create'],
    });
  });

  it("keeps standard error codes, and not those that are each one's own", async () => {
    for (const [code, kind] of [
      [-32601, '200 error -32601'],
      [-32020, '200 error -32020'],
      [-32001, '200 error'],
    ] as const) {
      answer = { type: 'application/json', body: `{"jsonrpc":"2.0","id":1,"error":{"code":${code},"message":""}}` };
      expect((await send({ jsonrpc: '2.0', id: 1, method: 'x' }))?.answer).toBe(kind);
    }
  });
});

it('the scenario that runs is the last one that the suite named', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-scenario-'));
  const file = path.join(folder, 'output.txt');
  const reader = new ScenarioReader(file);
  expect(reader.now()).toBe('');
  writeFileSync(file, '=== Running scenario: a ===\nRunning\n');
  expect(reader.now()).toBe('a');
  writeFileSync(file, '=== Running scenario: a ===\nRunning\n\n=== Running scenario: b ===\n=== Running scen');
  expect([reader.now(), reader.now()]).toEqual(['b', 'b']);
  rmSync(folder, { recursive: true });
});
