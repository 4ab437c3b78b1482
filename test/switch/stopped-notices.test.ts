/**
 * Tests that commands which read a configuration first say what of it is switched off or killed, and that no other
 * cause is given.
 */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cli, server, start } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { partOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

let project: Project;

beforeEach(() => {
  project = new Project();
  project.write('workspace/README.md', '# Hello\n');
  project.write(
    'tollgate.yaml',
    `version: 1
workspace: ./workspace
state: ./state
bash: {isolation: direct}
servers: {chaos: ${server(['chaos.mjs', 'ok'], 'env: {API_TOKEN: abcdefgh}')}}
profiles: {default: {servers: [chaos]}}
rules: [{id: all, outcome: allow, when: {}}]
`,
  );
});
afterEach(() => project.remove());

const COMMANDS: readonly (readonly [name: string, words: readonly string[]])[] = [
  ['check', ['check']],
  ['check --json', ['check', '--json']],
  ['doctor', ['doctor']],
  ['servers', ['servers']],
];
const firstLine = async (words: readonly string[]): Promise<string> =>
  (await cli(project, words)).err.split('\n')[0] ?? '';

describe('the notice of what is stopped' + verifies('HA-19'), () => {
  it.each(partOf(COMMANDS, 2))('is the first line of %s', async (_name, words) => {
    expect(await firstLine(words)).not.toMatch(/^(?:SWITCHED OFF|KILLED)/);
    await cli(project, ['kill', 'chaos']);
    expect(await firstLine(words)).toBe(
      'KILLED, so that no call reaches them: chaos. Lift it with: tollgate kill --lift NAME',
    );
    await cli(project, ['off']);
    const lines = (await cli(project, words)).err.split('\n');
    expect(lines[0]).toMatch(
      new RegExp(
        '^SWITCHED OFF since \\S+Z by somebody: lists are empty, and every call is refused\\. ' +
          'Turn it on with: tollgate on$',
      ),
    );
    expect(lines[1]).toMatch(/^KILLED/);
    await cli(project, ['kill', '--lift']);
    expect(await firstLine(words)).not.toMatch(/^(?:SWITCHED OFF|KILLED)/);
  });

  it('says that nothing is known if its file cannot be read', async () => {
    project.write('state/stopped', 'no list of stops at all, but long enough to look like one'.repeat(100));
    expect(await firstLine(['check'])).toMatch(/^Cannot read whether something is switched off: /);
  });

  it('is not mistaken for withheld secrets: approve gives no advice about them', async () => {
    await cli(project, ['off']);
    const running = start(project, ['approve', 'chaos', '--as', 'local'], { isTTY: true });
    Object.assign(running.stdin, { isTTY: true });
    running.stdin.write('y\n');
    const { err } = await running.ended;
    expect(err).toContain('tollgate on');
    expect(err).not.toContain('--with-secrets');
  });
});
