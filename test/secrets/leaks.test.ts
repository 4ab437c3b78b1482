/**
 * Tests a run with servers that print their secrets: no reply, record, log, file, argument list or other environment
 * shows a value.
 * Covers: facade/secrets.
 */

import { chownSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { Child, type Reply } from '../process/child.ts';
import { verifies } from '../verifies.ts';
import { pipeValue } from './pipe.ts';

const LEAKY = path.join(import.meta.dirname, '..', 'fixtures', 'leaky-server.mjs');
/** One value for each place, with characters that JSON, URLs and base64 encode differently. */
const VALUES = {
  vault: 'vault+sesame/"öpen"=1',
  env: 'env-sesame-open-two',
  exec: 'exec-sesame-open-three',
  header: 'header-sesame-open-four',
} as const;
const NOBODY = 65_534;

/** Returns the forms in which a leak could show the value. */
function formsOf(value: string): readonly string[] {
  const bytes = Buffer.from(value);
  return [
    value,
    bytes.toString('base64').replace(/=+$/, ''),
    bytes.toString('base64url'),
    bytes.toString('hex'),
    encodeURIComponent(value),
    JSON.stringify(value).slice(1, -1),
    JSON.stringify(value)
      .slice(1, -1)
      .replace(/[\u0080-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  ];
}
const FORMS = Object.values(VALUES).flatMap(formsOf);
const leaksIn = (text: string): readonly string[] => FORMS.filter((form) => text.includes(form));

function filesUnder(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => path.join(folder, name))
    .filter((file) => statSync(file).isFile());
}

interface Seen {
  readonly pid: number;
  readonly command: string;
  readonly environment: string;
}

/** Returns the processes below one, as every user of the machine sees them. */
function processesBelow(parent: number): readonly Seen[] {
  const read = (pid: number, file: string): string => {
    try {
      return readFileSync(`/proc/${pid}/${file}`, 'latin1');
    } catch {
      return '';
    }
  };
  const parents = new Map(
    readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map((name) => [Number(name), Number(/^PPid:\s+(\d+)/m.exec(read(Number(name), 'status'))?.[1] ?? 0)]),
  );
  const isBelow = (pid: number): boolean =>
    pid !== 0 && (parents.get(pid) === parent || isBelow(parents.get(pid) ?? 0));
  return [...parents.keys()].filter(isBelow).map((pid) => ({
    pid,
    command: read(pid, 'cmdline'),
    environment: Buffer.from(read(pid, 'environ'), 'latin1').toString('utf8'),
  }));
}

describe.each(['direct', 'sandbox'] as const)('a run with servers in isolation %s', (isolation) => {
  const project = new Project();
  const replies: Reply[] = [];
  let processes: readonly Seen[] = [];
  let own = '';
  let told = '';
  let servers = '';
  let web: Server;
  const heard: IncomingHttpHeaders[] = [];
  let out = '';
  let err = '';

  beforeAll(async () => {
    web = createServer((request, response) => {
      heard.push(request.headers);
      response
        .writeHead(401, { 'content-type': 'text/plain' })
        .end(`wrong token: ${request.headers['x-token'] as string}`);
    });
    await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve));
    const work = path.join(project.folder, 'work');
    mkdirSync(work);
    if (process.getuid?.() === 0) chownSync(work, NOBODY, NOBODY);
    const sandbox =
      isolation === 'sandbox' ? `, sandbox: {filesystem: {allowRead: [${LEAKY}]}, limits: {memoryMb: 512}}` : '';
    const entry = (env: string): string =>
      `{command: ${process.execPath}, args: [${LEAKY}], env: {${env}}, isolation: ${isolation}, connectTimeoutMs: 60000${sandbox}}`;
    project.write(
      'tollgate.yaml',
      `version: 1
workspace: ./work
state: ../state
secrets:
  of.env: {env: PLANTED}
  of.exec: {exec: [${process.execPath}, -e, "console.log(['exec-sesame', 'open-three'].join('-'))"]}
servers:
  leaky: ${entry("SECRET_A: '${secret:of.vault}', SECRET_B: '${secret:of.env}', SECRET_C: 'x ${secret:of.exec}'")}
  other: ${entry('PLAIN: nothing')}
  missing: ${entry("SECRET_D: '${secret:nowhere}'")}
  web:
    url: 'http://127.0.0.1:${(web.address() as AddressInfo).port}/mcp'
    headers: {X-Token: 'Bearer \${secret:of.header}'}
expose: {primitives: workspace, tools: [leaky.*, other.*, missing.*, web.*]}
profiles: {default: {servers: [leaky, other, missing, web]}}
rules: [{id: all, outcome: allow, when: {verbs: [read, write, destructive, execute]}}]
`,
    );
    await pipeValue(project, 'of.vault', VALUES.vault);
    await pipeValue(project, 'of.header', VALUES.header);
    await project.approve({ env: { PLANTED: VALUES.env } });
    const child = new Child(project, ['run'], { env: { PLANTED: VALUES.env, TOLLGATE_LOG: 'debug' } });
    await child.hello();
    const list = await child.ask('tools/list');
    replies.push(list);
    const names = list.result?.tools?.map(({ name }) => name) ?? [];
    told =
      (await child.call(names.find((name) => /^leaky.count/.test(name)) ?? '', {})).result?.content?.[0]?.text ?? '';
    for (const name of names.filter((one) => /leaky.(tell|fail|shout|long)/.test(one)))
      replies.push(await child.call(name, {}));
    processes = processesBelow(child.process.pid ?? 0);
    own = readFileSync(`/proc/${child.process.pid}/cmdline`, 'latin1');
    for (const name of names.filter((one) => one.includes('die'))) replies.push(await child.call(name, {}));
    await sleep(100);
    child.process.stdin.end();
    await child.ended;
    ({ out, err } = child);
    const answer = await cli(project, ['servers', '--json']);
    servers = answer.out.replaceAll('\n', '') + answer.err;
  });

  afterAll(() => {
    web.close();
    project.remove();
  });

  it('gives the values to the server that uses them' + verifies('PF-04'), () => {
    expect(told).toBe(`3 ${[VALUES.vault, VALUES.env, `x ${VALUES.exec}`].map((value) => value.length).join(',')}`);
  });

  it('gives a header from the vault to the remote server' + verifies('HA-30'), () => {
    expect(heard.map((headers) => headers['x-token'])).toContain(
      `Bearer ${VALUES.header}`.replace(/[^\x20-\x7e]/g, ''),
    );
  });

  it('shows the agent no value, in any form' + verifies('PF-04', 'HA-24'), () => {
    expect(replies.length).toBeGreaterThanOrEqual(6);
    expect(leaksIn(out)).toEqual([]);
    expect(out).toContain('[redacted]');
    expect(out.length).toBeGreaterThan(1000);
  });

  it('writes no value to its log, even at level debug' + verifies('PF-04', 'HA-24'), () => {
    expect(leaksIn(err)).toEqual([]);
    expect(err).toContain('[redacted]');
  });

  inFull('leaves no value in any file: audit, spills, state, vault, server logs' + verifies('PF-04'), () => {
    const state = path.join(project.home, 'state');
    const files = [...filesUnder(state), ...filesUnder(project.folder)];
    expect(files.some((file) => file.includes('audit'))).toBe(true);
    expect(files.some((file) => file.endsWith('vault.json'))).toBe(true);
    const leaking = files.filter(
      (file) => leaksIn(readFileSync(file, 'utf8')).length > 0 || leaksIn(readFileSync(file, 'latin1')).length > 0,
    );
    expect(leaking).toEqual([]);
  });

  inFull(
    'shows no value in the arguments of a process, nor in the environment of another server' +
      verifies('PF-04', 'HA-24'),
    () => {
      expect(processes.length).toBeGreaterThanOrEqual(2);
      expect(leaksIn(own + processes.map(({ command }) => command).join('\n'))).toEqual([]);
      const foreign = processes.filter(
        ({ environment, command }) =>
          leaksIn(environment).length > 0 && !command.startsWith(`${process.execPath}\0${LEAKY}`),
      );
      expect(foreign).toEqual([]);
    },
  );

  it('names the secret that is missing, and how to store it', () => {
    expect(servers).toMatch(/missing.*Secret \\"nowhere\\" is not in the vault/);
  });
});
