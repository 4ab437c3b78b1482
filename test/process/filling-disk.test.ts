/**
 * Tests the facade on a full disk: it runs no call that it cannot record, and denies no call that ran.
 * Covers: facade/cli/serving, facade/serve, facade/runtime.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { Child } from './child.ts';

let project: Project;
let child: Child | undefined;

beforeEach(() => {
  project = new Project();
  project.write('workspace/README.md', '# Hello\n');
  project.write(
    'tollgate.yaml',
    `version: 1
workspace: ./workspace
state: ./state
rules: [{id: all, outcome: allow, when: {}}]
`,
  );
});
afterEach(async () => {
  await child?.kill('SIGKILL');
  project.remove();
});

describe('the facade when no file may grow beyond 96 kB', () => {
  it('does not run a call whose intent does not fit, and says that a call ran if its outcome does not fit', async () => {
    child = new Child(project, ['run'], { shell: 'ulimit -f 96' });
    await child.hello();
    const ends: string[] = [];
    for (let n = 0; n < 200 && ends.filter((end) => end === 'AUDIT_FAILED').length < 5; n += 1) {
      const { result, error } = await child.call('write', { path: `made-${n}`, content: 'x' });
      const end = result === undefined ? String(error?.data?.code) : 'ok';
      ends.push(end);
      expect(existsSync(path.join(project.folder, 'workspace', `made-${n}`)), `call ${n}: ${end}`).toBe(
        end !== 'AUDIT_FAILED',
      );
      if (end === 'OUTCOME_UNRECORDED') expect(error?.data?.executed).toBe(true);
    }
    expect(new Set(ends)).toEqual(
      new Set(['ok', 'AUDIT_FAILED', ...(ends.includes('OUTCOME_UNRECORDED') ? ['OUTCOME_UNRECORDED'] : [])]),
    );
    expect(ends[0]).toBe('ok');
    child.process.stdin.end();
    await child.ended;
    const verdict = dataOf<{ chains: { state: string }[] }>((await cli(project, ['audit', 'verify', '--json'])).out);
    expect(verdict).toMatchObject({ ok: true, faults: [] });
    // The short records of the end may still fit. If not, stderr says so.
    const isClosed = verdict.chains[0]?.state === 'closed';
    expect(child.err.includes('The audit log cannot be written (EFBIG)')).toBe(!isClosed);
    const unknown = dataOf<unknown[]>((await cli(project, ['audit', 'list', '--unknown', '--json'])).out);
    expect(unknown).toHaveLength(ends.filter((end) => end === 'OUTCOME_UNRECORDED').length);
  });
});

describe('the facade when no file can be written', () => {
  it('does not start', async () => {
    child = new Child(project, ['run'], { shell: 'ulimit -f 0' });
    expect(await child.ended).toEqual({ code: 1, signal: null });
    expect(child.out).toBe('');
    expect(child.err).toMatch(/^(STATE_FAILED|AUDIT_FAILED): [^\n]*\n[^\n]*\n$/);
  });
});
