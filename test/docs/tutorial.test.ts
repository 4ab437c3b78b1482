/** Tests the tutorial of docs/policies.md by doing it: files as they stand, commands in a shell, calls of an agent that runs all the time. */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Project } from '../config/project.ts';
import { Child, MAIN } from '../process/child.ts';
import { giveAway } from '../servers/system.ts';
import { readSteps, settle, TUTORIAL, type Turn } from './tutorial.ts';

const STEPS = readSteps(TUTORIAL.text);
/** After these the one that runs must have taken up what they changed. */
const CHANGES = /^tollgate policy mode \S+ \S+$/;

let project: Project;
let env: Readonly<Record<string, string>>;
let agent: Child | undefined;

beforeAll(() => {
  project = new Project();
  // Root's own folder cannot be isolated, and init would say so.
  giveAway(project.folder);
  const bin = path.join(project.root, 'bin');
  mkdirSync(bin);
  // As npm links it: the name that messages say is the name that was called.
  symlinkSync(MAIN, path.join(project.root, 'tollgate'));
  chmodSync(project.write('../../bin/tollgate', `#!/bin/sh\nexec "${process.execPath}" "${path.join(project.root, 'tollgate')}" "$@"\n`), 0o755);
  env = { PATH: `${bin}:${process.env['PATH'] ?? ''}`, HOME: project.home };
});

afterAll(async () => {
  agent?.process.stdin.end();
  await agent?.ended;
  project.remove();
});

function command({ asked }: Turn): string {
  const { stdout, status } = spawnSync('bash', ['-c', `${asked} 2>&1`], { cwd: project.folder, env, encoding: 'utf8', timeout: 60_000 });
  expect(status, stdout).not.toBeNull();
  return stdout;
}

const reloads = (): number => (agent?.err.match(/^Reloaded: /gm) ?? []).length;

async function call({ asked }: Turn): Promise<string> {
  if (agent === undefined) {
    agent = new Child(project, ['run']);
    await agent.hello();
  }
  const [, tool = '', args = ''] = /^(\w+) (\{.*\})$/.exec(asked) ?? [];
  return (await agent.call(tool, JSON.parse(args))).result?.content?.map(({ text }) => text).join('\n') ?? 'no result';
}

async function perform(turn: Turn, kind: 'console' | 'agent'): Promise<string> {
  if (kind === 'agent') return call(turn);
  const before = reloads();
  const output = command(turn);
  if (agent !== undefined && CHANGES.test(turn.asked)) await expect.poll(reloads, { timeout: 30_000 }).toBeGreaterThan(before);
  return output;
}

describe('the tutorial', () => {
  it('has wrong rules and right ones, commands and calls', () => {
    const asked = STEPS.flatMap((step) => (step.kind === 'file' ? [] : step.turns.map((turn) => turn.asked.split(' ').slice(0, 3).join(' '))));
    for (const word of ['init', 'check', 'test', 'mode', 'replay', 'inputs', 'why', 'fmt', 'build', 'diff']) expect(asked).toContain(`tollgate policy ${word}`);
    expect(STEPS.filter(({ kind }) => kind === 'agent').length).toBeGreaterThan(1);
  });

  it.each(STEPS.map((step, number) => [number + 1, step.kind === 'file' ? step.name : step.turns.map(({ asked }) => asked).join('; '), step] as const))('%s. %s', async (_number, _name, step) => {
    // Nobody is there to approve: the page says what is answered after the wait.
    if (step.kind === 'file') return void project.write(step.name, step.name === 'tollgate.yaml' ? `${step.text}\napprovals: {waitMs: 0}\n` : step.text);
    for (const turn of step.turns) expect(settle(await perform(turn, step.kind)), turn.asked).toBe(settle(turn.output));
  }, 120_000);
});
