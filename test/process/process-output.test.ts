/**
 * Tests what only a real process shows: output without a reader or disk space, symbolic links, workers that must end.
 * Covers: facade/cli/serving, facade/serve, facade/runtime.
 */

import { spawnSync } from 'node:child_process';
import { symlinkSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { Child, MAIN } from './child.ts';

let project: Project;

/** Runs a line of bash, in which $T is the program. `code` is the exit code of the program, not of its reader. */
function shell(line: string): { readonly code: number; readonly out: string; readonly err: string } {
  const { stdout, stderr } = spawnSync(
    'bash',
    ['-c', `T="${process.execPath} ${MAIN}"; ${line}; printf '\\n%s' "\${PIPESTATUS[0]}"`],
    { cwd: project.folder, encoding: 'utf8', env: { PATH: process.env.PATH ?? '', HOME: project.home } },
  );
  const at = stdout.lastIndexOf('\n');
  return { code: Number(stdout.slice(at + 1)), out: stdout.slice(0, at), err: stderr };
}

beforeEach(() => {
  project = new Project();
  project.write('workspace/README.md', '# Hello\n');
  project.write('tollgate.yaml', 'version: 1\nworkspace: ./workspace\nrules: [{id: all, outcome: allow, when: {}}]\n');
});
afterEach(() => project.remove());

describe('the output', () => {
  it('may lose its reader without an error or a stack', async () => {
    for (let n = 0; n < 3; n += 1) await cli(project, ['tools']);
    expect(shell('$T audit export | head -c 1')).toEqual({ code: 0, out: '{', err: '' });
  });

  it('makes the command exit with 1 if the disk is full', () => {
    expect(shell('$T version > /dev/full')).toEqual({
      code: 1,
      out: '',
      err: 'Cannot write the output (ENOSPC), so it is incomplete.\n',
    });
  });

  inFull('has only data on stdout, with messages on stderr', () => {
    project.write('clients.json', '{"mcpServers": {"My Server": {"command": "x"}}}');
    project.write('tollgate.yaml', 'version: 1\nworkspace: ./workspace\ninclude: [clients.json]\n');
    const { out, err } = shell('TOLLGATE_LOG=debug $T servers --json');
    expect(JSON.parse(out)).toMatchObject({ servers: [{ name: 'workspace' }, { name: 'my-server' }] });
    expect(err).not.toMatch(/^ +at /m);
  });
});

describe('the program', () => {
  it('runs through a symbolic link, as npm makes one', () => {
    symlinkSync(MAIN, path.join(project.folder, 'tollgate'));
    expect(
      spawnSync(process.execPath, [path.join(project.folder, 'tollgate'), 'version'], { encoding: 'utf8' }),
    ).toMatchObject({ status: 0, stdout: expect.stringMatching(/^tollgate \d/) });
  });

  it('runs in a deleted folder', () => {
    expect(shell('mkdir gone; cd gone; rmdir ../gone; $T check')).toMatchObject({
      code: 2,
      out: '',
      err: expect.stringMatching(/^CONFIG_INVALID: .*\ntollgate\.yaml:1:1: .*there is no such file/),
    });
  });

  inFull('ends with its input, or after a failed start, also if Rego runs in workers', async () => {
    project.write('rego/mine.rego', 'package policy.mine\n\nallow contains "all" if true\n');
    project.write('tollgate.yaml', 'version: 1\nworkspace: ./workspace\nstate: ./state\npolicies: [rego]\n');
    const child = new Child(project, ['run']);
    await child.hello();
    expect((await child.call('read', { path: 'README.md' })).result?.content?.[0]?.text).toContain('# Hello');
    child.process.stdin.end();
    expect(await child.ended).toEqual({ code: 0, signal: null });
    project.write('state/audit.key', 'too short');
    expect(shell('$T run < /dev/null')).toMatchObject({
      code: 1,
      out: '',
      err: expect.stringMatching(/^STATE_FAILED: audit\.key is not a file of 32 bytes/),
    });
  });
});
