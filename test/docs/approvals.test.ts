/**
 * Runs the walkthrough of docs/approvals-walkthrough.md, with one agent that runs all the time, and the
 * terminal sessions that the pages on approvals show.
 * Covers: docs.
 */
import { chmodSync, copyFileSync } from 'node:fs';
import path from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { start } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { Child } from '../process/child.ts';
import { giveAway } from '../servers/system.ts';
import { verifies } from '../verifies.ts';
import { linkProgram, runLine } from './console.ts';
import { blocksOf } from './markdown.ts';
import { expectLike } from './transcript.ts';

const BLOCKS = blocksOf('docs/approvals-walkthrough.md');
const TURNS = BLOCKS.filter(({ language }) => language === 'text').flatMap(({ text }) =>
  `\n${text}`
    .split(/\n(?=\$ |agent: )/)
    .slice(1)
    .map((turn) => {
      const [asked = '', ...output] = turn.trimEnd().split('\n');
      return { asked, output: output.map((line) => line.trimEnd()) };
    }),
);

let project: Project;
let agent: Child | undefined;
let env: Record<string, string>;
/** The values last printed, by the placeholder that stands for them on the page. */
const seen = { START: '', TOOLS: '', ID: '', BINDING: '' };

beforeAll(() => {
  project = new Project();
  project.write('tollgate.yaml', BLOCKS.find(({ language }) => language === 'yaml')?.text ?? '');
  project.write('tools/README', '');
  copyFileSync(
    path.join(import.meta.dirname, '..', 'fixtures', 'notes-server.mjs'),
    path.join(project.folder, 'tools', 'notes.mjs'),
  );
  project.write('data/notes.db', 'ok\n');
  chmodSync(project.root, 0o755);
  chmodSync(project.home, 0o755);
  giveAway(project.folder);
  env = { PATH: linkProgram(project.root), HOME: project.home };
});

afterAll(async () => {
  agent?.process.stdin.end();
  await agent?.ended;
  project.remove();
});

async function command(asked: string): Promise<string> {
  const filled = Object.entries(seen).reduce(
    (text, [word, value]) => text.replace(new RegExp(`\\b${word}\\b`), value),
    asked,
  );
  return (await runLine(filled, { home: project.home, folder: project.folder, env })).shown;
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

/** Replaces values that differ from run to run by their placeholders, and remembers them for later commands. */
function settle(output: string): readonly string[] {
  const find = (word: keyof typeof seen, pattern: RegExp): void =>
    void (seen[word] = pattern.exec(output)?.[1] ?? seen[word]);
  find('START', /start hash {2}(\w{64})/);
  find('TOOLS', /tools hash {2}(\w{64})/);
  find('ID', /Approval id (\w{10})\b/);
  find('BINDING', /^binding +(\w{12})/m);
  const words = Object.entries(seen)
    .filter(([, value]) => value !== '')
    .reduce((text, [word, value]) => text.replaceAll(value, word), output);
  return words.trimEnd() === ''
    ? []
    : words
        .trimEnd()
        .split('\n')
        .map((line) => line.trimEnd());
}

describe('the walkthrough of approvals', () => {
  it('shows every kind of decision', () => {
    for (const word of [
      'approve notes',
      '--yes START TOOLS',
      'approvals approve',
      'approvals deny',
      'revoke notes',
      'tollgate off',
      'tollgate on',
    ])
      expect(
        TURNS.some(({ asked }) => asked.includes(word)),
        word,
      ).toBe(true);
  });

  it.each(TURNS.map((turn, number) => [number + 1, turn.asked, turn] as const))(
    '%s. %s' + verifies('HA-15', 'PF-08'),
    async (_number, _asked, { asked, output }) => {
      const shown = settle(
        await (asked.startsWith('$ ') ? command(asked.slice(2)) : ask(asked.slice('agent: '.length))),
      );
      expectLike(shown, output);
    },
    60_000,
  );
});

/** Runs a command at a terminal and answers yes to each question. Returns the lines on the screen. */
async function typed(at: Project, asked: string): Promise<readonly string[]> {
  let shown = '';
  const write = (text: string): void => {
    shown += stripVTControlCharacters(text);
    if (!shown.endsWith('[y/N] ')) return;
    shown += 'y\n';
    setImmediate(() => running.stdin.write('y\n'));
  };
  const running = start(at, asked.replace(/^\$ tollgate /, '').split(' '), {
    stdout: write,
    stderr: write,
    isTTY: true,
  });
  Object.assign(running.stdin, { isTTY: true });
  await running.ended;
  return shown.trimEnd().split('\n');
}

/** Replaces digests, ids, times and paths, which differ from machine to machine. */
function masked(lines: readonly string[], at?: Project): readonly string[] {
  const here = (line: string): string => (at === undefined ? line : line.replaceAll(at.folder, '/home/me/project'));
  return lines.map((line) =>
    here(line)
      .replace(/\b[0-9a-f]{32,64}\b/g, 'HASH')
      .replace(/^(binding +)[0-9a-f]{12}/, '$1HASH')
      .replace(/(?<=\b(?:show|approve|deny|approval) +)[2-9a-hjkmnp-z]{10}\b/g, 'ID')
      .replace(/^( {2}program {2}).*/, '$1NODE')
      .replace(/asked .* ago, expires in .*/, 'asked')
      .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/, 'TIME'),
  );
}

