/**
 * Tests that a search shows no line of a file that the policy closes, and that pages name the call that reads on
 * (facade/call/read-scope.ts, catalogs/text/text-pages.ts).
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { startFacade, type TestFacade } from './facade.ts';

const CONFIG = (caps: string): string => `version: 1
workspace: ./workspace
state: ./state
approvals: { waitMs: 0 }
principals: [{ id: a, stdio: true }]
rules:
  - { id: inside, outcome: allow, when: { verbs: [read], insideWorkspace: true } }
  - { id: closed, outcome: deny, when: { paths: ["**/.env", "**/*.pem"] } }
  - { id: asked, outcome: ask, when: { paths: ["drafts/**"] } }
${caps}
`;
const ROWS = roundsOf(5000, 2500);
const FILES = {
  'workspace/.env': 'SECRET=top\n',
  'workspace/src/key.pem': 'SECRET pem\n',
  'workspace/src/a.ts': '// SECRET is only named here\n',
  'workspace/drafts/b.md': 'SECRET draft\n',
  'workspace/big.txt': Array.from({ length: ROWS }, (_, index) => `row ${index + 1} of many`).join('\n'),
};
let facade: TestFacade;

describe('a search under files that the policy closes' + verifies('CY-16', 'CY-18'), () => {
  beforeAll(async () => {
    facade = await startFacade(CONFIG(''), { files: FILES });
  });
  afterAll(() => facade.close());

  it.each([
    {},
    { hidden: true },
    { glob: '.env' },
    { hidden: true, context: 2 },
    { path: 'src' },
    { path: '.', literal: true, hidden: true },
  ])('shows only what could be read by name: %j', async (more) => {
    const session = facade.open('a');
    const { text } = await facade.call(session, 'read', { action: 'search', path: '.', pattern: 'SECRET', ...more });
    expect(text).not.toMatch(/top|pem|draft/);
    if (!('glob' in more)) expect(text).toContain('src/a.ts:1:');
  });

  it('does not reveal by its count that a closed file contains the pattern', async () => {
    const session = facade.open('a');
    const answers = await Promise.all(
      ['SECRET=top', 'SECRET=other'].map((pattern) =>
        facade.call(session, 'read', { action: 'search', path: '.', pattern, hidden: true }),
      ),
    );
    expect(answers[0]?.text).toBe(answers[1]?.text);
  });
});

describe('the pages of a file', () => {
  afterEach(() => facade.close());

  it.each([
    ['', 30_000],
    ['caps: { bytes: 2000, lines: 50 }', 2000],
  ])('stay within the cap %j and name the next page', async (caps, bytes) => {
    facade = await startFacade(CONFIG(caps), { files: FILES });
    const session = facade.open('a');
    let all = '';
    let offset: number | undefined = 1;
    for (let pages = 0; offset !== undefined && pages < 200; pages += 1) {
      const answer = await facade.call(session, 'read', { path: 'big.txt', offset });
      const [page = '', footer = ''] = (answer.result?.content ?? []).map((item) => item.text ?? '');
      expect(Buffer.byteLength(page) + Buffer.byteLength(footer)).toBeLessThanOrEqual(bytes);
      expect(answer.result?.content?.length).toBeLessThanOrEqual(2);
      all += page;
      const next = new RegExp(`of ${ROWS} .*Next: read path="big\\.txt" offset=(\\d+)\\]$`).exec(footer)?.[1];
      offset = next === undefined ? undefined : Number(next);
    }
    expect(all).toBe(FILES['workspace/big.txt']);
  });

  it('are refused for a missing argument before the policy is asked', async () => {
    facade = await startFacade(CONFIG(''), { files: FILES });
    const session = facade.open('a');
    expect(await facade.call(session, 'read', { action: 'search', path: '.' })).toMatchObject({
      code: 'ARGS_INVALID',
      text: expect.stringContaining('pattern: is required'),
    });
  });
});
