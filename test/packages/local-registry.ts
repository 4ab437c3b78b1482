/** A registry of npm and an index of PyPI on this machine, with packages that tests make. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** A server of MCP with one tool, which says its arguments and one variable. */
export const PROGRAM = `#!/usr/bin/env node
const { createInterface } = require('node:readline');
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const said = JSON.stringify([process.argv.slice(2), process.env.GREETING ?? '']);
  const result = {
    initialize: {
      protocolVersion: params?.protocolVersion,
      capabilities: { tools: {} },
      serverInfo: { name: 'local', version: '1' },
    },
    'tools/list': { tools: [{ name: 'say', description: said, inputSchema: { type: 'object' } }] },
  }[method] ?? {};
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result }) + '\\n');
});
`;

/** The same in Python. */
const MODULE = `import json, os, sys

def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        said = json.dumps([sys.argv[1:], os.environ.get("GREETING", "")])
        results = {
            "initialize": {"protocolVersion": (message.get("params") or {}).get("protocolVersion"),
                           "capabilities": {"tools": {}}, "serverInfo": {"name": "local", "version": "1"}},
            "tools/list": {"tools": [{"name": "say", "description": said, "inputSchema": {"type": "object"}}]},
        }
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": results.get(message["method"], {})}
        print(json.dumps(answer), flush=True)
`;

/** Writes a wheel from a list of names and texts. */
const ZIP = `import json, sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    for name, text in json.load(sys.stdin).items():
        wheel.writestr(name, text)
`;

/** The answer of the registry: a status, and a body unless it is empty. */
interface Stored {
  readonly body: Buffer | string;
  readonly type: string;
}

/** What a package of PyPI has besides its name. */
export interface MadeWheel {
  readonly programs?: readonly string[];
  /** Lines of its metadata, such as `Provides-Extra: fast`. */
  readonly needs?: readonly string[];
  /** Why it was withdrawn. */
  readonly yanked?: string;
  /** Replaces the true digest of its file. */
  readonly hash?: string;
  /** Has sources only, no wheel. */
  readonly isSource?: true;
}

/** Starts with no package. Close it after the tests. */
export class LocalRegistry {
  readonly #folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-registry-')));
  readonly #answers = new Map<string, Stored>();
  readonly #versions = new Map<string, Record<string, unknown>>();
  readonly #links = new Map<string, string[]>();
  readonly #server: Server;
  /** Paths that were asked for. */
  readonly asked: string[] = [];

  constructor() {
    this.#server = createServer((request, response) => {
      const url = decodeURIComponent((request.url ?? '').replace(/[?#].*$/, ''));
      this.asked.push(url);
      const answer = this.#answers.get(url);
      response.writeHead(answer === undefined ? 404 : 200, { 'content-type': answer?.type ?? 'application/json' });
      response.end(answer?.body ?? '{"error": "Not found"}');
    });
  }

  async open(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
    rmSync(this.#folder, { recursive: true });
  }

  get address(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The variables with which npm and pip use it. `cache`: a folder for npm. */
  environment(cache: string): Record<string, string> {
    return {
      npm_config_registry: this.address,
      npm_config_cache: cache,
      npm_config_fetch_retries: '0',
      PIP_INDEX_URL: `${this.address}/simple/`,
      PIP_RETRIES: '0',
      PIP_CACHE_DIR: cache,
    };
  }

  /** Adds a version of a package of npm. `integrity` replaces the true digest of its archive. */
  npm(manifest: Readonly<Record<string, unknown>>, files: Readonly<Record<string, string>>, integrity?: string): void {
    const { name, version } = manifest as { readonly name: string; readonly version: string };
    const folder = path.join(this.#folder, `npm-${this.#answers.size}`);
    writePackage(path.join(folder, 'package'), manifest, files);
    const archive = path.join(folder, 'archive.tgz');
    spawnSync('tar', ['-czf', archive, '-C', folder, 'package']);
    const body = readFileSync(archive);
    const place = `/archives/${name.replace('/', '-')}-${version}.tgz`;
    this.#answers.set(place, { body, type: 'application/octet-stream' });
    const digest = `sha512-${createHash('sha512').update(body).digest('base64')}`;
    const dist = { tarball: `${this.address}${place}`, integrity: integrity ?? digest };
    const versions = { ...this.#versions.get(name), [version]: { ...manifest, dist } };
    this.#versions.set(name, versions);
    const packument = { name, 'dist-tags': { latest: version }, versions };
    this.#answers.set(`/${name}`, { body: JSON.stringify(packument), type: 'application/json' });
  }

  /** Adds a version of a package of PyPI. */
  pypi(name: string, version: string, { programs = [name], needs = [], yanked, hash, isSource }: MadeWheel = {}): void {
    const module = name.replaceAll('-', '_');
    const info = `${module}-${version}.dist-info`;
    const file = isSource === true ? `${module}-${version}.zip` : `${module}-${version}-py3-none-any.whl`;
    const wheel = path.join(this.#folder, file);
    const input = JSON.stringify({
      [`${module}.py`]: MODULE,
      [`${info}/METADATA`]: [`Metadata-Version: 2.1\nName: ${name}\nVersion: ${version}`, ...needs, ''].join('\n'),
      [`${info}/WHEEL`]: 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
      [`${info}/entry_points.txt`]: `[console_scripts]\n${programs.map((one) => `${one} = ${module}:main\n`).join('')}`,
      [`${info}/RECORD`]: '',
    });
    spawnSync('python3', ['-c', ZIP, wheel], { input });
    const body = readFileSync(wheel);
    this.#answers.set(`/files/${file}`, { body, type: 'application/octet-stream' });
    const digest = hash ?? createHash('sha256').update(body).digest('hex');
    const withdrawn = yanked === undefined ? '' : ` data-yanked="${yanked}"`;
    const links = [
      ...(this.#links.get(name) ?? []),
      `<a href="/files/${file}#sha256=${digest}"${withdrawn}>${file}</a>`,
    ];
    this.#links.set(name, links);
    const page = `<!DOCTYPE html><html><body>${links.join('')}</body></html>`;
    this.#answers.set(`/simple/${name}/`, { body: page, type: 'text/html' });
  }
}

/** Writes a package of npm into a folder. */
export function writePackage(
  folder: string,
  manifest: Readonly<Record<string, unknown>>,
  files: Readonly<Record<string, string>>,
): void {
  mkdirSync(folder, { recursive: true });
  for (const [name, text] of Object.entries({ ...files, 'package.json': JSON.stringify(manifest) }))
    writeFileSync(path.join(folder, name), text);
}
