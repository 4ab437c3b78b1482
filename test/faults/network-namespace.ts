/** A link through a network namespace, which can lose all packets in both directions as a broken cable does. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { installPrograms } from '../servers/system.ts';
import { accepts } from '../state/store-servers.ts';

const START_MS = 30_000;
const ENV = { PATH: `${process.env.PATH}:/usr/sbin:/sbin` };

/** A namespace with one link to this machine. Needs root. Its HAProxy forwards one port to the same port of `near`. */
export class NetworkNamespace {
  /** The address of this machine on the link. */
  readonly near: string;
  /** The address in the namespace. */
  readonly far: string;
  readonly #name = `tg${randomBytes(4).toString('hex')}`;
  #forwarder: ChildProcess | undefined;

  constructor() {
    const [second = 0, third = 0] = randomBytes(2);
    const net = `10.${64 + (second % 64)}.${third}`;
    this.near = `${net}.1`;
    this.far = `${net}.2`;
  }

  open(): void {
    const programs = [
      ['ip', 'iproute2'],
      ['haproxy', 'haproxy'],
    ] as const;
    installPrograms(programs, (line) => process.stderr.write(`${line}\n`));
    ip('netns', 'add', this.#name);
    ip('link', 'add', `${this.#name}a`, 'type', 'veth', 'peer', 'name', `${this.#name}b`, 'netns', this.#name);
    ip('address', 'add', `${this.near}/30`, 'dev', `${this.#name}a`);
    ip('link', 'set', `${this.#name}a`, 'up');
    this.heal();
    ip('-n', this.#name, 'link', 'set', `${this.#name}b`, 'up');
    const [{ address }] = JSON.parse(ip('-n', this.#name, '-j', 'link', 'show', `${this.#name}b`));
    // Without this entry the kernel would notice the cut, and report an error at once.
    ip('neighbour', 'replace', this.far, 'lladdr', address, 'dev', `${this.#name}a`, 'nud', 'permanent');
  }

  /** `file`: where the configuration of HAProxy is written by `write`. */
  async forward(port: number, write: (text: string) => string): Promise<void> {
    const file = write(
      `defaults
  mode tcp
  timeout connect 60s
  timeout client 1h
  timeout server 1h
listen l
  bind ${this.far}:${port}
  server s ${this.near}:${port}
`,
    );
    this.#forwarder = spawn('ip', ['netns', 'exec', this.#name, 'haproxy', '-f', file, '-q'], {
      stdio: 'ignore',
      env: ENV,
    });
    for (const end = Date.now() + START_MS; Date.now() < end; await sleep(20))
      if (await accepts(port, this.far)) return;
    throw new Error('the forwarder of a test does not start');
  }

  cut(): void {
    ip('-n', this.#name, 'address', 'delete', `${this.far}/30`, 'dev', `${this.#name}b`);
  }

  heal(): void {
    ip('-n', this.#name, 'address', 'add', `${this.far}/30`, 'dev', `${this.#name}b`);
  }

  async close(): Promise<void> {
    if (this.#forwarder?.exitCode === null && this.#forwarder.signalCode === null) {
      const ended = once(this.#forwarder, 'exit');
      this.#forwarder.kill('SIGKILL');
      await ended;
    }
    ip('netns', 'delete', this.#name);
  }
}

function ip(...words: readonly string[]): string {
  return execFileSync('ip', words, { encoding: 'utf8', env: ENV });
}
