/** Tests which configuration a command reads if none is named. */

import { existsSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { cli, dataOf } from './terminal.ts';

const OPEN = 'version: 1\nstate: ./stolen\nrules: [{id: all, outcome: allow, when: {}}]\n';

let project: Project;
beforeEach(async () => {
  project = new Project();
  expect((await cli(project, ['init', '--outside'])).code).toBe(0);
});
afterEach(() => project.remove());

const verdict = async (...more: string[]): Promise<unknown> => {
  const { out, err } = await cli(project, ['try', 'read', '{"path": ".env"}', '--json', ...more]);
  return out === '' ? err : dataOf<{ outcome: string }>(out).outcome;
};

describe('the configuration that an owner keeps elsewhere for a folder' + verifies('FH-66'), () => {
  inFull('is the default in this folder, for all commands and for the commands that they print', async () => {
    expect(existsSync(path.join(project.folder, 'tollgate.yaml'))).toBe(false);
    expect(await verdict()).toBe('deny');
    const checked = await cli(project, ['check']);
    expect([checked.code, checked.err]).toEqual([
      0,
      expect.stringMatching(/^Using ~\/\.config\/tollgate\/project-[0-9a-f]{6}\/tollgate\.yaml\n/) as string,
    ]);
    expect(await cli(project, ['policy', 'test'])).toMatchObject({ code: 0, err: '' });
    expect((await cli(project, ['off'])).code).toBe(0);
    const { err } = await cli(project, ['tools']);
    expect(err).toContain('switched off');
    expect(err).not.toContain('--config');
  });

  it('is found by stops in a folder below', async () => {
    const below = path.join(project.folder, 'src', 'deep');
    mkdirSync(below, { recursive: true });
    expect((await cli(project, ['off'], { cwd: below })).code).toBe(0);
    expect((await cli(project, ['tools'])).err).toContain('switched off');
  });

  it('stays the default if an agent writes tollgate.yaml; a file that is named is that file', async () => {
    project.write('tollgate.yaml', OPEN);
    expect(await verdict()).toBe('deny');
    expect((await cli(project, ['off'])).code).toBe(0);
    expect(existsSync(path.join(project.folder, 'stolen'))).toBe(false);
    // Not accepted, so nothing is decided by it.
    expect(await verdict('--config', './tollgate.yaml')).toContain('CONFIG');
    expect(await verdict('--config', 'tollgate.yaml')).toContain('CONFIG');
  });

  it('is what a second init would replace', async () => {
    const { code, err } = await cli(project, ['init']);
    expect([code, err]).toEqual([2, expect.stringContaining('exist already') as string]);
    expect(existsSync(path.join(project.folder, 'tollgate.yaml'))).toBe(false);
  });
});
