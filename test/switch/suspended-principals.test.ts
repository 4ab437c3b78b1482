/** Tests that a suspended principal gets nothing, in any way of asking, and that the suspension ends as it should. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { KillSwitch } from '../../facade/consent/switch/kill-switch.ts';
import { resumePrincipal, Suspensions, suspendPrincipal } from '../../facade/consent/switch/suspensions.ts';
import { instant } from '../../facade/state/budget-clock.ts';
import { Stops } from '../../facade/state/stop-file.ts';
import { type HostBench, hostConfig, startHost, TOKENS } from '../host/host-bench.ts';
import { tool } from '../properties/raw-facade.ts';
import { type ProtocolFacade, type ProtocolServer, type Step, startProtocol } from '../protocol/protocol-facade.ts';
import { verifies } from '../verifies.ts';

type Json = Readonly<Record<string, unknown>>;

const raw = (value: unknown, more: object = {}): Step => ({ raw: JSON.stringify(value), ...more });
const text = (one: string): Step => raw({ content: [{ type: 'text', text: one }] });
const working = { taskId: 't', status: 'working', createdAt: '2026-01-01T00:00:00Z', ttl: 60_000, pollInterval: 100 };

const SERVER: ProtocolServer = {
  capabilities: {
    tools: {},
    resources: { subscribe: true },
    prompts: {},
    completions: {},
    tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } },
  },
  answers: {
    'tools/list': raw({
      tools: [tool('read'), tool('slow'), tool('long', { execution: { taskSupport: 'required' } })],
    }),
    'tools/call': [text('first'), raw({ task: working }), { mute: true }, text('again')],
    'tasks/get': raw(working),
    'tasks/cancel': raw({ ...working, status: 'cancelled' }),
    'resources/list': raw({ resources: [{ uri: 'doc:one', name: 'one' }] }),
    'resources/read': raw({ contents: [{ uri: 'doc:one', text: 'secret' }] }),
    'resources/subscribe': raw({}),
    'prompts/list': raw({ prompts: [{ name: 'sum', arguments: [{ name: 'text' }] }] }),
    'prompts/get': raw({ messages: [{ role: 'user', content: { type: 'text', text: 'Sum up x.' } }] }),
    'completion/complete': raw({ completion: { values: ['secret'] } }),
  },
  settings: { semantics: { read: 'read', slow: 'read', long: 'read' } },
};
const REST = {
  principals: [
    { id: 'me', profiles: ['p'], stdio: true },
    { id: 'you', profiles: ['p'], stdio: true },
  ],
  profiles: {
    p: {
      servers: ['s'],
      expose: {
        primitives: {},
        tools: ['s.*'],
        search: true,
        code: true,
        resources: ['s'],
        prompts: [{ prompt: 's.sum', name: 'sum' }],
      },
    },
  },
  prompts: { 's.sum': { template: 'Sum up {{text}}.' } },
  rules: [{ id: 'all', outcome: 'allow', when: {} }],
};
const ARGS = { n: 1 };
const codeOf = ({ result, error }: Json): unknown =>
  (error as { data?: Json } | undefined)?.data?.code ??
  (result as { _meta?: Json } | undefined)?._meta?.['tollgate/code'];
/** Every way in which an agent can ask for something. */
const WAYS: readonly (readonly [string, string, object])[] = [
  ['a tool', 'tools/call', { name: 's_read', arguments: ARGS }],
  ['a name that no tool has', 'tools/call', { name: 'nothing', arguments: {} }],
  ['arguments that do not fit', 'tools/call', { name: 's_read', arguments: { n: 'x' } }],
  ['call_read', 'tools/call', { name: 'call_read', arguments: { name: 's_read', arguments: ARGS } }],
  ['find_tools', 'tools/call', { name: 'find_tools', arguments: { query: 'read' } }],
  ['code', 'tools/call', { name: 'run_code', arguments: { code: '1' } }],
  ['a task', 'tools/call', { name: 's_long', arguments: ARGS, task: {} }],
  ['a resource', 'resources/read', { uri: 's+doc:one' }],
  ['a subscription', 'resources/subscribe', { uri: 's+doc:one' }],
  ['a prompt', 'prompts/get', { name: 'sum', arguments: { text: 'x' } }],
  [
    'a completion',
    'completion/complete',
    { ref: { type: 'ref/prompt', name: 'sum' }, argument: { name: 'text', value: '' } },
  ],
];

