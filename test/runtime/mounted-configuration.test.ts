/** Tests reloads of files that Kubernetes mounts: a ConfigMap or a Secret is replaced by the swap of one link. */

import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readBody } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import type { Config } from '../../facade/config/config.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { Reloader } from '../../facade/runtime/reloader.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { MountedFolder } from '../config/mounted-folder.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { buildBundle } from './bundle-server.ts';
import { Reloadable, rules } from './edited-project.ts';

/** Longer than two polls of the watch. */
const QUIET_MS = 4500;
const READ = { id: 'read', outcome: 'allow', when: { verbs: ['read'] } };
const NO_READ = { id: 'no-read', outcome: 'deny', when: { paths: ['a.txt'] } };

/** A facade whose configuration is mounted at `config`. */
class Mounted extends Reloadable {
  readonly config = new MountedFolder(this.at('config'));
  session!: Session;

  override read(): Config {
    return loadConfig(this.config.at('tollgate.yaml'), { env: this.env, home: '/home/nobody-at-all' });
  }
}

let ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.reverse()) await end();
  ends = [];
});

function configureMount(more: string): string {
  return `version: 1\nworkspace: ../workspace\nstate: ../state\n${more}`;
}

/** Starts a facade over mounted files that reloads by itself. `told`: what a person reads. */
async function start(
  files: Readonly<Record<string, string | Uint8Array>>,
  before: (facade: Mounted) => void = () => undefined,
): Promise<{ readonly facade: Mounted; readonly told: readonly string[] }> {
  const told: string[] = [];
  const facade = new Mounted({ 'workspace/a.txt': 'a' });
  before(facade);
  facade.config.put(files);
  await facade.start();
  facade.session = facade.open('local');
  const reloader = await Reloader.open({
    file: facade.config.at('tollgate.yaml'),
    home: '/home/nobody-at-all',
    inForce: { config: facade.read(), differing: [] },
    listening: false,
    read: () => ({ config: facade.read(), differing: [] }),
    tell: (line) => told.push(line.replace(/ policy revision .*/, '')),
    report: (thrown) => told.push(String((thrown as { code?: string }).code)),
  });
  reloader.start(facade.assembled);
  ends = [() => facade.close(), () => reloader.close()];
  return { facade, told };
}

const readsFile = async (facade: Mounted): Promise<string> => {
  const { text, code } = await facade.call(facade.session, 'read', { path: 'a.txt' });
  return code === '' ? text : code;
};

describe('a mounted configuration' + verifies('FL-17'), () => {
  const tollgate = configureMount('policies: [rules.yaml]\n');

  inFull(
    'is in force after the swap; the same content reloads nothing, and a broken one changes nothing',
    async () => {
      const { facade, told } = await start({ 'tollgate.yaml': tollgate, 'rules.yaml': rules(READ) });
      expect(await readsFile(facade)).toBe('a');
      facade.config.put({ 'tollgate.yaml': tollgate, 'rules.yaml': rules(READ) });
      await sleep(QUIET_MS);
      expect(told).toEqual([]);
      facade.config.put({ 'tollgate.yaml': tollgate, 'rules.yaml': rules(READ, NO_READ) });
      await expect.poll(() => told, { timeout: 20_000 }).toEqual(['Reloaded:']);
      expect(await readsFile(facade)).toBe('DENIED');
      facade.config.put({ 'tollgate.yaml': `${tollgate}unknown: 1\n`, 'rules.yaml': rules(READ) });
      await expect
        .poll(() => told.slice(1), { timeout: 20_000 })
        .toEqual([expect.stringMatching(/^NOT RELOADED/), 'CONFIG_INVALID']);
      expect(await readsFile(facade)).toBe('DENIED');
      facade.config.put({ 'tollgate.yaml': tollgate, 'rules.yaml': rules(READ) });
      await expect.poll(() => told.slice(3), { timeout: 20_000 }).toEqual(['Reloaded:']);
      expect(await readsFile(facade)).toBe('a');
    },
    90_000,
  );

  inFull(
    'may name a mounted folder of Rego, which is built again after the swap',
    async () => {
      const rego = (outcome: string): string =>
        `package policy.mounted\n\n${outcome} contains {"id": "r-${outcome}", "message": "x"} if input.effect.verb == "read"\n`;
      let policies: MountedFolder | undefined;
      const { facade, told } = await start(
        { 'tollgate.yaml': configureMount('policies: [rules.yaml, ../policies]\n'), 'rules.yaml': rules(READ) },
        (made) => {
          policies = new MountedFolder(made.at('policies'));
          policies.put({ 'mounted.rego': rego('allow') });
        },
      );
      expect(await readsFile(facade)).toBe('a');
      policies?.put({ 'mounted.rego': rego('deny') });
      await expect.poll(() => told, { timeout: 40_000 }).toEqual(['Reloaded:']);
      // No call could be allowed any more, so the tool is hidden.
      expect(await readsFile(facade)).toBe('UNKNOWN_TOOL');
    },
    90_000,
  );

  it('may name a mounted bundle, which is read again after the swap', async () => {
    const bundle = (outcome: string): Promise<Buffer> =>
      buildBundle(
        `package policy.packed\n\n${outcome} contains {"id": "b-${outcome}", "message": "x"} if input.effect.verb == "read"\n`,
      );
    const yaml = configureMount('policies: [bundle.tar.gz]\n');
    const { facade, told } = await start({ 'tollgate.yaml': yaml, 'bundle.tar.gz': await bundle('allow') });
    expect(await readsFile(facade)).toBe('a');
    facade.config.put({ 'tollgate.yaml': yaml, 'bundle.tar.gz': await bundle('deny') });
    await expect.poll(() => told, { timeout: 40_000 }).toEqual(['Reloaded:']);
    expect(await readsFile(facade)).toBe('DENIED');
  }, 90_000);
});

