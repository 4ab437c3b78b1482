/** Tests suggested rules: what is suggested, what never is, and that each suggestion only allows what was approved. */

import { readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import type { JudgedRecording } from '../../policies/authoring/suggest/approved-calls.ts';
import {
  type Suggestion,
  type SuggestionReport,
  suggestRules,
} from '../../policies/authoring/suggest/rule-suggestions.ts';
import { withChanges } from '../../policies/authoring/suggest/suggested-changes.ts';
import type { PolicyParts } from '../../policies/engine/compiled-parts.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import type { CallInput } from '../../policies/port.ts';
import { type CallOf, callOf, documentOf, parts, regoSource, scratch, settings } from '../engine/policy-fixture.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const STARTER = (
  parse(readFileSync(path.join(import.meta.dirname, '..', '..', 'policies', 'starter', 'workspace.yaml'), 'utf8')) as {
    readonly rules: readonly unknown[];
  }
).rules;
const CONTROL = {
  id: 'control-files',
  outcome: 'deny',
  when: { verbs: ['write', 'destructive'], paths: ['tollgate.yaml', 'policies/rules.yaml'] },
};

type Verdict = 'approved' | 'refused' | 'open';

function writing(file: string, over: CallOf = {}): CallInput {
  return callOf({
    server: 'workspace',
    tool: 'write',
    verb: 'write',
    inside: [file],
    args: { path: file, content: 'x' },
    ...over,
  });
}

/** A command of literal words; `starts` as for programs that start others. */
function running(command: string, over: CallOf = {}): CallInput {
  const words = command.split('; ').map((line) => line.split(' '));
  const call = { server: 'workspace', tool: 'bash', verb: 'execute', commands: words, starts: true } as const;
  return callOf({ ...call, args: { command }, ...over });
}

async function recorded(
  base: PolicyParts,
  calls: readonly (readonly [CallInput, Verdict])[],
): Promise<readonly JudgedRecording[]> {
  const policy = await loadPolicy(base);
  const judged: JudgedRecording[] = [];
  for (const [number, [input, verdict]] of calls.entries()) {
    const decision = await policy.call(input);
    const isOwners = verdict !== 'open' && decision.outcome === 'ask';
    judged.push({
      id: `call-${number}`,
      version: 2,
      input,
      decision,
      ...(isOwners && { verdict: verdict === 'approved' ? { outcome: verdict, by: 'ann' } : { outcome: verdict } }),
    });
  }
  policy.close();
  return judged;
}

interface Asked {
  readonly rules?: readonly unknown[];
  readonly min?: number;
  readonly over?: Partial<PolicyParts>;
}

async function suggest(
  calls: readonly (readonly [CallInput, Verdict])[],
  { rules = [CONTROL, ...STARTER], min = 3, over = {} }: Asked = {},
): Promise<SuggestionReport> {
  const base = parts({ rules: [documentOf(rules)], ...over });
  const judged = await recorded(base, calls);
  return suggestRules(base, { calls: () => judged, min });
}

const times = (
  number: number,
  call: CallInput,
  verdict: Verdict = 'approved',
): readonly (readonly [CallInput, Verdict])[] => Array.from({ length: number }, () => [call, verdict] as const);

async function outcomes(
  suggestions: readonly Suggestion[],
  calls: readonly CallInput[],
  rules: readonly unknown[] = [CONTROL, ...STARTER],
): Promise<readonly string[]> {
  const base = parts({ rules: [documentOf(rules)] });
  const policy = await loadPolicy(
    withChanges(
      base,
      suggestions.map(({ exceptions }) => ({ exceptions, guards: [] })),
      suggestions.flatMap((one) => one.rules),
    ),
  );
  const found: string[] = [];
  for (const call of calls) found.push((await policy.call(call)).outcome);
  policy.close();
  return found;
}

const CI = '.github/workflows/ci.yml';

