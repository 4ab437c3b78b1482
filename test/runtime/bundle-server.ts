/** A static HTTP server of bundles for tests, and bundles that opa builds and signs. */
import { generateKeyPairSync } from 'node:crypto';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { CAPABILITIES_FILE, ENTRYPOINTS } from '../../policies/engine/policy-library.ts';
import { packBundle, unpackBundle } from '../../policies/rego/bundles/bundle-format.ts';
import { findOpa, runOpa } from '../../policies/rego/opa-program.ts';

/** Serves one file with an ETag at every path, and records the requests. */
export class Publisher {
  readonly asked: { readonly path: string; readonly token: string | undefined; readonly status: number }[] = [];
  /** If set, answers instead of the file. */
  answer: ((request: IncomingMessage, response: ServerResponse) => boolean) | undefined;
  port = 0;
  #bytes: Uint8Array = new Uint8Array();
  #etag: string | undefined;
  readonly #server: Server;

  constructor() {
    this.#server = createServer((request, response) => {
      response.on('finish', () =>
        this.asked.push({ path: request.url ?? '', token: request.headers.authorization, status: response.statusCode }),
      );
      if (this.answer?.(request, response) === true) return;
      const same = this.#etag !== undefined && request.headers['if-none-match'] === this.#etag;
      response
        .writeHead(same ? 304 : 200, this.#etag === undefined ? {} : { etag: this.#etag })
        .end(same ? undefined : this.#bytes);
    });
  }

  async start(port = 0): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(port, '127.0.0.1', resolve));
    this.port = (this.#server.address() as AddressInfo).port;
    return this;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/fleet/bundle.tar.gz`;
  }

  get statuses(): readonly number[] {
    return this.asked.map(({ status }) => status);
  }

  publish(bytes: Uint8Array, etag?: string): void {
    this.#bytes = bytes;
    this.#etag = etag;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}

/** Returns a key pair in PEM format. */
export function keyPair(): { readonly privatePem: string; readonly publicPem: string } {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return {
    privatePem: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
    publicPem: publicKey.export({ type: 'spki', format: 'pem' }) as string,
  };
}

/** Returns a bundle of the library and Rego, built by opa. */
export async function buildBundle(rego: string): Promise<Buffer> {
  return withFolder(async (folder) => {
    cpSync(path.join(import.meta.dirname, '..', '..', 'policies', 'lib'), path.join(folder, 'lib'), {
      recursive: true,
      filter: (name) => !/_test\.rego$|policy\.(wasm|json)$/.test(name),
    });
    mkdirSync(path.join(folder, 'rego'));
    writeFileSync(path.join(folder, 'rego', 'fleet.rego'), rego);
    const opa = await findOpa();
    const { code, stderr } = await runOpa(
      opa,
      [
        'build',
        ...opa.flags,
        '-t',
        'wasm',
        '-e',
        ENTRYPOINTS.call,
        '-e',
        ENTRYPOINTS.list,
        '--prune-unused',
        '--capabilities',
        CAPABILITIES_FILE,
        '-o',
        'bundle.tar.gz',
        'lib',
        'rego',
      ],
      folder,
    );
    if (code !== 0) throw new Error(stderr);
    return readFileSync(path.join(folder, 'bundle.tar.gz'));
  });
}

/** Returns the bundle with a signature of `opa sign`. */
export async function signBundle(packed: Uint8Array, privatePem: string, claims?: object): Promise<Buffer> {
  return withFolder(async (folder) => {
    const files = new Map(unpackBundle(packed));
    const root = path.join(folder, 'root');
    for (const [name, bytes] of files) {
      mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
      writeFileSync(path.join(root, name), bytes);
    }
    writeFileSync(path.join(folder, 'key.pem'), privatePem);
    writeFileSync(path.join(folder, 'claims.json'), JSON.stringify(claims ?? {}));
    const opa = await findOpa();
    const { code, stderr } = await runOpa(
      opa,
      [
        'sign',
        '--signing-key',
        '../key.pem',
        '--signing-alg',
        'RS256',
        '--claims-file',
        '../claims.json',
        '--bundle',
        '.',
        '-o',
        '..',
      ],
      root,
    );
    if (code !== 0) throw new Error(stderr);
    return packBundle(new Map([...files, ['.signatures.json', readFileSync(path.join(folder, '.signatures.json'))]]));
  });
}

async function withFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-fleet-'));
  try {
    return await work(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
