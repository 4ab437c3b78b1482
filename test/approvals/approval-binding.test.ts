/** Properties of the binding: any changed call is another call, and the differences are named without values. */
import { createHmac } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { openSession } from '../../facade/call/identify.ts';
import {
  approvalReachHash,
  type BindableCall,
  bindingDifferences,
  bindingHash,
  bindingOf,
  differingPointers,
  widestScope,
} from '../../facade/consent/approvals/approval-binding.ts';
import type { CallToApprove } from '../../facade/consent/approvals/approval-port.ts';
import { ApprovalQueue } from '../../facade/consent/approvals/approval-queue.ts';
import { bindApprovalRequest } from '../../facade/consent/approvals/approval-request.ts';
import { approveRequest } from '../../facade/consent/approvals/approval-verdict.ts';
import { ApprovalStore } from '../../facade/consent/approvals/call-approval.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { roundsOf } from '../harness/slices.ts';
import { objectText, valueText } from '../properties/json-text.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';

const digest = (text: string): string => createHmac('sha256', 'key').update(text).digest('hex');
const word = fc.oneof(fc.string({ maxLength: 8 }), fc.constantFrom('', 'a', '"', '\\', ',', '[]', '\n', '\u0000'));
const fact = fc.record({ argument: word, path: word, inside: fc.boolean() });
const effect = fc.record({
  verb: fc.constantFrom('read' as const, 'write' as const, 'destructive' as const, 'execute' as const),
  server: word,
  tool: word,
  paths: fc.array(fact, { maxLength: 2 }),
  urls: fc.array(fc.record({ argument: word, url: word, host: word }), { maxLength: 2 }),
});
const bindable: fc.Arbitrary<BindableCall> = fc.record({
  principal: fc.record({
    id: word,
    role: word,
    groups: fc.array(word, { maxLength: 2 }),
    profiles: fc.array(word, { maxLength: 2 }),
    origin: word,
  }),
  effect,
  argsText: objectText(valueText({ depth: 1 })),
  sentText: objectText(valueText({ depth: 1 })),
  revision: word,
  pin: word,
});

/** Pairs of calls that differ in exactly one part. */
const mutated = fc.tuple(bindable, bindable, fc.nat(9)).map(([one, other, at]): [BindableCall, BindableCall] => {
  const fresh = (text: string): string => `${text}!`;
  const { principal, effect: does } = one;
  const mutations: readonly BindableCall[] = [
    { ...one, principal: { ...principal, id: fresh(principal.id) } },
    { ...one, principal: { ...principal, role: fresh(principal.role) } },
    { ...one, principal: { ...principal, groups: [...principal.groups, ...other.principal.groups, 'x'] } },
    { ...one, principal: { ...principal, origin: fresh(principal.origin) } },
    { ...one, effect: { ...does, tool: fresh(does.tool) } },
    { ...one, effect: { ...does, paths: [...does.paths, { argument: 'p', path: 'q', inside: true }] } },
    { ...one, argsText: `${one.argsText} ` },
    { ...one, sentText: ` ${one.sentText}` },
    { ...one, revision: fresh(one.revision) },
    { ...one, pin: fresh(one.pin) },
  ];
  return [one, mutations[at] as BindableCall];
});

