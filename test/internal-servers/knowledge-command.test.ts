/** Tests `tollgate knowledge` as an owner uses it. */
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Answer, cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';

let project: Project;
beforeEach(() => {
  project = new Project();
  project.write(
    'tollgate.yaml',
    `version: 1
state: ~/state
principals:
  - {id: boss, owner: true, stdio: true, space: team}
  - {id: agent, stdio: true, space: team}
  - {id: other, stdio: true}
`,
  );
  project.write('docs/guide.md', '# The guide\n\nHow to deploy.\n');
  project.write('docs/notes.txt', 'Notes.');
  project.write('docs/image.png', 'no text by its name');
  project.write('docs/.hidden.md', 'hidden');
});
afterEach(() => project.remove());

const run = (...words: readonly string[]): Promise<Answer> => cli(project, ['knowledge', ...words, '--as', 'boss']);
const load = async (...words: readonly string[]): Promise<Record<string, unknown>> =>
  dataOf((await run('load', ...words, '--space', 'team', '--json')).out);
const listed = async (...words: readonly string[]): Promise<readonly Record<string, unknown>[]> =>
  dataOf<{ entries: Record<string, unknown>[] }>((await run('list', ...words, '--json')).out).entries;
const records = (): string =>
  readdirSync(path.join(project.home, 'state', 'audit'))
    .filter((name) => name.endsWith('.jsonl'))
    .map((name) => readFileSync(path.join(project.home, 'state', 'audit', name), 'utf8'))
    .join('\n');

