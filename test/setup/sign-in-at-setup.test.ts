/** Tests that `tollgate setup` signs in to a remote server that requires it, and what it says if a person declines. */

import { chownSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { type Answer, dataOf, start } from '../cli/terminal.ts';
import { Home } from '../clients/home.ts';
import { inFull } from '../harness/full-tests.ts';
import { Guarded, Issuer } from '../oauth/issuer.ts';
import { consent } from '../oauth/sign-in-bench.ts';
import { acceptNow } from '../stories/accept-configuration.ts';
import { verifies } from '../verifies.ts';

const CURSOR = '.cursor/mcp.json';
const SIGN_IN = 'tracker requires a sign-in. Sign in now?';
let home: Home;
let issuer: Issuer;
let guarded: Guarded;

beforeEach(async () => {
  home = new Home();
  if (process.getuid?.() === 0) chownSync(home.file('project'), 65_534, 65_534);
  issuer = await new Issuer().open();
  guarded = await new Guarded(issuer).open();
  home.write(CURSOR, JSON.stringify({ mcpServers: { tracker: { url: guarded.mcp } } }));
});
afterEach(() => {
  issuer.close();
  guarded.close();
  home.remove();
});

type Answers = readonly (readonly [question: string, key: string])[];

/** Runs a command at a terminal. Each pair is a question and the key that answers it; a person signs in if asked. */
async function atTerminal(words: readonly string[], answers: Answers): Promise<Answer> {
  const running = start({ home: home.project.home, folder: home.project.folder }, words, {
    env: home.env,
    isTTY: true,
  });
  Object.assign(running.stdin, { isTTY: true });
  for (const [question, key] of answers) {
    await expect.poll(() => running.said.err, { timeout: 60_000 }).toContain(question);
    running.stdin.write(key);
    if (question !== SIGN_IN || key !== 'y') continue;
    await expect.poll(() => running.said.err, { timeout: 60_000 }).toMatch(/^ {2}http\S+$/m);
    await consent(new URL(/^ {2}(http\S+)$/m.exec(running.said.err)?.[1] ?? ''));
  }
  return running.ended;
}

const setup = (answers: Answers): Promise<Answer> => atTerminal(['setup'], answers);

const REST = [
  ['policy?', 'y'],
  ['Write these files?', 'y'],
] as const;

const clientServers = (): readonly string[] =>
  Object.keys(dataOf<{ mcpServers: object }>(home.read(CURSOR)).mcpServers);

describe('a remote server that requires a sign-in' + verifies('FH-74'), () => {
  inFull(
    'is signed in to during setup, and takes its place behind Tollgate',
    async () => {
      const { code, out, err } = await setup([['Do this?', 'y'], [SIGN_IN, 'y'], ...REST]);
      expect([code, err]).toEqual([EXIT.ok, expect.stringContaining('Signed in to tracker with read') as string]);
      expect(out).toContain('1 server approved.');
      expect(err).not.toContain('can never match');
      expect(clientServers()).toEqual(['tollgate']);
      for (const token of [...issuer.tokens.keys(), ...issuer.refreshes.keys()]) expect(out + err).not.toContain(token);
      expect((await home.run(['secret', 'list'])).out).toContain('oauth:tracker');
      const undone = await home.run(['setup', '--undo']);
      expect([undone.code, clientServers()]).toEqual([EXIT.ok, ['tracker']]);
      expect((await home.run(['secret', 'list'])).out).not.toContain('oauth:tracker');
      expect([...issuer.tokens.keys(), ...issuer.refreshes.keys()]).toEqual([]);
    },
    120_000,
  );

  inFull(
    'stays in the file if a person declines, and setup continues after `login`',
    async () => {
      const declined = await setup([
        ['Do this?', 'y'],
        [SIGN_IN, 'n'],
      ]);
      expect([declined.code, declined.out]).toEqual([
        EXIT.server,
        expect.stringMatching(/requires a sign-in\s+\(tollgate\s+login\s+tracker\)/) as string,
      ]);
      expect(clientServers()).toEqual(['tracker']);
      const login = start({ home: home.project.home, folder: home.project.folder }, ['login', 'tracker'], {
        env: home.env,
      });
      await expect.poll(() => login.said.err, { timeout: 60_000 }).toMatch(/^ {2}http\S+$/m);
      await consent(new URL(/^ {2}(http\S+)$/m.exec(login.said.err)?.[1] ?? ''));
      expect((await login.ended).code).toBe(EXIT.ok);
      const { code } = await setup([['Do this?', 'y'], ...REST]);
      expect([code, clientServers()]).toEqual([EXIT.ok, ['tollgate']]);
    },
    120_000,
  );

  it('stays in the file if the sign-in fails, with the reason', async () => {
    issuer.close();
    const running = start({ home: home.project.home, folder: home.project.folder }, ['setup'], {
      env: home.env,
      isTTY: true,
    });
    Object.assign(running.stdin, { isTTY: true });
    for (const [question, key] of [
      ['Do this?', 'y'],
      [SIGN_IN, 'y'],
    ] as const) {
      await expect.poll(() => running.said.err, { timeout: 60_000 }).toContain(question);
      running.stdin.write(key);
    }
    const { code, out, err } = await running.ended;
    expect([code, out]).toEqual([EXIT.server, expect.stringContaining('requires a sign-in') as string]);
    expect(err).toContain('tollgate setup\n');
    expect(clientServers()).toEqual(['tracker']);
  }, 120_000);

  inFull(
    'is signed out of by the undo, also if its file was edited so that `logout` refuses',
    async () => {
      await setup([['Do this?', 'y'], [SIGN_IN, 'y'], ...REST]);
      const file = 'project/servers/tracker.yaml';
      home.write(file, `${home.read(file)}headers: {Authorization: Bearer of-the-owner}\n`);
      acceptNow(home.project.file, { env: home.env, home: home.project.home });
      const { code, err } = await home.run(['setup', '--undo']);
      expect([code, err]).toEqual([EXIT.ok, expect.stringContaining('were deleted, not revoked') as string]);
      expect((await home.run(['secret', 'list'])).out).not.toContain('oauth:tracker');
    },
    120_000,
  );

  it('is signed in to by `connect`, which then approves it', async () => {
    const words = ['connect', guarded.mcp, '--name', 'tracker', '--address', '127.0.0.1'];
    const { code, err } = await atTerminal(words, [
      ['Do this?', 'y\n'],
      ['to list its tools?', 'y\n'],
      [SIGN_IN, 'y'],
      ['start once more', 'y\n'],
      ['as policy allows?', 'y\n'],
    ]);
    expect([code, err]).toEqual([EXIT.ok, expect.stringContaining('Connected: 127.0.0.1') as string]);
    expect((await home.run(['connect', '--undo', 'tracker'])).err).toContain('Signed out of tracker.');
    expect([...issuer.tokens.keys(), ...issuer.refreshes.keys()]).toEqual([]);
  }, 120_000);

  it('is named with its command where no one can be asked', async () => {
    const planned = await home.run(['setup', '--json']);
    const { next } = dataOf<{ readonly next: string }>(planned.out);
    const { code, out } = await home.run(['setup', '--json', ...next.replace(/^tollgate setup /, '').split(' ')]);
    expect([code, dataOf(out)]).toEqual([
      EXIT.server,
      expect.objectContaining({
        failed: [{ name: 'tracker', why: 'Server "tracker" requires a sign-in (tollgate login tracker).' }],
      }) as object,
    ]);
  }, 120_000);
});