describe('the hash of a binding', () => {
  it('changes with every part of the call', () => {
    fc.assert(
      fc.property(mutated, ([one, other]) => {
        const [left, right] = [bindingOf(one, digest), bindingOf(other, digest)];
        expect(bindingHash(left, digest)).not.toBe(bindingHash(right, digest));
        expect(bindingHash(left, digest)).toBe(bindingHash(bindingOf(structuredClone(one), digest), digest));
      }),
      { numRuns: roundsOf(400, 100) },
    );
  });

  it('separates the parts, so that two different calls never have the same hash', () => {
    fc.assert(
      fc.property(bindable, bindable, (one, other) => {
        const forms: string[] = [];
        const keep = (text: string): string => (forms.push(text), text);
        bindingHash(bindingOf(one, keep), keep);
        bindingHash(bindingOf(other, keep), keep);
        const plain = (call: BindableCall): string =>
          JSON.stringify([
            call.principal.id,
            call.principal.role,
            call.principal.groups,
            call.principal.profiles,
            call.principal.origin,
            call.effect.verb,
            call.effect.server,
            call.effect.tool,
            call.effect.paths.map(({ argument, path, inside }) => [argument, path, inside]),
            call.effect.urls.map(({ argument, url, host }) => [argument, url, host]),
            call.argsText,
            call.sentText,
            call.revision,
            call.pin,
          ]);
        expect(forms[1] === forms[3]).toBe(plain(one) === plain(other));
      }),
      { numRuns: roundsOf(300, 100) },
    );
  });

  it('of a wider approval changes with the run, server, tools, policy, principal and set of rules', () => {
    const call: BindableCall = {
      principal: { id: 'a', role: 'r', groups: [], profiles: [], origin: 'o' },
      effect: { verb: 'read', server: 's', tool: 't', paths: [], urls: [] },
      argsText: '{}',
      sentText: '{}',
      revision: '1',
      pin: 'p',
    };
    const at = { scope: 'group', run: 'r', rules: ['b', 'a'], set: 'x' } as const;
    const of = (over: Partial<BindableCall> = {}, reach: object = {}): string =>
      approvalReachHash(bindingOf({ ...call, ...over }, digest), { ...at, ...reach }, digest);
    expect(of({}, { rules: ['a', 'b'] })).toBe(of());
    expect(
      of({ argsText: '{"a":1}', sentText: '{}', pin: 'q', effect: { ...call.effect, tool: 'u', verb: 'write' } }),
    ).toBe(of());
    const others = [
      of({ revision: '2' }),
      of({ principal: { ...call.principal, id: 'b' } }),
      of({ principal: { ...call.principal, groups: ['g'] } }),
      of({ effect: { ...call.effect, server: 'z' } }),
      of({}, { run: 'q' }),
      of({}, { set: 'y' }),
      of({}, { rules: ['a'] }),
      of({}, { scope: 'server' }),
      bindingHash(bindingOf(call, digest), digest),
    ];
    expect(new Set([of(), ...others]).size).toBe(others.length + 1);
  });
});

describe('the widest scope of an approval', () => {
  it('is the narrowest that the asking rules allow' + verifies('CY-26'), () => {
    const of = (...words: readonly ('call' | 'group' | 'server' | undefined)[]): string =>
      widestScope(
        words.map((approval, at) => ({ id: String(at), message: '', ...(approval !== undefined && { approval }) })),
      );
    expect([
      of(),
      of(undefined),
      of('server'),
      of('server', 'group'),
      of('group', 'group'),
      of('server', undefined),
      of('call', 'server'),
    ]).toEqual(['call', 'call', 'server', 'group', 'group', 'call', 'call']);
  });
});

describe('the differences between two calls', () => {
  it('are named for every other call, and there are none for the same call', () => {
    fc.assert(
      fc.property(mutated, ([one, other]) => {
        const [left, right] = [bindingOf(one, digest), bindingOf(other, digest)];
        expect(bindingDifferences(left, left)).toEqual([]);
        // Calls of another tool or principal are never compared.
        if (one.effect.tool === other.effect.tool) expect(bindingDifferences(left, right)).not.toEqual([]);
      }),
      { numRuns: roundsOf(200, 80) },
    );
  });

  it('in arguments are named by place and never by value', () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.constantFrom('a', 'b', 'c'), fc.jsonValue()),
        fc.dictionary(fc.constantFrom('a', 'b', 'c'), fc.jsonValue()),
        (one, other) => {
          expect(
            differingPointers(JSON.stringify({ ...one, a: 'SECRET-1' }), JSON.stringify({ ...other, a: 'SECRET-2' })),
          ).not.toContain('SECRET');
        },
      ),
    );
    expect([
      differingPointers('{"a":[1,{"b":2}]}', '{"a":[1,{"b":3}]}'),
      differingPointers('{"a":{}}', '{"a":[]}'),
      differingPointers('{"a":1}', '{"a":1.0}'),
      differingPointers('{"a":"***"}', '{"a":"***"}'),
      differingPointers('[]', '{}'),
    ]).toEqual([
      'at /a/1/b',
      'at /a',
      'in the order of keys, the spelling of a number, or spaces',
      'in a secret',
      'at /',
    ]);
  });
});

