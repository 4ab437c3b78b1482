/** Tests by property that budgets hold under any load, and that each call leaves exactly its records. */

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import type { Session } from '../../facade/serve/facade-port.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { type Answer, type Recorded, startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { ACT, type Act, allow, type RawFacade, startRaw, tool } from './raw-facade.ts';

let facade: RawFacade | undefined;
afterEach(async () => {
  await facade?.close();
  facade = undefined;
});

const SCOPES = ['run', 'session', 'principal', 'server', 'tool', 'origin'] as const;
const PEOPLE = ['ann', 'ben'].map((id) => ({ id, profiles: ['all'], stdio: true, client: `app-${id}` }));

describe('budgets are never exceeded', () => {
  it('by 100 parallel calls: a budget of 10 gives exactly 10 executions' + verifies('HB-05', 'CY-17'), async () => {
    facade = await startRaw(
      { one: { tools: [tool('open')] } },
      { budgets: [{ id: 'ten', scope: 'session', calls: 10 }] },
    );
    const session = facade.open('me');
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, n) => (facade as RawFacade).call(session, 'one_open', { n })),
    );
    expect(count(answers, '')).toBe(10);
    expect(count(answers, 'BUDGET_EXCEEDED')).toBe(90);
    expect(facade.calls('one')).toHaveLength(10);
    expect(facade.records().filter(({ type }) => type === 'budget')).toHaveLength(90);
  });

  it('in any scope, by parallel sessions and runs of several principals', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 7 }),
        fc.array(fc.record({ scope: fc.constantFrom(...SCOPES), session: fc.nat(3), run: fc.constantFrom('a', 'b') }), {
          minLength: 60,
          maxLength: 100,
        }),
        async (limit, calls) => {
          const running = await startRaw(
            { one: { tools: SCOPES.map((scope) => tool(scope)) } },
            {
              principals: PEOPLE,
              budgets: SCOPES.map((scope) => ({
                id: `by-${scope}`,
                scope,
                calls: limit,
                when: { tool: `one.${scope}` },
              })),
              caps: { concurrent: 64 },
            },
          );
          try {
            const sessions = ['ann', 'ben', 'ann', 'ben'].map((principal) => running.open(principal));
            const answers = await Promise.all(
              calls.map(({ scope, session, run }) =>
                running.call(sessions[session] as Session, `one_${scope}`, {}, { meta: { 'tollgate/run': run } }),
              ),
            );
            expect(count(answers, '') + count(answers, 'BUDGET_EXCEEDED')).toBe(calls.length);
            for (const scope of SCOPES) {
              const keys = calls.filter((call) => call.scope === scope).map(({ session }) => keyOf(scope, session));
              const expected = [...new Set(keys)].reduce(
                (sum, key) => sum + Math.min(limit, keys.filter((other) => other === key).length),
                0,
              );
              expect(
                running.calls('one').filter(({ name }) => name === scope),
                scope,
              ).toHaveLength(expected);
            }
          } finally {
            await running.close();
          }
        },
      ),
      { numRuns: roundsOf(4, 1) },
    );
  }, 60_000);

  it('by two facades with one state' + verifies('CY-17'), async () => {
    facade = await startRaw(
      { one: { tools: [tool('open')] } },
      { budgets: [{ id: 'ten', scope: 'principal', calls: 10 }] },
    );
    const second = await startFacade(readFileSync(path.join(facade.folder, 'tollgate.yaml'), 'utf8'), {
      folder: facade.folder,
    });
    try {
      const both = [facade, second].map((one) => ({ one, session: one.open('me') }));
      const answers = await Promise.all(
        Array.from({ length: 100 }, (_, n) => both[n % 2]).map((turn) => turn?.one.call(turn.session, 'one_open', {})),
      );
      expect(count(answers as Answer[], '')).toBe(10);
      expect(facade.calls('one')).toHaveLength(10);
    } finally {
      await second.close();
    }
  });

  it(
    'by parallel calls: a server never has more than the budget, nor a session more than its cap' + verifies('CY-17'),
    async () => {
      facade = await startRaw(
        { one: { tools: [ACT] }, two: { tools: [ACT] } },
        {
          budgets: [{ id: 'three', scope: 'server', concurrent: 3, when: { server: 'one' } }],
          caps: { concurrent: 5 },
        },
      );
      const running = facade;
      const sessions = [running.open('me'), running.open('me')];
      const answers = await Promise.all(
        Array.from({ length: 40 }, (_, n) =>
          running.call(sessions[n % 2] as Session, n % 4 < 2 ? 'one_act' : 'two_act', { delayMs: 10 }),
        ),
      );
      expect(count(answers, '')).toBe(40);
      expect(running.mostAtOnce('one')).toBeLessThanOrEqual(3);
      expect(running.mostAtOnce('two')).toBeLessThanOrEqual(10);
    },
  );

  it('in bytes of arguments, which count as bytes whatever their characters are', async () => {
    facade = await startRaw(
      { one: { tools: [tool('open')] } },
      { budgets: [{ id: 'kilo', scope: 'session', argBytes: 1000 }] },
    );
    const session = facade.open('me');
    const codes: string[] = [];
    for (let n = 0; n < 4; n += 1) codes.push((await facade.call(session, 'one_open', { t: '中'.repeat(100) })).code);
    expect(codes).toEqual(['', '', '', 'BUDGET_EXCEEDED']);
    const sent = facade.calls('one').reduce((sum, { args }) => sum + Buffer.byteLength(args), 0);
    expect(sent).toBeLessThanOrEqual(1000);
  });
});

