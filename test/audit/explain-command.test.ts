/** Tests `tollgate explain` and `audit show --args`: recorded arguments, compared with the digest in the log. */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readAuditKey, readKeyFile } from '../../facade/audit/key-files.ts';
import { openRecording, RECORDING_KEY, sealRecording } from '../../facade/audit/recording/recording-encryption.ts';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const CONFIG = `version: 1
workspace: ./workspace
state: ./state
audit: {facts: full}
approvals: {waitMs: 0}
principals: [{id: dev, role: developer, profiles: [default], stdio: true}]
expose: {primitives: workspace}
profiles: {default: {}}
rules:
  - {id: no-env, outcome: deny, message: Secrets are closed., when: {paths: ["**/.env", ".env"]}}
  - {id: files, outcome: allow, when: {insideWorkspace: true}}
`;

describe('a call that is explained', () => {
  const project = new Project();
  const ids: Record<string, string> = {};
  const run = (...words: readonly string[]) => cli(project, words, { user: 'dev' });

  beforeAll(async () => {
    mkdirSync(path.join(project.folder, 'workspace'), { recursive: true });
    writeFileSync(path.join(project.folder, 'workspace', 'a.txt'), 'text');
    const facade = await startFacade(CONFIG, { folder: project.folder });
    const session = facade.open('dev');
    for (const file of ['.env', 'a.txt', 'b.txt', 'c.txt']) {
      await facade.call(session, 'read', { path: file, token: 'ghp_012345678901234567890123456789012345' });
      await facade.call(session, 'read', { path: file });
      ids[file] = String(facade.callRecords().at(-1)?.id);
    }
    await facade.close();
  }, 60_000);
  afterAll(() => project.remove());

  it('has one screen: who, what, the rules, what would change it, output' + verifies('AD-08'), async () => {
    const { code, out, err } = await run('explain', (ids['.env'] ?? '').slice(0, 8));
    expect([code, err]).toEqual([0, '']);
    expect(out).toMatch(/^deny {2}read/);
    for (const part of ['dev (developer)', 'arguments {"path":".env"}', 'no-env', 'What would change it'])
      expect(out).toContain(part);
    expect(Math.max(...out.split('\n').map((line) => line.length))).toBeLessThanOrEqual(100);
    const sent = await run('explain', ids['a.txt'] ?? '');
    expect(sent.out).toMatch(/Output, bytes\n {2}args \d+, raw \d+/);
    const data = JSON.parse((await run('explain', ids['a.txt'] ?? '', '--json')).out) as Record<string, unknown>;
    expect(data).toMatchObject({ recorded: 'kept', args: { path: 'a.txt' }, why: { decision: { outcome: 'allow' } } });
    expect(await run('explain', '00000000-0000')).toMatchObject({ code: 1 });
  });

  it(
    'shows its recorded arguments, and says when they were deleted or changed' + verifies('AD-09', 'AD-12'),
    async () => {
      const shown = await run('audit', 'show', ids['a.txt'] ?? '', '--args');
      expect([shown.code, shown.out]).toEqual([0, expect.stringContaining('"path": "a.txt"')]);
      const folder = path.join(project.folder, 'state', 'recording');
      const [name = ''] = readdirSync(folder);
      const file = path.join(folder, name);
      const key = readKeyFile(path.join(project.folder, 'state'), RECORDING_KEY);
      const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
      // The key of recordings is enough to write one, but not to change the digest in the chain.
      const forged = lines.flatMap((line) => {
        const opened = openRecording(line, key);
        if (typeof opened === 'string' || opened.recording.id === ids['c.txt']) return [];
        const text = opened.recording.id === ids['b.txt'] ? opened.text.replaceAll('b.txt', 'x.txt') : opened.text;
        return [sealRecording(text, key, opened.at)];
      });
      writeFileSync(file, forged.join(''));
      const changed = await run('audit', 'show', ids['b.txt'] ?? '', '--args');
      expect([changed.code, changed.out.includes('CHANGED'), changed.out.includes('x.txt')]).toEqual([3, true, false]);
      const deleted = await run('audit', 'show', ids['c.txt'] ?? '', '--args', '--json');
      expect([deleted.code, JSON.parse(deleted.out)]).toEqual([0, expect.objectContaining({ recorded: 'deleted' })]);
      rmSync(folder, { recursive: true });
      expect((await run('audit', 'verify')).code).toBe(0);
      expect(readAuditKey(path.join(project.folder, 'state'))).toHaveLength(32);
    },
  );

  it('tells what to write instead of the former setting' + verifies('AD-12'), async () => {
    const other = new Project();
    other.write('tollgate.yaml', 'version: 1\nworkspace: ./work\nrecording: {mode: on}\n');
    const { code, err } = await cli(other, ['check']);
    other.remove();
    expect(code).toBe(2);
    expect(err.replaceAll(/\s+/g, ' ')).toContain('recording is no longer used');
    expect(err.replaceAll(/\s+/g, ' ')).toContain('audit: {facts: full}');
  });
});
