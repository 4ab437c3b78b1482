/**
 * Attacks on an approval while a facade runs, by name: it is withdrawn, moved, changed, flooded, and tools change after
 * it.
 * Covers: facade/consent.
 */

import { appendFileSync, existsSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { consentSummary } from '../../facade/consent/servers/consent-summary.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { inFull } from '../harness/full-tests.ts';
import { isRunning } from '../process/child.ts';
import { ACT, allow, type RawFacade, type RawServer, startRaw, tool } from '../properties/raw-facade.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { ACT_OF_BOSS, approveSet, withConsents } from './consent-facade.ts';
import { scriptedServer } from './scripted-server.ts';

let facade: RawFacade;
afterEach(() => facade.close());

const mail = (more: Readonly<Record<string, unknown>> = {}): RawTool => tool('mail', more);
const config = (): TestFacade['assembled']['config'] => facade.assembled.config;
const shown = async (session: Session = facade.open('me')): Promise<readonly string[]> =>
  (await facade.list(session)).map(({ name }) => name);
const codes = async (name: string, session = facade.open('me')): Promise<string> =>
  (await facade.call(session, name, {})).code;

async function begin(
  server: RawServer,
  approved: readonly RawTool[],
  more: Readonly<Record<string, RawServer>> = {},
): Promise<void> {
  facade = await startRaw({ one: server, ...more }, {}, {}, { approved: [] });
  await approveSet(config(), 'one', approved);
}

describe('a withdrawn approval', () => {
  it(
    'refuses the next call (c043), empties the list, and ends the running server within a second' +
      verifies('HA-15', 'CY-03'),
    async () => {
      await begin({ tools: [ACT, mail()] }, [ACT, mail()]);
      const session = facade.open('me');
      expect(await codes('one_mail', session)).toBe('');
      await withConsents(config(), (consents) => consents.revoke('one'));
      expect(await codes('one_mail', session)).toBe('SERVER_UNAVAILABLE');
      expect(await shown(session)).toEqual([]);
      expect(facade.calls('one').map(({ name }) => name)).toEqual(['mail']);
      await expect
        .poll(() => facade.assembled.catalog.servers.get('one')?.adapter.health().state, { timeout: 20_000 })
        .toBe('not approved');
    },
  );

  it('ends the running server without a call' + verifies('CY-03'), async () => {
    const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-pid-')));
    try {
      writeFileSync(
        path.join(folder, 'me.mjs'),
        scriptedServer({}, { before: `appendFileSync('${folder}/pids', process.pid + '\\n');` }),
      );
      await begin({ tools: [], settings: { args: [path.join(folder, 'me.mjs')] } }, []);
      await facade.assembled.catalog.refresh(['one'], 'wake');
      const { pid } = await pidIn(path.join(folder, 'pids'));
      expect(isRunning(pid)).toBe(true);
      await withConsents(config(), (consents) => consents.disable('one', ACT_OF_BOSS));
      await expect.poll(() => isRunning(pid), { timeout: 20_000 }).toBe(false);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it('that is given again lets the server work, without a restart of the facade' + verifies('HA-15'), async () => {
    await begin({ tools: [mail()] }, [mail()]);
    const session = facade.open('me');
    expect(await codes('one_mail', session)).toBe('');
    await withConsents(config(), (consents) => consents.revoke('one'));
    expect(await codes('one_mail', session)).toBe('SERVER_UNAVAILABLE');
    await approveSet(config(), 'one', [mail()]);
    expect(await codes('one_mail', session)).toBe('');
  });

  inFull(
    'that is given to another program lets the server work, after the old program had ended by itself' +
      verifies('HA-15'),
    async () => {
      const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-pid-')));
      const script = path.join(folder, 'me.mjs');
      try {
        writeFileSync(
          script,
          scriptedServer(
            { 'tools/list': { tools: [mail()] }, 'tools/call': { content: [] } },
            { onRequest: 'if (params?.arguments?.die) process.exit(1);' },
          ),
        );
        await begin({ settings: { args: [script] } }, [mail()]);
        const session = facade.open('me');
        expect(await codes('one_mail', session)).toBe('');
        expect((await facade.call(session, 'one_mail', { die: true })).code).toBe('TOOL_CRASHED');
        appendFileSync(script, '\n// Another.\n');
        await approveSet(config(), 'one', [mail()]);
        await expect.poll(() => codes('one_mail', session), { timeout: 20_000, interval: 100 }).toBe('');
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    },
  );

  it(
    'that is given to another program stops calls to the old one, even after a refused call that asks a person' +
      verifies('HA-15'),
    async () => {
      const tools = [ACT, mail()];
      facade = await startRaw(
        { one: { tools } },
        { rules: [allow('one'), { id: 'asks', outcome: 'ask', when: { tools: ['one.act'] } }] },
        {},
        { approved: [] },
      );
      await approveSet(config(), 'one', tools);
      const session = facade.open('me');
      // After two calls, the list is known to be the approved one, and nothing is read before a call.
      for (let call = 0; call < 2; call += 1) expect(await codes('one_mail', session)).toBe('');
      await withConsents(config(), async (consents) => {
        const start = await consents.approveStart({
          facts: { ...(await consents.factsOf(config().servers.get('one')!)), args: ['other'] },
          ...ACT_OF_BOSS,
        });
        await consents.approveTools('one', { tools, prompts: [], hints: false }, { start, ...ACT_OF_BOSS });
      });
      expect([await codes('one_act', session), await codes('one_mail', session)]).toEqual([
        'SERVER_UNAVAILABLE',
        'SERVER_UNAVAILABLE',
      ]);
      expect(facade.calls('one').map(({ name }) => name)).toEqual(['mail', 'mail']);
    },
  );
});

describe('a forged approval', () => {
  const raw = (key: string): Promise<string | undefined> =>
    withConsents(config(), async (_consents, state) => state.get('consent', key));

  it('an approval that was copied to another server counts for nothing' + verifies('HA-15'), async () => {
    await begin({ tools: [mail()] }, [mail()], { two: { tools: [mail()] } });
    const entry = await raw('one');
    await withConsents(config(), async (_consents, state) => state.put('consent', 'two', entry ?? ''));
    expect(await codes('two_mail')).toBe('SERVER_UNAVAILABLE');
    expect(facade.lines('two')).toEqual([]);
    expect(facade.assembled.catalog.problems.get('two')?.message).toContain('damaged');
    expect(await raw('two')).toBe(entry);
  });

  it(
    'a stored approval with one changed letter, or a changed set of tools, counts for nothing' + verifies('HA-15'),
    async () => {
      await begin({ tools: [mail()] }, [mail()]);
      const entry = (await raw('one')) ?? '';
      await withConsents(config(), async (_consents, state) =>
        state.put('consent', 'one', entry.replace('boss', 'bosS')),
      );
      expect(await shown()).toEqual([]);
      await withConsents(config(), async (_consents, state) => {
        await state.put('consent', 'one', entry);
        await state.put(
          'consent/tools',
          'one',
          ((await state.get('consent/tools', 'one')) ?? '').replace('The tool mail', 'The tool evil'),
        );
      });
      await facade.close();
      const again = await startFacade(
        JSON.stringify({
          ...(JSON.parse('{}') as object),
          version: 1,
          workspace: './workspace',
          state: './state',
          servers: {
            one: {
              command: process.execPath,
              args: config().servers.get('one')?.args,
              isolation: 'direct',
              connectTimeoutMs: 30_000,
            },
          },
          profiles: { all: { servers: ['one'], expose: { primitives: {}, tools: ['one.*'] } } },
          principals: [{ id: 'me', profiles: ['all'], stdio: true }],
          rules: [{ id: 'all', outcome: 'allow', when: { servers: ['one'] } }],
        }),
        { folder: facade.folder, approved: [] },
      );
      expect(await again.list(again.open('me'))).toEqual([]);
      await again.close();
    },
  );
});

describe('a program that changed after its approval', () => {
  it('is not started, and the refusal names the changed part and no value' + verifies('HA-15'), async () => {
    const script = path.join(mkdtempSync(path.join(tmpdir(), 'tollgate-script-')), 'extra.mjs');
    writeFileSync(script, '');
    facade = await startRaw(
      { one: { tools: [mail()], settings: { env: { NODE_EXTRA: 'x' } } } },
      {},
      {},
      { approved: [] },
    );
    await facade.close();
    facade = await startRaw({ one: { tools: [mail()] } }, {}, {}, { approved: [] });
    const server = config().servers.get('one')!;
    await withConsents(config(), async (consents) => {
      const facts = await consents.factsOf({ ...server, args: [script, ...server.args], env: { A: 'hunter22' } });
      const start = await consents.approveStart({ facts, ...ACT_OF_BOSS });
      await consents.approveAnyTools('one', { start, hints: false, ...ACT_OF_BOSS });
      appendFileSync(script, 'evil()');
      const refusal = await consents.refuseStart({ ...server, args: [script, ...server.args], env: { A: 'hunter22' } });
      expect(refusal?.message).toContain('a file that it runs differs from what was approved');
      const other = await consents.refuseStart({
        ...server,
        args: [script, ...server.args],
        env: { A: 'hunter23', B: 'c' },
      });
      expect(other?.message).toContain('env.A, env.B');
      expect(other?.message).not.toContain('hunter');
    });
    rmSync(path.dirname(script), { recursive: true });
  });
});

describe('tools that changed after their approval', () => {
  it(
    'are found at the next start (c046), even without a notification of the server' + verifies('HA-15', 'CY-16'),
    async () => {
      await begin(
        {
          lists: [
            [ACT, mail()],
            [ACT, mail({ description: 'Other.' })],
          ],
        },
        [ACT, mail()],
      );
      const session = facade.open('me');
      expect(await codes('one_mail', session)).toBe('');
      await facade.call(session, 'one_act', { notify: true });
      await expect.poll(() => codes('one_mail', session), { timeout: 20_000 }).toBe('PIN_MISMATCH');
      const before = facade.calls('one').length;
      expect(await codes('one_mail', session)).toBe('PIN_MISMATCH');
      expect(facade.calls('one')).toHaveLength(before);
    },
  );

  it('are pending if a name is listed twice, once as approved' + verifies('HA-15'), async () => {
    await begin({ tools: [mail(), mail({ description: 'Other.' })] }, [mail()]);
    expect(await codes('one_mail')).toBe('PIN_MISMATCH');
    expect(await shown()).toEqual([]);
  });

  it('cannot take the name of an approved tool' + verifies('HA-15'), async () => {
    await begin({ tools: [tool('a-b'), tool('a_b')] }, [tool('a_b')]);
    expect(await codes('one_a_b')).toBe('');
    expect(facade.calls('one').map(({ name }) => name)).toEqual(['a_b']);
    expect(await shown()).toEqual(['one_a_b']);
  });

  it(
    'make one item for the owner and one record per minute, however often they change' + verifies('HA-15'),
    async () => {
      const lists = Array.from({ length: 20 }, (_, index) => [
        ACT,
        ...Array.from({ length: 10 }, (_tool, other) => tool(`t${index}-${other}`)),
      ]);
      await begin({ lists }, [ACT]);
      const session = facade.open('me');
      for (let turn = 0; turn < 8; turn += 1) {
        await facade.call(session, 'one_act', { notify: true });
        await facade.list(session);
      }
      await expect
        .poll(() => facade.records().filter(({ type }) => type === 'consent'))
        .toEqual([expect.objectContaining({ event: 'pending', server: 'one', outcome: 'deny', added: 10 })]);
      const waiting = await withConsents(config(), async (_consents, state) => state.list('consent/pending'));
      expect([...waiting.keys()]).toEqual(['one']);
      expect(await withConsents(config(), (consents) => consentSummary('one', consents))).toEqual({
        word: 'changed',
        disabled: false,
        pending: 10,
      });
    },
  );

  it('are shown by the running facade after the owner approves them' + verifies('HA-15'), async () => {
    await begin({ tools: [mail({ title: 'New' })] }, [mail()]);
    const session = facade.open('me');
    expect(await codes('one_mail', session)).toBe('PIN_MISMATCH');
    await approveSet(config(), 'one', [mail({ title: 'New' })]);
    expect(await shown(session)).toEqual(['one_mail']);
    expect(await codes('one_mail', session)).toBe('');
    expect(await withConsents(config(), async (consents) => consents.tools.pending('one'))).toBeUndefined();
  });

  it('are approved or disabled for the next call, even without a list in between' + verifies('HA-15'), async () => {
    await begin({ tools: [mail({ title: 'New' })] }, [mail()]);
    const session = facade.open('me');
    for (let call = 0; call < 2; call += 1) expect(await codes('one_mail', session)).toBe('PIN_MISMATCH');
    await withConsents(config(), (consents) => consents.disable('one', ACT_OF_BOSS));
    expect(await codes('one_mail', session)).toBe('SERVER_UNAVAILABLE');
    await withConsents(config(), (consents) => consents.enable('one'));
    expect(await codes('one_mail', session)).toBe('PIN_MISMATCH');
    await approveSet(config(), 'one', [mail({ title: 'New' })]);
    expect(await codes('one_mail', session)).toBe('');
  });

  it(
    'are compared with the latest approval while their server starts, and no one waits' + verifies('HA-15'),
    async () => {
      const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-gate-'));
      const [plan, gate, starts] = ['plan', 'gate', 'starts'].map((name) => path.join(folder, name)) as [
        string,
        string,
        string,
      ];
      const [as, listed] = [tool('echo'), tool('echo', { title: 'New' })];
      writeFileSync(plan, JSON.stringify({ mode: 'gated', tools: [listed] }));
      await begin(
        {
          settings: {
            args: [path.join(import.meta.dirname, '..', 'fixtures', 'chaos.mjs')],
            env: { CHAOS_PLAN: plan, CHAOS_GATE: gate, CHAOS_STARTS: starts },
          },
        },
        [as],
      );
      expect(await shown()).toEqual(['one_echo']);
      const first = codes('one_echo');
      await expect.poll(() => existsSync(starts)).toBe(true);
      await approveSet(config(), 'one', [listed]);
      writeFileSync(gate, '');
      expect([await first, await codes('one_echo')]).toEqual(['', '']);
      expect(await withConsents(config(), async (consents) => consents.tools.pending('one'))).toBeUndefined();
      rmSync(folder, { recursive: true });
    },
  );

  it('are refused as disabled if the server is disabled while it lists' + verifies('HA-15'), async () => {
    await begin({ tools: [mail()] }, [mail()]);
    expect(await shown()).toEqual(['one_mail']);
    const adapter = facade.assembled.catalog.servers.get('one')!.adapter;
    const list = adapter.listTools.bind(adapter);
    adapter.listTools = async (signal) => {
      const tools = await list(signal);
      await withConsents(config(), (consents) => consents.disable('one', ACT_OF_BOSS));
      return tools;
    };
    expect([await codes('one_mail'), facade.assembled.catalog.problems.get('one')?.data]).toEqual([
      'SERVER_UNAVAILABLE',
      { consent: 'disabled', refusal: 'disabled' },
    ]);
    expect(facade.calls('one')).toEqual([]);
  });

  it('are not called through a primitive of a mapped server either' + verifies('HA-15', 'CY-06'), async () => {
    const [as, pulled] = [tool('list_directory'), tool('list_directory', { description: 'Lists, and sends it on.' })];
    facade = await startRaw(
      {
        one: {
          tools: [pulled, tool('read_text_file')],
          answers: { list_directory: { raw: '{"content":[{"type":"text","text":"[FILE] a.txt"}]}' } },
          settings: { mapping: 'server-filesystem' },
        },
      },
      { profiles: { all: { servers: ['one'], expose: { primitives: { read: 'one' } } } } },
      {},
      { approved: [] },
    );
    const read = async (): Promise<string> =>
      (await facade.call(facade.open('me'), 'read', { path: '.', action: 'list' })).code;
    expect(await read()).toBe('SERVER_UNAVAILABLE');
    await approveSet(config(), 'one', [as, tool('read_text_file')]);
    expect(await read()).toBe('PIN_MISMATCH');
    expect(facade.calls('one')).toEqual([]);
    await approveSet(config(), 'one', [pulled, tool('read_text_file')]);
    expect(await read()).toBe('');
    expect(facade.calls('one').map(({ name }) => name)).toContain('list_directory');
    // A tool that a server executes but does not list is not approved.
    await approveSet(config(), 'one', [pulled]);
    facade.redefine('one', { tools: [pulled] });
    expect(await read()).toBe('PIN_MISMATCH');
  });

  it('have annotations only if the owner confirmed them, whatever the file says' + verifies('PF-05'), async () => {
    const read = mail({ annotations: { readOnlyHint: true } });
    facade = await startRaw(
      { one: { tools: [read], settings: { trustHints: true } } },
      { rules: [{ id: 'reads', outcome: 'allow', when: { servers: ['one'], verbs: ['read'] } }] },
      {},
      { approved: [] },
    );
    await approveSet(config(), 'one', [read], { hints: false });
    expect(await shown()).toEqual([]);
    await approveSet(config(), 'one', [read], { hints: true });
    expect(await shown()).toEqual(['one_mail']);
  });
});

async function pidIn(file: string): Promise<{ pid: number }> {
  const { readFileSync } = await import('node:fs');
  return { pid: Number(readFileSync(file, 'utf8').split('\n')[0]) };
}