/** Returns the key of the counter: runs of a session, and sessions of a principal, share a session budget. */
function keyOf(scope: (typeof SCOPES)[number], session: number): string {
  const person = session % 2;
  return {
    run: String(session),
    session: String(person),
    principal: String(person),
    origin: String(person),
    server: '',
    tool: '',
  }[scope];
}

function count(answers: readonly Answer[], code: string): number {
  return answers.filter((answer) => answer.code === code).length;
}

const SECRET_PAYLOAD = 'payload-that-stands-in-no-log';
const typed = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
/** The possible results of a call. */
const WAYS: Readonly<
  Record<
    string,
    {
      readonly name: string;
      readonly args?: unknown;
      readonly act?: Act;
      readonly abortMs?: number;
      readonly code: string | RegExp;
    }
  >
> = {
  runs: { name: 'one_open', args: { text: SECRET_PAYLOAD }, code: '' },
  denied: { name: 'one_open', args: { text: SECRET_PAYLOAD, bad: true }, code: 'DENIED' },
  asks: { name: 'one_open', args: { text: SECRET_PAYLOAD, grave: true }, code: 'APPROVAL_REQUIRED' },
  unknown: { name: 'one_nothing', args: { text: SECRET_PAYLOAD }, code: 'UNKNOWN_TOOL' },
  invalid: { name: 'one_typed', args: { n: SECRET_PAYLOAD }, code: 'ARGS_INVALID' },
  once: { name: 'one_once', args: { text: SECRET_PAYLOAD }, code: /^(BUDGET_EXCEEDED|)$/ },
  fails: { name: 'one_act', act: { error: `{"code":-5,"message":"no ${SECRET_PAYLOAD}"}` }, code: '' },
  refuses: {
    name: 'one_act',
    act: { raw: `{"content":[{"type":"text","text":"${SECRET_PAYLOAD}"}],"isError":true}` },
    code: '',
  },
  lies: { name: 'one_act', act: { raw: `{"content":"${SECRET_PAYLOAD}"}` }, code: 'UPSTREAM_INVALID' },
  mute: { name: 'one_act', act: { mute: true }, code: 'TOOL_TIMEOUT' },
  cancelled: { name: 'one_act', act: { mute: true }, abortMs: 5, code: 'CANCELLED' },
};

