/**
 * Follows docs/policy-tutorial.md: writes its files, runs its commands, and makes its calls with an agent that runs all
 * the time.
 * Covers: docs.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Project } from '../config/project.ts';
import { Child } from '../process/child.ts';
import { giveAway } from '../servers/system.ts';
import { type CommandPlace, linkProgram, runLine } from './console.ts';
import { readSteps, settle, TUTORIAL, type Turn } from './tutorial.ts';

const STEPS = readSteps(TUTORIAL.text);
/** Commands after which the running Tollgate must have loaded the change. */
const CHANGES = /^tollgate policy mode \S+ \S+$/;
/**
 * Commands that read the record of a call. It is written shortly after the answer: before a person can type, but not
 * before a test can.
 */
const LOOKS_BACK = /^tollgate policy (why last|replay)/;

let project: Project;
let place: CommandPlace;
let agent: Child | undefined;
/** The hash of the configuration that `tollgate reload` showed last. */
let hash = '';

beforeAll(() => {
  project = new Project();
  // Root's own folder cannot be isolated, and init would say so.
  giveAway(project.folder);
  place = { home: project.home, folder: project.folder, env: { PATH: linkProgram(project.root), HOME: project.home } };
});

afterAll(async () => {
  agent?.process.stdin.end();
  await agent?.ended;
  project.remove();
});

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
  const { shown } = await runLine(turn.asked.replace('HASH', hash), place);
  hash = /--yes ([\da-f]{64})/.exec(shown)?.[1] ?? hash;
  if (agent !== undefined && CHANGES.test(turn.asked))
    await expect.poll(reloads, { timeout: 30_000 }).toBeGreaterThan(before);
  // The test adds the setting approvals, which the page does not have (see below).
  return turn.asked.startsWith('tollgate reload')
    ? shown.replaceAll(hash, 'HASH').replace(/^.*approvals.*\n/m, '')
    : shown;
}

describe('the tutorial', () => {
  it('has wrong and corrected rules, commands and calls', () => {
    const asked = STEPS.flatMap((step) =>
      step.kind === 'file' ? [] : step.turns.map((turn) => turn.asked.split(' ').slice(0, 3).join(' ')),
    );
    for (const word of ['init', 'check', 'test', 'mode', 'replay', 'inputs', 'why', 'fmt', 'build', 'diff'])
      expect(asked).toContain(`tollgate policy ${word}`);
    expect(STEPS.filter(({ kind }) => kind === 'agent').length).toBeGreaterThan(1);
  });

  it.each(
    STEPS.map(
      (step, number) =>
        [number + 1, step.kind === 'file' ? step.name : step.turns.map(({ asked }) => asked).join('; '), step] as const,
    ),
  )(
    '%s. %s',
    async (_number, _name, step) => {
      // No one approves here, so calls do not wait. The page shows the answer after a wait.
      if (step.kind === 'file')
        return void project.write(
          step.name,
          step.name === 'tollgate.yaml' ? `${step.text}\napprovals: {waitMs: 0}\n` : step.text,
        );
      for (const turn of step.turns) {
        const done = async (): Promise<string> => settle(await perform(turn, step.kind));
        if (LOOKS_BACK.test(turn.asked)) await expect.poll(done, { timeout: 20_000 }).toBe(settle(turn.output));
        else expect(await done(), turn.asked).toBe(settle(turn.output));
      }
    },
    120_000,
  );
});
