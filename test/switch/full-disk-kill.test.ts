/**
 * Tests that a running server is stopped from another process although the disk of the state folder is full.
 * Covers: facade/consent/switch.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { cli, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { Child, isRunning, startedIn } from '../process/child.ts';
import { canMountDisks, empty, fill, mountSmallDisk, NO_DISKS, unmount } from '../state/small-disk.ts';
import { verifies } from '../verifies.ts';

let project: Project;
let child: Child | undefined;
const inProject = (name: string): string => path.join(project.folder, name);

beforeEach(async ({ skip }) => {
  project = new Project();
  skip(!canMountDisks(), NO_DISKS);
  project.write('workspace/README.md', '# Hello\n');
  mountSmallDisk(inProject('state'));
  const entry = (name: string): string =>
    server(['chaos.mjs', 'ok'], `env: {CHAOS_STARTS: ${JSON.stringify(inProject(name))}}`);
  project.write(
    'tollgate.yaml',
    `version: 1
workspace: ./workspace
state: ./state
servers: {one: ${entry('one')}, two: ${entry('two')}}
profiles: {default: {servers: [one, two], expose: {primitives: workspace, tools: ["one.*", "two.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`,
  );
  await project.approve();
});
afterEach(async () => {
  await child?.kill('SIGKILL');
  unmount(inProject('state'));
  project.remove();
});

it(
  'on a full disk, kill, suspend and off stop what runs, and on lets it run again' +
    verifies('HA-19', 'AD-41', 'AD-42', 'AD-128'),
  async () => {
    child = new Child(project, ['run']);
    await child.hello();
    for (const name of ['one', 'two']) expect((await child.call(`${name}_echo`, {})).error).toBeUndefined();
    const [one, two] = ['one', 'two'].map((name) => startedIn(inProject(name))) as [
      readonly number[],
      readonly number[],
    ];
    expect([...one, ...two].every(isRunning)).toBe(true);
    fill(inProject('state'));

    // The stop is in force, and the output says that it could not be recorded.
    const killed = await cli(project, ['kill', 'one']);
    expect(killed.err).toMatch(/^one is stopped: [^]*AUDIT_FAILED/);
    // A refusal is recorded as long as the last page of the log has room.
    expect(JSON.stringify(await child.call('one_echo', {}))).toMatch(/stopped by the kill switch|AUDIT_FAILED/);
    await expect.poll(() => one.filter(isRunning), { timeout: 20_000 }).toEqual([]);
    expect(two.every(isRunning)).toBe(true);

    // The same holds for a principal.
    expect((await cli(project, ['suspend', 'local'])).err).toMatch(/^AUDIT_FAILED: The principal is suspended\. /);
    // Nothing runs. Once the page is full, the refusal cannot be recorded, so the agent is told of the log instead.
    const refusals: string[] = [];
    while (refusals.length < 40 && !refusals.at(-1)?.includes('AUDIT_FAILED'))
      refusals.push(JSON.stringify(await child.call('two_echo', {})));
    expect(refusals.pop()).toContain('AUDIT_FAILED');
    for (const refused of refusals) expect(refused).toContain('SUSPENDED');
    expect((await cli(project, ['resume', 'local'])).err).toContain('AUDIT_FAILED');
    expect((await cli(project, ['suspend'])).out).toContain('local');

    expect((await cli(project, ['off'])).err).toMatch(/^Off: every list is empty [^]*AUDIT_FAILED/);
    expect((await child.ask('tools/list')).result?.tools).toEqual([]);
    await expect.poll(() => two.filter(isRunning), { timeout: 20_000 }).toEqual([]);

    empty(inProject('state'));
    expect((await cli(project, ['on'])).code).toBe(0);
    expect((await cli(project, ['kill', '--lift', 'one'])).code).toBe(0);
    expect(JSON.stringify(await child.call('two_echo', {}))).toContain('SUSPENDED');
    expect((await cli(project, ['suspend'])).out).toContain('local');
    expect(await cli(project, ['resume', 'locla'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('"local"?'),
    });
    expect((await cli(project, ['resume', 'local'])).err).toBe('local may call again.\n');
    expect((await cli(project, ['resume', 'local'])).err).toContain('was not suspended');
    expect(existsSync(inProject('state/stopped'))).toBe(true);
    await expect.poll(async () => (await child?.call('two_echo', {}))?.error, { timeout: 20_000 }).toBeUndefined();
  },
);
