/**
 * Tests the master switch over several processes of one state folder: nothing runs while it is off, and it works when
 * nothing else does.
 * Covers: facade/consent/switch.
 */

import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cli, dataOf, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { Child, isRunning, type Reply, startedIn } from '../process/child.ts';
import { verifies } from '../verifies.ts';

let project: Project;
let starts: string;
const children: Child[] = [];

beforeEach(async () => {
  project = new Project();
  starts = path.join(project.folder, 'starts');
  project.write('workspace/README.md', '# Hello\n');
  project.write(
    'tollgate.yaml',
    `version: 1
workspace: ./workspace
state: ./state
bash: {isolation: direct}
servers:
  chaos: ${server(['chaos.mjs', 'ok'], `env: {CHAOS_STARTS: ${JSON.stringify(starts)}}`)}
  early: ${server(['chaos.mjs', 'ok'], `start: eager, env: {CHAOS_STARTS: ${JSON.stringify(starts)}}`)}
profiles: {default: {servers: [chaos, early], expose: {primitives: workspace, tools: ["chaos.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`,
  );
  await project.approve();
});
afterEach(async () => {
  await Promise.all(children.splice(0).map((child) => child.kill('SIGKILL')));
  project.remove();
});

async function run(): Promise<Child> {
  const child = new Child(project, ['run']);
  children.push(child);
  await child.hello();
  return child;
}

const codeOf = ({ result, error }: Reply): unknown => error?.data?.code ?? result?._meta?.['tollgate/code'] ?? 'ok';
const textOf = ({ result }: Reply): string => result?.content?.[0]?.text ?? '';
const namesOf = async (child: Child): Promise<readonly string[]> =>
  ((await child.ask('tools/list')).result?.tools ?? []).map(({ name }) => name);
const changes = (child: Child): number =>
  child.lines.filter(({ method }) => method === 'notifications/tools/list_changed').length;
const gone = async (pids: readonly number[]): Promise<void> =>
  expect.poll(() => pids.filter(isRunning), { timeout: 20_000 }).toEqual([]);

describe('the master switch' + verifies('HA-19'), () => {
  inFull('empties every list, refuses every call, and ends every server and command within a second', async () => {
    const both = await Promise.all([run(), run()]);
    const before = await Promise.all(both.map(namesOf));
    expect(before[0]).toEqual(expect.arrayContaining(['chaos_echo', 'read', 'bash']));
    expect(codeOf(await (both[0] as Child).call('chaos_echo', {}))).toBe('ok');
    const started = textOf(
      await (both[1] as Child).call('bash', { action: 'start', command: 'echo $$; exec sleep 600', wait_ms: 20_000 }),
    );
    const pids = [...startedIn(starts), Number(/^(\d+)$/m.exec(started)?.[1])];
    const hanging = (both[0] as Child).call('chaos_hang', {});

    const heardBefore = both.map(changes);
    expect((await cli(project, ['off'])).err).toMatch(/^Off: every list is empty/);
    expect(codeOf(await (both[0] as Child).call('chaos_echo', {}))).toBe('SWITCHED_OFF');
    // A client that sits idle hears of it, both times.
    const hear = (than: readonly number[]): Promise<unknown> =>
      Promise.all(both.map((child, at) => expect.poll(() => changes(child)).toBeGreaterThan(than[at] ?? 0)));
    await hear(heardBefore);
    for (const child of both) {
      const reply = await child.call('chaos_echo', {});
      expect([codeOf(reply), textOf(reply)]).toEqual(['SWITCHED_OFF', expect.stringContaining('tollgate on')]);
      expect(codeOf(await child.call('read', { path: 'README.md' }))).toBe('SWITCHED_OFF');
      // An unknown name is refused in the same way, so that nothing is revealed.
      expect(codeOf(await child.call('no_such_tool', {}))).toBe('SWITCHED_OFF');
      expect(await namesOf(child)).toEqual([]);
    }
    expect(codeOf(await hanging)).toBe('TOOL_CRASHED');
    await gone(pids);
    const third = await run();
    expect(await namesOf(third)).toEqual([]);
    expect(startedIn(starts).filter(isRunning)).toEqual([]);

    const heardOff = both.map(changes);
    expect((await cli(project, ['on'])).err).toBe('On: servers start when they are needed.\n');
    await hear(heardOff);
    await expect.poll(async () => Promise.all(both.map(namesOf)), { timeout: 20_000 }).toEqual(before);
    await expect.poll(async () => codeOf(await third.call('chaos_echo', {})), { timeout: 20_000 }).toBe('ok');
    const acts = dataOf<{ event: string; by: string; outcome: string }[]>(
      (await cli(project, ['audit', 'list', '--all', '--type', 'switch', '--json'])).out,
    );
    expect(acts.map(({ event, by, outcome }) => [event, by, outcome]).sort()).toEqual([
      ['off', 'somebody', 'deny'],
      ['on', 'somebody', 'allow'],
    ]);
  });

  inFull('works with an invalid configuration, and says what it did', async () => {
    const child = await run();
    await namesOf(child);
    project.write('tollgate.yaml', 'nonsense: [');
    expect(await cli(project, ['off'])).toMatchObject({ code: 2 });
    expect(await cli(project, ['off', '--state', 'nowhere'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('There is no state of Tollgate'),
    });
    expect(dataOf((await cli(project, ['off', '--state', 'state', '--json'])).out)).toMatchObject({
      switch: 'off',
      changed: true,
      by: 'somebody',
      killed: [],
    });
    expect(codeOf(await child.call('read', { path: 'README.md' }))).toBe('SWITCHED_OFF');
    expect((await cli(project, ['off', '--state', 'state'])).err).toMatch(/^It was already off, since .* by somebody/);
    expect(dataOf((await cli(project, ['off', '--state', 'state', '--json'])).out)).toMatchObject({
      switch: 'off',
      changed: false,
      by: 'somebody',
    });
    expect(dataOf((await cli(project, ['on', '--state', 'state', '--json'])).out)).toEqual({
      switch: 'on',
      changed: true,
      killed: [],
    });
    expect((await cli(project, ['on', '--state', 'state'])).err).toBe('It was already on.\n');
  });

  it('is set by kill --all, and leaves named stops in force', async () => {
    await cli(project, ['kill', 'chaos']);
    expect((await cli(project, ['kill', '--all'])).err).toMatch(/as by `tollgate off`.*\nLift it with: tollgate on\n$/);
    expect(dataOf((await cli(project, ['kill', '--json'])).out)).toMatchObject({
      killed: [{ by: 'somebody' }, { server: 'chaos' }],
    });
    expect((await cli(project, ['kill', '--lift', 'chaos'])).err).toContain(
      'Everything is still switched off: tollgate on',
    );
    await cli(project, ['kill', 'chaos']);
    expect((await cli(project, ['on'])).err).toBe(
      'On: servers start when they are needed. Still stopped by kill: chaos; see tollgate kill.\n',
    );
    const child = await run();
    expect(codeOf(await child.call('chaos_echo', {}))).toBe('SERVER_UNAVAILABLE');
    expect(codeOf(await child.call('read', { path: 'README.md' }))).toBe('ok');
  });
});
