/** Tests lists while a server starts slowly: who waits how long, and who is notified later. Lists and calls agree. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { ListRequests } from '../../facade/exposure/catalog.ts';
import { server } from '../cli/terminal.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const running: TestFacade[] = [];
afterEach(async () => {
  await Promise.all(running.splice(0).map((one) => one.close()));
});

/** Starts a facade: `quick` answers at once, `late` after a call of `open`. */
async function facade(): Promise<{ one: TestFacade; open: () => void }> {
  const one = await startFacade(`version: 1
workspace: ./workspace
state: ./state
servers:
  quick: ${server(['chaos.mjs', 'ok'])}
  late: ${server(['chaos.mjs', 'gated'], 'env: {CHAOS_GATE: "${configDir}/gate"}, connectTimeoutMs: 60000')}
profiles: {default: {servers: [quick, late], expose: {tools: ["quick.*", "late.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`);
  running.push(one);
  return { one, open: () => writeFileSync(path.join(one.folder, 'gate'), '') };
}

describe('a list while a server starts', () => {
  it(
    'is answered without the server, whose tools are announced later, and a call waits for the server' +
      verifies('HA-10'),
    async () => {
      const { one, open } = await facade();
      const {
        catalog,
        deps: { nameTables: exposures },
        gateway,
      } = one.assembled;
      const session = one.open('local');
      // Like a list that has waited long enough.
      const serversNow = async (): Promise<ReadonlySet<string>> =>
        new Set((await exposures.tableFor(session.principal, session, 1)).listed.map((shown) => shown.server.name));
      let told = 0;
      gateway.onToolsChanged(() => (told += 1));
      await catalog.refresh(['quick'], 'let');
      expect([...(await serversNow())].sort()).toEqual(['quick', 'workspace']);
      const call = one.call(session, 'late_echo', { a: 1 });
      expect((await one.call(session, 'quick_echo', { a: 2 })).text).toBe('{"a":2}');
      expect([told, catalog.problems.size]).toEqual([0, 0]);
      open();
      expect((await call).text).toBe('{"a":1}');
      await expect.poll(() => told).toBe(1);
      expect([...(await serversNow())].sort()).toEqual(['late', 'quick', 'workspace']);
    },
  );

  it('waits at most five seconds for the server, and nothing is announced if it was in time', async () => {
    const { one, open } = await facade();
    const waits = vi.spyOn(one.assembled.deps.nameTables, 'tableFor');
    let told = 0;
    one.assembled.gateway.onToolsChanged(() => (told += 1));
    const list = one.list(one.open('local'));
    open();
    expect((await list).map(({ name }) => name)).toContain('late_echo');
    expect(waits).toHaveBeenCalledWith(expect.anything(), expect.anything(), 5000);
    await one.list(one.open('local'));
    expect(told).toBe(0);
  });
});

describe('the request to a server for its tools', () => {
  it('is sent once for all callers, and each waits as long as it wants', async () => {
    const askings = new ListRequests();
    let answer = (): void => undefined;
    const missed: boolean[] = [];
    const question = async (isMissed: () => boolean): Promise<void> => {
      await new Promise<void>((resolve) => (answer = resolve));
      missed.push(isMissed());
    };
    const patient = askings.ask('one', question);
    await askings.ask('one', () => Promise.reject(new Error('asked twice')), 20);
    expect([askings.has('one'), askings.has('two')]).toEqual([true, false]);
    answer();
    await patient;
    expect([missed, askings.has('one')]).toEqual([[true], false]);
    const quick = askings.ask('one', question, 60_000);
    answer();
    await quick;
    expect(missed).toEqual([true, false]);
  });
});
