/**
 * Attacks between tenants of one `tollgate serve`: tokens, sessions, spills, approvals, budgets and reloads of another
 * tenant. They run through the real command and listener.
 */
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cli, dataOf, type Running, start } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { initialize, request } from '../serve/fake-facade.ts';
import { TokenIssuer } from '../serve/token-issuer.ts';
import { verifies } from '../verifies.ts';

type Tenant = 'acme' | 'globex';

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly headers: Headers;
}

interface Result {
  readonly _meta?: Readonly<Record<string, unknown>>;
  readonly content?: readonly { readonly text?: string }[];
}

const TENANTS: readonly Tenant[] = ['acme', 'globex'];
const ENV = {
  OWN: 'own-token-0123456789abcdef',
  ACME: 'acme-token-0123456789abcdef',
  GLOBEX: 'globex-token-0123456789a',
};
const TOKENS = { own: ENV.OWN, acme: ENV.ACME, globex: ENV.GLOBEX };
/** Two tenants of one issuer and audience. The organisation of a token tells them apart. */
const ORGS = { acme: 'org-1', globex: 'org-2' };
const AUDIENCE = 'tollgate-gateway';

let project: Project;
let issuer: TokenIssuer;
let running: Running;
let base: URL;

const fileOf = (tenant: Tenant): string => path.join(project.home, tenant, 'tollgate.yaml');
const configOf = (tenant: Tenant, more = ''): string => `version: 1
workspace: ./work
state: ~/states/${tenant}
principals: [{id: ann, token: '\${env:${tenant.toUpperCase()}}', owner: true, stdio: true}, {id: boss, owner: true, stdio: true}]
profiles: {default: {expose: {primitives: workspace}}}
approvals: {waitMs: 0}
caps: {bytes: 2000}
rules:
  - {id: all, outcome: allow, when: {servers: [workspace]}}
  - {id: ask, outcome: ask, when: {tools: [workspace.write]}}
budgets: [{id: few, scope: principal, calls: 40}]
listen: {jwt: {issuer: '${issuer.url}', audience: ${AUDIENCE}, resource: 'https://tools.example/t/${tenant}/mcp', require: {org_id: ${ORGS[tenant]}}}}
${more}
`;

beforeAll(async () => {
  issuer = await new TokenIssuer().open();
  project = new Project();
  for (const folder of ['own', ...TENANTS]) mkdirSync(path.join(project.home, folder, 'work'), { recursive: true });
  for (const tenant of TENANTS) {
    project.write(`~/${tenant}/tollgate.yaml`, configOf(tenant));
    project.write(
      `~/${tenant}/work/long.txt`,
      Array.from({ length: 100 }, (_, line) => `${tenant} number ${line}\n`.repeat(3)).join(''),
    );
  }
  project.write(
    'tollgate.yaml',
    `version: 1
workspace: ~/own/work
state: ~/states/own
principals: [{id: op, token: '\${env:OWN}', owner: true, stdio: true}]
rules: []
listen: {port: 0}
tenants: {acme: ~/acme/tollgate.yaml, globex: ~/globex/tollgate.yaml}
`,
  );
  Object.assign(process.env, ENV);
  running = start(project, ['serve', '--json'], { env: ENV });
  let hasEnded = false;
  void running.ended.then(() => (hasEnded = true));
  while (!running.said.out.includes('\n') && !hasEnded) await delay(20);
  if (hasEnded) throw new Error(running.said.err);
  base = new URL(dataOf<{ url: string }>(running.said.out).url);
}, 90_000);

afterAll(async () => {
  running.stop();
  await running.ended;
  await issuer.close();
  project.remove();
  for (const name of Object.keys(ENV)) delete process.env[name];
});