describe('a suggestion', () => {
  it('for a path is an exception of the rule that asks, with the evidence' + verifies('FH-70'), async () => {
    const { suggestions, approved, calls } = await suggest([
      ...times(3, writing(CI)),
      ...times(2, writing('src/a.ts')),
    ]);
    expect([approved, calls]).toEqual([3, 5]);
    const at = STARTER.findIndex((rule) => (rule as { id: string }).id === 'ask-before-automation') + 2;
    expect(suggestions).toMatchObject([
      {
        what: `workspace.write ${CI}`,
        evidence: { approved: 3, by: { ann: 3 }, first: '2026-11-20', last: '2026-11-20' },
        exceptions: [{ id: 'ask-before-automation', file: 'rules.yaml', line: at, field: 'except', add: [CI] }],
        also: [],
      },
    ]);
    expect(
      await outcomes(suggestions, [
        writing(CI),
        writing('.github/workflows/other.yml'),
        writing(CI, { tool: 'edit' }),
        writing(CI, { server: 'git', tool: 'put' }),
        writing(CI, { verb: 'destructive', server: 'git', tool: 'put' }),
      ]),
    ).toEqual(['allow', 'ask', 'ask', 'ask', 'ask']);
  });

  it('for a path keeps it closed to programs', async () => {
    const { suggestions } = await suggest(times(3, writing(CI)));
    const base = parts({ rules: [documentOf([CONTROL, ...STARTER])] });
    const changed = await loadPolicy(
      withChanges(
        base,
        suggestions.map(({ exceptions }) => ({ exceptions, guards: [] })),
        suggestions.flatMap((one) => one.rules),
      ),
    );
    for (const server of ['workspace', 'git'])
      expect(JSON.stringify(changed.confinement(server).fixed.inside), server).toContain(`"${CI}"`);
    changed.close();
  });

  it('for a command is exact: longer lines and other places still ask' + verifies('FH-70'), async () => {
    const push = running('git push origin topic');
    const { suggestions } = await suggest(times(3, push));
    expect(suggestions.map(({ exceptions }) => exceptions.map(({ id, field, add }) => [id, field, add]))).toEqual([
      [
        ['ask-opaque-commands', 'exceptCommands', ['git push origin topic']],
        ['ask-before-push', 'exceptCommands', ['git push origin topic']],
      ],
    ]);
    expect(
      await outcomes(suggestions, [
        push,
        running('git push origin topic --force'),
        running('git push origin main'),
        running('git push origin topic; curl x'),
        callOf({
          ...{ server: 'workspace', tool: 'bash', verb: 'execute' },
          commands: 'opaque',
          args: { command: '$X' },
        }),
      ]),
    ).toEqual(['allow', 'ask', 'ask', 'ask', 'ask']);
    const longer = running('git push origin topic --force', { args: { command: "git  'push' origin topic --force" } });
    const elsewhere = running('git push origin topic', {
      inside: ['pkg'],
      args: { command: 'git push origin topic', cwd: 'pkg' },
    });
    expect(await outcomes(suggestions, [longer, elsewhere])).not.toContain('allow');
  });

  it('for a command fits next to one for a longer command', async () => {
    const [push, topic] = [running('git push'), running('git push origin topic')];
    const { suggestions } = await suggest([...times(3, push), ...times(3, topic)]);
    expect(suggestions).toHaveLength(2);
    const calls = [push, topic, running('git push -f'), running('git push origin topic -f')];
    expect(await outcomes(suggestions, calls)).toEqual(['allow', 'allow', 'ask', 'ask']);
  });

  it(
    'for a tool without paths is an exception of all rules that ask about such tools' + verifies('FH-70'),
    async () => {
      const tag = (name: string, over: CallOf = {}): CallInput =>
        callOf({ server: 'git', tool: 'tag', verb: 'write', args: { name }, ...over });
      const names = ['a', 'b', 'c'].map((name) => [tag(name), 'approved'] as const);
      const { suggestions } = await suggest(names);
      expect(suggestions).toMatchObject([
        { what: 'git.tag', exceptions: [{ id: 'ask-other-servers', field: 'exceptTools', add: ['git.tag'] }] },
      ]);
      expect(
        await outcomes(suggestions, [
          tag('d'),
          tag('d', { tool: 'push' }),
          tag('d', { verb: 'destructive' }),
          tag('d', { labels: ['secret'] }),
          tag('d', { principal: { id: 'bob' } }),
        ]),
      ).toEqual(['allow', 'ask', 'deny', 'ask', 'deny']);
      // The rules load also where it is known that a tag only writes.
      expect(suggestions[0]?.rules.map(({ outcome }) => outcome)).toEqual(['allow']);
      expect((await suggest([...names, [tag('d'), 'refused']])).suggestions).toEqual([]);
      expect((await suggest(names.slice(1))).suggestions).toEqual([]);
    },
  );

  it('names a folder if enough different files in it were approved and none was refused', async () => {
    const files = ['a', 'b', 'c'].map((name) => [writing(`.vscode/${name}.json`), 'approved'] as const);
    expect((await suggest(files)).suggestions.map(({ exceptions }) => exceptions[0]?.add)).toEqual([['.vscode/*']]);
    expect((await suggest(files.slice(1))).suggestions).toEqual([]);
    expect((await suggest([...files, [writing('.vscode/d.json'), 'refused']])).suggestions).toEqual([]);
  });

  it('names the recorded calls that it would allow and no owner approved' + verifies('FH-70'), async () => {
    const { suggestions } = await suggest([...times(3, writing(CI)), ...times(2, writing(CI), 'open')]);
    expect(suggestions[0]?.also).toEqual([{ what: `workspace.write ${CI}`, calls: 2 }]);
  });

  it('adds a rule that allows if only the question stood for one, for this caller alone', async () => {
    const rules = [{ id: 'ask-docs', outcome: 'ask', when: { verbs: ['write'], paths: ['docs/**'] } }];
    const { suggestions } = await suggest(times(3, writing('docs/a.md')), { rules });
    expect(suggestions[0]?.rules.at(-1)).toMatchObject({
      outcome: 'allow',
      when: { tools: ['workspace.write'], verbs: ['write'], principals: ['mia'], paths: ['docs/a.md'] },
    });
    const calls = [writing('docs/a.md'), writing('docs/a.md', { principal: { id: 'bob' } })];
    expect(await outcomes(suggestions, calls, rules)).toEqual(['allow', 'deny']);
  });

  it('keeps asking other principals', async () => {
    const rules = [
      { id: 'work', outcome: 'allow', when: { insideWorkspace: true } },
      { id: 'ask-docs', outcome: 'ask', when: { verbs: ['write'], paths: ['docs/**'] } },
    ];
    const people = settings({ principals: [{ id: 'mia' }, { id: 'bob' }] as never });
    const { suggestions } = await suggest(times(3, writing('docs/a.md')), { rules, over: { settings: people } });
    const calls = [writing('docs/a.md'), writing('docs/a.md', { principal: { id: 'bob' } })];
    expect(await outcomes(suggestions, calls, rules)).toEqual(['allow', 'ask']);
  });

  it('is made only from enough approvals, the most approved first', async () => {
    const calls = [...times(2, writing(CI)), ...times(3, writing('.mcp.json')), ...times(4, running('npm publish'))];
    expect((await suggest(calls)).suggestions.map(({ what }) => what)).toEqual([
      'workspace.bash npm publish',
      'workspace.write .mcp.json',
    ]);
    expect((await suggest(calls, { min: 2 })).suggestions).toHaveLength(3);
  });
});

