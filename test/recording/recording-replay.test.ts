/**
 * Tests what a replay says of calls that cannot be decided again, which recordings a sample has, and what is never
 * printed.
 */

import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Recording, recordingOf } from '../../facade/audit/recording/decision-recording.ts';
import { createConceal } from '../../facade/audit/recording/recording-redaction.ts';
import { sampleRecordings } from '../../facade/audit/recording/recording-sample.ts';
import { type RecordedCall, type Replayed, replayCalls } from '../../policies/authoring/call-replay.ts';
import type { PolicyParts } from '../../policies/engine/compiled-parts.ts';
import { callOf, documentOf, parts, policyOf, regoSource, scratch } from '../engine/policy-fixture.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { ALLOWED, endedCall } from './recording-setup.ts';

const OPEN = [{ id: 'open', outcome: 'allow', when: {} }];

async function replay(calls: readonly RecordedCall[], over: Partial<PolicyParts> = {}): Promise<readonly Replayed[]> {
  const found: Replayed[] = [];
  for await (const one of replayCalls(parts({ rules: [documentOf(OPEN)], ...over }), calls)) found.push(one);
  return found;
}

async function recorded(over: Partial<RecordedCall> = {}): Promise<RecordedCall> {
  const input = callOf({ args: { a: 1 } });
  return { id: 'id-1', version: 2, input, decision: await (await policyOf(OPEN)).call(input), ...over };
}

function regoParts(body: string): Partial<PolicyParts> {
  const folder = scratch();
  writeFileSync(path.join(folder, 'team.rego'), `package policy.team\n\n${body}\n`);
  return { folder, sources: [regoSource(path.join(folder, 'team.rego'))] };
}

describe('a replay', () => {
  it('skips a recording with another version, without arguments, or without a decision', async () => {
    const { argsText: _, ...input } = callOf();
    const { decision: __, ...undecided } = await recorded();
    const found = await replay([
      await recorded(),
      await recorded({ version: 0 }),
      await recorded({ input }),
      undecided,
    ]);
    expect(found.map((one) => [one.class, one.why ?? ''])).toEqual([
      ['unchanged', ''],
      ['not-replayable', 'it was recorded with version 0 of the input; the current version is 2'],
      ['not-replayable', 'the arguments were too large to be recorded'],
      ['not-replayable', 'no decision was made when it was recorded'],
    ]);
  });

  it('reads a recording of version 1 as one about a tool' + verifies('PR-P07'), async () => {
    const opened = [{ id: 'open', outcome: 'allow', when: { kind: 'tool' } }];
    const found = await replay([await recorded({ version: 1 }), await recorded({ version: 2 })], {
      rules: [documentOf(opened)],
    });
    expect(found.map((one) => one.class)).toEqual(['unchanged', 'unchanged']);
  });

  it('treats a draft without a decision as a deny', async () => {
    const found = await replay([await recorded({ input: callOf({ argsText: '[1]' }) })]);
    expect(found[0]).toMatchObject({
      class: 'allow-to-deny',
      before: { outcome: 'allow' },
      after: { outcome: 'deny', reasons: [{ id: 'POLICY_FAILED', message: 'The arguments are not an object.' }] },
    });
    const { decision: _, ...undecided } = await recorded({ input: callOf({ argsText: '[1]' }) });
    expect((await replay([undecided]))[0]?.class).toBe('unchanged');
  });

  inFull(
    'does not count a timeout of a slow machine as a change of the draft, and continues',
    async () => {
      const slow = regoParts(
        `deny contains "slow" if {
	input.effect.arguments.a == 1
	count([x | some i in numbers.range(1, 3000); some j in numbers.range(1, 3000); x := i * j]) < 0
}`,
      );
      const found = await replay(
        [await recorded(), await recorded({ id: 'id-2', input: callOf({ args: { a: 2 } }) })],
        slow,
      );
      expect(found.map((one) => one.class)).toEqual(['not-replayable', 'unchanged']);
      expect(found[0]?.why).toContain('did not decide in time');
    },
    30_000,
  );

  it('names the obligations that differ', async () => {
    const [found] = await replay([await recorded()], {
      rules: [documentOf([{ id: 'open', outcome: 'allow', when: {}, obligations: { timeoutMs: 5 } }])],
    });
    expect(found).toMatchObject({ class: 'obligations', obligations: { timeoutMs: [null, 5] } });
  });

  it('refuses an invalid draft before any decision', async () => {
    await expect(
      replay([await recorded()], { rules: [documentOf([{ id: 'x', outcome: 'perhaps', when: {} }])] }),
    ).rejects.toMatchObject({ code: 'POLICY_INVALID' });
  });
});