async function ask(
  route: string,
  { token, body, session, method }: { token?: string; body?: object; session?: string; method?: string } = {},
): Promise<Answer> {
  const response = await fetch(new URL(route, base), {
    method: method ?? (body === undefined ? 'GET' : 'POST'),
    headers: {
      accept: 'application/json, text/event-stream',
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(session !== undefined && { 'mcp-session-id': session }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return { status: response.status, text: await response.text(), headers: response.headers };
}

const mcp = (tenant: Tenant): string => `/t/${tenant}/mcp`;

async function open(tenant: Tenant, token: string = TOKENS[tenant]): Promise<string> {
  return (await ask(mcp(tenant), { token, body: initialize() })).headers.get('mcp-session-id') ?? '';
}

async function call(tenant: Tenant, session: string, name: string, args: object): Promise<Result> {
  const body = request(1, 'tools/call', { name, arguments: args });
  const { text } = await ask(mcp(tenant), { token: TOKENS[tenant], session, body });
  return (JSON.parse(text.replace(/^event: message\ndata: /, '')) as { result: Result }).result;
}

const codeOf = ({ _meta }: Result): unknown => _meta?.['tollgate/code'];

describe('a token of one tenant', () => {
  it.each(TENANTS)('opens sessions at its own endpoint: %s', async (tenant) => {
    expect(await open(tenant)).toMatch(/^[0-9a-f]{32}$/);
  });

  it('is refused by the other, by the listener itself, and on every route' + verifies('FL-20'), async () => {
    const routes = [mcp('globex'), '/mcp'];
    for (const route of routes)
      expect(await ask(route, { token: TOKENS.acme, body: initialize() }), route).toMatchObject({ status: 401 });
    expect((await ask(mcp('acme'), { token: TOKENS.own, body: initialize() })).status).toBe(401);
    for (const route of ['metrics', 'healthz', 'host/v1/servers', 'host/v1/budgets']) {
      expect((await ask(`/t/globex/${route}`, { token: TOKENS.acme })).status, route).toBe(401);
      expect((await ask(`/${route}`, { token: TOKENS.acme })).status, route).toBe(401);
      expect((await ask(`/t/acme/${route}`, { token: TOKENS.acme })).status, route).toBe(200);
    }
  });

  it('of a shared issuer is bound by its organisation, exactly' + verifies('FL-20'), async () => {
    const status = async (tenant: Tenant, claims: object): Promise<number> => {
      const token = await issuer.sign({ aud: AUDIENCE, ...claims });
      return (await ask(mcp(tenant), { token, body: initialize() })).status;
    };
    expect(await status('acme', { org_id: 'org-1' })).toBe(200);
    expect(await status('globex', { org_id: 'org-1' })).toBe(401);
    expect(await status('globex', { org_id: 'org-2' })).toBe(200);
    for (const claims of [
      {},
      { org_id: ['org-1', 'org-2'] },
      { org_id: 'ORG-1' },
      { org_id: 'org-1 org-2' },
      { org: 'org-1' },
    ])
      for (const tenant of TENANTS) expect(await status(tenant, claims), JSON.stringify(claims)).toBe(401);
  });

  it('cannot be chosen by a header or an argument of a request' + verifies('FL-20'), async () => {
    const response = await fetch(new URL(mcp('globex'), base), {
      method: 'POST',
      headers: {
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        authorization: `Bearer ${TOKENS.acme}`,
        'x-tenant': 'acme',
        'x-original-url': mcp('acme'),
      },
      body: JSON.stringify(initialize()),
    });
    expect(response.status).toBe(401);
    for (const route of [
      '/t/acme/../globex/mcp',
      '/t/acme%2fmcp',
      '/t//mcp',
      '/t/none/mcp',
      '/t/ACME/mcp',
      '/t/acme/t/globex/mcp',
    ])
      expect([401, 404], route).toContain((await ask(route, { token: TOKENS.acme, body: initialize() })).status);
  });

  it('is asked for where its own issuer and resource are named (RFC 9728)' + verifies('FL-20'), async () => {
    const { headers } = await ask(mcp('acme'), { body: initialize() });
    expect(headers.get('www-authenticate')).toContain('/.well-known/oauth-protected-resource/t/acme/mcp"');
    for (const tenant of TENANTS)
      expect(JSON.parse((await ask(`/.well-known/oauth-protected-resource/t/${tenant}/mcp`)).text)).toMatchObject({
        resource: `https://tools.example/t/${tenant}/mcp`,
      });
    expect((await ask('/.well-known/oauth-protected-resource')).status).toBe(404);
  });
});

describe('what a tenant has', () => {
  it('is no session of another: the answer is that of a session that never existed' + verifies('FL-19'), async () => {
    const session = await open('acme');
    const list = { body: request(1, 'tools/list') };
    expect((await ask(mcp('acme'), { token: TOKENS.acme, session, ...list })).status).toBe(200);
    const theirs = await ask(mcp('globex'), { token: TOKENS.globex, session, ...list });
    const none = await ask(mcp('globex'), { token: TOKENS.globex, session: 'f'.repeat(32), ...list });
    expect([theirs.status, theirs.text]).toEqual([none.status, none.text]);
    expect(theirs.status).toBe(404);
    expect((await ask(mcp('globex'), { token: TOKENS.globex, session, method: 'DELETE' })).status).toBe(404);
    expect((await ask(mcp('acme'), { token: TOKENS.acme, session, ...list })).status).toBe(200);
  });

  it('are files of its own workspace, and spills that no other reads' + verifies('FL-19'), async () => {
    const sessions = { acme: await open('acme'), globex: await open('globex') };
    const cut = await call('acme', sessions.acme, 'read', { path: '.', action: 'search', pattern: 'number' });
    const [handle = ''] = /spill:\/\/[\w-]+/.exec(JSON.stringify(cut)) ?? [];
    expect([JSON.stringify(cut).includes('acme number'), handle]).toEqual([true, expect.stringMatching(/^spill:/)]);
    const rest = await call('acme', sessions.acme, 'read', { path: handle });
    expect([codeOf(rest), rest.content?.[0]?.text]).toEqual([undefined, expect.stringContaining('acme number')]);
    const stolen = await call('globex', sessions.globex, 'read', { path: handle });
    expect(JSON.stringify(stolen)).not.toContain('acme number');
    const missing = await call('globex', sessions.globex, 'read', { path: 'spill://AAAAAAAAAAAAAAAAAAAAAA' });
    expect([codeOf(stolen), stolen.content?.[0]?.text]).toEqual([codeOf(missing), missing.content?.[0]?.text]);
    for (const file of ['../../acme/work/long.txt', path.join(project.home, 'acme', 'work', 'long.txt')])
      expect(JSON.stringify(await call('globex', sessions.globex, 'read', { path: file })), file).not.toContain(
        'acme number',
      );
  });

  it('are approvals that no other uses or decides' + verifies('FL-19'), async () => {
    const sessions = { acme: await open('acme'), globex: await open('globex') };
    const args = { path: 'new.txt', content: 'x' };
    const asked = await call('acme', sessions.acme, 'write', args);
    const id = String(asked._meta?.['tollgate/approval']);
    expect(codeOf(asked)).toBe('APPROVAL_REQUIRED');
    const approvals = (tenant: Tenant, ...words: readonly string[]): ReturnType<typeof cli> =>
      cli(project, ['approvals', ...words, '--as', 'boss', '--config', fileOf(tenant)], { env: ENV });
    expect((await approvals('globex', 'show', id)).code).not.toBe(0);
    const { binding } = dataOf<{ binding: string }>((await approvals('acme', 'show', id, '--json')).out);
    expect((await approvals('globex', 'approve', id, '--yes', binding)).code).not.toBe(0);
    expect((await approvals('acme', 'approve', id, '--yes', binding)).code).toBe(0);
    const theirs = await call('globex', sessions.globex, 'write', args);
    expect([codeOf(theirs), theirs._meta?.['tollgate/approval'] === id]).toEqual(['APPROVAL_REQUIRED', false]);
    expect(codeOf(await call('acme', sessions.acme, 'write', args))).toBeUndefined();
    expect(readdirSync(path.join(project.home, 'globex', 'work'))).toEqual(['long.txt']);
  });

  it('are a log and metrics that name no other' + verifies('FL-19'), async () => {
    const sessions = { acme: await open('acme'), globex: await open('globex') };
    await call('acme', sessions.acme, 'read', { path: 'long.txt' });
    await call('globex', sessions.globex, 'read', { path: 'long.txt' });
    for (const [tenant, other] of [
      ['acme', 'globex'],
      ['globex', 'acme'],
    ] as const) {
      const folder = path.join(project.home, 'states', tenant, 'audit');
      const log = readdirSync(folder)
        .filter((name) => name.endsWith('.jsonl'))
        .map((name) => readFileSync(path.join(folder, name), 'utf8'))
        .join('');
      expect(log).toContain(sessions[tenant]);
      expect(log).not.toContain(sessions[other]);
      const metrics = (await ask(`/t/${tenant}/metrics`, { token: TOKENS[tenant] })).text;
      expect(metrics).toContain('tollgate_calls_total{tool="read"');
      expect(metrics).not.toMatch(/tenant=|tollgate_http_|process_/);
    }
    const own = (await ask('/metrics', { token: TOKENS.own })).text;
    expect(own).toMatch(/^tollgate_tenant_sessions\{tenant="acme"\} [1-9]/m);
    expect(own).not.toContain('tollgate_calls_total{tool="read"');
  });

  it('is a budget that no other spends' + verifies('FL-19'), async () => {
    const sessions = { acme: await open('acme'), globex: await open('globex') };
    let code: unknown;
    for (let at = 0; at < 45 && code === undefined; at += 1)
      code = codeOf(await call('acme', sessions.acme, 'read', { path: 'long.txt' }));
    expect(code).toBe('BUDGET_EXCEEDED');
    expect(codeOf(await call('globex', sessions.globex, 'read', { path: 'long.txt' }))).toBeUndefined();
    const left = (tenant: Tenant): Promise<string> =>
      ask(`/t/${tenant}/host/v1/budgets`, { token: TOKENS[tenant] }).then(({ text }) => text);
    expect(await left('acme')).not.toBe(await left('globex'));
  });

  it('is a switch that stops no other' + verifies('FL-19'), async () => {
    const off = await cli(project, ['off', '--config', fileOf('acme')], { env: ENV });
    expect(off.code).toBe(0);
    const ready = async (route: string): Promise<number> => (await ask(route)).status;
    await expect.poll(() => ready('/t/acme/readyz'), { timeout: 20_000 }).toBe(503);
    expect([await ready('/t/globex/readyz'), await ready('/readyz'), await ready('/t/none/readyz')]).toEqual([
      200, 200, 404,
    ]);
    const session = await open('globex');
    expect(codeOf(await call('globex', session, 'read', { path: 'long.txt' }))).toBeUndefined();
    expect((await cli(project, ['on', '--config', fileOf('acme')], { env: ENV })).code).toBe(0);
    await expect.poll(() => ready('/t/acme/readyz'), { timeout: 20_000 }).toBe(200);
  });
});

describe('a reload of one tenant', () => {
  const said = (): string => running.said.err;

  it(
    'with a fault keeps its last good configuration, is named, and leaves the other alone' + verifies('FL-22'),
    async () => {
      const before = said().length;
      project.write('~/acme/tollgate.yaml', configOf('acme', 'nonsense: 1'));
      await expect.poll(() => said().slice(before), { timeout: 30_000 }).toContain('acme: NOT RELOADED');
      expect(said().slice(before)).toMatch(/^acme: tollgate\.yaml:\d+:1: .*nonsense/m);
      expect(said().slice(before)).not.toMatch(/^globex: |^NOT RELOADED/m);
      for (const tenant of TENANTS) expect(await open(tenant)).not.toBe('');
      project.write('~/globex/tollgate.yaml', configOf('globex', 'labels: {sticky: [untrusted]}'));
      await expect.poll(() => said().slice(before), { timeout: 30_000 }).toContain('globex: Reloaded');
    },
  );

  it('cannot move it onto a place or a token of the other' + verifies('FL-22', 'FL-21'), async () => {
    const before = said().length;
    project.write('~/acme/tollgate.yaml', configOf('acme').replace('./work', '~/globex/work'));
    await expect.poll(() => said().slice(before), { timeout: 30_000 }).toContain('of tenant globex');
    expect(said().slice(before)).toContain('acme: NOT RELOADED');
    const middle = said().length;
    project.write('~/acme/tollgate.yaml', configOf('acme').replace('env:ACME', 'env:GLOBEX'));
    await expect
      .poll(() => said().slice(middle), { timeout: 30_000 })
      .toContain('the token is also that of a principal of tenant globex');
    expect((await ask(mcp('acme'), { token: TOKENS.globex, body: initialize() })).status).toBe(401);
    const session = await open('acme');
    expect(session).not.toBe('');
  });
});

describe('the table of tenants', () => {
  it('does not change while Tollgate runs' + verifies('FL-22'), async () => {
    const before = running.said.err.length;
    const file = path.join(project.folder, 'tollgate.yaml');
    project.write('tollgate.yaml', readFileSync(file, 'utf8').replace(', globex: ~/globex/tollgate.yaml', ''));
    await expect
      .poll(() => running.said.err.slice(before), { timeout: 30_000 })
      .toContain('tenants cannot change while Tollgate runs');
    expect(await open('globex')).not.toBe('');
  });
});

describe('a start', () => {
  it('with a bad tenant is refused, and names it' + verifies('FL-21'), async () => {
    const other = new Project();
    for (const folder of ['work', 'acme/work']) mkdirSync(path.join(other.home, folder), { recursive: true });
    other.write('~/acme/tollgate.yaml', 'version: 1\nworkspace: ./work\nstate: ~/state\nlisten: {auth: none}\n');
    other.write(
      'tollgate.yaml',
      'version: 1\nworkspace: ~/work\nstate: ~/own\ntenants: {acme: ~/acme/tollgate.yaml}\nlisten: {port: 0}\n',
    );
    const { code, err } = await cli(other, ['serve']);
    expect([code, err]).toEqual([
      2,
      expect.stringContaining(`${path.join(other.home, 'acme', 'tollgate.yaml')}:4:16: without a token`),
    ]);
    other.remove();
  });
});
