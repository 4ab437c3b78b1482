/**
 * Tests `tollgate secret` at a terminal and from a script: hidden prompts, piped values, lists without values,
 * refusals.
 */
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { Io } from '../../facade/cli/command-io.ts';
import { withState } from '../../facade/cli/command-state.ts';
import { askHidden, readPiped } from '../../facade/cli/terminal-prompt.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { OwnReports } from '../../facade/runtime/servers/server-reports.ts';
import { type Answer, cli, dataOf, start } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';

const YAML = `version: 1
workspace: ./work
state: ../state
secrets: {from.env: {env: SOME_VARIABLE}, from.program: {exec: [op, read, x]}, from.keychain: {keychain: github/work}}
servers:
  local: {command: node, env: {API_TOKEN: '\${secret:github.token}'}}
  remote:
    url: 'https://a.test/mcp'
    headers: {Authorization: 'Bearer \${secret:github.token}', X-Other: '\${secret:absent}'}
`;

async function withSecrets<T>(work: (project: Project) => Promise<T>): Promise<T> {
  const project = new Project();
  try {
    project.write('work/.keep', '');
    project.write('tollgate.yaml', YAML);
    return await work(project);
  } finally {
    project.remove();
  }
}

async function pipe(project: Project, argv: readonly string[], value: string, more: Partial<Io> = {}): Promise<Answer> {
  const running = start(project, argv, more);
  running.stdin.end(value);
  return running.ended;
}

/** Returns a terminal at which a person types. */
function keyboard(): PassThrough & { isTTY: true; setRawMode: (raw: boolean) => void; readonly modes: boolean[] } {
  const modes: boolean[] = [];
  return Object.assign(new PassThrough(), {
    isTTY: true as const,
    modes,
    setRawMode: (raw: boolean) => void modes.push(raw),
  });
}