describe('a mounted secret of a remote server' + verifies('FL-17'), () => {
  it('is read again when the server refuses the old value, without a restart', async () => {
    const server = new TokenServer();
    await server.listen();
    ends.push(() => server.close());
    let secrets: MountedFolder | undefined;
    const yaml = (at: string): string =>
      configureMount(`secrets: {notes.token: {file: ${at}/token}}
servers:
  notes: {url: "${server.url}", headers: {Authorization: "Bearer \${secret:notes.token}"}}
profiles: {default: {servers: [notes]}}
expose: {primitives: workspace, tools: [notes.*]}
rules: [{id: all, outcome: allow, when: {}}]
`);
    let mounted = '';
    const files = {
      get 'tollgate.yaml'() {
        return yaml(mounted);
      },
    };
    const { facade } = await start(files, (made) => {
      mounted = made.at('secrets');
      secrets = new MountedFolder(mounted);
      secrets.put({ token: 'token-number-one\n' });
    });
    ends.unshift(() => server.close());
    const { session } = facade;
    server.token = 'token-number-one';
    await facade.list(session);
    const call = async (): Promise<string> => (await facade.call(session, 'notes_echo', {})).text;
    expect(await call()).toBe('said');
    server.token = 'token-number-two';
    secrets?.put({ token: 'token-number-two\n' });
    await expect.poll(call, { timeout: 30_000 }).toBe('said');
    expect(server.ran).toBe(2);
  }, 60_000);
});

/** A stateless MCP server over HTTP that wants one token. */
class TokenServer {
  token = 'token-number-one';
  /** How many calls were carried out. */
  ran = 0;
  url = '';
  readonly #server: Server = createServer((request, response) => {
    void readBody(request).then((body) => {
      if (request.headers.authorization !== `Bearer ${this.token}`) return void response.writeHead(401).end();
      if (request.method !== 'POST') return void response.writeHead(405).end();
      const { id, method } = JSON.parse(body) as { readonly id?: number; readonly method: string };
      if (id === undefined) return void response.writeHead(202).end();
      if (method === 'tools/call') this.ran += 1;
      const result = RESULTS[method];
      const answer = result === undefined ? { error: { code: -32601, message: 'unknown' } } : { result };
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ jsonrpc: '2.0', id, ...answer }));
    });
  });

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/mcp`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

const RESULTS: Readonly<Record<string, object>> = {
  initialize: {
    protocolVersion: '2025-06-18',
    capabilities: { tools: {} },
    serverInfo: { name: 'notes', version: '1' },
  },
  'tools/list': { tools: [{ name: 'echo', inputSchema: { type: 'object' } }] },
  'tools/call': { content: [{ type: 'text', text: 'said' }] },
};
