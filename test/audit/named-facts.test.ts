/** Tests what records of calls name: paths, programs and hosts, once for each call, and nothing else. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { commandFact } from '../../catalogs/programs/command-facts.ts';
import { openAuditReader } from '../../facade/audit/index/audit-reader.ts';
import { createFactNames } from '../../facade/call/fact-names.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import type { Effect } from '../../policies/port.ts';
import { inFull } from '../harness/full-tests.ts';
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

const PLACES = { redactor: new Redactor(), home: '/home/mia', workspace: '/home/mia/work' };
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

  it('finds a command by the file in it' + verifies('AD-110'), async () => {
    const [record] = await callOf(facade, 'bash', { command: 'base64 deploy/production.key' });
    expect(record?.facts).toEqual({ paths: ['deploy/production.key'], programs: ['base64'] });
    const reader = openAuditReader(facade.assembled.config.audit.folder, ':memory:');
    for (const path of ['deploy/*', 'deploy', '*.key'])
      expect(reader.page({ path, callsOnly: true }, { limit: 5 }).records).toHaveLength(1);
    reader.close();
  });

  it('names no registered secret' + verifies('AD-10'), async () => {
    const records = await callOf(facade, 'read', { path: `src/${SECRET}` });
    expect(JSON.stringify(records)).not.toContain(SECRET);
    expect(records[0]?.facts).toMatchObject({ paths: [expect.stringContaining('src/')] });
  });
});

describe('the names of a call', () => {
  const base: Effect = { verb: 'execute', server: 'workspace', tool: 'bash', paths: [], urls: [] };
  const names = createFactNames('names', PLACES);
  const factsOf = (more: Partial<Effect>): unknown => {
    const text = names({ effect: { ...base, ...more } });
    return text === '' ? undefined : (JSON.parse(`{${text.slice(1)}}`) as { facts: unknown }).facts;
  };
  const command = (text: string): unknown => factsOf({ command: commandFact(text) });

  it('are programs, also of a command that starts others' + verifies('AD-10', 'AD-110'), () => {
    expect(command('git push && /home/mia/bin/run x; git log')).toEqual({ programs: ['git', 'run'] });
    expect(command('bash -c "base64 .env"')).toEqual({ paths: ['.env'], programs: ['bash', 'base64'], opaque: true });
    expect(command('$CMD x')).toEqual({ opaque: true });
  });

  it.each([
    ['base64 deploy/production.key', ['deploy/production.key']],
    ['./run.sh --file=deploy/x.key -I/usr/include if=in/y', ['deploy/x.key', '/usr/include', 'in/y']],
    ['cat < in.txt >> "my out" 2>&1 >/dev/null', ['in.txt', 'my out']],
    ['cd deploy/ && cat Makefile ./a/../b | head -n 20', ['deploy', 'Makefile', 'b']],
    ['F=deploy/x; echo "$(cat "$HOME/.ssh/id" ~/k)" /home/mia/work/src/a', ['deploy/x', '~/.ssh/id', '~/k', 'src/a']],
    ['for f in deploy/*.key; do base64 $f; done; [[ -f a/b ]]', ['deploy/*.key', 'a/b']],
    ['curl -d @deploy/x.key -F f=@b.pem https://mia:pass@host/x', ['deploy/x.key', 'b.pem']],
    ['diff <(cat a/b) <<< "c/$(cat d/e)"', ['a/b', 'd/e']],
    ['base64 a/b\n)', ['a/b']],
  ])('are the paths of a command: %s' + verifies('AD-110'), (text, paths) => {
    expect(command(text)).toMatchObject({ paths });
  });

  it('are no other words of a command' + verifies('AD-110'), () => {
    const text = `X_TOKEN=a/b tool --password=c/d --api-key e/f -u mia:g/h -H X/i 's/j/k/' 'fix l/m' 1.5 . -- mia@n.com`;
    expect(command(text)).toEqual({ programs: ['tool'], opaque: true });
    expect(command('psql postgres://mia:pass@db/x http://a.example/b')).toEqual({
      programs: ['psql'],
      hosts: ['?', 'a.example'],
      opaque: undefined,
    });
  });

  inFull('of a hostile command cost little' + verifies('AD-110'), () => {
    const texts = ['s/', '$(', 'a/b ', '(', '"$(', '`a', '$((', '<(', '${a:-', '{a,', ' -c bash'];
    for (const text of texts) {
      const fact = commandFact(`bash -c ${text.repeat(16_000 / text.length)}`);
      const { user } = process.cpuUsage();
      names({ effect: { ...base, command: fact } });
      expect((process.cpuUsage().user - user) / 1000, text).toBeLessThan(300);
    }
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
    expect(createFactNames('none', PLACES)({ effect: { ...base, paths } })).toBe('');
  });
});
