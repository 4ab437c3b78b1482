/** A registry of images on this machine (the OCI distribution API over plain http), with images that tests make. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  createReadStream,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';

const MANIFEST = 'application/vnd.oci.image.manifest.v1+json';

interface Layer {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

/** An image: a file for the program, and the command line of the image. */
export interface MadeImage {
  readonly program: string;
  readonly entry?: readonly string[];
  readonly cmd?: readonly string[];
}

/** Starts with no image. Close it after the tests. */
export class ImageRegistry {
  readonly #folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-images-')));
  /** Files by digest. */
  readonly #blobs = new Map<string, string>();
  /** Digests of manifests by `NAME:TAG`. */
  readonly #tags = new Map<string, string>();
  /** The ids that engines give the images. */
  readonly ids: string[] = [];
  readonly #server: Server;
  #base: readonly Layer[] = [];
  #baseDiffs: readonly string[] = [];

  constructor() {
    this.#server = createServer((request, response) => this.#answer(request, response));
  }

  /** `base`: an image of podman on this machine, which all others begin with. */
  async open(base: string): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    const folder = path.join(this.#folder, 'base');
    execFileSync('podman', ['push', '--quiet', base, `dir:${folder}`]);
    const read = <T>(name: string): T => JSON.parse(readFileSync(path.join(folder, name), 'utf8')) as T;
    const { layers, config } = read<{ layers: Layer[]; config: Layer }>('manifest.json');
    this.#base = layers;
    this.#baseDiffs = read<{ rootfs: { diff_ids: string[] } }>(config.digest.slice(7)).rootfs.diff_ids;
    for (const { digest } of layers) this.#blobs.set(digest, path.join(folder, digest.slice(7)));
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
    rmSync(this.#folder, { recursive: true });
  }

  /** Returns the name of an image here, without `oci:`. */
  image(name: string): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}/${name}`;
  }

  /** Gives an image a tag, such as `notes:1`, and takes the tag from another. The program is /app/run.mjs. Returns its digest. */
  push(tag: string, { program, entry = ['node', '/app/run.mjs'], cmd = [] }: MadeImage): string {
    const folder = mkdtempSync(path.join(this.#folder, 'layer-'));
    mkdirSync(path.join(folder, 'app'));
    writeFileSync(path.join(folder, 'app', 'run.mjs'), program);
    const layer = this.#store(
      execFileSync('tar', ['-C', folder, '-cf', '-', 'app']),
      'application/vnd.oci.image.layer.v1.tar',
    );
    const config = this.#store(
      JSON.stringify({
        architecture: process.arch === 'x64' ? 'amd64' : process.arch,
        os: 'linux',
        config: { Entrypoint: entry, Cmd: cmd },
        rootfs: { type: 'layers', diff_ids: [...this.#baseDiffs, layer.digest] },
      }),
      'application/vnd.oci.image.config.v1+json',
    );
    this.ids.push(config.digest.slice(7));
    const layers = [...this.#base, layer];
    const manifest = this.#store(JSON.stringify({ schemaVersion: 2, mediaType: MANIFEST, config, layers }), MANIFEST);
    this.#tags.set(tag, manifest.digest);
    return manifest.digest;
  }

  /** Replaces the bytes of a manifest, but not its digest. */
  forge(digest: string): void {
    const file = this.#blobs.get(digest) ?? '';
    writeFileSync(file, `${readFileSync(file, 'utf8')} `);
  }

  #store(content: Buffer | string, mediaType: string): Layer {
    const digest = `sha256:${createHash('sha256').update(content).digest('hex')}`;
    const file = path.join(this.#folder, digest.slice(7));
    writeFileSync(file, content);
    this.#blobs.set(digest, file);
    return { mediaType, digest, size: statSync(file).size };
  }

  /** Answers as the API says. Images below `closed/` need a login. */
  #answer({ url = '', method }: IncomingMessage, response: ServerResponse): void {
    const [, name = '', kind = '', reference = ''] = /^\/v2\/(.*)\/(manifests|blobs)\/([^/]+)$/.exec(url) ?? [];
    if (name.startsWith('closed/'))
      return void response.writeHead(401, { 'www-authenticate': 'Basic realm="images"' }).end();
    if (url === '/v2/') return void response.end('{}');
    const digest = this.#tags.get(`${name}:${reference}`) ?? reference;
    const file = this.#blobs.get(digest);
    if (file === undefined)
      return void response
        .writeHead(404)
        .end('{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}');
    response.writeHead(200, {
      'content-type': kind === 'manifests' ? MANIFEST : 'application/octet-stream',
      'content-length': statSync(file).size,
      'docker-content-digest': digest,
    });
    if (method === 'HEAD') response.end();
    else createReadStream(file).pipe(response);
  }
}
