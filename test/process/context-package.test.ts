/**
 * Tests that Tollgate without gpt-tokenizer counts bytes, and says how to get tokens.
 * Covers: facade/cli/serving, facade/serve, facade/runtime.
 */
import { cpSync, mkdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { openState } from '../../facade/state/sqlite-state.ts';
import { Project } from '../config/project.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { Child } from './child.ts';

const ROOT = path.join(import.meta.dirname, '..', '..');

/** Returns the built program in a folder that has libsql and no other package. */
function lean(): string {
  const folder = temporaryFolder();
  cpSync(path.join(ROOT, 'dist'), path.join(folder, 'dist'), {
    recursive: true,
    filter: (file) => !/dist\/test(\/|$)|\.map$|\.d\.ts$|\.compiled/.test(file),
  });
  cpSync(path.join(ROOT, 'package.json'), path.join(folder, 'package.json'));
  mkdirSync(path.join(folder, 'node_modules'));
  symlinkSync(path.join(ROOT, 'node_modules', 'libsql'), path.join(folder, 'node_modules', 'libsql'));
  return path.join(folder, 'dist', 'facade', 'main.js');
}

it(
  'without gpt-tokenizer, sessions have bytes only, and the output says how to install it' + verifies('CM-51'),
  async () => {
    const program = [process.execPath, lean()];
    const project = new Project();
    onTestFinished(() => project.remove());
    project.write('workspace/notes.md', 'a note\n');
    const { state } = project.config(`version: 1
workspace: ./workspace
state: ./state
principals: [{id: me, profiles: [p], owner: true, stdio: true}]
profiles: {p: {expose: {primitives: workspace}}}
rules: [{id: all, outcome: allow, when: {}}]
`);
    const agent = new Child(project, ['run', '--as', 'me'], { program });
    await agent.hello();
    await agent.ask('tools/list');
    await agent.call('read', { path: 'notes.md' });
    agent.process.stdin.end();
    expect(await agent.ended).toMatchObject({ code: 0 });
    const kept = openState(state);
    onTestFinished(() => void kept.close());
    expect([...kept.list('context').values()].map((text) => JSON.parse(text) as unknown)).toMatchObject([
      { principal: 'me', counts: { calls: { count: 1 }, results: { without: { sampledBytes: 0, sampledTokens: 0 } } } },
    ]);
    const stats = new Child(project, ['stats', '--as', 'me'], { program });
    expect(await stats.ended).toMatchObject({ code: 0 });
    expect(stats.out).not.toContain('TOKENS');
    expect(stats.err.replaceAll(/\s+/g, ' ')).toContain(
      'To see estimated tokens, install gpt-tokenizer next to Tollgate: npm install gpt-tokenizer',
    );
  },
);
