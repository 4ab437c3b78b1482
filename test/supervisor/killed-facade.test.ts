/**
 * Tests facades on one state folder that are killed during calls, at every half millisecond: no acknowledged record is
 * lost.
 * Covers: adapters/supervisor.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { verifyAudit } from '../../facade/audit/chain-verification.ts';
import { server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { TIMES } from '../faults/fault-seed.ts';
import { roundsOf } from '../harness/slices.ts';
import { Child, isRunning, startedIn } from '../process/child.ts';
import { verifies } from '../verifies.ts';

/**
 * When each facade is killed, in milliseconds after the first reply. `npm run faults` kills one at each half
 * millisecond of 30, `npm run test:all` at every fifth of these, `npm test` at every twentieth. Facades that run together
 * are killed in different thirds.
 */
const MOMENTS = Array.from({ length: 60 }, (_, n) => ((n % 3) * 20 + Math.floor(n / 3)) / 2).filter(
  (_, n) => TIMES > 1 || Math.floor(n / 3) % roundsOf(5, 20) === 0,
);
const AT_ONCE = 3;
const CALLS = 40;

/** Returns the ids of decisions whose reply arrived before the process was killed. */
async function acknowledged(project: Project, waitMs: number): Promise<readonly string[]> {
  const child = new Child(project, ['run']);
  await child.hello();
  const replies: string[] = [];
  const started = child.call('chaos_echo', { n: 0 });
  for (let n = 1; n < CALLS; n += 1) {
    child.call('chaos_echo', { n }).then(
      ({ result }) => {
        const decision = (result?._meta?.['tollgate/provenance'] as { decision?: string } | undefined)?.decision;
        if (decision !== undefined) replies.push(decision);
      },
      () => undefined,
    );
  }
  await started;
  await sleep(waitMs);
  const known = [...replies];
  await child.kill('SIGKILL');
  return known;
}

describe('facades killed with kill -9' + verifies('PF-09'), () => {
  it(`lose no acknowledged record, and leave no process for long (${MOMENTS.length} kills)`, async () => {
    const project = new Project();
    try {
      const starts = path.join(project.folder, 'starts');
      project.write('workspace/README.md', '# Hello\n');
      project.write(
        'tollgate.yaml',
        `version: 1
workspace: ./workspace
state: ./state
servers: {chaos: ${server(['chaos.mjs'], `env: {CHAOS_STARTS: ${JSON.stringify(starts)}}`)}}
limits: {connections: 8}
profiles: {default: {servers: [chaos], expose: {primitives: workspace, tools: ["chaos.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`,
      );
      await project.approve();
      const ids: string[] = [];
      for (let at = 0; at < MOMENTS.length; at += AT_ONCE)
        ids.push(...(await Promise.all(MOMENTS.slice(at, at + AT_ONCE).map((ms) => acknowledged(project, ms)))).flat());
      expect(ids.length).toBeGreaterThan(MOMENTS.length / 6);
      // The next start repairs torn records and ends the processes that were left.
      const last = new Child(project, ['run']);
      await last.hello();
      last.process.stdin.end();
      await last.ended;
      const folder = path.join(project.folder, 'state', 'audit');
      const records = readdirSync(folder)
        .filter((name) => name.endsWith('.jsonl'))
        .flatMap((name) =>
          readFileSync(path.join(folder, name), 'utf8')
            .trimEnd()
            .split('\n')
            .map((line) => JSON.parse(line) as { type: string; id?: string }),
        );
      const outcomes = new Set(records.filter(({ type }) => type === 'outcome').map(({ id }) => id));
      expect(ids.filter((id) => !outcomes.has(id))).toEqual([]);
      expect(verifyAudit(folder)).toMatchObject({ ok: true, faults: [] });
      await expect.poll(() => startedIn(starts).filter(isRunning), { timeout: 20_000 }).toEqual([]);
    } finally {
      project.remove();
    }
  }, 600_000);
});