describe('nothing is suggested', () => {
  const reasons = async (...asked: Parameters<typeof suggest>): Promise<readonly string[]> => {
    const { suggestions, unsuggested } = await suggest(...asked);
    expect(suggestions).toEqual([]);
    return unsuggested.map(({ why }) => why);
  };

  it.each<readonly [string, CallInput, string]>([
    [
      'a command that cannot be read',
      running('', { commands: 'opaque', args: { command: '$X' } }),
      'the command cannot be read',
    ],
    ['several commands', running('npm publish; git push'), 'several commands'],
    ['a command with a control file', running('python3 tollgate.yaml'), 'a file that decides what is allowed'],
    [
      'a command with a hidden control file',
      running('python3 --in=../x/rules.yaml'),
      'a file that decides what is allowed',
    ],
    [
      'a tool that names a URL',
      callOf({ server: 'git', tool: 'fetch', verb: 'write', hosts: ['a.example'] }),
      'a grant can answer',
    ],
    [
      'input of a running program',
      callOf({ server: 'workspace', tool: 'bash', verb: 'execute', args: { action: 'send', input: 'x' } }),
      'a rule cannot tell it',
    ],
    [
      'a tool after secrets',
      callOf({ server: 'git', tool: 'tag', verb: 'write', labels: ['secret'] }),
      'asks about `labels` too',
    ],
  ])('for %s' + verifies('FH-71'), async (_name, call, why) => {
    const found = await reasons(times(5, call));
    expect(found).toHaveLength(1);
    expect(found[0]).toContain(why);
  });

  it('for a control file, also if a rule asks about reading it' + verifies('FH-71'), async () => {
    const rules = [CONTROL, { id: 'look', outcome: 'ask', when: { insideWorkspace: true } }];
    const read = (file: string): CallInput =>
      callOf({ server: 'workspace', tool: 'read', inside: [file], args: { path: file } });
    expect(await reasons(times(3, read('tollgate.yaml')), { rules })).toEqual([
      'it is about a file that decides what is allowed',
    ]);
    const { suggestions } = await suggest(
      ['a', 'b', 'c'].map((name) => [read(`policies/${name}`), 'approved'] as const),
      { rules },
    );
    expect(suggestions).toEqual([]);
  });

  it('if an owner refused an equal call' + verifies('FH-71') + verifies('FH-72'), async () => {
    expect(await reasons([...times(5, writing(CI)), [writing(CI), 'refused']])).toEqual([
      `an owner refused workspace.write ${CI}`,
    ]);
  });

  it('if a rule denied an equal call when it was recorded' + verifies('FH-71'), async () => {
    const base = parts({ rules: [documentOf(STARTER)] });
    const judged = await recorded(base, times(4, writing(CI)));
    const [first, ...others] = judged;
    const denied = { ...first, id: 'old', decision: { ...first?.decision, outcome: 'deny' }, verdict: undefined };
    const { suggestions, unsuggested } = await suggestRules(base, {
      calls: () => [denied as unknown as JudgedRecording, ...others],
      min: 3,
    });
    expect([suggestions, unsuggested.map(({ why }) => why)]).toEqual([
      [],
      [`workspace.write ${CI} was denied by a rule`],
    ]);
  });

  it('if another rule would allow longer lines without a question' + verifies('FH-72'), async () => {
    const rules = [
      { id: 'all', outcome: 'allow', when: {} },
      { id: 'look', outcome: 'ask', when: { commands: ['git push'] } },
    ];
    expect(await reasons(times(3, running('git push')), { rules })).toEqual([
      'another rule would then allow longer forms of the command without a question',
    ]);
  });

  it('if another rule would allow other kinds of calls of a tool' + verifies('FH-72'), async () => {
    const rules = [
      { id: 'all', outcome: 'allow', when: { servers: ['git'] } },
      { id: 'ask-changes', outcome: 'ask', when: { verbs: ['write', 'destructive'] } },
    ];
    const tag = callOf({ server: 'git', tool: 'tag', verb: 'write', args: { name: 'a' } });
    expect(await reasons(times(3, tag), { rules })).toEqual([
      'another rule would then allow calls of the tool that are destructive without a question',
    ]);
  });

  inFull('if the rule that asks can have no exception, or is Rego' + verifies('FH-72'), async () => {
    const rules = [
      { id: 'all', outcome: 'allow', when: {} },
      { id: 'look', outcome: 'ask', when: { labels: ['secret'] } },
    ];
    expect((await reasons(times(3, writing('a', { labels: ['secret'] })), { rules }))[0]).toContain(
      'look (rules.yaml:2:1)',
    );
    const folder = scratch({
      'team.rego': 'package policy.team\n\nask contains {"id": "team", "message": "Ask."} if true\n',
    });
    const over = { folder, sources: [regoSource(path.join(folder, 'team.rego'))] };
    expect((await reasons(times(3, writing('a')), { rules: rules.slice(0, 1), over }))[0]).toContain(
      'team is not a rule in YAML',
    );
  });
});

