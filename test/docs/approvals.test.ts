/** Tests the story of docs/approvals.md by doing it: a server is approved, calls are approved and denied, and everything is taken back, with an agent that runs all the time. */
import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Project } from '../config/project.ts';
import { Child, MAIN } from '../process/child.ts';
import { giveAway } from '../servers/system.ts';
import { verifies } from '../verifies.ts';
import { blocksOf, sectionOf } from './markdown.ts';
import { expectLike } from './transcript.ts';

const SECTION = sectionOf('docs/approvals.md', '## From the first look to the last');
const BLOCKS = blocksOf('docs/approvals.md').filter(({ text }) => SECTION.includes(text));
const TURNS = BLOCKS.filter(({ language }) => language === 'text').flatMap(({ text }) => `\n${text}`.split(/\n(?=\$ |agent: )/).slice(1).map((turn) => {
  const [asked = '', ...output] = turn.trimEnd().split('\n');
  return { asked, output: output.map((line) => line.trimEnd()) };
}));

let project: Project;
let agent: Child | undefined;
let env: Record<string, string>;
/** What was last shown. */
const seen = { START: '', TOOLS: '', ID: '', BINDING: '' };

beforeAll(() => {
  project = new Project();
  project.write('tollgate.yaml', BLOCKS.find(({ language }) => language === 'yaml')?.text ?? '');
  copyFileSync(path.join(import.meta.dirname, '..', 'fixtures', 'notes-server.mjs'), path.join(project.folder, 'notes.mjs'));
  project.write('data/notes.db', 'ok\n');
  const bin = path.join(project.root, 'bin');
  mkdirSync(bin);
  chmodSync(project.root, 0o755);
  chmodSync(project.home, 0o755);
  symlinkSync(MAIN, path.join(project.root, 'tollgate'));
  chmodSync(project.write('../../bin/tollgate', `#!/bin/sh\nexec "${process.execPath}" "${path.join(project.root, 'tollgate')}" "$@"\n`), 0o755);
  giveAway(project.folder);
  env = { PATH: `${bin}:${process.env['PATH'] ?? ''}`, HOME: project.home };
});

afterAll(async () => {
  agent?.process.stdin.end();
  await agent?.ended;
  project.remove();
});

function command(asked: string): string {
  const filled = Object.entries(seen).reduce((text, [word, value]) => text.replace(new RegExp(`\\b${word}\\b`), value), asked);
  return spawnSync('bash', ['-c', `${filled} 2>&1`], { cwd: project.folder, env, encoding: 'utf8', timeout: 60_000 }).stdout;
}

async function ask(asked: string): Promise<string> {
  if (agent === undefined) {
    agent = new Child(project, ['run', '--as', 'agent'], { env });
    await agent.hello();
  }
  if (asked === 'list') return ((await agent.ask('tools/list')).result?.tools ?? []).map(({ name }) => name).join('\n');
  const [, tool = '', args = ''] = /^(\w+) (\{.*\})$/.exec(asked) ?? [];
  const { result, error } = await agent.call(tool, JSON.parse(args));
  return result?.content?.map(({ text }) => text).join('\n') ?? error?.message ?? '';
}

/** An output without what differs from run to run; notes it for the commands that name it. */
function settle(output: string): readonly string[] {
  const find = (word: keyof typeof seen, pattern: RegExp): void => void (seen[word] = pattern.exec(output)?.[1] ?? seen[word]);
  find('START', /start hash {2}(\w{64})/);
  find('TOOLS', /tools hash {2}(\w{64})/);
  find('ID', /Approval id (\w{10})\b/);
  find('BINDING', /^binding +(\w{12})/m);
  const words = Object.entries(seen).filter(([, value]) => value !== '').reduce((text, [word, value]) => text.replaceAll(value, word), output);
  return words.trimEnd() === '' ? [] : words.trimEnd().split('\n').map((line) => line.trimEnd());
}

describe('the story of approvals', () => {
  it('has each thing that is decided', () => {
    for (const word of ['approve notes', '--yes START TOOLS', 'approvals approve', 'approvals deny', 'revoke notes', 'tollgate off', 'tollgate on']) expect(TURNS.some(({ asked }) => asked.includes(word)), word).toBe(true);
  });

  it.each(TURNS.map((turn, number) => [number + 1, turn.asked, turn] as const))('%s. %s' + verifies('HA-15', 'PF-08'), async (_number, _asked, { asked, output }) => {
    const shown = settle(asked.startsWith('$ ') ? command(asked.slice(2)) : await ask(asked.slice('agent: '.length)));
    expectLike(shown, output);
  }, 60_000);
});
