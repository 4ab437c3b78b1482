/** Tests what records of calls name: paths, programs and hosts, once for each call, and nothing else. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createFactNames } from '../../facade/call/fact-names.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import type { Effect } from '../../policies/port.ts';
import { type Recorded, startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const CONFIG = (facts: string): string => `version: 1
workspace: ./workspace
state: ./state
audit: {facts: ${facts}}
approvals: {waitMs: 0}
principals: [{id: dev, role: developer, profiles: [default], stdio: true}]
expose: {primitives: workspace}
profiles: {default: {}}
rules:
  - {id: files, outcome: allow, when: {insideWorkspace: true}}
`;

const SECRET = 'planted-secret-4711';

/** Returns the records of one call. */
async function callOf(facade: TestFacade, tool: string, args: unknown): Promise<readonly Recorded[]> {
  const before = facade.records().length;
  await facade.call(facade.open('dev'), tool, args);
  return facade
    .records()
    .slice(before)
    .filter(({ type }) => type === 'intent' || type === 'outcome' || type === 'decision');
}

describe('the facts of calls', () => {
  let facade: TestFacade;
  beforeAll(async () => {
    facade = await startFacade(CONFIG('names'));
    const { workspace } = facade.assembled.config;
    mkdirSync(path.join(workspace, 'src'), { recursive: true });
    writeFileSync(path.join(workspace, 'src', 'a.txt'), 'text');
    facade.assembled.deps.redactor.register(SECRET);
  });
  afterAll(() => facade.close());

  it('names the path of a call in its first record alone' + verifies('AD-10'), async () => {
    const records = await callOf(facade, 'read', { path: 'src/a.txt' });
    expect(records.map(({ type, facts }) => [type, facts])).toEqual([
      ['intent', { paths: ['src/a.txt'] }],
      ['outcome', undefined],
    ]);
  });

  it('names paths of refused calls, and the home folder as ~' + verifies('AD-10'), async () => {
    const [record] = await callOf(facade, 'read', { path: `${homedir()}/.ssh/id_rsa` });
    expect(JSON.stringify(record)).not.toContain(homedir());
    expect(record).toMatchObject({ type: 'decision', facts: { paths: ['~/.ssh/id_rsa'] } });
  });

  it('names no registered secret' + verifies('AD-10'), async () => {
    const records = await callOf(facade, 'read', { path: `src/${SECRET}` });
    expect(JSON.stringify(records)).not.toContain(SECRET);
    expect(records[0]?.facts).toMatchObject({ paths: [expect.stringContaining('src/')] });
  });
});

describe('the names of a call', () => {
  const base: Effect = { verb: 'execute', server: 'workspace', tool: 'bash', paths: [], urls: [] };
  const names = createFactNames('names', { redactor: new Redactor(), home: '/home/mia' });
  const factsOf = (more: Partial<Effect>): unknown => {
    const text = names({ effect: { ...base, ...more } });
    return text === '' ? undefined : (JSON.parse(`{${text.slice(1)}}`) as { facts: unknown }).facts;
  };
  const command = (text: string, words: readonly (readonly string[])[] = []): Partial<Effect> => ({
    command: { text, opaque: words.length === 0, words },
  });

  it('are programs without arguments, also of a command that starts others' + verifies('AD-10'), () => {
    const words = [
      ['git', 'push', 'https://mia:pass@host'],
      ['/home/mia/bin/run', 'x'],
      ['git', 'log'],
    ];
    expect(factsOf(command('…', words))).toEqual({ programs: ['git', 'run'] });
    expect(factsOf(command('bash -c "cat .env"'))).toEqual({ programs: ['bash'], opaque: true });
    expect(factsOf(command('$CMD x'))).toEqual({ opaque: true });
  });

  it('are hosts without the rest of a URL' + verifies('AD-10'), () => {
    const urls = [
      { argument: 'url', url: 'https://api.example.com/x?key=1', host: 'api.example.com' },
      { argument: 'url', url: 'odd', host: '' },
    ];
    expect(factsOf({ urls })).toEqual({ hosts: ['api.example.com', '?'] });
  });

  it('are few, short, and escaped' + verifies('AD-10'), () => {
    const paths = Array.from({ length: 40 }, (_, at) => ({ argument: 'p', path: `${at}\u001B\u202E\n`, inside: true }));
    const facts = factsOf({ paths }) as { paths: string[] };
    expect([facts.paths.length, facts.paths.at(-1)]).toEqual([16, '…']);
    expect(names({ effect: { ...base, paths } })).not.toMatch(/[\u001B\n]/);
    const long = { argument: 'p', path: 'x'.repeat(5000), inside: true };
    expect(names({ effect: { ...base, paths: [long] } }).length).toBeLessThan(230);
  });

  it('do not exist for private data, for a call without facts, and with `none`' + verifies('AD-11'), () => {
    const paths = [{ argument: 'p', path: 'a', inside: true }];
    expect(factsOf({ server: 'knowledge', paths })).toBeUndefined();
    expect(factsOf({})).toBeUndefined();
    expect(createFactNames('none', { redactor: new Redactor(), home: '' })({ effect: { ...base, paths } })).toBe('');
  });
});