describe('tollgate knowledge' + verifies('CY-10'), () => {
  it('loads the text files of folders once, and changed files again; listing writes no log', async () => {
    expect(await listed()).toEqual([]);
    expect(existsSync(path.join(project.home, 'state', 'audit'))).toBe(false);
    expect(await load('docs')).toEqual({ added: 2, replaced: 0, unchanged: 0, chunks: 2, refused: [] });
    expect(await load('docs', 'docs/guide.md')).toMatchObject({ added: 0, unchanged: 3 });
    project.write('docs/notes.txt', 'Other notes.');
    expect(await load('docs', '--label', 'internal', 'public')).toMatchObject({ replaced: 2 });
    expect(await listed()).toMatchObject([
      {
        kind: 'document',
        space: 'team',
        user: '',
        name: 'docs/guide.md',
        title: 'The guide',
        labels: ['internal', 'public'],
      },
      { name: 'docs/notes.txt', title: 'docs/notes.txt' },
    ]);
    expect(records()).not.toMatch(/guide|notes|deploy/i);
    expect(records()).toMatch(/"event":"knowledge.loaded".*"by":"boss".*"count":2,"whose":\{"space":"team"\}/);
  });

  it('refuses files that are not text one by one, and loads the others', async () => {
    project.write('docs/nul.md', 'a\0b');
    writeFileSync(path.join(project.folder, 'docs', 'latin.md'), Buffer.from([0x63, 0xe9]));
    writeFileSync(path.join(project.folder, 'docs', 'huge.md'), 'x'.repeat(5 * 1024 * 1024 + 1));
    mkdirSync(path.join(project.root, 'outside'));
    writeFileSync(path.join(project.root, 'outside', 'secret.md'), 'outside');
    symlinkSync(path.join(project.root, 'outside'), path.join(project.folder, 'docs', 'link'));
    symlinkSync(path.join(project.root, 'outside', 'secret.md'), path.join(project.folder, 'docs', 'link.md'));
    const answer = await run('load', 'docs', 'missing.md', '--space', 'team', '--json');
    expect(answer.code).toBe(3);
    expect(dataOf(answer.out)).toMatchObject({
      added: 2,
      refused: [
        { name: 'docs/huge.md', reason: expect.stringContaining('larger') as string },
        { name: 'docs/latin.md', reason: 'it is not UTF-8 text' },
        { name: 'docs/nul.md', reason: expect.stringContaining('NUL') as string },
        { name: 'missing.md', reason: 'there is no such file' },
      ],
    });
    expect((await run('load', 'docs/nul.md', '--space', 'team')).err).toContain('Left out docs/nul.md: it is not text');
  });

  it('prints its progress for many files', async () => {
    for (let at = 0; at < 101; at += 1) project.write(`many/${at}.md`, `text ${at}`);
    const { err, code } = await run('load', 'many', '--space', 'team');
    expect([code, err]).toEqual([0, '100 of 101 files\n101 added, 0 replaced, 0 unchanged; 101 new passages.\n']);
  });

  it('stores facts from the command line, a file or stdin', async () => {
    project.write('value.txt', 'from a file\n');
    const stdin = new PassThrough();
    stdin.end('from stdin\n');
    expect((await run('set', 'a.line', 'from the line', '--space', 'team')).err).toBe('Stored: "a.line".\n');
    expect((await run('set', 'a.line', 'from the line', '--space', 'team')).err).toContain('Not changed');
    expect(
      dataOf((await run('set', 'a.file', '@value.txt', '--space', 'team', '--user', 'agent', '--json')).out),
    ).toEqual({ key: 'a.file', kept: 'added', space: 'team', user: 'agent' });
    expect(
      (await cli(project, ['knowledge', 'set', 'a.stdin', '-', '--space', 'team', '--as', 'boss'], { stdin })).code,
    ).toBe(0);
    expect((await listed()).map(({ name, user, bytes }) => [name, user, bytes])).toEqual([
      ['a.line', '', 13],
      ['a.stdin', '', 10],
      ['a.file', 'agent', 11],
    ]);
    for (const [key, value] of [
      ['', 'x'],
      [' a', 'x'],
      ['a\nb', 'x'],
      ['x'.repeat(201), 'x'],
      ['k', ''],
      ['k', 'x'.repeat(17_000)],
      ['k', '@missing'],
    ] as const)
      expect([key, (await run('set', key, value, '--space', 'team')).code]).toEqual([key, 2]);
  });

  it('stores memories of a user, with or without a conversation', async () => {
    for (const words of [['--memory'], ['--conversation', 'c'], ['--memory', '--user', 'nobody']])
      expect((await run('load', 'docs/notes.txt', '--space', 'team', ...words)).code).toBe(2);
    await load('docs/notes.txt', '--memory', '--user', 'agent', '--conversation', 'talk');
    await load('docs/notes.txt', '--memory', '--user', 'agent');
    expect((await listed('--user', 'agent')).map(({ kind, conversation }) => [kind, conversation])).toEqual([
      ['memory', ''],
      ['memory', 'talk'],
    ]);
    expect((await run('forget', '--conversation', 'talk', '--space', 'team')).err).toBe('Deleted 1 entry.\n');
  });

  it('forgets what the options select, and everything only with --all', async () => {
    await load('docs');
    await run('set', 'k', 'v', '--space', 'team');
    expect((await run('forget', '--space', 'team')).code).toBe(2);
    expect((await run('forget', 'docs/missing.md', '--space', 'team')).code).toBe(2);
    expect(dataOf((await run('forget', 'docs/guide.md', '--space', 'team', '--json')).out)).toEqual({ forgotten: 1 });
    expect(dataOf((await run('forget', '--all', '--kind', 'fact', '--space', 'team', '--json')).out)).toEqual({
      forgotten: 1,
    });
    expect(dataOf((await run('forget', '--all', '--space', 'team', '--json')).out)).toEqual({ forgotten: 1 });
    expect((await run('list')).err).toContain('Nothing is stored');
    expect(records().match(/knowledge\.forgotten/g)).toHaveLength(3);
  });

  it('checks spaces, users and labels, and suggests the nearest name', async () => {
    const problems = async (...words: readonly string[]): Promise<string> => (await run('load', 'docs', ...words)).err;
    expect(await problems()).toContain('2 added');
    expect(await listed()).toMatchObject([{ space: 'team' }, { space: 'team' }]);
    const config = readFileSync(path.join(project.folder, 'tollgate.yaml'), 'utf8');
    project.write('tollgate.yaml', config.replace('stdio: true, space: team}', 'stdio: true}'));
    expect(await problems()).toContain('names no space, and there are several');
    project.write('tollgate.yaml', config);
    expect(await problems('--space', 'teem')).toContain('team');
    expect(await problems('--space', 'other', '--user', 'agent')).toContain(
      'No principal "agent" has the space "other"',
    );
    expect(await problems('--space', 'team', '--label', 'intern')).toContain('internal');
    project.write('tollgate.yaml', 'version: 1\nstate: ~/state\n');
    expect((await cli(project, ['knowledge', 'load', 'docs'])).err).toContain('2 added');
    const { out, err } = await cli(project, ['knowledge', 'list']);
    expect(out).toMatch(/document +local +all +docs\/guide\.md/);
    expect(err).toContain('No profile lists the server knowledge');
  });

  it('refuses users who are not owners', async () => {
    for (const words of [
      ['load', 'docs', '--space', 'team'],
      ['set', 'k', 'v', '--space', 'team'],
      ['list'],
      ['forget', '--all', '--space', 'team'],
    ]) {
      const { code, err } = await cli(project, ['knowledge', ...words, '--as', 'agent']);
      expect([words[0], code, err.includes('agent is no owner')]).toEqual([words[0], 4, true]);
    }
  });
});
