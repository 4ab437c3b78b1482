/**
 * Tests servers that hosts register: who may register them, what is refused until an owner approves, and that nothing
 * in them stops a start.
 */

import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { registeredFolder } from '../../facade/config/servers/registered-servers.ts';
import { approveAll } from '../consent/approve-servers.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { type Answered, type Asking, type HostBench, hostConfig, startHost, TOKENS } from './host-bench.ts';

const ALICE: Asking = { token: TOKENS.alice };
const CHAOS = path.join(import.meta.dirname, '..', 'fixtures', 'chaos.mjs');
const CALC = { name: 'calc', profiles: ['pages'], command: process.execPath, args: [CHAOS] };
let folder: string;
let host: HostBench | undefined;

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-register-'));
  mkdirSync(path.join(folder, 'workspace'));
  chmodSync(folder, 0o755);
  // If Tollgate runs as root, servers get the rights of the workspace's owner, who must be another user.
  if (process.getuid?.() === 0) chownSync(path.join(folder, 'workspace'), 4711, 4711);
});
afterEach(async () => {
  await host?.close();
  host = undefined;
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

/** `alice`, who is not an owner, may register servers in `pages`. `host` is an owner, and may not. */
const CONFIG = hostConfig()
  .replace('profiles: [reach, harbor, own], token', 'profiles: [pages], registers: [pages], token')
  .replace('id: host, profiles: [reach, harbor]', 'id: host, profiles: [reach]')
  .replace(
    '\n  own: { }',
    '\n  pages: { servers: [chaos], expose: { primitives: {}, tools: [chaos.echo] } }\n  other: { }',
  );
const start = async (config = CONFIG): Promise<HostBench> =>
  (host = await startHost(config, { folder, approved: ['chaos'] }));
const restart = async (config = CONFIG): Promise<HostBench> => {
  await host?.close();
  return start(config);
};
const register = (bench: HostBench, more: object = {}, asking = ALICE): Promise<Answered> =>
  bench.ask('POST /servers', { ...CALC, ...more }, asking);
const unregister = (bench: HostBench, asking = ALICE, name = 'calc'): Promise<Answered> =>
  bench.ask(`DELETE /servers/${name}`, undefined, asking);
const names = async (bench: HostBench, asking = ALICE): Promise<readonly string[]> =>
  ((await bench.ask('GET /tools', undefined, asking)).value.tools as { name: string }[]).map(({ name }) => name);
const call = (bench: HostBench, name: string, asking = ALICE): Promise<Answered> =>
  bench.ask('POST /calls', { name }, asking);
const errorOf = ({ value }: Answered): { code: string; message: string } =>
  value.error as { code: string; message: string };
const kept = (bench: HostBench): readonly string[] => {
  const at = registeredFolder(bench.facade.assembled.config.state);
  mkdirSync(at, { recursive: true });
  return readdirSync(at);
};
const events = (bench: HostBench): readonly unknown[] =>
  bench.facade
    .records()
    .filter(({ type, server }) => type === 'server' && server === 'calc')
    .map(({ event, by }) => (by === undefined ? event : [event, by]));

describe('a server that a host registers' + verifies('ST-79', 'HE-15', 'HB-04'), () => {
  inFull('is not started, shown or called before an owner has approved it', async () => {
    const bench = await start();
    expect(await names(bench)).toEqual(['chaos_echo']);
    expect(await register(bench)).toMatchObject({
      status: 201,
      value: { server: { name: 'calc', by: 'alice', profiles: ['pages'] } },
    });
    expect(bench.facade.assembled.config.servers.get('calc')).not.toHaveProperty('isolation');
    expect(await names(bench)).toEqual(['chaos_echo']);
    expect((await call(bench, 'calc_echo')).status).toBeGreaterThanOrEqual(400);
    expect(events(bench)).toEqual([['registered', 'alice']]);
    expect((await bench.ask('GET /servers')).value.servers).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ name: 'calc', registeredBy: 'alice', state: 'not approved', tools: 0 }),
      ]),
    );
    await approveAll(bench.facade.assembled.config, ['calc']);
    expect(await names(bench)).toContain('calc_echo');
    expect((await call(bench, 'calc_echo')).status).toBe(200);
    expect(JSON.parse((await call(bench, 'calc_env')).value.result.content[0].text as string).env).not.toHaveProperty(
      'ALICE_TOKEN',
    );
    // Another profile does not see it, and the policy decides its calls.
    expect(await names(bench, {})).not.toContain('calc_echo');
    expect(errorOf(await call(bench, 'calc_echo', {})).code).toBe('UNKNOWN_TOOL');
  });

  inFull("is refused by the policy like a configured one, and an owner's settings for it count", async () => {
    const bench = await start(
      CONFIG.replace(
        'rules: [{ id: all, outcome: allow, when: {} }]',
        'rules: [{ id: some, outcome: allow, when: { verbs: [read] } }]',
      ),
    );
    await register(bench);
    await approveAll(bench.facade.assembled.config, ['calc']);
    // No one has classified its tools, so none of them counts as a read.
    expect(errorOf(await call(bench, 'calc_echo')).code).toBe('UNKNOWN_TOOL');
    const file = path.join(folder, 'tollgate.yaml');
    const again = await restart(
      readFileSync(file, 'utf8').replace('\nservers:', '\nservers:\n  calc: { semantics: { echo: read } }'),
    );
    await approveAll(again.facade.assembled.config, ['calc']);
    expect((await call(again, 'calc_echo')).status).toBe(200);
    // A file that is left there stops no start.
    expect((await unregister(again)).status).toBe(200);
    expect((await restart(readFileSync(file, 'utf8'))).facade.assembled.config.servers.get('calc')?.unusable).toContain(
      'neither command nor url',
    );
  });

  it('survives a restart, and disappears with the right to register it', async () => {
    await register(await start());
    const second = await restart();
    const { config: loaded } = second.facade.assembled;
    expect(loaded.profiles.get('pages')?.servers).toContain('calc');
    // Other processes of the state folder notice it like an edit.
    expect(loaded.controlFiles).toContain(registeredFolder(loaded.state));
    for (const config of [
      CONFIG.replace(', registers: [pages]', ''),
      CONFIG.replace('registers: [pages]', 'registers: [other]'),
      CONFIG.replace('id: alice', 'id: bob'),
    ]) {
      const { assembled } = (await restart(config)).facade;
      expect([
        assembled.config.servers.has('calc'),
        assembled.config.profiles.get('pages')?.servers.includes('calc'),
      ]).toEqual([false, false]);
      expect(assembled.config.warnings.map(({ message }) => message).join()).toContain('principals.*.registers');
    }
  });

  inFull('is removed by its host or an owner, together with the consent to it', async () => {
    const bench = await start(
      CONFIG.replace(
        'principals:',
        'principals:\n  - { id: carol, profiles: [pages], registers: [pages], token: "${env:CAROL_TOKEN}" }',
      ).replace('${env:CAROL_TOKEN}', `sha256:${'0'.repeat(64)}`),
    );
    await register(bench);
    await approveAll(bench.facade.assembled.config, ['calc']);
    expect((await call(bench, 'calc_echo')).status).toBe(200);
    expect(await unregister(bench)).toMatchObject({ status: 200, value: { server: { name: 'calc' } } });
    expect([await names(bench), kept(bench)]).toEqual([['chaos_echo'], []]);
    expect(errorOf(await call(bench, 'calc_echo')).code).toBe('UNKNOWN_TOOL');
    // The same server again begins without consent.
    await register(bench);
    expect(await names(bench)).toEqual(['chaos_echo']);
    expect(errorOf(await unregister(bench, ALICE, 'chaos')).code).toBe('WIRE_PARAMS');
    expect((await unregister(bench, {})).status).toBe(200);
    expect(errorOf(await unregister(bench)).code).toBe('WIRE_PARAMS');
    expect(events(bench)).toEqual(
      expect.arrayContaining([
        ['registered', 'alice'],
        ['unregistered', 'alice'],
        ['unregistered', 'host'],
      ]),
    );
  });
});

