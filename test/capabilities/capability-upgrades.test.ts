/**
 * Tests capabilities that are off until an owner adds them: they are hidden, refused alike under every exposure, have
 * budgets and records, and end at the next call in every process.
 */

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { TOOL_CAPABILITIES } from '../../catalogs/tools/tool-capabilities.ts';
import { verifyAudit } from '../../facade/audit/chain-verification.ts';
import { Upgrades } from '../../facade/consent/capabilities/capability-upgrades.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { State } from '../../facade/state/state-port.ts';
import { type Answer as CliAnswer, cli, dataOf } from '../cli/terminal.ts';
import type { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { OPEN, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { type Answer, startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const DESK = [
  'read_file',
  'write_pdf',
  'edit_block',
  'start_process',
  'interact_with_process',
  'get_file_info',
  'list_directory',
  'start_search',
  'update-excel-range',
  'remote_control',
  'evaluate',
  'plain',
];
const PRINCIPALS = [
  { id: 'group', profiles: ['group'], stdio: true },
  { id: 'wrapped', profiles: ['wrapped'], stdio: true },
  { id: 'other', profiles: ['other'], stdio: true },
  { id: 'admin', profiles: ['group'], stdio: true, owner: true },
];
const PROFILES = {
  group: { servers: ['desk'], expose: { primitives: {}, tools: ['desk.*'] } },
  other: {
    servers: ['desk'],
    expose: { primitives: {}, tools: ['desk.*', { tool: 'desk.read_file', name: 'open_document' }] },
  },
  wrapped: { expose: { primitives: 'desk' } },
};
const RULES = [
  { id: 'all', outcome: 'allow', when: {} },
  ...['start_process', 'interact_with_process'].map((name) => ({
    id: name.replaceAll('_', '-'),
    outcome: 'allow',
    when: { tools: [`desk.${name}`] },
  })),
];

let facade: RawFacade;
const others: TestFacade[] = [];

afterEach(async () => {
  await Promise.all(others.splice(0).map((one) => one.close()));
  await facade.close();
});

async function start(more: Readonly<Record<string, unknown>> = {}): Promise<void> {
  facade = await startRaw(
    {
      desk: {
        tools: DESK.map((name) => tool(name, { inputSchema: OPEN })),
        settings: { mapping: 'desktop-commander' },
      },
    },
    { principals: PRINCIPALS, profiles: PROFILES, rules: RULES, ...more },
  );
}

const run = (argv: readonly string[]): Promise<CliAnswer> =>
  cli({ folder: facade.folder, home: facade.folder } as Project, ['upgrades', ...argv]);
const enable = (...argv: readonly string[]): Promise<CliAnswer> => run(['enable', ...argv, '--as', 'admin']);
const namesOf = async (who: string): Promise<readonly string[]> =>
  (await facade.list(facade.open(who))).map(({ name }) => name);
const call = (who: string, name: string, args: unknown): Promise<Answer> => facade.call(facade.open(who), name, args);

describe('a capability that no owner added' + verifies('CY-08'), () => {
  it('has no tools: they are neither listed nor callable', async () => {
    await start();
    const names = await namesOf('group');
    expect(names).toEqual(expect.arrayContaining(['desk_plain', 'desk_read_file', 'desk_start_process']));
    for (const [hidden, args] of [
      ['desk_write_pdf', { path: 'a' }],
      ['desk_update-excel-range', {}],
      ['desk_remote_control', {}],
      ['desk_evaluate', {}],
    ] as const) {
      expect(names).not.toContain(hidden);
      expect((await call('group', hidden, args)).code).toBe('UNKNOWN_TOOL');
    }
    expect(facade.calls('desk')).toEqual([]);
    const owner = { folder: facade.folder, home: facade.folder } as Project;
    expect((await cli(owner, ['tools', '--as', 'group'])).err).toContain(
      '1 tool not shown: PDF documents is off. An owner adds it with: tollgate upgrades enable pdf\n',
    );
    await cli(owner, ['off']);
    expect((await cli(owner, ['tools', '--as', 'group'])).err).toContain('Everything is switched off');
    await cli(owner, ['on']);
  });

  it.each<[string, string, [who: string, name: string, args: unknown][]]>([
    [
      'pdf',
      'reading a document',
      [
        ['wrapped', 'read', { path: 'report.pdf' }],
        ['group', 'desk_read_file', { path: 'report.pdf' }],
        ['other', 'open_document', { path: 'report.pdf' }],
      ],
    ],
    [
      'excel',
      'changing a workbook',
      [
        ['wrapped', 'edit', { path: 'table.xlsx', old_string: 'a', new_string: 'b' }],
        ['group', 'desk_edit_block', { file_path: 'table.xlsx' }],
        ['other', 'desk_edit_block', { file_path: 'table.xlsx' }],
      ],
    ],
    [
      'in_memory_execution',
      'an interpreter',
      [
        ['wrapped', 'bash', { command: 'python3 -i' }],
        ['group', 'desk_start_process', { command: 'python3 -i', timeout_ms: 1 }],
        ['other', 'desk_interact_with_process', { pid: 1, input: 'python3 -i' }],
      ],
    ],
    [
      'remote_control',
      'a tunnel',
      [
        ['wrapped', 'bash', { command: 'ngrok http 80' }],
        ['group', 'desk_start_process', { command: 'ngrok http 80', timeout_ms: 1 }],
      ],
    ],
  ])('%s is refused the same way under every exposure: %s', async (name, _what, calls) => {
    await start();
    const texts = new Set<string>();
    for (const [who, exposed, args] of calls) {
      const answer = await call(who, exposed, args);
      expect([exposed, answer.code]).toEqual([exposed, 'DENIED']);
      expect(answer.text).toContain(`tollgate upgrades enable ${name}`);
      texts.add(answer.text.replace(/[0-9a-f-]{36}/g, ''));
    }
    expect(texts.size).toBe(1);
    const refused = facade.records().filter(({ type }) => type === 'decision');
    expect(refused.map(({ code, reasons }) => [code, reasons])).toEqual(
      calls.map(() => ['DENIED', [{ id: `upgrade:${name}` }]]),
    );
    expect(facade.calls('desk')).toEqual([]);
  });

  it('does not affect anything else', async () => {
    await start();
    expect((await call('group', 'desk_read_file', { path: 'report.txt' })).code).toBe('');
    expect((await call('group', 'desk_list_directory', { path: 'a.pdf' })).code).toBe('');
    expect((await call('group', 'desk_start_process', { command: 'python3 build.py', timeout_ms: 1 })).code).toBe('');
    expect(await namesOf('wrapped')).toEqual(expect.arrayContaining(['read', 'write', 'edit', 'bash']));
  });
});

describe('arguments that use a capability', () => {
  it(
    'are recognized on a server without a mapping by its tools, and on no other server' + verifies('CY-08'),
    async () => {
      facade = await startRaw({
        like: { tools: ['read_file', 'start_process', 'edit_block', 'write_pdf'].map((name) => tool(name)) },
        mail: { tools: [tool('attach'), tool('read_file')] },
      });
      const session = facade.open('me');
      expect((await facade.call(session, 'like_read_file', { path: 'a.pdf' })).code).toBe('DENIED');
      expect((await facade.call(session, 'mail_read_file', { path: 'a.pdf' })).code).toBe('');
      expect((await facade.call(session, 'mail_attach', { file: 'a.xlsx' })).code).toBe('');
    },
  );
});

describe('an upgrade' + verifies('CY-08', 'CY-03'), () => {
  it('shows the tools, lets the rules decide their calls, and is recorded with its owner', async () => {
    await start();
    const said = await enable('pdf', '--profile', 'group', '--calls', '3', '--bytes', '4000', '--for', '8h');
    expect(said).toMatchObject({
      code: 0,
      err: expect.stringMatching(
        new RegExp(
          '^On: PDF documents, for profile group, until .*; 3 calls and 4000 bytes per session\\.\n' +
            '  allows: .*\n  risk:   .*\nRules still decide',
        ),
      ),
    });
    expect(await namesOf('group')).toContain('desk_write_pdf');
    expect(await namesOf('other')).not.toContain('desk_write_pdf');
    expect((await call('group', 'desk_read_file', { path: 'a.pdf' })).code).toBe('');
    expect((await call('other', 'open_document', { path: 'a.pdf' })).code).toBe('DENIED');
    expect((await call('group', 'desk_edit_block', { file_path: 'a.xlsx' })).code).toBe('DENIED');
    const [record] = facade.records().filter(({ type }) => type === 'upgrade');
    expect(record).toMatchObject({
      event: 'enabled',
      id: 'pdf',
      outcome: 'allow',
      by: 'admin',
      profile: 'group',
      calls: 3,
      bytes: 4000,
      until: expect.any(String),
    });
  });

  it('does not override a deny of a rule', async () => {
    await start({
      rules: [...RULES, { id: 'no-pdf', outcome: 'deny', when: { tools: ['desk.write_pdf'] }, message: 'Not here.' }],
    });
    await enable('pdf');
    expect((await call('group', 'desk_read_file', { path: 'a.pdf' })).code).toBe('');
    expect(await namesOf('group')).not.toContain('desk_write_pdf');
  });

  it('has its own budget per session, and a summary of its use', async () => {
    await start();
    await enable('pdf', '--calls', '2');
    await enable('excel');
    const session = facade.open('group');
    const read = (file: string): Promise<Answer> => facade.call(session, 'desk_read_file', { path: file });
    expect((await read('a.pdf')).code).toBe('');
    expect((await read('b.pdf')).code).toBe('');
    expect(await read('c.pdf')).toMatchObject({
      code: 'BUDGET_EXCEEDED',
      text: expect.stringContaining('upgrade:pdf'),
    });
    for (const name of ['a.txt', 'a.xlsx']) expect((await read(name)).code).toBe('');
    // A new session of the same principal does not renew the budget.
    expect((await call('group', 'desk_read_file', { path: 'a.pdf' })).code).toBe('BUDGET_EXCEEDED');
    expect((await call('other', 'open_document', { path: 'a.pdf' })).code).toBe('');
    const { upgrades } = dataOf<{
      upgrades: { name: string; uses: { calls: number; bytes: number }; added: { calls: number }[]; allows: string }[];
    }>((await run(['list', '--json'])).out);
    expect(upgrades.map(({ name }) => name)).toEqual([...TOOL_CAPABILITIES.keys()]);
    expect(upgrades.slice(0, 3).map(({ uses: { calls }, added }) => [calls, added.map((one) => one.calls)])).toEqual([
      [3, [2]],
      [1, [50]],
      [0, []],
    ]);
    const sent = facade
      .records()
      .filter(({ type }) => type === 'outcome')
      .slice(0, 2)
      .reduce((sum, { sizes }) => sum + (sizes as { sent: number }).sent, 0);
    expect(upgrades[0]?.uses.bytes).toBeGreaterThan(sent);
    expect((await run(['list'])).out).toMatch(
      new RegExp(
        '^NAME +STATE +WHAT +PROFILE.*\npdf +on +PDF documents +all +2 calls, 5 MB +\\S+ by +3 calls, \\d+ B\n +admin\n' +
          'excel +on [^]*\nin_memory_execution +off +Code in memory\n',
      ),
    );
  });

  inFull('ends in every process at the next call, and by itself when it expires', async () => {
    await start();
    const text = readFileSync(path.join(facade.folder, 'tollgate.yaml'), 'utf8');
    const second = await startFacade(text, { folder: facade.folder });
    others.push(second);
    const session = second.open('group');
    await enable('pdf');
    expect((await second.call(session, 'desk_write_pdf', { path: 'a' })).code).toBe('');
    expect((await run(['disable', 'pdf', '--profile', 'other', '--as', 'admin'])).err).toBe('It was off already.\n');
    expect((await run(['disable', 'pdf', '--as', 'admin'])).err).toBe(
      'Off: pdf, for every profile. It no longer applies to any call.\n',
    );
    expect((await second.call(session, 'desk_write_pdf', { path: 'a' })).code).toBe('UNKNOWN_TOOL');
    expect((await second.call(session, 'desk_read_file', { path: 'a.pdf' })).code).toBe('DENIED');
    const state = openState(path.join(facade.folder, 'state'));
    let now = Date.now();
    const upgrades = new Upgrades({ state, now: () => now, append: () => undefined });
    await upgrades.enable({ capability: TOOL_CAPABILITIES.get('excel')!, by: 'admin', ms: 1000 });
    expect(await upgrades.list()).toHaveLength(1);
    now += 1000;
    expect(await upgrades.list()).toEqual([]);
    await state.close();
  });

  it('is added by an owner only, for a known capability and profile, and only if it can be recorded', async () => {
    await start();
    expect(await run(['enable', 'pdf', '--as', 'group'])).toMatchObject({
      code: 4,
      err: expect.stringContaining('group is no owner'),
    });
    expect(await run(['disable', 'pdf', '--as', 'group'])).toMatchObject({ code: 4 });
    expect(await enable('pfd')).toMatchObject({ code: 2, err: expect.stringContaining('did you mean "pdf"?') });
    expect(await enable('pdf', '--profile', 'nobody')).toMatchObject({
      code: 2,
      err: expect.stringContaining('There is no profile "nobody"'),
    });
    expect(await enable('desktop')).toMatchObject({
      code: 2,
      err: expect.stringContaining('No profile is a host profile'),
    });
    expect(await enable('pdf', '--calls', '0')).toMatchObject({ code: 2 });
    expect(await enable('pdf', '--for', 'ever')).toMatchObject({ code: 2 });
    const state = openState(path.join(facade.folder, 'state'));
    const failing = new Upgrades({
      state,
      now: Date.now,
      append: () => {
        throw new Error('disk full');
      },
    });
    await expect(failing.enable({ capability: TOOL_CAPABILITIES.get('pdf')!, by: 'x' })).rejects.toThrow('disk full');
    expect(await failing.list()).toEqual([]);
    await state.close();
  });

  inFull('is reported by tollgate try', async () => {
    await start();
    const tried = await cli({ folder: facade.folder, home: facade.folder } as Project, [
      'try',
      'desk_read_file',
      '{"path":"a.pdf"}',
      '--as',
      'group',
    ]);
    expect(tried).toMatchObject({ code: 3, err: expect.stringContaining('tollgate upgrades enable pdf') });
  });
});

describe('histories of upgrades over two processes', () => {
  it('make lists and calls agree at every moment, and no call reaches a server without an upgrade' +
    verifies('CY-08'), async () => {
    await start({ profiles: { ...PROFILES, other: PROFILES.group } });
    const second = await startFacade(readFileSync(path.join(facade.folder, 'tollgate.yaml'), 'utf8'), {
      folder: facade.folder,
    });
    others.push(second);
    const state: State = openState(path.join(facade.folder, 'state'));
    const upgrades = new Upgrades({ state, now: Date.now, append: () => undefined });
    const PROBES = {
      pdf: ['desk_write_pdf', {}],
      excel: ['desk_update-excel-range', {}],
      in_memory_execution: ['desk_evaluate', {}],
      remote_control: ['desk_remote_control', {}],
    } as const;
    type Name = keyof typeof PROBES;
    const steps = fc.array(
      fc.record({
        name: fc.constantFrom(...(Object.keys(PROBES) as Name[])),
        profile: fc.constantFrom(undefined, 'group', 'other'),
        on: fc.boolean(),
        who: fc.constantFrom('group', 'other'),
        at: fc.constantFrom(0, 1),
      }),
      { maxLength: 12 },
    );
    await fc.assert(
      fc.asyncProperty(steps, async (history) => {
        for (const { name } of history) await upgrades.disable({ capability: name, by: 'x' });
        const added = new Set<string>();
        for (const { name, profile, on, who, at } of history) {
          const capability = TOOL_CAPABILITIES.get(name)!;
          const key = `${name} ${profile ?? '*'}`;
          if (on) {
            await upgrades.enable({ capability, by: 'x', profile, calls: 1000 });
            added.add(key);
          } else {
            await upgrades.disable({ capability: name, by: 'x', profile });
            for (const one of [...added])
              if (one.startsWith(`${name} `) && (profile === undefined || one === key)) added.delete(one);
          }
          // Another process sees a change after 1 ms at most.
          await sleep(2);
          const there = added.has(`${name} *`) || added.has(`${name} ${who}`);
          const one = at === 0 ? facade : second;
          const session = one.open(who);
          const [exposed, args] = PROBES[name];
          const reached = facade.calls('desk').length;
          const { code } = await one.call(session, exposed, args);
          expect([key, who, code]).toEqual([key, who, there ? '' : 'UNKNOWN_TOOL']);
          expect((await one.list(session)).some((shown) => shown.name === exposed)).toBe(there);
          expect(facade.calls('desk').length - reached).toBe(there ? 1 : 0);
          await one.assembled.gateway.closeSession(session);
        }
      }),
      { numRuns: roundsOf(15, 4), endOnFailure: true },
    );
    await state.close();
    expect(verifyAudit(path.join(facade.folder, 'state', 'audit'))).toMatchObject({ ok: true });
  }, 60_000);
});
