/**
 * Tests `tollgate login` and `logout` as a person uses them, and a run with a signed-in server: no reply, log, record
 * or file contains a token.
 * Covers: adapters/oauth.
 */

import { chmodSync, existsSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Answer, cli, dataOf, start } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { Child } from '../process/child.ts';
import { verifies } from '../verifies.ts';
import { Guarded, Issuer } from './issuer.ts';
import { consent } from './sign-in-bench.ts';

let project: Project;
let issuer: Issuer;
let guarded: Guarded;

async function open(): Promise<void> {
  project = new Project();
  issuer = await new Issuer().open();
  guarded = await new Guarded(issuer).open();
  project.write('work/.keep', '');
  project.write(
    'tollgate.yaml',
    `version: 1
workspace: ./work
state: ../state
programs: {xdg-open: ${path.join(project.folder, 'bin/xdg-open')}}
servers:
  tracker: {url: '${guarded.mcp}', reconnectBackoffMs: 100}
  local: {command: node, args: [x.mjs]}
  stranger: {url: '${guarded.mcp}'}
  written: {url: '${guarded.mcp}', headers: {Authorization: Bearer of-the-owner}}
expose: {tools: [tracker.*]}
profiles: {default: {servers: [tracker]}}
rules: [{id: all, outcome: allow, when: {verbs: [read, write, destructive, execute]}}]
`,
  );
  await project.approve({ names: ['tracker', 'local', 'written'] });
}

function close(): void {
  issuer.close();
  guarded.close();
  project.remove();
}

/** Signs in as a person who reads the address from the screen. */
async function login(argv: readonly string[] = [], more: Parameters<typeof start>[2] = {}): Promise<Answer> {
  const running = start(project, ['login', 'tracker', ...argv], more);
  for (let tries = 0; !running.said.err.includes('http') && tries < 1000; tries++) await sleep(20);
  const address = /^ {2}(http\S+)$/m.exec(running.said.err)?.[1];
  if (address !== undefined) await consent(new URL(address));
  return running.ended;
}

const tokens = (): readonly string[] => [...issuer.tokens.keys(), ...issuer.refreshes.keys()];

describe('tollgate login and logout', () => {
  beforeEach(open);
  afterEach(close);

  inFull('sign in, list the sign-in among the secrets, and sign out' + verifies('HA-30'), async () => {
    const signedIn = await login();
    expect(signedIn).toMatchObject({ code: 0, out: '' });
    expect(signedIn.err).toMatch(/Consent at 127\.0\.0\.1:\d+ within five minutes/);
    expect(signedIn.err).toContain('It asks for: read.\n');
    expect(signedIn.err).toContain('Signed in to tracker with read; it renews itself.');
    const list = await cli(project, ['secret', 'list']);
    expect(list.out).toMatch(/oauth:tracker +vault +20\d\d-\d\d-\d\d \d\d:\d\d +tracker/);
    expect((await cli(project, ['secret', 'rm', 'oauth:tracker'])).code).toBe(2);
    const out = await cli(project, ['logout', 'tracker']);
    expect(out.err).toBe('Signed out of tracker. The issuer has revoked the tokens.\n');
    const again = await cli(project, ['logout', 'tracker', '--json']);
    expect(again.code).not.toBe(0);
    expect(again.err).toContain('You are not signed in');
    for (const { out: said, err } of [signedIn, list, out])
      for (const token of tokens()) expect(said + err).not.toContain(token);
  });

  inFull('request more scopes with --scope, and refuse what is no scope' + verifies('PR-A02'), async () => {
    await login();
    expect((await login(['--scope', 'write', 'admin'])).err).toContain('It asks for: read, write, admin.\n');
    expect(await cli(project, ['login', 'tracker', '--scope', 'a"b'])).toMatchObject({ code: 2 });
  });

  it('print data as JSON', async () => {
    issuer.givesRefresh = false;
    const { out } = await login(['--json']);
    expect(dataOf(out)).toEqual({
      server: 'tracker',
      issuer: issuer.url,
      scopes: ['read'],
      renewable: false,
      expiresAt: expect.stringMatching(/^20\d\d-.*Z$/) as string,
    });
    issuer.close();
    expect(dataOf((await cli(project, ['logout', 'tracker', '--json'])).out)).toEqual({
      server: 'tracker',
      revoked: false,
    });
    expect((await login()).code).toBe(5);
  });

  inFull('show when a sign-in ends that cannot be renewed', async () => {
    issuer.givesRefresh = false;
    expect((await login()).err).toMatch(/Signed in to tracker with read, until 20\d\d-\d\d-\d\d \d\d:\d\d UTC\./);
    issuer.says = { revocation_endpoint: undefined };
    await login();
    expect((await cli(project, ['logout', 'tracker'])).err).toContain('did not revoke the tokens');
  });

  it.each([
    ['a server that is not there', ['login', 'traker'], 2, 'did you mean "tracker"?'],
    ['a program', ['login', 'local'], 2, 'login is for servers with a url'],
    ['a server with a header', ['logout', 'written'], 2, 'header Authorization'],
    ['a server that nobody approved', ['login', 'stranger'], 5, '`tollgate approve stranger`'],
    ['no server', ['login'], 2, 'USAGE'],
  ])('refuse %s', async (_what, argv, code, said) => {
    const answer = await cli(project, argv);
    expect(answer.code).toBe(code);
    expect(answer.err).toContain(said);
    expect([...issuer.heard, ...guarded.heard]).toEqual([]);
  });

  it('stop at a signal', async () => {
    const running = start(project, ['login', 'tracker']);
    for (let tries = 0; !running.said.err.includes('http') && tries < 1000; tries++) await sleep(20);
    running.stop();
    expect((await running.ended).err).toContain('CANCELLED: The sign-in was stopped.');
  });

  inFull('open a browser only at a terminal, without a shell and without the secrets of Tollgate', async () => {
    const seen = path.join(project.folder, 'seen');
    chmodSync(
      project.write('bin/xdg-open', `#!/bin/sh\nprintf '%s\\n%s\\n' "$1" "$TOLLGATE_VAULT_PASSPHRASE" > '${seen}'\n`),
      0o755,
    );
    const env = { PATH: '/usr/bin:/bin', TOLLGATE_VAULT_PASSPHRASE: 'a passphrase' };
    for (const [argv, isTTY] of [
      [[], false],
      [['--no-browser'], true],
      [['--json'], true],
    ] as const) {
      await login(argv, { env, isTTY });
      await sleep(50);
      expect(existsSync(seen)).toBe(false);
    }
    await login([], { env, isTTY: true });
    await expect
      .poll(() => existsSync(seen) && readFileSync(seen, 'utf8'))
      .toMatch(new RegExp(`^${issuer.url}/authorize\\?\\S+\\n\\n$`));
    // Without a program that opens it, the address on the screen is enough.
    rmSync(path.join(project.folder, 'bin/xdg-open'));
    expect((await login([], { env, isTTY: true })).code).toBe(0);
  });
});