describe('the registration of a server' + verifies('ST-81', 'HE-15'), () => {
  it('needs a profile that an owner has opened, and is refused to all others', async () => {
    const bench = await start();
    for (const [more, asking] of [
      [{}, {}],
      [{ profiles: ['other'] }, ALICE],
      [{ profiles: ['pages', 'other'] }, ALICE],
    ] as [object, Asking][])
      expect(await register(bench, more, asking)).toMatchObject({
        status: 403,
        value: { error: { code: 'IDENTITY' } },
      });
    const open = await restart(
      CONFIG.replace('listen: { port: 0,', 'listen: { port: 0, auth: none,').replace(
        'principals:',
        'principals:\n  - { id: me, profiles: [pages], registers: [pages] }',
      ),
    );
    for (const headers of [{}, { origin: 'https://page.example' }])
      expect((await register(open, {}, { token: null, headers })).status).toBe(403);
    expect(kept(open)).toEqual([]);
    expect(events(open)).toEqual([]);
  });

  it('is refused for an unusable server, and leaves nothing', async () => {
    const bench = await start(
      CONFIG.replace('workspace: ./workspace', 'workspace: ./workspace\nlimits: { servers: 3 }'),
    );
    const refused: [object, RegExp][] = [
      [{ name: 'chaos' }, /already/],
      [{ name: 'workspace' }, /reserved/],
      [{ name: 'tollgate-x' }, /reserved/],
      [{ command: undefined, args: undefined }, /neither command nor url/],
      [{ args: ['-e', 'process.exit()'] }, /runs code/],
      [{ env: { NODE_OPTIONS: '--import=x' } }, /NODE_OPTIONS/],
      [{ env: { KEY: '${env:ALICE_TOKEN}' } }, /variables/],
      [{ args: ['${workspaceFolder}/x.js'] }, /variables/],
      [{ command: undefined, args: undefined, url: 'no address' }, /./],
    ];
    for (const [more, why] of refused) {
      const answer = await register(bench, more);
      expect([JSON.stringify(more), errorOf(answer).code, why.test(errorOf(answer).message)]).toEqual([
        JSON.stringify(more),
        'WIRE_PARAMS',
        true,
      ]);
    }
    for (const more of [
      { isolation: 'direct' },
      { trustHints: true },
      { profiles: [] },
      { name: 'No' },
      { args: 'x' },
      { sandbox: {} },
    ])
      expect([more, errorOf(await register(bench, more)).code]).toEqual([more, 'WIRE_PARAMS']);
    expect([kept(bench), bench.facade.assembled.config.servers.has('calc')]).toEqual([[], false]);
    expect((await register(bench)).status).toBe(201);
    expect(errorOf(await register(bench, { name: 'calc-two' })).message).toContain('limits.servers');
    expect(kept(bench)).toEqual(['calc.json']);
  });

  it('is refused if nothing can be written, and says so', async () => {
    const bench = await start();
    const at = registeredFolder(bench.facade.assembled.config.state);
    writeFileSync(at, 'no folder');
    expect(await register(bench)).toMatchObject({
      status: 503,
      value: { error: { code: 'STATE_FAILED', retryable: true } },
    });
    expect(bench.facade.assembled.config.servers.has('calc')).toBe(false);
    rmSync(at);
    expect((await register(bench)).status).toBe(201);
  });

  it('of one name is done once for two concurrent requests', async () => {
    const bench = await start();
    const answers = await Promise.all([register(bench), register(bench), register(bench)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 400, 400]);
  });

  it("never stops a start, whatever is in its folder, and takes no name of an owner's server", async () => {
    const bench = await start();
    await register(bench);
    const at = registeredFolder(bench.facade.assembled.config.state);
    const good = JSON.parse(readFileSync(path.join(at, 'calc.json'), 'utf8')) as object;
    writeFileSync(path.join(at, 'half.json'), '{"name":"half"');
    writeFileSync(path.join(at, 'chaos.json'), JSON.stringify({ ...good, name: 'chaos' }));
    writeFileSync(path.join(at, 'alias.json'), JSON.stringify(good));
    writeFileSync(
      path.join(at, 'none.json'),
      JSON.stringify({ name: 'none', by: 'alice', at: '', profiles: ['pages'], server: { command: 5 } }),
    );
    const next = (await restart()).facade.assembled.config;
    expect([...next.servers.keys()].sort()).toEqual(['calc', 'chaos', 'everything', 'none']);
    expect([next.servers.get('chaos')?.source, next.servers.get('none')?.unusable]).toEqual([
      'tollgate.yaml',
      expect.any(String),
    ]);
    expect(next.warnings.map(({ message }) => message).join()).toContain('defined elsewhere');
  });
});