describe('the log has exactly the records of each call', () => {
  inFull(
    'one end each, an intent before each execution and no other, unique ids, and no payload' +
      verifies('PF-09', 'CY-25'),
    async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.constantFrom(...Object.keys(WAYS)), { minLength: 10, maxLength: 40 }),
          async (ways) => {
            const running = await startRaw(
              {
                one: {
                  tools: [ACT, tool('open'), tool('once'), tool('typed', { inputSchema: typed })],
                  settings: { timeoutMs: 1_500 },
                },
              },
              {
                budgets: [{ id: 'once', scope: 'session', calls: 1, when: { tool: 'one.once' } }],
                rules: [
                  allow('one'),
                  { id: 'bad', outcome: 'deny', message: 'No.', when: { args: { bad: { present: true } } } },
                  { id: 'grave', outcome: 'ask', message: 'Ask.', when: { args: { grave: { present: true } } } },
                ],
              },
            );
            try {
              const session = running.open('me');
              await running.list(session);
              const before = running.records().length;
              const answers = await Promise.all(ways.map((way) => go(running, session, way)));
              for (const [index, way] of ways.entries())
                expect(answers[index]?.code, way).toMatch(
                  WAYS[way]?.code instanceof RegExp ? WAYS[way].code : new RegExp(`^${WAYS[way]?.code ?? ''}$`),
                );
              const records = running.records().slice(before);
              judgeAsks(records);
              judge(
                records.filter(({ type }) => !['session', 'approval', 'server'].includes(String(type))),
                { calls: ways.length, sent: running.calls('one').length },
              );
              const { folder } = running.assembled.config.audit;
              expect(
                readdirSync(folder)
                  .filter((file) => file.endsWith('.jsonl'))
                  .map((file) => readFileSync(path.join(folder, file), 'utf8'))
                  .join(''),
              ).not.toContain(SECRET_PAYLOAD);
            } finally {
              await running.close();
            }
          },
        ),
        { numRuns: roundsOf(5, 2) },
      );
    },
    60_000,
  );

  it('and says that the execution is unknown if the server ends during the call', async () => {
    facade = await startRaw({ one: { tools: [ACT] } });
    const answer = await facade.call(facade.open('me'), 'one_act', { exit: true });
    expect(answer.code).toBe('TOOL_CRASHED');
    expect(
      facade
        .records()
        .filter(({ type }) => type !== 'server')
        .slice(-2),
    ).toMatchObject([{ type: 'intent' }, { type: 'outcome', executed: 'unknown', code: 'TOOL_CRASHED' }]);
  });
});

function go(running: RawFacade, session: Session, way: string): Promise<Answer> {
  const { name, args, act, abortMs } = WAYS[way] ?? { name: '' };
  return running.call(
    session,
    name,
    act ?? args,
    abortMs === undefined ? {} : { signal: AbortSignal.timeout(abortMs) },
  );
}

/** Returns the records of approvals, which have the id of the call: one for equal calls. */
function judgeAsks(records: readonly Recorded[]): void {
  const asking = new Set(records.filter(({ code }) => code === 'APPROVAL_REQUIRED').map(({ id }) => id));
  const asked = records.filter(({ type }) => type === 'approval');
  expect(asked.map(({ event, outcome }) => [event, outcome])).toEqual(asking.size === 0 ? [] : [['asked', 'ask']]);
  for (const { call } of asked) expect(asking).toContain(call);
}

function judge(records: readonly Recorded[], seen: { calls: number; sent: number }): void {
  const ids = [...new Set(records.map(({ id }) => id))];
  expect(ids).toHaveLength(seen.calls);
  for (const id of ids) {
    const types = records.filter((record) => record.id === id).map(({ type }) => type);
    expect(['outcome', 'budget', 'decision']).toContain(types.at(-1));
    expect(types.slice(0, -1)).toEqual(types.at(-1) === 'outcome' ? ['intent'] : []);
  }
  const outcomes = records.filter(({ type }) => type === 'outcome');
  expect(outcomes.filter(({ executed }) => executed !== 'no').length).toBeGreaterThanOrEqual(seen.sent);
  expect(records.filter(({ type }) => type === 'intent').length).toBeGreaterThanOrEqual(seen.sent);
  expect(outcomes.filter(({ executed }) => executed === 'yes').length).toBeLessThanOrEqual(seen.sent);
}