describe('the approval queue', () => {
  it('lets the approved call through once, and no changed call' + verifies('PF-08'), async () => {
    const state = openState(temporaryFolder());
    const queue = new ApprovalQueue({
      settings: { waitMs: 0, expireMs: 60_000 },
      state,
      append: () => undefined,
      digest,
      redactor: new Redactor(),
      now: () => 1,
      pinOf: () => undefined,
      setOf: () => '',
      refusalOf: async () => undefined,
      asksCaller: () => false,
      onAsked: () => undefined,
      onWaiting: () => undefined,
    });
    const store = new ApprovalStore(state);
    const asked = ({ principal, ...call }: BindableCall): CallToApprove => {
      const session = openSession(principal, 'stdio');
      return {
        ...call,
        caller: { decision: 'd', session, principal, run: 'r', startedAt: 1 },
        decision: {
          outcome: 'ask',
          reasons: [{ id: 'asks', message: '' }],
          shadow: [],
          obligations: { caps: {}, pins: {}, budgets: [], labels: [] },
        },
        signal: session.closed,
        recheck: async () => undefined,
      };
    };
    const codeOf = (call: BindableCall): Promise<unknown> =>
      queue.obtain(asked(call)).then(
        (id) => `used ${id}`,
        (thrown: { code?: unknown }) => thrown.code,
      );
    await fc.assert(
      fc.asyncProperty(mutated, async ([one, other]) => {
        for (const stored of await store.list()) await store.take(stored);
        expect(await codeOf(one)).toBe('APPROVAL_REQUIRED');
        const [stored] = await store.list();
        if (stored === undefined) throw new Error('nothing was asked');
        const { id } = await approveRequest(store, stored, {
          by: 'o',
          now: 1,
          record: () => undefined,
          scope: 'call',
          expireMs: 60_000,
        });
        expect(await codeOf(other)).toBe('APPROVAL_REQUIRED');
        expect([await codeOf(one), await codeOf(one)]).toEqual([`used ${id}`, 'APPROVAL_REQUIRED']);
      }),
      { numRuns: roundsOf(120, 40) },
    );
    await state.close();
  }, 60_000);
});

describe('an approval of a call to a shell session', () => {
  it('attack, the same id elsewhere: does not cover input for s1 of another client session', () => {
    const by = { digest, redactor: new Redactor(), pinOf: () => undefined, setOf: () => 's' };
    const [one, other] = [0, 1].map(() =>
      openSession({ id: 'me', role: 'user', groups: [], profiles: [], origin: 'o' }, 'stdio'),
    );
    const hashes = (text: string): readonly string[] =>
      [one, other].map((session) => {
        if (session === undefined) throw new Error('there are two sessions');
        return bindApprovalRequest(
          {
            caller: { decision: 'd', session, principal: session.principal, run: 'r', startedAt: 0 },
            argsText: text,
            sentText: text,
            revision: 'r',
            pin: 'p',
            signal: session.closed,
            recheck: async () => undefined,
            effect: { verb: 'execute', server: 'workspace', tool: 'bash', paths: [], urls: [] },
            decision: {
              outcome: 'ask',
              reasons: [],
              shadow: [],
              obligations: { caps: {}, pins: {}, budgets: [], labels: [] },
            },
          },
          by,
        ).hash;
      });
    expect(new Set(hashes('{"action":"send","session":"s1","input":"rm -rf ."}')).size).toBe(2);
    expect(new Set(hashes('{"command":"git push"}')).size).toBe(1);
  });
});

describe('a stored request', () => {
  it('contains a registered secret nowhere, and its hash is of the bytes to send', () => {
    const redactor = new Redactor();
    redactor.register('vaultvalue-9f8e7d6c5b');
    const session = openSession({ id: 'me', role: 'user', groups: [], profiles: [], origin: 'o' }, 'stdio');
    const requestOf = (secret: string): ReturnType<typeof bindApprovalRequest> => {
      const text = JSON.stringify({ q: `https://api.example/?key=${secret}`, command: `curl -H ${secret}` });
      const call: CallToApprove = {
        caller: { decision: 'd', session, principal: session.principal, run: 'r', startedAt: 0 },
        argsText: text,
        sentText: text,
        revision: 'r',
        pin: 'p',
        signal: session.closed,
        recheck: async () => undefined,
        effect: {
          verb: 'execute',
          server: 's',
          tool: 't',
          paths: [{ argument: 'p', path: `out/${secret}`, inside: true }],
          urls: [{ argument: 'q', url: `https://api.example/?key=${secret}`, host: 'api.example' }],
          command: { text: `curl -H ${secret}`, opaque: false, words: [['curl', '-H', secret]] },
        },
        decision: {
          outcome: 'ask',
          reasons: [],
          shadow: [],
          obligations: { caps: {}, pins: {}, budgets: [], labels: [] },
        },
      };
      return bindApprovalRequest(call, { digest, redactor, pinOf: () => undefined, setOf: () => 's' });
    };
    const request = requestOf('vaultvalue-9f8e7d6c5b');
    expect(JSON.stringify([request.binding, request.shown, request.open(0, 1)])).not.toContain('9f8e7d6c5b');
    expect(request.binding.effect.command?.words).toEqual([['curl', '-H', '***']]);
    expect(request.hash).not.toBe(requestOf('***').hash);
  });
});
