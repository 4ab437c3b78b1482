/** Tests what is counted of a session: lists, calls and results, as shown and as they would be without Tollgate. */

import path from 'node:path';
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { parseJsonDoc } from '../../adapters/rpc/message-parser.ts';
import type { ContextAmount } from '../../facade/runtime/metrics/context-counts.ts';
import type { ReportedSession } from '../../facade/runtime/metrics/context-report.ts';
import { TokenSamples } from '../../facade/runtime/metrics/token-samples.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { inFull } from '../harness/full-tests.ts';
import { ACT, type RawFacade, type RawServer, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

const RAW = '{"content":[{"type":"text","text":"ok"}]}';
const bytes = (value: unknown): number => Buffer.byteLength(typeof value === 'string' ? value : JSON.stringify(value));

async function start(server: RawServer, rest: Readonly<Record<string, unknown>> = {}): Promise<RawFacade> {
  const facade = await startRaw({ web: server }, rest);
  onTestFinished(() => facade.close());
  return facade;
}

async function listText(facade: RawFacade, session: Session): Promise<string> {
  const reply = await facade.assembled.gateway.list(session, 'tools/list', session.closed);
  return (reply as { readonly text: string }).text;
}

async function countsOf(facade: RawFacade, { id }: Session): Promise<ReportedSession | undefined> {
  const { sessions } = await facade.assembled.deps.metrics.context.report();
  return sessions.find((one) => one.id === id);
}

/** The size of the last result, as the audit has it. */
function lastSent(facade: RawFacade): number {
  const { sizes } = facade.callRecords().at(-1) as { readonly sizes: { readonly sent: number } };
  return sizes.sent;
}

describe('the context of a session', () => {
  it('counts each list that was sent, and the whole lists of the servers next to it' + verifies('CM-50'), async () => {
    const tools = [
      ACT,
      tool('hidden', { description: 'Never shown. '.repeat(20) }),
      tool('other', { _meta: { a: 1 } }),
    ];
    const facade = await start(
      { tools },
      { profiles: { all: { servers: ['web'], expose: { primitives: 'workspace', tools: ['web.act'] } } } },
    );
    const session = facade.open('me');
    const text = await listText(facade, session);
    await listText(facade, session);
    expect(text).not.toContain('Never shown');
    expect((await countsOf(facade, session))?.lists).toMatchObject({
      count: 2,
      largest: bytes(text),
      shown: { bytes: 2 * bytes(text) },
      without: { bytes: 2 * bytes(tools) },
      savedPercent: Math.round((1 - bytes(text) / bytes(tools)) * 1000) / 10,
    });
  });

  it('is negative where Tollgate shows more than the servers sent' + verifies('CM-50'), async () => {
    const facade = await start(
      { tools: [ACT] },
      { profiles: { all: { servers: ['web'], expose: { primitives: 'workspace', tools: ['web.*'] } } } },
    );
    const session = facade.open('me');
    const shown = bytes(await listText(facade, session));
    const { lists } = (await countsOf(facade, session)) ?? {};
    expect(lists?.savedPercent).toBe(Math.round((1 - shown / bytes([ACT])) * 1000) / 10);
    expect(lists?.savedPercent).toBeLessThan(0);
  });

  it(
    'counts arguments and results, without the _meta of Tollgate; errors of servers are equal on both sides' +
      verifies('CM-50'),
    async () => {
      const facade = await start({ tools: [ACT] });
      const session = facade.open('me');
      await facade.call(session, 'web_act', { raw: RAW });
      const sent = lastSent(facade);
      const first = await countsOf(facade, session);
      const argBytes = bytes({ raw: RAW });
      expect(first?.calls).toMatchObject({ count: 1, shown: { bytes: argBytes }, without: { bytes: argBytes } });
      const { shown, without, metaBytes } = first!.results;
      expect(without.bytes).toBe(bytes(RAW));
      expect(metaBytes).toBeGreaterThan(100);
      expect(shown.bytes).toBe(sent - metaBytes);
      expect(shown.bytes).toBe(bytes(RAW));
      await facade.call(session, 'web_act', { raw: `${RAW.slice(0, -1)},"_meta":{"a":1}}` });
      const own = await countsOf(facade, session);
      expect(own?.results.shown).toEqual(own?.results.without);
      await facade.call(session, 'web_act', { error: '{"code":-32000,"message":"no"}' });
      const second = await countsOf(facade, session);
      expect(second!.results.shown.bytes).toBe(second!.results.without.bytes);
      expect(second!.results.without.bytes).toBeGreaterThan(own!.results.without.bytes);
    },
  );

  it(
    'counts a cut result whole on the other side, and reads of its rest, inner calls and refusals on one side only' +
      verifies('CM-50'),
    async () => {
      const whole = JSON.stringify({ content: [{ type: 'text', text: 'a row of text\n'.repeat(8000) }] });
      const facade = await start({ tools: [tool('long')], answers: { long: { raw: whole } } });
      const session = facade.open('me');
      const cut = await facade.call(session, 'web_long', {});
      const first = (await countsOf(facade, session))!;
      expect(first.results.without.bytes).toBe(bytes(whole));
      expect(first.results.shown.bytes).toBeLessThan(40_000);
      const [, path, offset] = /path="(spill:\S+)" offset=(\d+)/.exec(cut.text) ?? [];
      const rest = await facade.call(session, 'read_spill', { path, offset: Number(offset) });
      expect(rest.text).toContain('a row of text');
      await facade.call(session, 'nothing', { a: 1 });
      const second = (await countsOf(facade, session))!;
      expect(second.results.count).toBe(3);
      expect(second.results.without).toEqual(first.results.without);
      expect(second.results.shown.bytes).toBeGreaterThan(first.results.shown.bytes + 20_000);
      expect(second.calls.without.bytes).toBe(first.calls.without.bytes + bytes({ a: 1 }));
      await facade.assembled.gateway.perform(session, {
        name: 'web_long',
        args: parseJsonDoc('{}'),
        signal: session.closed,
        parent: 'outer',
      });
      const third = (await countsOf(facade, session))!;
      expect([third.calls.count, third.results.shown.bytes]).toEqual([3, second.results.shown.bytes]);
      expect(third.results.without.bytes).toBe(2 * bytes(whole));
    },
  );

  it('is not counted for calls by hand, and empty lists save nothing' + verifies('CM-50'), async () => {
    const facade = await start(
      { tools: [ACT] },
      { profiles: { all: { servers: ['web'], expose: { primitives: {}, tools: [] } } } },
    );
    const { gateway } = facade.assembled;
    const session = facade.open('me');
    const byHand = gateway.openSession(session.principal, 'stdio', { operator: { by: 'me', user: 'me' } });
    await facade.call(byHand, 'web_act', { raw: RAW });
    expect(await listText(facade, session)).toBe('{"tools":[]}');
    expect(facade.callRecords().length).toBeGreaterThan(0);
    const report = await facade.assembled.deps.metrics.context.report();
    expect(report.sessions).toEqual([]);
  });
});

describe('the tokens of a session', () => {
  inFull('are those of o200k_base, and no text is in the state' + verifies('CM-51'), async () => {
    const tools = [tool('act', { description: 'Does whatever its arguments say.' })];
    const facade = await start({ tools });
    const session = facade.open('me');
    const text = await listText(facade, session);
    await facade.call(session, 'web_act', { raw: RAW });
    await expect
      .poll(async () => (await countsOf(facade, session))?.results.without.tokens, { timeout: 30_000 })
      .toBe(countTokens(RAW));
    const found = (await countsOf(facade, session))!;
    expect(found.lists.shown.tokens).toBe(countTokens(text));
    expect(found.lists.without.tokens).toBe(countTokens(JSON.stringify(tools)));
    expect(found.calls.shown.tokens).toBe(countTokens(JSON.stringify({ raw: RAW })));
    const state = openState(path.join(facade.folder, 'state'));
    onTestFinished(() => void state.close());
    const kept = [...state.list('context').values()];
    expect(kept).toHaveLength(1);
    expect(kept.join()).not.toMatch(/arguments say|content/);
  });

  inFull('of long and hostile texts are estimated from bounded samples' + verifies('CM-51'), async () => {
    const counted = vi.fn<() => void>();
    const samples = new TokenSamples(counted);
    onTestFinished(() => samples.close());
    const amount = (): ContextAmount => ({ bytes: 0, sampledBytes: 0, sampledTokens: 0 });
    const [plain, hostile, named] = [amount(), amount(), amount()];
    const text = 'The quick brown fox jumps over 12 lazy dogs. '.repeat(20_000);
    samples.sample(text).addTo(plain);
    samples.sample(['{"text":"', Buffer.from('é'.repeat(1_000_000)), '"}']).addTo(hostile);
    samples.sample('<|endoftext|>').addTo(named);
    await expect.poll(() => counted.mock.calls.length, { timeout: 30_000 }).toBe(1);
    expect([plain.bytes, plain.sampledBytes]).toEqual([text.length, 65_536]);
    const exact = countTokens(text);
    expect((plain.bytes * plain.sampledTokens) / plain.sampledBytes / exact).toBeCloseTo(1, 2);
    expect(hostile.bytes).toBe(2_000_011);
    expect(hostile.sampledBytes).toBeLessThan(70_000);
    expect(hostile.sampledTokens).toBeGreaterThan(0);
    // Special tokens are counted as the text that they are.
    expect(named.sampledTokens).toBeGreaterThan(1);
  });

  it('of a list that comes again are not counted again' + verifies('CM-51'), async () => {
    const samples = new TokenSamples(() => undefined);
    onTestFinished(() => samples.close());
    expect(samples.repeated('{"tools":[1]}')).toBe(samples.repeated(['{"tools"', Buffer.from(':[1]}')]));
    expect(samples.repeated('{"tools":[1]}')).not.toBe(samples.repeated('{"tools":[2]}'));
  });
});
