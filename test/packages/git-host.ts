/** Serves git repositories over https on this machine, as hosts do: with `git http-backend`. */
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { makeCertificate } from '../egress/certificate.ts';

const CONFIG = ['-c', 'user.name=Test', '-c', 'user.email=test@example.org', '-c', 'commit.gpgsign=false'];

/** Starts with no repository. Close it after the tests. */
export class GitHost {
  readonly folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-git-')));
  readonly #certificate = path.join(this.folder, 'certificate.pem');
  readonly #server: Server;

  constructor() {
    const { cert, key } = makeCertificate('localhost');
    writeFileSync(this.#certificate, cert);
    this.#server = createServer({ cert, key }, (request, response) => this.#answer(request, response));
  }

  async open(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
    rmSync(this.folder, { recursive: true });
  }

  /** The variables with which git trusts it. */
  get environment(): Record<string, string> {
    return { GIT_SSL_CAINFO: this.#certificate };
  }

  /** Returns the address of a repository. */
  url(name: string): string {
    return `https://localhost:${(this.#server.address() as AddressInfo).port}/${name}`;
  }

  /** Commits all files of a repository, which `write` made in its folder. Returns the hash of the commit. */
  commit(name: string, write: (folder: string) => void): string {
    const folder = path.join(this.folder, name);
    this.git(this.folder, 'init', '--quiet', '-b', 'main', folder);
    write(folder);
    this.git(folder, 'add', '--all');
    this.git(folder, 'commit', '--quiet', '--message', 'Change');
    return this.git(folder, 'rev-parse', 'HEAD');
  }

  git(folder: string, ...words: string[]): string {
    return execFileSync('git', [...CONFIG, ...words], { cwd: folder, encoding: 'utf8' }).trim();
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const { pathname, search } = new URL(request.url ?? '/', 'https://localhost');
    const backend = spawn('git', ['http-backend'], {
      env: {
        PATH: process.env.PATH,
        GIT_PROJECT_ROOT: this.folder,
        GIT_HTTP_EXPORT_ALL: '1',
        GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
        PATH_INFO: `${pathname.replace(/^\/[^/]+/, '$&/.git')}`,
        QUERY_STRING: search.slice(1),
        REQUEST_METHOD: request.method ?? '',
        CONTENT_TYPE: request.headers['content-type'] ?? '',
        HTTP_CONTENT_ENCODING: String(request.headers['content-encoding'] ?? ''),
      },
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    request.pipe(backend.stdin);
    const parts: Buffer[] = [];
    backend.stdout.on('data', (part: Buffer) => parts.push(part));
    backend.once('close', () => {
      const whole = Buffer.concat(parts);
      const end = whole.indexOf('\r\n\r\n');
      const headers = whole
        .subarray(0, end)
        .toString()
        .split('\r\n')
        .map((line) => line.split(': ') as [string, string]);
      const status = headers.find(([name]) => name === 'Status')?.[1] ?? '200';
      response.writeHead(Number.parseInt(status, 10), headers.filter(([name]) => name !== 'Status').flat());
      response.end(whole.subarray(end + 4));
    });
  }
}