describe('a run with a signed-in server', () => {
  let said = '';
  const all: string[] = [];

  beforeAll(async () => {
    await open();
    const first = new Child(project, ['run'], { env: { TOLLGATE_LOG: 'debug' } });
    await first.hello();
    const refused = await first.call('tracker.echo', {});
    said = JSON.stringify(refused);
    await login();
    all.push(...tokens());
    // The first facade connected before the sign-in, and tries again after a pause.
    for (
      let tries = 0;
      tries < 60 && (await first.ask('tools/list'))?.result?.tools?.some(({ name }) => name.includes('echo')) !== true;
      tries++
    )
      await sleep(250);
    const children = [
      first,
      new Child(project, ['run'], { env: { TOLLGATE_LOG: 'debug' } }),
      new Child(project, ['run'], { env: { TOLLGATE_LOG: 'debug' } }),
    ];
    await Promise.all(children.slice(1).map((child) => child.hello()));
    const names = (await children[1]?.ask('tools/list'))?.result?.tools?.map(({ name }) => name) ?? [];
    const echo = names.find((name) => name.includes('echo')) ?? '';
    const write = names.find((name) => /tracker.write/.test(name)) ?? '';
    for (const child of children) said += JSON.stringify(await child.call(echo, {}));
    // All must renew at the same time, and the issuer accepts each refresh token once.
    issuer.slowness = 100;
    issuer.tokens.clear();
    for (const reply of await Promise.all(children.map((child) => child.call(echo, {})))) said += JSON.stringify(reply);
    all.push(...tokens());
    said += JSON.stringify(await children[0]?.call(write, {}));
    issuer.tokens.clear();
    issuer.refreshes.clear();
    said += JSON.stringify(await children[0]?.call(echo, {}));
    for (const child of children) {
      child.process.stdin.end();
      await child.ended;
      said += child.out + child.err;
    }
  }, 60_000);
  afterAll(close);

  it('names the command, serves after it, and renews once for three processes' + verifies('HA-30'), () => {
    expect(said).toContain('Run `tollgate login tracker`, then call again.');
    expect(said.split('ran echo').length - 1).toBeGreaterThanOrEqual(6);
    expect(issuer.heard.filter(({ body }) => body.includes('grant_type=refresh_token')).length).toBeLessThanOrEqual(2);
    expect(said).toContain('requires more rights');
  });

  it('leaves no token in replies, logs, records or files' + verifies('HA-30', 'HA-24', 'PF-04'), () => {
    expect(all.length).toBeGreaterThanOrEqual(4);
    const state = path.join(project.home, 'state');
    const files = readdirSync(state, { recursive: true, encoding: 'utf8' })
      .map((name) => path.join(state, name))
      .filter((file) => statSync(file).isFile());
    expect(files.some((file) => file.endsWith('vault.json'))).toBe(true);
    const texts = [said, ...files.map((file) => readFileSync(file, 'latin1'))];
    for (const token of all)
      for (const form of [token, Buffer.from(token).toString('base64').slice(0, -2)])
        expect(texts.filter((text) => text.includes(form))).toEqual([]);
  });
});