describe('a suspended principal' + verifies('AD-40'), () => {
  let facade: ProtocolFacade;
  let stops: Stops;
  beforeAll(async () => {
    facade = await startProtocol({ s: SERVER }, REST);
    // As another process does.
    stops = new Stops(path.join(facade.folder, 'state'));
  });
  afterAll(async () => {
    stops.close();
    await facade.close();
  });

  it('gets SUSPENDED for every request, also in new sessions, and nothing reaches a server', async () => {
    const client = await facade.connect();
    const before = (await client.request('tools/list')).result as Json;
    expect(codeOf(await client.request('tools/call', { name: 's_read', arguments: ARGS }))).toBeUndefined();
    const task = (await client.request('tools/call', { name: 's_long', arguments: ARGS, task: {} })).result as Json;
    const taskId = (task.task as Json).taskId;
    const hanging = client.request('tools/call', { name: 's_slow', arguments: ARGS });
    const sent = (): number => facade.got('s').filter(({ method }) => method === 'tools/call').length;
    await expect.poll(sent).toBe(3);

    new Suspensions({ stops }).suspend('me', { by: 'somebody' });
    const other = await facade.connect();
    const stateless = facade.connectStateless({});
    for (const [what, method, params] of WAYS) {
      for (const one of [client, other])
        expect([what, codeOf(await one.request(method, params))]).toEqual([what, 'SUSPENDED']);
      if (what !== 'a subscription')
        expect([what, codeOf(await stateless.request(method, params))]).toEqual([what, 'SUSPENDED']);
    }
    // What runs ends too, and the agent is told that it may have run.
    const ended = await hanging;
    expect(codeOf(ended)).toBe('SUSPENDED');
    expect((ended.result as { _meta: Json })._meta['tollgate/executed']).toBe('unknown');
    expect(JSON.stringify(ended)).toContain('tollgate resume');
    expect(codeOf(await client.request('tasks/result', { taskId }))).toBe('SUSPENDED');
    // The list stays, so that its client goes on after the suspension without another list.
    expect((await client.request('tools/list')).result).toEqual(before);
    const methods = facade.got('s').map(({ method }) => String(method));
    expect([
      sent(),
      methods.filter((method) => /^(resources.(read|subscribe)|prompts.get|completion)/.test(method)),
    ]).toEqual([3, []]);
    expect(facade.records().filter(({ code }) => code === 'SUSPENDED').length).toBeGreaterThan(WAYS.length * 2);

    const you = await facade.connect({ as: 'you' });
    expect(codeOf(await you.request('tools/call', { name: 's_read', arguments: ARGS }))).toBeUndefined();
    new Suspensions({ stops }).resume('me');
    expect(codeOf(await client.request('tools/call', { name: 's_read', arguments: ARGS }))).toBeUndefined();
  });
});

describe('a suspended principal over HTTP' + verifies('AD-40', 'AD-42'), () => {
  let bench: HostBench;
  beforeAll(async () => {
    bench = await startHost(hostConfig().replace('id: host, profiles: [reach, harbor]', 'id: host, profiles: [reach]'));
  });
  afterAll(() => bench.close());

  it('is refused at the MCP endpoint and in the host API, also when an owner speaks for it', async () => {
    const suspended = await bench.ask('POST /suspensions', { principal: 'alice', forMs: 3_600_000 });
    expect(suspended).toMatchObject({ status: 200, value: { suspended: { principal: 'alice', by: 'host' } } });
    expect((await bench.ask('GET /suspensions')).value.suspensions).toHaveLength(1);
    const token = TOKENS.alice;
    expect(await bench.ask('POST /calls', { name: 'chaos_echo' }, { token })).toMatchObject({
      status: 403,
      value: { error: { code: 'SUSPENDED', retryable: true } },
    });
    expect((await bench.ask('GET /tools', undefined, { token })).value.error.code).toBe('SUSPENDED');
    const called = await fetch(`${bench.url}/mcp`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        authorization: `Bearer ${token}`,
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': 'tools/call',
        'mcp-name': 'chaos_echo',
      },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: {
          name: 'chaos_echo',
          arguments: {},
          _meta: {
            'io.modelcontextprotocol/protocolVersion': '2026-07-28',
            'io.modelcontextprotocol/clientCapabilities': {},
          },
        },
      }),
    });
    expect(await called.text()).toContain('SUSPENDED');
    // The profile `own` is only of alice, so the owner's call is made for her.
    expect((await bench.ask('POST /calls', { name: 'chaos_echo', profile: 'own' })).value.error.code).toBe('SUSPENDED');
    expect((await bench.ask('POST /calls', { name: 'chaos_echo' })).status).toBe(200);
    expect((await bench.ask('POST /suspensions', { principal: 'host' }, { token })).value.error.code).toBe('SUSPENDED');
    expect((await bench.ask('POST /suspensions/resume', { principal: 'alice' })).value).toEqual({ resumed: true });
    expect((await bench.ask('POST /suspensions', { principal: 'host' }, { token })).value.error.code).toBe('IDENTITY');
    expect((await bench.ask('POST /suspensions', { principal: 'alcie' })).value.error).toMatchObject({
      code: 'WIRE_PARAMS',
      next: expect.stringContaining('did you mean "alice"?'),
    });
    expect(bench.facade.records().filter(({ type }) => type === 'switch')).toMatchObject([
      { event: 'suspended', by: 'host', outcome: 'deny', principal: { id: 'alice' }, until: expect.any(String) },
      { event: 'resumed', by: 'host', outcome: 'allow', principal: { id: 'alice' } },
    ]);
  });
});

