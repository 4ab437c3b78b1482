/**
 * Reads and writes OPA bundles, packed or as a folder. Refuses unusual archives, reserved data, and facts of another
 * policy.
 */
import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { RegoFacts } from '../rego-facts.ts';

const BLOCK = 512;
/** Maximum size of an unpacked bundle in bytes. */
const MAX_BYTES = 256 * 1024 * 1024;
/** Roots of `data` that Tollgate uses: `config` is made from the configuration, the others are packages. */
const RESERVED = ['config', 'tollgate', 'policy'] as const;

/** A policy compiled by `opa build -t wasm` together with the library. */
export interface Bundle {
  readonly wasm: Uint8Array;
  /** The user's own data. */
  readonly data: Readonly<Record<string, unknown>>;
  /** Facts that `tollgate policy build` adds. Absent in a bundle that opa alone built. */
  readonly facts?: RegoFacts;
  /** Hash of the library in the module. Absent if `facts` is absent. */
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

/** Reads a `.tar.gz` or a folder. `name` is its name in messages. Throws POLICY_INVALID. */
export async function readBundle(file: string, name: string): Promise<Bundle> {
  try {
    return openBundle((await stat(file)).isDirectory() ? await readFolder(file) : unpackBundle(await readFile(file)));
  } catch (thrown) {
    const why = thrown instanceof Error && !('code' in thrown) ? thrown.message : 'it cannot be read';
    throw new TollgateError('POLICY_INVALID', { detail: `The bundle ${name} is refused: ${why}.`, cause: thrown });
  }
}

/** Makes a bundle from its files. Throws Error with the reason if that is not possible. */
export function openBundle(files: ReadonlyMap<string, Uint8Array>): Bundle {
  const wasm = files.get(BUNDLE_FILES.wasm);
  if (wasm === undefined) throw new Error('it has no policy.wasm; build it with `tollgate policy build`');
  const facts = files.get(BUNDLE_FILES.facts);
  return { wasm, data: readData(files.get(BUNDLE_FILES.data)), ...(facts === undefined ? {} : readFacts(facts, wasm)) };
}

/** Returns the text of tollgate.json: the facts, and the hash of the module that they describe. */
export function factsText(
  wasm: Uint8Array,
  { facts, library }: { readonly facts: RegoFacts; readonly library: string },
): string {
  return `${JSON.stringify({ version: FACTS_VERSION, wasm: sha256Hex(wasm), library, facts })}\n`;
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
    throw new Error('its tollgate.json has another version; build it again');
  if (hash !== sha256Hex(wasm)) throw new Error('its tollgate.json belongs to another policy.wasm');
  return { facts, library };
}

/** Returns the SHA-256 of bytes or a text, in hexadecimal. */
export function sha256Hex(bytes: string | Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** Returns a gzipped tar (ustar) of plain files, in order, without time and owner: equal files give equal bytes. */
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
  if (header.write(name, 0) > 99) throw new Error('a file name in the bundle is too long');
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

/**
 * Returns the files of a gzipped tar by name, without leading slash. Throws Error if it contains more than files and
 * folders.
 */
export function unpackBundle(packed: Uint8Array): ReadonlyMap<string, Uint8Array> {
  const tar = gunzipSync(packed, { maxOutputLength: MAX_BYTES });
  const files = new Map<string, Uint8Array>();
  for (let at = 0; at + BLOCK <= tar.length; ) {
    const header = tar.subarray(at, at + BLOCK);
    if (header[0] === 0) break;
    const size = Number.parseInt(textOf(header, 124, 12), 8);
    const kind = textOf(header, 156, 1);
    if (!Number.isInteger(size) || at + BLOCK + size > tar.length) throw new Error('the archive is cut off');
    if (!['', '0', '5'].includes(kind)) throw new Error('the archive contains links or special files');
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
  const reserved = RESERVED.find((root) => Object.hasOwn(data, root));
  if (reserved !== undefined) throw new Error(`its data uses the name "${reserved}", which Tollgate uses; rename it`);
  return data as Readonly<Record<string, unknown>>;
}

function textOf(header: Uint8Array, from: number, length: number): string {
  const field = header.subarray(from, from + length);
  const end = field.indexOf(0);
  return new TextDecoder().decode(end < 0 ? field : field.subarray(0, end)).trim();
}
