/** Creates workspaces in new folders for tests, calls them as the facade does, and removes them after each test. */
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach } from 'vitest';
import type { PrimitiveBackend } from '../../adapters/port.ts';
import { createWorkspace } from '../../adapters/primitives/workspace/workspace-server.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import { own } from '../sandbox/probe-targets.ts';

/** Options of a call besides its arguments. */
export interface CallOptions {
  readonly scope?: string;
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
  readonly hardTimeoutMs?: number;
}

/** A workspace with files. `outside` is a folder next to it with the file `secret`. */
export interface Bench {
  readonly root: string;
  readonly outside: string;
  readonly server: PrimitiveBackend;
  call(tool: string, args: Readonly<Record<string, unknown>>, options?: CallOptions): Promise<ToolResult>;
  /** Returns all text of the result. Throws if the result is a failure. */
  text(tool: string, args: Readonly<Record<string, unknown>>, options?: CallOptions): Promise<string>;
  /** Returns all text of the result. Throws unless the result is a failure. */
  failure(tool: string, args: Readonly<Record<string, unknown>>, options?: CallOptions): Promise<string>;
  put(file: string, content: string | Buffer): void;
  get(file: string): Buffer;
}

const open: { server: PrimitiveBackend; folder: string }[] = [];

afterEach(async () => {
  for (const { server, folder } of open.splice(0)) {
    await server.stop();
    rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 20 });
  }
});

/** Returns the texts of a result. */
export function textsOf(result: ToolResult): readonly string[] {
  return (result.content ?? []).map((item) => item.text ?? `(${item.type})`);
}

/** Creates a workspace. It is stopped and removed after the test. */
export function makeBench(files: Readonly<Record<string, string | Buffer>> = {}, idleMs?: number): Bench {
  const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-workspace-')));
  const root = path.join(folder, 'w');
  const outside = path.join(folder, 'w2');
  mkdirSync(root);
  mkdirSync(outside);
  writeFileSync(path.join(outside, 'secret'), 'the secret\n');
  const server = createWorkspace({ root, ...(idleMs === undefined ? {} : { idleMs }) });
  open.push({ server, folder });
  const bench = benchOf(root, outside, server);
  for (const [file, content] of Object.entries(files)) bench.put(file, content);
  return bench;
}

/** As `makeBench`, but the workspace does not belong to root, so that its programs can run in sandboxes. */
export function makeOwnedBench(files: Readonly<Record<string, string | Buffer>> = {}): Bench {
  const bench = makeBench(files);
  chmodSync(path.dirname(bench.root), 0o755);
  own(bench.root);
  return bench;
}

function benchOf(root: string, outside: string, server: PrimitiveBackend): Bench {
  const call: Bench['call'] = async (tool, args, options = {}) => {
    const signal = options.signal ?? new AbortController().signal;
    const doc = await server.call({
      tool,
      args: { text: JSON.stringify(args), value: args, exact: true },
      scope: 'a',
      timeoutMs: 20_000,
      hardTimeoutMs: 600_000,
      ...options,
      signal,
    });
    if (doc.text !== JSON.stringify(doc.value)) throw new Error('text and value of a result differ');
    return doc.value;
  };
  return {
    root,
    outside,
    server,
    call,
    text: async (tool, args, options) => {
      const result = await call(tool, args, options);
      if (result.isError === true) throw new Error(`failed: ${textsOf(result).join('\n')}`);
      return textsOf(result).join('\n');
    },
    failure: async (tool, args, options) => {
      const result = await call(tool, args, options);
      if (result.isError !== true) throw new Error(`did not fail: ${textsOf(result).join('\n')}`);
      return textsOf(result).join('\n');
    },
    put: (file, content) => {
      mkdirSync(path.dirname(path.join(root, file)), { recursive: true });
      writeFileSync(path.join(root, file), content);
    },
    get: (file) => readFileSync(path.join(root, file)),
  };
}
