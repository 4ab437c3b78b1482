/** Tests which reloads are refused, and what happens to sessions whose principals change. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { CompiledPolicy } from '../../policies/engine/compiled-policy.ts';
import { configure, Reloadable, rules } from './edited-project.ts';

const OPEN = rules({ id: 'open', outcome: 'allow', when: { verbs: ['read'] } });
let facade: Reloadable;
afterEach(() => facade.close());

async function start(more = '', text = OPEN): Promise<void> {
  facade = await new Reloadable({
    'tollgate.yaml': configure(more),
    'rules.yaml': text,
    'workspace/a.txt': 'a',
  }).start();
}

async function refusal(listening = false): Promise<TollgateError> {
  return facade.reload(listening).then(
    () => {
      throw new Error('was not refused');
    },
    (thrown: TollgateError) => thrown,
  );
}

describe('a reload', () => {
  it.each([
    [
      'a rule with an error',
      'rules.yaml',
      'rules: [{id: open, outcome: alow, when: {}}]',
      'POLICY_INVALID',
      'did you mean',
    ],
    ['incomplete YAML', 'rules.yaml', 'rules: [{id: open', 'POLICY_INVALID', ''],
    [
      'a configuration with an unknown key',
      'tollgate.yaml',
      `${configure()}polices: []\n`,
      'CONFIG_INVALID',
      'unknown key',
    ],
    [
      'a missing policy',
      'tollgate.yaml',
      configure().replace('rules.yaml', 'nowhere.yaml'),
      'CONFIG_INVALID',
      'does not exist',
    ],
    [
      'another state folder',
      'tollgate.yaml',
      configure().replace('./state', './elsewhere'),
      'CONFIG_INVALID',
      'state cannot change while Tollgate runs',
    ],
    [
      'another audit folder',
      'tollgate.yaml',
      configure('audit: {folder: ./log}\n'),
      'CONFIG_INVALID',
      'audit cannot change while Tollgate runs',
    ],
    [
      'other limits',
      'tollgate.yaml',
      configure('limits: {connections: 2}\n'),
      'CONFIG_INVALID',
      'limits cannot change while Tollgate runs',
    ],
  ])('refuses %s, changes nothing, and records the refusal', async (_what, file, text, code, message) => {
    await start();
    const session = facade.open('local');
    const before = facade.assembled.gateway.snapshot;
    facade.write(file, text);
    const thrown = await refusal();
    expect(thrown.code).toBe(code);
    expect(JSON.stringify(thrown.data.problems).toLowerCase()).toContain(message.toLowerCase());
    expect(facade.assembled.gateway.snapshot).toBe(before);
    expect(await facade.call(session, 'read', { path: 'a.txt' })).toMatchObject({ text: 'a', code: '' });
    expect(facade.records('config').at(-1)).toMatchObject({
      event: 'refused',
      outcome: 'error',
      code,
      problems: (thrown.data.problems as unknown[]).length,
    });
    facade.write('tollgate.yaml', configure());
    facade.write('rules.yaml', rules({ id: 'open', outcome: 'allow', message: 'Mended.', when: { verbs: ['read'] } }));
    await facade.reload();
    expect(facade.records('config').at(-1)).toMatchObject({
      event: 'reloaded',
      outcome: 'allow',
      revision: facade.assembled.deps.policy().revision,
    });
    expect(facade.assembled.gateway.snapshot).not.toBe(before);
  });

  it('refuses another address only while Tollgate listens', async () => {
    await start();
    facade.write('tollgate.yaml', configure('listen: {port: 7999}\n'));
    expect((await refusal(true)).data.problems).toMatchObject([
      {
        file: 'tollgate.yaml',
        line: 5,
        message: expect.stringContaining('listen cannot change while Tollgate runs') as string,
      },
    ]);
    await facade.reload(false);
  });

  it('shows no path of a folder in its messages', async () => {
    await start();
    facade.write('tollgate.yaml', configure().replace('./state', './elsewhere'));
    const thrown = await refusal();
    expect(thrown.message + JSON.stringify(thrown.data)).not.toContain(facade.folder);
  });

  it('keeps the old configuration if the new one cannot be recorded', async () => {
    await start();
    const before = facade.assembled.gateway.snapshot;
    const { audit } = facade.assembled.deps;
    await audit.close();
    expect((await refusal()).code).toBe('AUDIT_FAILED');
    expect(facade.assembled.gateway.snapshot).toBe(before);
  });

  it('is recorded when it is complete: after the record, no call is decided by the old configuration', async () => {
    await start();
    const [asked, recorded] = [
      vi.spyOn(CompiledPolicy.prototype, 'list'),
      vi.spyOn(facade.assembled.deps.audit, 'append'),
    ];
    try {
      await facade.reload();
      const at = recorded.mock.calls.findIndex(([entry]) => entry.type === 'config');
      expect(asked.mock.invocationCallOrder[0]).toBeLessThan(recorded.mock.invocationCallOrder[at]!);
      asked.mockRejectedValue(new TollgateError('POLICY_FAILED', { detail: 'The policy gave no decision.' }));
      expect((await refusal()).code).toBe('POLICY_FAILED');
      expect(facade.records('config').map(({ event }) => event)).toEqual(['loaded', 'reloaded', 'refused']);
    } finally {
      vi.restoreAllMocks();
    }
  });
});

describe('open sessions', () => {
  const principals = (...all: readonly string[]): string =>
    `principals: [${all.join(', ')}]\nprofiles: {small: {expose: {primitives: {read: workspace}}}}\n`;
  const HASH = `sha256:${'a'.repeat(64)}`;
  const changeTo = async (...all: readonly string[]): Promise<readonly string[]> => {
    facade.write('tollgate.yaml', configure(principals(...all)));
    return facade.reload();
  };

  it('get the new role and profiles of their principal', async () => {
    await start(
      principals('{id: mia}', '{id: ann}'),
      rules({ id: 'users', outcome: 'allow', when: { roles: ['user'] } }),
    );
    const session = facade.open('mia');
    expect(await facade.list(session)).toEqual(['read', 'write', 'edit', 'bash']);
    await changeTo('{id: mia, profiles: [small]}', '{id: ann}');
    expect(await facade.list(session)).toEqual(['read']);
    await changeTo('{id: mia, role: guest}', '{id: ann}');
    expect(session.principal).toMatchObject({ role: 'guest', profiles: ['default'] });
    expect(await facade.call(session, 'read', { path: 'a.txt' })).toMatchObject({ code: 'UNKNOWN_TOOL' });
  });

  it.each([
    ['that was removed', '{id: tom}', '{id: other}'],
    [
      'with another token',
      `{id: tom, token: "${HASH}", stdio: true}`,
      `{id: tom, token: "sha256:${'b'.repeat(64)}", stdio: true}`,
    ],
    ['that is no longer allowed over stdio', '{id: tom, stdio: true}', '{id: tom, stdio: false}'],
  ])('of a principal %s end with IDENTITY, and others continue', async (_what, before, after) => {
    await start(principals('{id: mia}', before));
    const [mia, tom] = [facade.open('mia'), facade.open('tom')];
    expect(await changeTo('{id: mia}', after)).toEqual([expect.stringContaining('A session of tom has ended')]);
    expect(await facade.call(tom, 'read', { path: 'a.txt' })).toMatchObject({
      code: 'IDENTITY',
      text: expect.stringContaining('no longer in the configuration') as string,
    });
    await expect(facade.list(tom)).rejects.toThrow('no longer in the configuration');
    expect(tom.closed.aborted).toBe(true);
    expect(await facade.call(mia, 'read', { path: 'a.txt' })).toMatchObject({ text: 'a' });
    expect(facade.records('session').at(-1)).toMatchObject({
      event: 'refused',
      code: 'IDENTITY',
      session: tom.id,
      principal: { id: 'tom' },
    });
    await changeTo('{id: mia}', before);
    expect(await facade.call(tom, 'read', { path: 'a.txt' })).toMatchObject({ code: 'IDENTITY' });
    expect(await facade.call(facade.open('tom'), 'read', { path: 'a.txt' })).toMatchObject({ text: 'a' });
    await facade.assembled.gateway.closeSession(tom);
  });

  it('keep a checked Origin, and otherwise get the new name of the client', async () => {
    await start(principals('{id: mia, client: editor}'));
    const { gateway } = facade.assembled;
    const known = facade.open('mia');
    const page = gateway.openSession({ ...known.principal, origin: 'https://agents.example.org' }, 'http');
    await changeTo('{id: mia, client: terminal}');
    expect([known.principal.origin, page.principal.origin]).toEqual(['terminal', 'https://agents.example.org']);
  });

  it('are not opened for a removed principal, and get role and profiles from the configuration', async () => {
    await start(principals('{id: mia, role: guest}'));
    const { gateway } = facade.assembled;
    const { principal } = facade.open('mia');
    expect(gateway.openSession({ ...principal, role: 'admin' }, 'http').principal.role).toBe('guest');
    await changeTo('{id: other}');
    expect(() => gateway.openSession(principal, 'http')).toThrow('no longer in the configuration');
  });

  it('are told that their list of tools has changed, only if it has', async () => {
    const both = rules(
      { id: 'reads', outcome: 'allow', when: { verbs: ['read'] } },
      { id: 'writes', outcome: 'allow', when: { verbs: ['write'], roles: ['user'] } },
    );
    await start(principals('{id: mia, role: user}', '{id: tom, role: guest}'), both);
    const told: (Session | undefined)[] = [];
    facade.assembled.gateway.onToolsChanged((session) => told.push(session));
    const [mia, tom, fresh] = [facade.open('mia'), facade.open('tom'), facade.open('mia')];
    await facade.list(mia);
    await facade.list(tom);
    facade.write('rules.yaml', rules({ id: 'reads', outcome: 'allow', when: { verbs: ['read'] } }));
    await facade.reload();
    await expect.poll(() => told).toEqual([mia]);
    expect(fresh.closed.aborted).toBe(false);
    await facade.list(mia);
    await facade.reload();
    await new Promise((resolve) => setTimeout(resolve, 250));
    expect(told).toEqual([mia]);
  });

  it('keep the used amounts of their budgets', async () => {
    const budget = (calls: number): string => configure(`budgets: [{id: few, scope: session, calls: ${calls}}]\n`);
    await start();
    facade.write('tollgate.yaml', budget(2));
    await facade.reload();
    const session = facade.open('local');
    await facade.call(session, 'read', { path: 'a.txt' });
    facade.write('tollgate.yaml', budget(2).replace('caps', 'caps'));
    await facade.reload();
    await facade.call(session, 'read', { path: 'a.txt' });
    expect(await facade.call(session, 'read', { path: 'a.txt' })).toMatchObject({ code: 'BUDGET_EXCEEDED' });
  });

  it('see no secret of the new or the old configuration', async () => {
    await start();
    facade.env.OLD = 'old-secret-value';
    facade.env.NEW = 'new-secret-value';
    facade.write('workspace/keys.txt', 'old-secret-value and new-secret-value');
    const withHeader = (name: string): string =>
      configure(`servers: {far: {url: "https://far.example/mcp", headers: {Authorization: "\${env:${name}}"}}}\n`);
    for (const name of ['OLD', 'NEW']) {
      facade.write('tollgate.yaml', withHeader(name));
      await facade.reload();
    }
    expect((await facade.call(facade.open('local'), 'read', { path: 'keys.txt' })).text).toBe(
      '[redacted] and [redacted]',
    );
  });
});
