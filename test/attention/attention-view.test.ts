/** Tests the list with real parts: what `status`, the host API and its events show of one state folder. */

import { rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AttentionItem } from '../../facade/attention/attention-list.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { type Answer, cli, dataOf, server, start } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { Listener } from '../host/event-listener.ts';
import { type HostBench, startHost, TOKENS } from '../host/host-bench.ts';
import { verifies } from '../verifies.ts';

const env = { HOST_TOKEN: TOKENS.host, ALICE_TOKEN: TOKENS.alice };
const CONFIG = `version: 1
workspace: ./workspace
state: ./state
servers: {chaos: ${server(['chaos.mjs'])}, other: ${server(['chaos.mjs', 'other'])}}
principals:
  - {id: boss, stdio: true, owner: true, token: "\${env:HOST_TOKEN}"}
  - {id: alice, stdio: true, profiles: [p], token: "\${env:ALICE_TOKEN}"}
profiles:
  p: {servers: [chaos, other], expose: {primitives: workspace, tools: ["chaos.*"]}}
budgets: [{id: few, scope: principal, window: 3600, calls: 1, when: {tool: read}}]
approvals: {waitMs: 0}
rules:
  - {id: echo, outcome: ask, message: Ask me., when: {tools: [chaos.echo]}}
  - {id: reads, outcome: allow, when: {verbs: [read]}}
listen: {port: 0}
`;

let project: Project;
let host: HostBench;
const status = (more: readonly string[] = []): Promise<Answer> => cli(project, ['status', ...more], { env });
const items = async (): Promise<readonly AttentionItem[]> =>
  dataOf<{ items: AttentionItem[] }>((await status(['--json'])).out).items;
const kinds = async (): Promise<readonly string[]> => (await items()).map(({ kind }) => kind);
const heard = (listener: Listener): readonly (readonly unknown[])[] =>
  listener.heard.filter(({ event }) => event.startsWith('attention.')).map(({ event, kind }) => [event, kind]);

beforeAll(async () => {
  project = new Project();
  project.write('workspace/a.txt', 'hello\n');
  host = await startHost(CONFIG, { folder: project.folder, approved: ['chaos'] });
});
afterAll(async () => {
  await host.close();
  project.remove();
});

describe('what needs attention' + verifies('AD-50', 'AD-51'), () => {
  inFull('is the same in status and in the host API, and hosts hear what is added and what is gone', async () => {
    const before = await status();
    expect(before.out).toMatch(
      /^no Tollgate serves agents; 0 sessions; 0 of 2 servers running; 0 calls in the last hour\n/,
    );
    host.facade.assembled.warmUp();
    const listener = await Listener.open(host);
    const session = host.facade.open('alice');
    const watching = start(project, ['status', '--watch', '--json'], { env });
    expect((await host.facade.call(session, 'chaos_echo', { secret: 'payload-of-alice' })).code).toBe(
      'APPROVAL_REQUIRED',
    );
    for (const code of ['', 'BUDGET_EXCEEDED'])
      expect((await host.facade.call(session, 'read', { path: 'a.txt' })).code).toBe(code);
    await cli(project, ['suspend', 'alice'], { env });
    await cli(project, ['kill', 'chaos'], { env });
    await expect
      .poll(kinds, { timeout: 20_000 })
      .toEqual(expect.arrayContaining(['approval', 'budget-spent', 'server-killed', 'server-unapproved', 'suspended']));
    const list = await items();
    const asked = await host.ask('GET /attention');
    expect(asked.value.items.map(({ id }: AttentionItem) => id)).toEqual(list.map(({ id }) => id));
    expect(list.find(({ kind }) => kind === 'approval')).toMatchObject({
      rank: 2,
      title: 'alice asks for chaos.echo',
      detail: 'echo: Ask me.',
      next: expect.stringMatching(/^tollgate approvals show /),
    });
    expect(JSON.stringify(list)).not.toContain('payload-of-alice');
    expect((await host.ask('GET /attention', undefined, { token: TOKENS.alice })).value.error.code).toBe('SUSPENDED');

    await expect
      .poll(async () => (await status()).out, { timeout: 20_000 })
      .toMatch(new RegExp(`^serving as process ${process.pid}; [12] sessions?; 0 of 2 servers running; 3 calls in`));
    const { out } = await status();
    expect(out.split('\n').filter((line) => line.length > 100)).toEqual([]);
    await expect.poll(() => heard(listener), { timeout: 20_000 }).toContainEqual(['attention.added', 'suspended']);
    await cli(project, ['kill', '--lift', 'chaos'], { env });
    await cli(project, ['resume', 'alice'], { env });
    await expect.poll(() => heard(listener), { timeout: 20_000 }).toContainEqual(['attention.removed', 'suspended']);
    watching.stop();
    const views = (await watching.ended).out.trimEnd().split('\n');
    expect(views.length).toBeGreaterThan(1);
    expect(new Set(views).size).toBe(views.length);
    listener.stop();
    await listener.ended;
  });

  it('has a refused reload until the next good one, and what doctor finds of its own files', async () => {
    const file = path.join(project.folder, 'tollgate.yaml');
    const reload = (): Promise<unknown> =>
      host.facade.assembled.reload(() => loadConfig(file, { env, home: project.home }), true);
    writeFileSync(file, `${CONFIG}nonsense: 1\n`);
    await expect(reload()).rejects.toThrow();
    writeFileSync(file, CONFIG);
    await expect.poll(kinds, { timeout: 20_000 }).toContain('reload-refused');
    await reload();
    await expect.poll(kinds, { timeout: 20_000 }).not.toContain('reload-refused');
    const token = path.join(project.folder, 'state', 'vault.json');
    writeFileSync(token, '{}', { mode: 0o644 });
    expect((await items()).find(({ kind }) => kind === 'finding-missing')).toMatchObject({
      subject: 'vault-files',
      next: 'tollgate doctor --fix',
    });
    rmSync(token);
  });
});