describe('what a person sees at a terminal', () => {
  const screens = [...blocksOf('docs/server-approvals.md'), ...blocksOf('docs/call-approvals.md')]
    .filter(({ language }) => language === '')
    .map(({ text }) => text.trimEnd().split('\n'));
  let place: Project;
  beforeAll(() => {
    place = new Project();
    chmodSync(place.root, 0o755);
    place.write(
      'tollgate.yaml',
      `version: 1
workspace: ./workspace
principals: [{id: agent, stdio: true}, {id: boss, stdio: true, owner: true}]
profiles: {default: {servers: [notes], expose: {primitives: workspace}}}


rules:
  - {id: rest, outcome: allow, when: {}}
  - {id: pushes, outcome: ask, when: {commands: [git push]}, message: Pushing needs a person.}
approvals: {waitMs: 60000}
servers: {notes: {command: node, args: [servers/notes.js], env: {NOTES_KEY: "\${secret:NOTES_KEY}"}}}
`,
    );
    place.write('workspace/README.md', '# Hello\n');
    place.write(
      'servers/notes.js',
      `require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) return;
  const inputSchema = { type: 'object', properties: { text: { type: 'string', description: 'What to look for.' } } };
  const result =
    method === 'initialize'
      ? {
          protocolVersion: '2025-06-18',
          capabilities: { tools: {} },
          serverInfo: { name: 'notes', version: '1.0.0' },
        }
      : { tools: [{ name: 'find', description: 'Finds notes.', inputSchema }] };
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result }) + '\\n');
});
`,
    );
    giveAway(place.folder);
  });
  afterAll(() => place.remove());

  it('shows the two screens of a server' + verifies('HA-15'), async () => {
    const [asked = '', ...page] = screens[0] ?? [];
    const setting = start(place, ['secret', 'set', 'NOTES_KEY']);
    setting.stdin.end('value-of-the-notes-key');
    await setting.ended;
    expectLike(masked(await typed(place, `${asked} --as boss`), place), masked(page));
  });

  it('shows the notice of a call, the request, and its approval' + verifies('PF-08'), async () => {
    const agent = start(place, ['run', '--as', 'agent']);
    const send = (id: number, method: string, params: unknown): boolean =>
      agent.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    send(1, 'initialize', {
      protocolVersion: '2025-06-18',
      capabilities: {},
      clientInfo: { name: 'test', version: '1' },
    });
    send(2, 'tools/call', { name: 'bash', arguments: { command: 'git push origin main' } });
    await expect.poll(() => agent.said.err, { timeout: 20_000 }).toContain('waits for approval');
    const notice = agent.said.err.split('\n').filter((line) => line.includes('waits for approval'));
    expect(masked(notice)).toEqual(masked(screens[1] ?? []));
    const id = /show (\w{4})/.exec(notice[0] ?? '')?.[1] ?? '';
    const text = (screens[2] ?? []).join('\n');
    for (const turn of text.split(/\n(?=\$ )/)) {
      const [asked = '', ...page] = turn.split('\n');
      expectLike(masked(await typed(place, `${asked.replace(/\w{4}$/, id)} --as boss`)), masked(page));
    }
    agent.stop();
    await agent.ended;
  });
});
