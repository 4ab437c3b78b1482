/** Tests when a call waits, and that nothing leaves before its record is written. */
import fs from 'node:fs';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { verifyAudit } from '../../facade/audit/chain-verification.ts';
import { Stops } from '../../facade/state/stop-file.ts';
import { type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

/** Fails each write of a file whose bytes contain `text`, and returns the writes that contain records of calls. */
function failWritesOf(text: string | undefined): readonly string[] {
  const { writeSync } = fs;
  const writes: string[] = [];
  vi.spyOn(fs, 'writeSync').mockImplementation(((fd: number, bytes: Buffer, at: number, length: number) => {
    const written = String(bytes);
    if (written.includes('"type":"intent"') || written.includes('"type":"outcome"')) writes.push(written);
    if (text !== undefined && written.includes(text)) throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' });
    return writeSync(fd, bytes, at, length);
  }) as typeof fs.writeSync);
  return writes;
}

describe('the records of parallel calls', () => {
  let facade: RawFacade;
  afterEach(async () => {
    vi.restoreAllMocks();
    await facade.close();
  });

  const start = async () => {
    facade = await startRaw({ one: { tools: [tool('say')] } });
    const session = facade.open('me');
    await facade.list(session);
    await facade.call(session, 'one_say', { n: 0 });
    return session;
  };
  const callTwelve = (session: Awaited<ReturnType<typeof start>>) =>
    Promise.all(Array.from({ length: 12 }, (_, n) => facade.call(session, 'one_say', { n: n + 1 })));

  it(
    'are sealed before the turn ends in which the calls arrive, and written by one write' + verifies('FP-01'),
    async () => {
      const session = await start();
      const writes = failWritesOf(undefined);
      const calls = callTwelve(session);
      // Nothing but the end of this turn is missing: no promise had to resolve first.
      await new Promise<void>((resolve) => setImmediate(resolve));
      expect(writes.map((text) => text.split('"type":"intent"').length - 1)).toEqual([12]);
      expect((await calls).map(({ code }) => code)).toEqual(Array.from({ length: 12 }, () => ''));
    },
  );

  it(
    'are written before any request reaches the server; a full disk refuses them all' + verifies('FP-03'),
    async () => {
      const session = await start();
      const before = facade.calls('one').length;
      failWritesOf('"type":"intent"');
      const refused = await callTwelve(session);
      expect(new Set(refused.map(({ code }) => code))).toEqual(new Set(['AUDIT_FAILED']));
      vi.restoreAllMocks();
      expect((await facade.call(session, 'one_say', { n: 99 })).code).toBe('');
      expect(facade.calls('one')).toHaveLength(before + 1);
      expect(verifyAudit(`${facade.folder}/state/audit`)).toMatchObject({ ok: true });
    },
  );

  it('are written before any reply leaves; a full disk then withholds every result' + verifies('FP-03'), async () => {
    const session = await start();
    failWritesOf('"type":"outcome"');
    const withheld = await callTwelve(session);
    expect(new Set(withheld.map(({ code }) => code))).toEqual(new Set(['OUTCOME_UNRECORDED']));
    expect(JSON.stringify(withheld)).toContain('"executed":true');
    vi.restoreAllMocks();
    expect((await facade.call(session, 'one_say', { n: 99 })).code).toBe('');
    expect(verifyAudit(`${facade.folder}/state/audit`)).toMatchObject({ ok: true });
  });

  it('are followed by another look at the stops, so a stop during their write holds' + verifies('FP-13'), async () => {
    const session = await start();
    const before = facade.calls('one').length;
    const stops = new Stops(`${facade.folder}/state`);
    const { writeSync } = fs;
    vi.spyOn(fs, 'writeSync').mockImplementation(((fd: number, bytes: Buffer, at: number, length: number) => {
      vi.restoreAllMocks();
      if (String(bytes).includes('"type":"intent"')) {
        stops.put('one', { since: new Date().toISOString(), by: 'owner' });
        // A read of the stops is valid for a millisecond.
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
      }
      return writeSync(fd, bytes, at, length);
    }) as typeof fs.writeSync);
    const refused = await callTwelve(session);
    stops.close();
    expect(new Set(refused.map(({ code }) => code))).toEqual(new Set(['SERVER_UNAVAILABLE']));
    expect(facade.calls('one')).toHaveLength(before);
  });

  it('give back what their calls had reserved, when they cannot be written' + verifies('FP-03'), async () => {
    facade = await startRaw(
      { one: { tools: [tool('say')] } },
      { budgets: [{ id: 'few', scope: 'session', concurrent: 2 }], caps: { concurrent: 2 } },
    );
    const session = facade.open('me');
    await facade.list(session);
    await facade.call(session, 'one_say', {});
    failWritesOf('"type":"intent"');
    for (let n = 0; n < 5; n += 1) expect((await facade.call(session, 'one_say', {})).code).toBe('AUDIT_FAILED');
    vi.restoreAllMocks();
    expect((await facade.call(session, 'one_say', {})).code).toBe('');
  });
});