describe('a sample of recordings', () => {
  const one = (id: string, rule: string, args: unknown = { id }): Recording =>
    recordingOf(endedCall(id, args, { ...ALLOWED, reasons: [{ id: rule, message: '' }] })) as Recording;

  it('has every way of deciding before a second one of any, and no call twice', () => {
    const many = Array.from({ length: 50 }, (_, number) => one(`common-${number}`, 'common'));
    const all = [...many, one('rare', 'rare'), one('twice', 'twice'), one('same', 'twice', { id: 'twice' })];
    expect(
      sampleRecordings(all, 3)
        .map(({ decision }) => decision?.reasons[0]?.id)
        .sort(),
    ).toEqual(['common', 'rare', 'twice']);
    expect(sampleRecordings(all, 5)).toHaveLength(5);
    expect(sampleRecordings(all, 100)).toHaveLength(52);
    expect(sampleRecordings([], 3)).toEqual([]);
  });
});

describe('the printed facts of a recording', () => {
  it('contain no registered secret and no value under a name of secrets', () => {
    const conceal = createConceal({ secrets: ['hunter2-hunter2'] });
    expect(
      conceal({
        a: ['x hunter2-hunter2 y'],
        password: 'abc',
        api_key: { deep: 1 },
        max_tokens: 5,
        facts: [
          { name: 'arguments.password', value: 'abc' },
          { name: 'path', value: 'src' },
        ],
        change: { fact: 'arguments.token', from: 'abc', to: 'def', text: 'arguments.token were "def"' },
        condition: { field: 'args.secret', written: { equals: 'abc' } },
      }),
    ).toEqual({
      a: ['x [redacted] y'],
      password: '[redacted]',
      api_key: '[redacted]',
      max_tokens: 5,
      facts: [
        { name: 'arguments.password', value: '[redacted]' },
        { name: 'path', value: 'src' },
      ],
      change: { fact: 'arguments.token', from: '[redacted]', to: '[redacted]', text: '[redacted]' },
      condition: { field: 'args.secret', written: '[redacted]' },
    });
  });

  it.each([
    [
      "curl -H 'Authorization: Bearer abc.def' https://api.example/a?api_key=k1&b=2",
      "curl -H 'Authorization: Bearer [redacted]' https://api.example/a?api_key=[redacted]&b=2",
    ],
    ['git clone https://ghp_0123456789abcdef@git.example/a', 'git clone https://[redacted]@git.example/a'],
    ['gh auth login ghp_0123456789abcdef', 'gh auth login [redacted]'],
    ['AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE aws s3 ls', 'AWS_ACCESS_KEY_ID=[redacted] aws s3 ls'],
    ['mysql --password=hunter22 --user=mia', 'mysql --password=[redacted] --user=mia'],
    ['mysql --password hunter22 -u mia', 'mysql --password [redacted] -u mia'],
    ['sk-live-0123456789', '[redacted]'],
    ['{"token": "abc", "path": "a"}', '{"token": "[redacted]", "path": "a"}'],
    ['psql postgres://mia:pw@db.example/shop', 'psql postgres://[redacted]@db.example/shop'],
    ['login --password $PASSWORD --token=${TOKEN}', 'login --password $PASSWORD --token=${TOKEN}'],
    ['a bearer of news reads src/auth/token.ts', 'a bearer of news reads src/auth/token.ts'],
  ])('contain nothing in the form of a secret: %s', (text, shown) => {
    const conceal = createConceal({ secrets: [] });
    expect(conceal({ facts: [{ name: 'command', value: text }] })).toEqual({
      facts: [{ name: 'command', value: shown }],
    });
  });

  it('lose the value of an option in a list of words, and keep a digest, which is no key', () => {
    const kept = { revision: '0123456789abcdef0123456789abcdef', id: 'allow_everything_of_team_7_here' };
    expect(
      createConceal({ secrets: [] })({ words: [['mysql', '--password', 'hunter22', '-h', 'db']], ...kept }),
    ).toEqual({
      words: [['mysql', '--password', '[redacted]', '-h', 'db']],
      ...kept,
    });
  });
});
