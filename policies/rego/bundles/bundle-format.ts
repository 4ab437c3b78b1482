/** Owns the form of OPA bundles, packed or as a folder; refuses archives that are not plain, data under names of the library, and facts of another policy. */
import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { RegoFacts } from '../rego-facts.ts';

const BLOCK = 512;
/** Most bytes that a bundle unpacks to. */
const MAX_BYTES = 256 * 1024 * 1024;
/** Roots of `data` that are Tollgate's own: `config` is made from the configuration, the others are packages. */
const RESERVED = ['config', 'tollgate', 'policy'] as const;

/** A policy compiled by `opa build -t wasm` together with the library. */
export interface Bundle {
  readonly wasm: Uint8Array;
  /** The user's own data. */
  readonly data: Readonly<Record<string, unknown>>;
  /** What `tollgate policy build` knew of the rules; a bundle that opa alone has built has none. */
  readonly facts?: RegoFacts;
  /** Hash of the library that is built in; absent where the facts are. */
  readonly library?: string;
}

/** Files of a bundle by name. */
export const BUNDLE_FILES = {
  wasm: 'policy.wasm',
  data: 'data.json',
  facts: 'tollgate.json',
  manifest: '.manifest',
  signatures: '.signatures.json',
} as const;
const FACTS_VERSION = 1;

/** Reads a `.tar.gz` or a folder. `name` stands for it in messages. Throws POLICY_INVALID. */
export async function readBundle(file: string, name: string): Promise<Bundle> {
  try {
    return openBundle((await stat(file)).isDirectory() ? await readFolder(file) : unpackBundle(await readFile(file)));
  } catch (thrown) {
    const why = thrown instanceof Error && !('code' in thrown) ? thrown.message : 'it cannot be read';
    throw new TollgateError('POLICY_INVALID', { detail: `The bundle ${name} is refused: ${why}.`, cause: thrown });
  }
}

/** A bundle out of its files. Throws Error with what is wrong. */
export function openBundle(files: ReadonlyMap<string, Uint8Array>): Bundle {
  const wasm = files.get(BUNDLE_FILES.wasm);
  if (wasm === undefined) throw new Error('it holds no policy.wasm; build it with `tollgate policy build`');
  const facts = files.get(BUNDLE_FILES.facts);
  return { wasm, data: readData(files.get(BUNDLE_FILES.data)), ...(facts === undefined ? {} : readFacts(facts, wasm)) };
}

/** The text of tollgate.json: facts, tied to the wasm that they are true of. `library`: hash of the library in it. */
export function factsText(
  wasm: Uint8Array,
  { facts, library }: { readonly facts: RegoFacts; readonly library: string },
): string {
  return `${JSON.stringify({ version: FACTS_VERSION, wasm: hashOf(wasm), library, facts })}\n`;
}

function readFacts(bytes: Uint8Array, wasm: Uint8Array): { readonly facts: RegoFacts; readonly library: string } {
  const {
    version,
    wasm: hash,
    library,
    facts,
  } = JSON.parse(new TextDecoder().decode(bytes)) as {
    version?: unknown;
    wasm?: unknown;
    library?: unknown;
    facts?: RegoFacts;
  };
  if (version !== FACTS_VERSION || facts === undefined || typeof library !== 'string')
    throw new Error('its tollgate.json is of another version; build it anew');
  if (hash !== hashOf(wasm)) throw new Error('its tollgate.json belongs to another policy.wasm');
  return { facts, library };
}

function hashOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** A gzipped tar (ustar) of plain files, in the order given. The same files give the same bytes: no time, no owner. */
export function packBundle(files: ReadonlyMap<string, Uint8Array>): Buffer {
  const entries = [...files].flatMap(([name, bytes]) => [
    tarHeader(name, bytes.byteLength),
    bytes,
    Buffer.alloc((BLOCK - (bytes.byteLength % BLOCK)) % BLOCK),
  ]);
  return gzipSync(Buffer.concat([...entries, Buffer.alloc(2 * BLOCK)]), { level: 9 });
}

function tarHeader(name: string, size: number): Buffer {
  const header = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, length: number): void =>
    void header.write(`${value.toString(8).padStart(length - 1, '0')}\0`, at);
  if (header.write(name, 0) > 99) throw new Error('names of files in a bundle are short');
  octal(0o644, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size, 124, 12);
  octal(0, 136, 12);
  header.write('        0', 148);
  header.write('ustar\x0000', 257);
  octal(
    header.reduce((sum, byte) => sum + byte, 0),
    148,
    7,
  );
  return header;
}

/** Files of a gzipped tar by name, without leading slash. Throws Error on anything that is not a plain file or folder. */
export function unpackBundle(packed: Uint8Array): ReadonlyMap<string, Uint8Array> {
  const tar = gunzipSync(packed, { maxOutputLength: MAX_BYTES });
  const files = new Map<string, Uint8Array>();
  for (let at = 0; at + BLOCK <= tar.length; ) {
    const header = tar.subarray(at, at + BLOCK);
    if (header[0] === 0) break;
    const size = Number.parseInt(textOf(header, 124, 12), 8);
    const kind = textOf(header, 156, 1);
    if (!Number.isInteger(size) || at + BLOCK + size > tar.length) throw new Error('the archive is cut off');
    if (!['', '0', '5'].includes(kind)) throw new Error('the archive holds links or other things than files');
    const name = [textOf(header, 345, 155), textOf(header, 0, 100)].filter((part) => part !== '').join('/');
    if (kind !== '5') files.set(name.replace(/^(\.?\/)+/, ''), tar.subarray(at + BLOCK, at + BLOCK + size));
    at += BLOCK + Math.ceil(size / BLOCK) * BLOCK;
  }
  return files;
}

async function readFolder(folder: string): Promise<ReadonlyMap<string, Uint8Array>> {
  const files = new Map<string, Uint8Array>([
    [BUNDLE_FILES.wasm, await readFile(path.join(folder, BUNDLE_FILES.wasm))],
  ]);
  for (const name of [BUNDLE_FILES.data, BUNDLE_FILES.facts]) {
    const bytes = await readFile(path.join(folder, name)).catch((thrown: NodeJS.ErrnoException) => {
      if (thrown.code === 'ENOENT') return undefined;
      throw thrown;
    });
    if (bytes !== undefined) files.set(name, bytes);
  }
  return files;
}

function readData(bytes: Uint8Array | undefined): Readonly<Record<string, unknown>> {
  const data: unknown = bytes === undefined ? {} : JSON.parse(new TextDecoder().decode(bytes));
  if (typeof data !== 'object' || data === null || Array.isArray(data))
    throw new Error('its data.json is not an object');
  const taken = RESERVED.find((root) => Object.hasOwn(data, root));
  if (taken !== undefined) throw new Error(`its data stands under "${taken}", a name of Tollgate; use another`);
  return data as Readonly<Record<string, unknown>>;
}

function textOf(header: Uint8Array, from: number, length: number): string {
  const field = header.subarray(from, from + length);
  const end = field.indexOf(0);
  return new TextDecoder().decode(end < 0 ? field : field.subarray(0, end)).trim();
}