describe('a suspension in the stop file' + verifies('AD-41'), () => {
  let folder: string;
  let stops: Stops;
  beforeEach(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'tollgate-suspended-'));
    stops = new Stops(folder);
  });
  afterEach(() => {
    stops.close();
    rmSync(folder, { recursive: true });
  });

  it('ends by the time since then, whatever the clock of the machine says', () => {
    const start = instant();
    let now = start;
    const suspensions = new Suspensions({ stops }, () => now);
    expect(suspensions.suspend('alice', { by: 'me', forMs: 3_600_000 }).until).toBe(
      new Date(start.wall + 3_600_000).toISOString(),
    );
    const at = (wall: number, monotonic: number, boot = start.boot): boolean => {
      now = { wall: start.wall + wall, monotonic: start.monotonic + monotonic, boot };
      return suspensions.find('alice') !== undefined;
    };
    expect([
      at(86_400_000, 1_000),
      at(-86_400_000, 3_599_999),
      at(-86_400_000, 3_600_000),
      // After a reboot only the clock of the machine is left. One that was set back makes it longer, never shorter.
      at(-1, 0, 'another boot'),
      at(3_599_000, 0, 'another boot'),
      at(3_600_000, 0, 'another boot'),
    ]).toEqual([true, true, false, true, true, false]);
    expect(suspensions.list()).toEqual([]);
    // One that is over takes no place of others.
    suspensions.suspend('bob', { by: 'me' });
    expect([...stops.list().keys()]).toEqual(['@bob']);
  });

  it('holds for names with escapes, of any length, and never for a server or everything', () => {
    const suspensions = new Suspensions({ stops });
    const names = ['\u001b[31m<img src=x>', '*', 'github', 'é'.repeat(4_000), `jwt:${'a'.repeat(400)}`, '@alice', ''];
    for (const name of names) suspensions.suspend(name, { by: 'x'.repeat(300), forMs: 3_600_000 });
    expect(names.filter((name) => suspensions.find(name) === undefined)).toEqual([]);
    expect(suspensions.find('alice')).toBeUndefined();
    const killSwitch = new KillSwitch({ stops });
    expect([killSwitch.list(), killSwitch.offRefusal(), killSwitch.refusalOf('github')]).toEqual([
      [],
      undefined,
      undefined,
    ]);
    // Lifting every kill lifts no suspension, and switching on does not either.
    expect([killSwitch.lift(), killSwitch.turnOn(), suspensions.list()]).toEqual([[], false, expect.any(Array)]);
    expect(suspensions.list()).toHaveLength(names.length);
    for (const name of names) expect(suspensions.resume(name)).toBe(true);
    expect(stops.list().size).toBe(0);
  });

  it('is in force before it is recorded, and is lifted only with a record', async () => {
    const suspensions = new Suspensions({ stops });
    const full = { suspensions, append: () => Promise.reject(new Error('the disk is full')) };
    const act = { principal: 'alice', by: 'me' };
    await expect(suspendPrincipal(full, act)).rejects.toThrow(/^The principal is suspended\./);
    expect(suspensions.find('alice')).toBeDefined();
    await expect(resumePrincipal(full, act)).rejects.toThrow('the disk is full');
    expect(suspensions.find('alice')).toBeDefined();
    await expect(suspendPrincipal(full, { ...act, forMs: 0 })).rejects.toThrow('from a second to ten years');
  });
});