describe('tollgate secret', () => {
  it('stores a piped value, lists it without the value, rotates it and removes it' + verifies('PF-04'), () =>
    withSecrets(async (project) => {
      const stored = await pipe(project, ['secret', 'set', 'github.token'], 'sesame-open\n');
      expect(stored.code).toBe(0);
      expect(stored.err).toContain('vault.key next to it');
      expect(stored.err).toContain('Stored github.token.');
      const again = await pipe(project, ['secret', 'set', 'github.token', '--json'], 'sesame-again\n');
      expect(dataOf(again.out)).toEqual({ name: 'github.token', replaced: true, servers: ['local', 'remote'] });
      expect(again.err).toBe('');
      const list = await cli(project, ['secret', 'list']);
      expect(list.out).toMatch(/github\.token +vault +20\d\d-\d\d-\d\d \d\d:\d\d +local, remote/);
      expect(list.out).toMatch(/absent +vault +missing +remote/);
      expect(list.out).toMatch(/from\.env +env/);
      const idle = await pipe(project, ['secret', 'rotate', 'github.token'], 'sesame-third\n');
      expect(idle.err).toBe('Rotated github.token.\n');
      const { state } = loadConfig(project.file, { env: {}, home: project.home });
      const rotated = await withState({ state }, async (open) => {
        await new OwnReports(open).report(new Map([['local', { state: 'healthy', restarts: 0, badLines: 0 }]]));
        return pipe(project, ['secret', 'rotate', 'github.token'], 'sesame-third\n');
      });
      expect(rotated.err).toBe(
        'Rotated github.token.\nThese servers run with the old value. To restart them, which ends their calls:\n' +
          '  tollgate kill local; sleep 2; tollgate kill --lift local\n',
      );
      const removed = await cli(project, ['secret', 'rm', 'github.token']);
      expect(removed.err).toContain('These servers cannot start without it: local, remote.');
      expect((await cli(project, ['secret', 'rm', 'github.token'])).err).toContain('SECRET_MISSING');
      const all = [stored, again, list, rotated, removed].map(({ out, err }) => out + err).join();
      expect(all).not.toContain('sesame');
      expect(all).not.toMatch(/\b(11|12) (characters|bytes)/);
    }),
  );

  it('lists as JSON, and says if there is nothing', () =>
    withSecrets(async (project) => {
      await pipe(project, ['secret', 'set', 'other'], 'sesame-open');
      const items = dataOf<readonly { name: string; provider: string; missing: boolean; setAt?: string }[]>(
        (await cli(project, ['secret', 'list', '--json'])).out,
      );
      expect(items.map(({ name, provider, missing }) => [name, provider, missing])).toEqual([
        ['absent', 'vault', true],
        ['from.env', 'env', false],
        ['from.keychain', 'keychain', false],
        ['from.program', 'exec', false],
        ['github.token', 'vault', true],
        ['other', 'vault', false],
      ]);
      project.write('tollgate.yaml', 'version: 1\nworkspace: ./work\nstate: ../empty\n');
      expect((await cli(project, ['secret', 'list'])).err).toContain('No secrets.');
    }));

  it.each([
    ['a value on the command line', ['secret', 'set', 'a', 'sesame-open'], '', 'USAGE'],
    ['no name', ['secret', 'set'], '', 'USAGE'],
    ['an illegal name', ['secret', 'set', 'a b'], 'sesame-open', 'USAGE'],
    ['a value that could not be redacted', ['secret', 'set', 'a'], '12345', 'USAGE'],
    ['no value', ['secret', 'set', 'a'], '', 'USAGE'],
    ['a NUL', ['secret', 'set', 'a'], 'sesame\0open', 'USAGE'],
    ['a value for a secret of the environment', ['secret', 'set', 'from.env'], 'sesame-open', 'USAGE'],
    ['to remove a secret that a program gives', ['secret', 'rm', 'from.program'], '', 'USAGE'],
    ['to rotate a missing secret', ['secret', 'rotate', 'none'], 'sesame-open', 'SECRET_MISSING'],
    ['to store in a missing keychain', ['secret', 'set', 'from.keychain'], 'sesame-open', 'VAULT_FAILED'],
    ['to remove from a missing keychain', ['secret', 'rm', 'from.keychain'], '', 'VAULT_FAILED'],
  ])('refuses %s', (_name, argv, value, code) =>
    withSecrets(async (project) => {
      const { err, out, code: exit } = await pipe(project, argv, value);
      expect(err).toMatch(new RegExp(`^${code}: `));
      expect(exit).not.toBe(0);
      expect(out + err).not.toContain('sesame');
    }),
  );

  it('reads the passphrase from the environment, or asks for it at a terminal', () =>
    withSecrets(async (project) => {
      const env = { TOLLGATE_VAULT_PASSPHRASE: 'correct horse' };
      expect((await pipe(project, ['secret', 'set', 'a'], 'sesame-open', { env })).err).toContain(
        'TOLLGATE_VAULT_PASSPHRASE',
      );
      const locked = await pipe(project, ['secret', 'list'], '');
      expect(locked.err).toContain('VAULT_FAILED: The vault is locked with a passphrase.');
      const stdin = keyboard();
      const asked = cli(project, ['secret', 'list', '--json'], { stdin });
      stdin.write('correct horse\r');
      expect(dataOf<readonly { name: string }[]>((await asked).out).map(({ name }) => name)).toContain('a');
      expect(stdin.modes).toEqual([true, false]);
    }));

  it('asks for the value at a terminal, without an echo', () =>
    withSecrets(async (project) => {
      const stdin = keyboard();
      const setting = cli(project, ['secret', 'set', 'a'], { stdin });
      stdin.write('sesame-openX\u007f\r');
      const { err, out } = await setting;
      expect(err).toContain('Value of a: ');
      expect(out + err).not.toContain('sesame');
      expect((await cli(project, ['secret', 'list'])).out).toMatch(/^a +vault +20/m);
    }));
});

describe('a prompt', () => {
  it.each([
    ['Ctrl-C', '\u0003'],
    ['Ctrl-D', '\u0004'],
  ])('ends with %s, and restores the terminal', async (_name, key) => {
    const stdin = keyboard();
    const asking = askHidden({ stdin, stderr: () => undefined }, '? ');
    stdin.write(`half${key}`);
    await expect(asking).rejects.toMatchObject({ code: 'CANCELLED' });
    expect(stdin.modes).toEqual([true, false]);
  });

  it('ends if the terminal is closed', async () => {
    const stdin = keyboard();
    const asking = askHidden({ stdin, stderr: () => undefined }, '? ');
    stdin.end();
    await expect(asking).rejects.toMatchObject({ code: 'CANCELLED' });
  });
});

describe('a piped value', () => {
  const piped = (...chunks: readonly (string | Buffer)[]): Promise<string> => {
    const stdin = new PassThrough();
    for (const chunk of chunks) stdin.write(chunk);
    stdin.end();
    return readPiped({ stdin });
  };

  it('loses one line end, and nothing else', async () => {
    expect(await piped('one\n\n')).toBe('one\n');
    expect(await piped('one\r\n')).toBe('one');
    expect(await piped(Buffer.from('é').subarray(0, 1), Buffer.from('é').subarray(1))).toBe('é');
  });

  it('must be text, and not too long', async () => {
    await expect(piped(Buffer.from([0xff, 0xfe]))).rejects.toMatchObject({ code: 'USAGE' });
    await expect(piped('x'.repeat(70_000))).rejects.toMatchObject({ code: 'USAGE' });
  });
});
