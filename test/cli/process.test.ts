/** Tests the Io of a process: signals, a reader that goes away, a full disk. */
import { EventEmitter } from 'node:events';
import { realpathSync } from 'node:fs';
import { PassThrough } from 'node:stream';
import { describe, expect, it, vi } from 'vitest';
import { type CommandProcess, processIo } from '../../facade/cli/command-process.ts';
import { VERSION } from '../../facade/serve/version.ts';

class FakeHost extends EventEmitter {
  readonly stdin = new PassThrough();
  readonly stdout = new PassThrough();
  readonly stderr = new PassThrough();
  readonly env = {};
  readonly exits: unknown[] = [];
  exitCode: number | undefined;
  argv = ['/usr/bin/node', '/usr/bin/tollgate'];
  execPath = '/usr/bin/node';
  cwd = (): string => '/somewhere';
  exit = (code: unknown): void => void this.exits.push(code);

  get asHost(): CommandProcess {
    return this as unknown as CommandProcess;
  }
}

const fault = (code: string): Error => Object.assign(new Error(code), { code });

describe('a signal', () => {
  it.each(['SIGINT', 'SIGTERM', 'SIGHUP'])(
    '%s stops the command in order, and the second one ends the process at once',
    async (signal) => {
      const host = new FakeHost();
      const io = processIo(host.asHost);
      expect(host.listenerCount(signal)).toBe(0);
      const { stopped } = io;
      expect(io.stopped).toBe(stopped);
      host.emit(signal);
      await stopped;
      expect(host.exits).toEqual([]);
      host.emit('SIGTERM');
      expect(host.exits).toEqual([1]);
    },
  );
});

describe('the command to start Tollgate again', () => {
  it.each([
    [['node', '/usr/bin/tollgate'], ['tollgate']],
    [
      ['node', import.meta.filename],
      ['/usr/bin/node', realpathSync(import.meta.filename)],
    ],
    [
      ['node', '/nowhere/main.js'],
      ['/usr/bin/node', '/nowhere/main.js'],
    ],
    [['node'], ['tollgate']],
    [
      ['node', '/home/me/.npm/_npx/1a2b/node_modules/.bin/tollgate'],
      ['npx', '-y', `tollgate@${VERSION}`],
    ],
  ])('%j is started again by %j', (argv, self) => {
    const host = new FakeHost();
    host.argv = argv;
    expect(processIo(host.asHost).self).toEqual(self);
  });
});

describe('the output', () => {
  it('goes to its own stream', () => {
    const host = new FakeHost();
    const io = processIo(host.asHost);
    io.stdout('data');
    io.stderr('talk');
    expect([String(host.stdout.read()), String(host.stderr.read()), io.isTTY, io.cwd]).toEqual([
      'data',
      'talk',
      false,
      '/somewhere',
    ]);
  });

  it('stops the command without an error when its reader has gone', async () => {
    const host = new FakeHost();
    const { stopped } = processIo(host.asHost);
    host.stdout.emit('error', fault('EPIPE'));
    host.stderr.emit('error', fault('EPIPE'));
    await stopped;
    expect([host.exitCode, host.stderr.read()]).toEqual([undefined, null]);
  });

  it('makes the command fail when the disk is full', () => {
    const host = new FakeHost();
    processIo(host.asHost);
    host.stdout.emit('error', fault('ENOSPC'));
    expect(host.exitCode).toBe(1);
    expect(String(host.stderr.read())).toBe('Cannot write the output (ENOSPC), so it is incomplete.\n');
  });
});

describe('a user without name and home, in a deleted folder', () => {
  it('can still start a command', () => {
    const host = new FakeHost();
    host.cwd = () => {
      throw fault('ENOENT');
    };
    expect(processIo(host.asHost)).toMatchObject({ cwd: '/', user: expect.any(String), home: expect.any(String) });
  });

  it.each(['', '.', 'relative/home'])('gets no home in the current folder with HOME=%s', (wanted) => {
    vi.stubEnv('HOME', wanted);
    expect(processIo(new FakeHost().asHost).home).toBe('/nonexistent');
    vi.unstubAllEnvs();
  });
});
