/** Tests that the texts of records say what the types of their entries say, for every combination of facts. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { CallFacts, OutcomeEntry } from '../../facade/audit/audit-entry.ts';
import type { KnownCall } from '../../facade/call/call-facts.ts';
import { callFactsText } from '../../facade/call/call-facts.ts';
import { type EndedCall, record, type SentCall } from '../../facade/call/record.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { verifies } from '../verifies.ts';

const count = fc.nat(1_000_000);
const text = fc.string({ unit: 'binary', maxLength: 40 });
const maybe = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(value, { nil: undefined });

const shaped = fc.record({
  text: fc.constant('{}'),
  sent: count,
  cut: fc.boolean(),
  spilled: count,
  isError: fc.boolean(),
  redactions: count,
  escaped: count,
  links: fc.nat(2),
});
const progress = fc.record({
  sent: fc.nat(1),
  coalesced: fc.nat(1),
  refused: fc.nat(1),
  redactions: fc.nat(1),
  escaped: fc.nat(1),
  cut: fc.nat(1),
});
const forwarded = fc.record({
  executed: fc.constantFrom('yes' as const, 'no' as const, 'unknown' as const),
  upstreamMs: maybe(count),
  rawBytes: maybe(count),
  scope: maybe(fc.record({ user: text, space: text })),
  answer: fc.oneof(
    fc.constant(undefined),
    fc.record({ text: text, value: fc.constant({}), exact: fc.constant(true), hits: count }),
  ),
});
const ended = fc.record({
  argBytes: count,
  ms: count,
  shaped: maybe(shaped),
  progress: maybe(progress),
  serverErrorBytes: maybe(count),
  forwarded,
});

const principal = { id: 'a"b', role: 'agent', profiles: ['p'], origin: 'https://é.example', groups: [] } as const;
const start = {
  id: 'd1',
  principal,
  session: 's1',
  requestedName: '',
  kind: 'tool',
  argBytes: 0,
  startedAt: 0,
  revision: 'r',
};

/** Returns the record of a call that was sent, without its facts. */
async function recordOf(end: SentCall, now: number): Promise<unknown> {
  let written = '';
  await record(
    {
      audit: { appendCall: async (entry) => void (written = entry) },
      digest: (one) => one,
      redactor: new Redactor(),
      now: () => now,
      factNames: () => '',
      onEnd: () => undefined,
    },
    end as EndedCall,
    { kind: 'result', text: '{}' },
  );
  return JSON.parse(`{${written}}`);
}

describe('the text of a record' + verifies('FP-03'), () => {
  it('of an outcome is the JSON of its entry', () =>
    fc.assert(
      fc.asyncProperty(ended, async ({ argBytes, ms, ...call }) => {
        const end = { kind: 'sent', start: { ...start, argBytes }, factsText: '', ...call } as SentCall;
        const { executed, upstreamMs, rawBytes, scope, answer } = end.forwarded;
        const expected: Omit<OutcomeEntry, keyof CallFacts> = {
          type: 'outcome',
          outcome: 'allow',
          ms,
          executed,
          ...(upstreamMs !== undefined && { upstreamMs }),
          ...(scope !== undefined && { whose: scope }),
          ...(answer?.hits !== undefined && { hits: answer.hits }),
          sizes: {
            args: argBytes,
            ...(rawBytes !== undefined && { raw: rawBytes }),
            ...(end.shaped && { sent: end.shaped.sent, spilled: end.shaped.spilled }),
          },
          ...(end.shaped && {
            cut: end.shaped.cut,
            redactions: end.shaped.redactions,
            escaped: end.shaped.escaped,
            isError: end.shaped.isError,
          }),
          ...(end.shaped && end.shaped.links > 0 && { removed: end.shaped.links }),
          ...(end.serverErrorBytes !== undefined && { isError: true }),
          ...(end.progress && Object.values(end.progress).some((one) => one > 0) && { progress: end.progress }),
        };
        expect(await recordOf(end, ms)).toEqual(expected);
      }),
    ));

  it('has facts that are the JSON of their type, whatever a client or a server is called', () =>
    fc.assert(
      fc.property(text, text, text, maybe(text), (requestedName, server, tool, correlation) => {
        const effect = { verb: 'read', server, tool, paths: [], urls: [] };
        const caller = { run: 's1', ...(correlation !== undefined && { correlation }) };
        const known = { start: { ...start, requestedName }, caller, judged: { lowered: { effect, argsText: '{}' } } };
        const expected: CallFacts = {
          id: 'd1',
          principal: { id: principal.id, role: principal.role, profiles: principal.profiles, origin: principal.origin },
          session: 's1',
          run: 's1',
          ...(correlation !== undefined && { correlation }),
          exposed: requestedName,
          revision: 'r',
          server,
          tool,
          verb: 'read',
          effectDigest: 'digest',
        };
        expect(JSON.parse(`{${callFactsText(known as unknown as KnownCall, () => 'digest')}}`)).toEqual(
          JSON.parse(JSON.stringify(expected)),
        );
      }),
    ));
});
