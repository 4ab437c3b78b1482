/**
 * Tests `tollgate serve` as a process: who may enter each route, by real requests, and its end.
 * Covers: facade/cli/serving, facade/serve, facade/runtime.
 */

import { readFileSync, statSync } from 'node:fs';
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { Child, isRunning, startedIn } from './child.ts';

const INITIALIZE = JSON.stringify({
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 't', version: '1' } },
});

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

let project: Project;
let child: Child;
let url: URL;
let token: string;
let started: string;

/** Sends a request as written. Node adds no Host header if one is given. */
function send(
  method: string,
  route: string,
  headers: Readonly<Record<string, string>>,
  body?: string,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      {
        host: url.hostname,
        port: url.port,
        method,
        path: route,
        headers: {
          accept: 'application/json, text/event-stream',
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
      },
      (response) => {
        let text = '';
        response
          .setEncoding('utf8')
          .on('data', (chunk: string) => void (text += chunk))
          .on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }));
      },
    );
    request.on('error', reject).end(body);
  });
}

const codeIn = (text: string): unknown => (JSON.parse(text) as { error: { data: { code: string } } }).error.data.code;

beforeAll(async () => {
  project = new Project();
  project.write('workspace/README.md', '# Hello\n');
  started = path.join(project.folder, 'started');
  project.write(
    'tollgate.yaml',
    `version: 1
workspace: ./workspace
servers: {chaos: ${server(['chaos.mjs'], `env: {CHAOS_STARTS: ${started}}`)}}
principals: [{id: local, profiles: [p]}, {id: remote, profiles: [p], token: "\${env:REMOTE_TOKEN}"}]
profiles: {p: {servers: [chaos], expose: {tools: ["chaos.echo"]}}}
rules: [{id: all, outcome: allow, when: {}}]
listen: {port: 0}
`,
  );
  await project.approve({ env: { REMOTE_TOKEN: 'a-token-of-somebody-else' } });
  child = new Child(project, ['serve', '--json'], { env: { REMOTE_TOKEN: 'a-token-of-somebody-else' } });
  const { url: address, tokenFile } = JSON.parse(await child.firstLine()) as { url: string; tokenFile: string };
  url = new URL(address);
  token = readFileSync(tokenFile, 'utf8').trim();
  expect(statSync(tokenFile).mode & 0o777).toBe(0o600);
});
afterAll(async () => {
  await child.kill('SIGKILL');
  project.remove();
});

const ROUTES = [
  ['POST', '/mcp'],
  ['GET', '/mcp'],
  ['DELETE', '/mcp'],
  ['OPTIONS', '/mcp'],
  ['GET', '/healthz'],
  ['GET', '/metrics'],
  ['GET', '/'],
  ['GET', '/%2e%2e/mcp'],
] as const;

describe('every route, with the right token', () => {
  it.each(ROUTES)('%s %s refuses a foreign Host (attack: DNS rebinding)', async (method, route) => {
    for (const host of [`evil.example:${url.port}`, 'localhost.evil.example', '127.0.0.1', `0.0.0.0:${url.port}`]) {
      const answer = await send(
        method,
        route,
        { host, authorization: `Bearer ${token}` },
        method === 'POST' ? INITIALIZE : undefined,
      );
      expect([answer.status, codeIn(answer.text)], host).toEqual([403, 'HTTP_HOST']);
    }
  });

  it.each(ROUTES)('%s %s refuses a foreign Origin', async (method, route) => {
    for (const origin of ['https://evil.example', 'null', `https://localhost:${url.port}`, 'http://localhost']) {
      const answer = await send(
        method,
        route,
        { origin, authorization: `Bearer ${token}` },
        method === 'POST' ? INITIALIZE : undefined,
      );
      expect([answer.status, codeIn(answer.text)], origin).toEqual([403, 'HTTP_ORIGIN']);
      expect(answer.headers['access-control-allow-origin']).toBeUndefined();
    }
  });
});

describe('the token', () => {
  const WRONG = ['', 'Bearer', 'Bearer wrong', 'Basic dXNlcjpwYXNz', `Bearer ${'A'.repeat(43)}`];

  it.each([
    ['POST', '/mcp'],
    ['GET', '/mcp'],
    ['DELETE', '/mcp'],
    ['GET', '/metrics'],
  ] as const)('%s %s wants the right one', async (method, route) => {
    for (const authorization of [...WRONG, `Bearer ${token}x`, token]) {
      const answer = await send(
        method,
        route,
        authorization === '' ? {} : { authorization },
        method === 'POST' ? INITIALIZE : undefined,
      );
      expect([answer.status, codeIn(answer.text)], authorization).toEqual([401, 'HTTP_AUTH']);
      expect(answer.headers['www-authenticate']).toContain('Bearer');
    }
  });

  inFull('does not give access to the session of another principal', async () => {
    const opened = await send('POST', '/mcp', { authorization: `Bearer ${token}` }, INITIALIZE);
    const session = String(opened.headers['mcp-session-id']);
    const list = '{"jsonrpc":"2.0","id":2,"method":"tools/list"}';
    const other = await send(
      'POST',
      '/mcp',
      { authorization: 'Bearer a-token-of-somebody-else', 'mcp-session-id': session },
      list,
    );
    expect([other.status, codeIn(other.text)]).toEqual([404, 'HTTP_SESSION']);
    const own = await send('POST', '/mcp', { authorization: `Bearer ${token}`, 'mcp-session-id': session }, list);
    expect([own.status, own.text]).toEqual([200, expect.stringContaining('chaos_echo')]);
  });

  it('is needed for the states of servers, not for the liveness check, and is not printed to stdout', async () => {
    const { status, text } = await send('GET', '/healthz', {});
    expect([status, JSON.parse(text)]).toEqual([200, { status: 'ok' }]);
    expect(JSON.parse((await send('GET', '/healthz', { authorization: `Bearer ${token}` })).text)).toEqual({
      status: 'ok',
      servers: { workspace: expect.any(String), chaos: expect.any(String) },
    });
    expect(child.out).not.toContain(token);
    expect((await send('GET', '/metrics', { authorization: `Bearer ${token}` })).text).toContain(
      'tollgate_server_state',
    );
  });
});

describe('the end of tollgate serve' + verifies('HA-07'), () => {
  it('comes with a signal, also while a client has an open stream: exit code 0, and no process remains', async () => {
    const opened = await send('POST', '/mcp', { authorization: `Bearer ${token}` }, INITIALIZE);
    const headers = { authorization: `Bearer ${token}`, 'mcp-session-id': String(opened.headers['mcp-session-id']) };
    await send(
      'POST',
      '/mcp',
      headers,
      '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"chaos_echo","arguments":{}}}',
    );
    const stream = send('GET', '/mcp', headers).catch(() => undefined);
    await expect.poll(() => startedIn(started).length, { timeout: 20_000 }).toBeGreaterThan(0);
    expect(await child.kill('SIGTERM')).toEqual({ code: 0, signal: null });
    await stream;
    expect(startedIn(started).filter(isRunning)).toEqual([]);
  });
});