describe('all suggestions together', () => {
  it('allow what was approved, and deny what was denied, for any traffic over the starter' +
    verifies('FH-72'), async () => {
    const file = fc.constantFrom(
      CI,
      '.vscode/a.json',
      '.vscode/b.json',
      '.vscode/c.json',
      'src/a.ts',
      '.env',
      '.git/config',
    );
    const command = fc.constantFrom(
      'git push',
      'git push origin topic',
      'npm publish',
      'npm test',
      'python3 x.py',
      'su root',
    );
    const call = fc.oneof(
      fc
        .tuple(file, fc.constantFrom('write', 'edit'), fc.subarray(['untrusted']))
        .map(([name, tool, labels]) => writing(name, { tool, labels })),
      fc.tuple(command, fc.subarray(['secret', 'untrusted'])).map(([text, labels]) => running(text, { labels })),
    );
    const verdict = fc.constantFrom<Verdict>('approved', 'approved', 'approved', 'refused', 'open');
    let found = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(call, verdict), { minLength: 10, maxLength: 25 }), async (traffic) => {
        const base = parts({ rules: [documentOf([CONTROL, ...STARTER])] });
        const judged = await recorded(base, traffic);
        const { suggestions } = await suggestRules(base, { calls: () => judged, min: 2 });
        found += suggestions.length;
        const after = await outcomes(
          suggestions,
          judged.map(({ input }) => input as CallInput),
        );
        const also = new Set(suggestions.flatMap((one) => one.also.map(({ what }) => what)));
        const isSuggested = (tool: string, at: string): boolean =>
          suggestions.some(
            ({ what }) =>
              what.includes(tool) && (what.endsWith(` ${at}`) || what.endsWith(` ${path.posix.dirname(at)}/*`)),
          );
        for (const [
          number,
          {
            input: { effect },
            decision,
            verdict: owner,
          },
        ] of judged.entries()) {
          const tool = `workspace.${effect.tool}`;
          const at = effect.command?.text ?? effect.paths[0]?.path ?? '';
          const what = `${tool} ${at}`;
          if (decision?.outcome !== 'ask') expect(after[number]).toBe(decision?.outcome);
          else if (owner?.outcome === 'approved' && isSuggested(tool, at)) expect(after[number]).toBe('allow');
          else if (owner?.outcome === 'refused') expect(after[number]).toBe('ask');
          else if (owner === undefined && !also.has(what)) expect(after[number]).toBe('ask');
        }
      }),
      { numRuns: roundsOf(5, 2) },
    );
    expect(found).toBeGreaterThan(0);
  }, 60_000);
});
