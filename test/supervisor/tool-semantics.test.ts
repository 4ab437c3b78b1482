/** Tests the semantics of tools, and where labelled data may flow, through a whole facade. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { server } from '../cli/terminal.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

let folder: string;
const running: TestFacade[] = [];

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-semantics-'));
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((one) => one.close()));
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

async function facade(servers: string, rules: string): Promise<TestFacade> {
  const made = await startFacade(
    `version: 1
workspace: ./workspace
state: ./state
approvals: {waitMs: 0}
servers: {${servers}}
principals: [{id: alice, stdio: true}]
profiles: {default: {servers: [chaos], expose: {primitives: workspace, tools: ["chaos.*"]}}}
rules: ${rules}
`,
    { folder },
  );
  running.push(made);
  return made;
}

const DEFAULTS =
  '[{id: look, outcome: allow, when: {trust: [external], verbs: [read]}}, ' +
  '{id: ask, outcome: ask, when: {trust: [external], verbs: [write, destructive]}}]';

/** Returns the outcome of a call of each annotated tool of the fixture. */
async function ends(one: TestFacade): Promise<Record<string, string>> {
  const session = one.open('alice');
  const tools = ['hinted-read', 'hinted-write', 'hinted-nothing', 'hinted-both'];
  return Object.fromEntries(
    await Promise.all(
      tools.map(async (tool) => [tool, (await one.call(session, `chaos_${tool}`, {})).code || 'ok'] as const),
    ),
  );
}

describe('hints of a server' + verifies('PF-05'), () => {
  it('have no effect until the owner trusts them', async () => {
    const one = await facade(`chaos: ${server(['chaos.mjs', 'hints'])}`, DEFAULTS);
    expect(new Set(Object.values(await ends(one)))).toEqual(new Set(['APPROVAL_REQUIRED']));
    expect(
      new Set(
        one
          .records()
          .filter(({ type }) => type === 'decision')
          .map(({ verb }) => verb),
      ),
    ).toEqual(new Set(['destructive']));
  });

  it('make a tool read or write if the owner trusts them; all else stays destructive', async () => {
    const one = await facade(`chaos: ${server(['chaos.mjs', 'hints'], 'trustHints: true')}`, DEFAULTS);
    expect(await ends(one)).toEqual({
      'hinted-read': 'ok',
      'hinted-write': 'APPROVAL_REQUIRED',
      'hinted-nothing': 'APPROVAL_REQUIRED',
      'hinted-both': 'ok',
    });
    expect(
      Object.fromEntries(
        one
          .records()
          .filter(({ type }) => type === 'decision')
          .map(({ tool, verb }) => [tool, verb]),
      ),
    ).toEqual({ 'hinted-write': 'write', 'hinted-nothing': 'destructive' });
  });

  it("are overridden by the owner's semantics of a tool", async () => {
    const one = await facade(
      `chaos: ${server(['chaos.mjs', 'hints'], 'trustHints: true, semantics: {hinted-read: destructive, hinted-nothing: read}')}`,
      DEFAULTS,
    );
    expect(await ends(one)).toMatchObject({ 'hinted-read': 'APPROVAL_REQUIRED', 'hinted-nothing': 'ok' });
  });
});

describe('an argument that decides what a tool does', () => {
  it('may be a boolean', async () => {
    const semantics = 'semantics: {echo: {verb: destructive, byArgument: {argument: dry, verbs: {"true": read}}}}';
    const one = await facade(`chaos: ${server(['chaos.mjs'], semantics)}`, DEFAULTS);
    const session = one.open('alice');
    expect((await one.call(session, 'chaos_echo', { dry: true })).code).toBe('');
    for (const args of [{ dry: false }, { dry: 'yes' }, {}, { dry: null }])
      expect((await one.call(session, 'chaos_echo', args)).code).toBe('APPROVAL_REQUIRED');
  });
});

describe('labels of a server' + verifies('PF-07'), () => {
  const RULES = `[{id: all, outcome: allow, when: {}},
    {id: secrets-stay, outcome: deny, message: Secret data stays here., when: {labels: [secret], verbs: [write]}},
    {id: secrets-shown, outcome: ask, when: {labels: [secret], tools: [chaos.env]}}]`;
  const labelled = (timeoutMs = 20_000): Promise<TestFacade> =>
    facade(`chaos: ${server(['chaos.mjs'], `labels: [secret], timeoutMs: ${timeoutMs}`)}`, RULES);
  const write = { path: 'out.txt', content: 'x' };

  it('are added to every result and to the run, and decide where data may flow', async () => {
    const one = await labelled();
    const session = one.open('alice');
    expect((await one.call(session, 'write', write)).code).toBe('');
    const { result } = await one.call(session, 'chaos_echo', { n: 1 });
    expect(result?._meta?.['tollgate/labels']).toEqual(['secret']);
    expect(await one.call(session, 'write', { ...write, path: 'b.txt' })).toMatchObject({
      code: 'DENIED',
      text: expect.stringContaining('Secret data stays here.'),
    });
    expect((await one.call(session, 'chaos_env', {})).code).toBe('APPROVAL_REQUIRED');
    // Another run of the same principal has no label.
    expect((await one.call(one.open('alice'), 'write', { path: 'other.txt', content: 'x' })).code).toBe('');
  });

  it.each([
    ['an error of its own', 'failing', {}],
    ['a crash', 'crash', {}],
    ['a timeout, after progress', 'progress', { steps: 2, every: 20, never: true }],
  ])('are added to the run after %s too', async (_what, tool, args) => {
    const one = await labelled(tool === 'progress' ? 300 : undefined);
    const session = one.open('alice');
    await one.call(session, `chaos_${tool}`, args);
    expect((await one.call(session, 'write', write)).code).toBe('DENIED');
  });

  it('are not added if the server was never reached', async () => {
    const one = await labelled();
    const session = one.open('alice');
    expect((await one.call(session, 'chaos_nothing', {})).code).toBe('UNKNOWN_TOOL');
    expect((await one.call(session, 'write', write)).code).toBe('');
  });

  it('stay with spilled output, and with a named run in all of its sessions', async () => {
    const one = await labelled();
    const [first, second] = [one.open('alice'), one.open('alice')];
    const meta = { 'tollgate/run': 'task-7' };
    const { text, result } = await one.call(first, 'chaos_big', { bytes: 200_000 }, { meta });
    expect(result?._meta?.['tollgate/labels']).toEqual(['secret']);
    const handle = /spill:\/\/[0-9a-f]+/.exec(text)?.[0] ?? '';
    const rest = await one.call(second, 'read', { path: handle, offset: 2 }, { meta });
    expect([rest.code, rest.result?._meta?.['tollgate/labels']]).toEqual(['', ['secret']]);
    expect((await one.call(second, 'write', write, { meta })).code).toBe('DENIED');
    await one.close();
    running.length = 0;
    const again = await labelled();
    expect((await again.call(again.open('alice'), 'write', write, { meta })).code).toBe('DENIED');
  });
});
