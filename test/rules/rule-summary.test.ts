/**
 * Tests what a list tells the model about rules: conditions in words and bounds in schemas, and only what holds for
 * every call.
 */
import { describe, expect, it } from 'vitest';
import type { ListDecision } from '../../policies/port.ts';
import { PRINCIPAL, policyOf, toolOf } from '../engine/policy-fixture.ts';
import { startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

const on = { tools: ['git.status'] };
async function listed(...rules: readonly object[]): Promise<ListDecision> {
  const [decision] = await (await policyOf(rules.map((rule, number) => ({ id: `r${number}`, ...rule })))).list(
    PRINCIPAL,
    [toolOf()],
  );
  if (decision === undefined) throw new Error('one tool, one decision');
  return decision;
}

describe('bounds of a list', () => {
  it('are the tests of the only rule that allows', async () => {
    const only = {
      outcome: 'allow',
      when: {
        ...on,
        args: {
          branch: { in: ['main', 'dev'] },
          amount: { max: 100, min: 1 },
          path: { prefix: 'src/' },
          dry: { present: true },
        },
      },
    };
    expect((await listed(only)).bounds).toEqual([
      { path: ['branch'], oneOf: ['main', 'dev'] },
      { path: ['amount'], minimum: 1, maximum: 100 },
      { path: ['path'], prefix: 'src/' },
      { path: ['dry'], present: true },
    ]);
  });

  it('say nothing of a rule if another rule allows or asks', async () => {
    const bounded = { outcome: 'allow', when: { ...on, args: { amount: { max: 100 } } } };
    expect(
      (await listed(bounded, { outcome: 'allow', when: { ...on, args: { force: { equals: true } } } })).bounds,
    ).toEqual([]);
    expect((await listed(bounded, { outcome: 'ask', when: on })).bounds).toEqual([]);
  });

  it('are the opposite of a deny with a single test, and of no other deny', async () => {
    const all = { outcome: 'allow', when: on };
    const deny = (when: object): object => ({ outcome: 'deny', when: { ...on, ...when } });
    expect((await listed(all, deny({ args: { amount: { min: 101 } } }))).bounds).toEqual([
      { path: ['amount'], below: 101 },
    ]);
    expect(
      (await listed(all, deny({ args: { branch: { in: ['main'] } } }), deny({ args: { force: { present: true } } })))
        .bounds,
    ).toEqual([
      { path: ['branch'], noneOf: ['main'] },
      { path: ['force'], present: false },
    ]);
    expect((await listed(all, deny({ args: { amount: { min: 1, max: 9 } } }))).bounds).toEqual([]);
    expect((await listed(all, deny({ args: { amount: { min: 1 }, branch: { equals: 'x' } } }))).bounds).toEqual([]);
    expect((await listed(all, deny({ paths: ['**/.env'], args: { amount: { min: 1 } } }))).bounds).toEqual([]);
    expect((await listed(all, deny({ labels: ['secret'], args: { amount: { min: 1 } } }))).bounds).toEqual([]);
  });

  it('do not come from rules about other callers', async () => {
    const all = { outcome: 'allow', when: on };
    expect(
      (await listed(all, { outcome: 'deny', when: { ...on, roles: ['guest'], args: { amount: { min: 1 } } } }))
        .bounds ?? [],
    ).toEqual([]);
  });
});

describe('words of a list', () => {
  it('describe what denies, what asks, and what allows if every way can be described', async () => {
    const { says } = await listed(
      { outcome: 'allow', when: { ...on, paths: ['src/**'], insideWorkspace: true } },
      { outcome: 'deny', when: { ...on, commands: ['git push'], opaque: false } },
      { outcome: 'ask', when: { ...on, hosts: ['*.example.org'], labels: ['secret'] } },
      { outcome: 'deny', when: { ...on, time: { days: ['sat', 'sun'], zone: 'UTC' } } },
    );
    expect(says).toEqual([
      {
        outcome: 'deny',
        say: 'a command begins with git push and the command is plain words and starts no other program',
      },
      { outcome: 'deny', say: 'it is sat, sun in UTC' },
      { outcome: 'ask', say: 'a host is *.example.org and the run holds data labelled secret' },
      { outcome: 'allow', say: 'every path is under src/** and every path is inside the workspace' },
    ]);
    expect(
      (
        await listed(
          { outcome: 'allow', when: on },
          { outcome: 'allow', when: { ...on, opaque: false } },
          { outcome: 'deny', when: { ...on, opaque: true } },
        )
      ).says,
    ).toEqual([{ outcome: 'deny', say: 'the command starts other programs or cannot be read' }]);
  });

  it('stay short', async () => {
    const { says } = await listed(
      { outcome: 'allow', when: on },
      {
        outcome: 'deny',
        when: {
          ...on,
          paths: Array.from({ length: 9 }, (_, n) => `some/long/folder/${n}/**`),
          args: { a: { prefix: 'x'.repeat(200) } },
        },
      },
    );
    expect(says?.[0]?.say.length).toBe(120);
    expect(says?.[0]?.say).toContain('or 6 more');
  });

  it('are the message of a rule whose conditions are too long to be written out', async () => {
    const all = { outcome: 'allow', when: on };
    const sayOf = async (when: object, message?: string): Promise<unknown> =>
      (await listed(all, { outcome: 'deny', when: { ...on, ...when }, message })).says?.[0]?.say;
    const long = { paths: ['**/a', '**/b', '**/c', '**/d'] };
    expect(await sayOf(long)).toBe('a path is **/a or **/b or **/c or 1 more');
    expect(await sayOf(long, 'Files with keys stay closed. Ask the user.')).toBe(': Files with keys stay closed');
    expect(await sayOf({ paths: ['**/a'] }, 'Files with keys stay closed.')).toBe('a path is **/a');
    const pattern = { args: { command: { pattern: '(a|b)'.repeat(20) } } };
    expect(await sayOf(pattern)).toBe('command matches a pattern');
    expect(await sayOf(pattern, 'It names a key.')).toBe(': It names a key');
  });
});

describe('what the agent sees' + verifies('CY-13'), () => {
  it('is the text, then bounds and conditions; the schema shows bounds if it can express them fully', async () => {
    const inputSchema = {
      type: 'object',
      properties: { branch: { type: 'string' }, amount: { type: 'integer' }, path: { type: 'string' } },
      required: ['path'],
    };
    const facade = await startRaw(
      {
        git: {
          tools: [tool('push', { description: 'Pushes.', inputSchema })],
          settings: { semantics: { push: { verb: 'write', paths: ['path'] } } },
        },
      },
      {
        principals: [{ id: 'mia', role: 'dev', profiles: ['p'], stdio: true }],
        profiles: { p: { servers: ['git'], expose: { primitives: {}, tools: ['git.*'] } } },
        rules: [
          { id: 'main', outcome: 'allow', when: { tools: ['git.push'], args: { branch: { in: ['main', 'dev'] } } } },
          {
            id: 'much',
            outcome: 'deny',
            message: 'Too much.',
            when: { tools: ['git.push'], args: { amount: { min: 101 } } },
          },
          { id: 'env', outcome: 'deny', message: 'No.', when: { tools: ['git.push'], paths: ['**/.env'] } },
        ],
      },
    );
    try {
      const [shown] = await facade.list(facade.open('mia'));
      expect(shown?.description).toBe(
        'Pushes.\n(Policy: amount below 101; branch one of "main", "dev"; refused when a path is **/.env.)',
      );
      expect(shown?.inputSchema).toMatchObject({
        properties: { branch: { type: 'string', enum: ['main', 'dev'] } },
        required: ['branch', 'path'],
      });
    } finally {
      await facade.close();
    }
  });
});
