/**
 * Tests a client that sends very many calls without reading a single answer before.
 * Covers: facade/cli/serving, facade/serve, facade/runtime.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { verifyAudit } from '../../facade/audit/chain-verification.ts';
import { server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { Child } from './child.ts';

const CALLS = roundsOf(10_000, 1_000);
const LIMIT = 0.9 * CALLS;

describe(`a client that pipelines ${CALLS} calls` + verifies('FP-13'), () => {
  let project: Project;
  let child: Child;
  afterEach(async () => {
    await child.kill('SIGKILL');
    project.remove();
  });

  it('gets one answer for each, within its budget, with two records for each call that ran', async () => {
    project = new Project();
    project.write('workspace/README.md', '# Hello\n');
    project.write(
      'tollgate.yaml',
      `version: 1
workspace: ./workspace
state: ./state
bash: {isolation: direct}
servers: {good: ${server(['chaos.mjs', 'ok'], `env: {CHAOS_STARTS: ${path.join(project.folder, 'started')}}`)}}
profiles: {default: {servers: [good], expose: {tools: ["good.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
budgets: [{id: many, scope: session, calls: ${LIMIT}}]
`,
    );
    await project.approve();
    child = new Child(project, ['run']);
    await child.hello();
    await child.ask('tools/list');
    const replies = await Promise.all(
      Array.from({ length: CALLS }, (_, n) => child.call('good_echo', { text: `call ${n}` })),
    );
    const texts = replies.map(({ result }) => result?.content?.[0]?.text ?? '');
    expect(new Set(replies.map(({ id }) => id)).size).toBe(CALLS);
    expect(texts.filter((text) => /call \d+/.test(text))).toHaveLength(LIMIT);
    expect(texts.filter((text) => text.includes('Budget "many"'))).toHaveLength(CALLS - LIMIT);
    child.process.stdin.end();
    await child.ended;
    const audit = path.join(project.folder, 'state', 'audit');
    const verified = verifyAudit(audit);
    expect(verified).toMatchObject({ ok: true });
    const records = verified.chains.flatMap(({ chain }) => readFileSync(path.join(audit, `${chain}.jsonl`), 'utf8'));
    const count = (type: string): number => records.join('').split(`"type":"${type}"`).length - 1;
    expect([count('intent'), count('outcome'), count('budget')]).toEqual([LIMIT, LIMIT, CALLS - LIMIT]);
  }, 120_000);
});
