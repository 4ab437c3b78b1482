/**
 * Tests that a person can always stop an agent: with an invalid configuration, from a folder inside, and if only the
 * state is left.
 */
import { mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openState } from '../../facade/state/sqlite-state.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';

const GOOD = 'version: 1\nworkspace: ./workspace\nrules: [{id: all, outcome: allow, when: {}}]\n';

let project: Project;

/** Creates the state folder as a run does, and returns it. `doctor` and `check` would name it. */
async function begin(text = GOOD): Promise<string> {
  const { config } = project.load(text);
  const state = config?.state ?? '';
  await openState(state).close();
  return state;
}

beforeEach(() => {
  project = new Project();
  mkdirSync(path.join(project.folder, 'workspace', 'deep'), { recursive: true });
});
afterEach(() => project.remove());

describe('the switches with an invalid configuration' + verifies('HA-19'), () => {
  it.each([
    ['text that is no YAML', 'version: 1\n\tnonsense: [', GOOD],
    ['an unknown key', `${GOOD}nonsense: 1\n`, GOOD],
    ['a variable that is not set', `${GOOD}include: ["\${NOT_SET}/x.json"]\n`, GOOD],
    ['its own state folder, and an unknown key', `${GOOD}state: ../own\nnonsense: 1\n`, `${GOOD}state: ../own\n`],
    [
      'its own state folder, in text that is no YAML',
      `${GOOD}state: "~/own" # here\nnonsense: [`,
      `${GOOD}state: ~/own\n`,
    ],
    ['no file any more', undefined, GOOD],
  ])('can be set and lifted: %s', async (_what, broken, good) => {
    const state = await begin(good);
    if (broken === undefined) rmSync(project.file);
    else project.write('tollgate.yaml', broken);
    const off = await cli(project, ['off']);
    expect(off).toMatchObject({ code: 0, err: expect.stringContaining(state) });
    expect(off.err).toContain('Off: every list is empty');
    expect(dataOf((await cli(project, ['on', '--json'])).out)).toMatchObject({ changed: true });
    expect((await cli(project, ['kill', 'anything'])).code).toBe(0);
    project.write('tollgate.yaml', good);
    expect(dataOf((await cli(project, ['kill', '--json'])).out)).toMatchObject({ killed: [{ server: 'anything' }] });
    // The stop of a name that the file does not have can be lifted by this name.
    expect((await cli(project, ['kill', '--lift', 'anything'])).err).toBe('Lifted for anything.\n');
  });

  it('can be set if a file of a server is invalid', async () => {
    await begin();
    project.write('servers/notes.yaml', 'command: [');
    expect((await cli(project, ['check'])).code).toBe(2);
    expect((await cli(project, ['off'])).code).toBe(0);
  });

  it.each([
    ['a variable in the state folder that is not set', `${GOOD}state: "\${NOT_SET}/x"\nnonsense: 1\n`],
    ['a quoted key in text that is no YAML', '"state": ../own\nnonsense: ['],
    ['two lines in text that is no YAML', 'state: ../own\nstate: ../other\nnonsense: ['],
    ['a state folder that is no text', `${GOOD}state: [1]\n`],
    ['a state folder in which nothing lies', `${GOOD}state: ../own\nnonsense: 1\n`],
  ])('are refused, with the way out, if the state folder would be a guess: %s', async (_what, broken) => {
    const state = await begin();
    project.write('tollgate.yaml', broken);
    for (const words of [['off'], ['on'], ['kill', 'anything'], ['kill', '--lift']]) {
      expect(await cli(project, words)).toMatchObject({
        code: 2,
        err: expect.stringMatching(/--state FOLDER.*doctor/),
      });
    }
    expect((await cli(project, ['off', '--state', state])).code).toBe(0);
  });
});

describe('the switches from another folder', () => {
  it('use the tollgate.yaml above, and name it', async () => {
    await begin();
    const deep = { cwd: path.join(project.folder, 'workspace', 'deep') };
    expect((await cli(project, ['off'], deep)).err).toMatch(new RegExp(`^Using ${project.file}\nOff: `));
    expect((await cli(project, ['kill', '--json'], deep)).err).toBe(`Using ${project.file}\n`);
    expect(dataOf((await cli(project, ['on', '--json'])).out)).toMatchObject({ changed: true });
    // A file that was named is used, even if it does not exist.
    expect(await cli(project, ['off', '--config', 'other.yaml'], deep)).toMatchObject({
      code: 2,
      err: expect.stringContaining('--state FOLDER'),
    });
  });
});
