/** Owns the reading of OPA bundles, packed or as a folder; refuses archives that are not plain, and data under names of the library. */
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { TollgateError } from '../catalogs/errors.ts';

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
}

/** Reads a `.tar.gz` or a folder with policy.wasm and data.json. `name` stands for it in messages. Throws POLICY_INVALID. */
export async function readBundle(file: string, name: string): Promise<Bundle> {
  try {
    const files = (await stat(file)).isDirectory() ? await readFolder(file) : unpack(await readFile(file));
    const wasm = files.get('policy.wasm');
    if (wasm === undefined) throw new Error('it holds no policy.wasm; build it with `opa build -t wasm` together with the library');
    return { wasm, data: readData(files.get('data.json')) };
  } catch (thrown) {
    const why = thrown instanceof Error && !('code' in thrown) ? thrown.message : 'it cannot be read';
    throw new TollgateError('POLICY_INVALID', { detail: `The bundle ${name} is refused: ${why}.`, cause: thrown });
  }
}

/** Files of a gzipped tar by name, without leading slash. Throws Error on anything that is not a plain file or folder. */
export function unpack(packed: Uint8Array): ReadonlyMap<string, Uint8Array> {
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
  const files = new Map<string, Uint8Array>([['policy.wasm', await readFile(path.join(folder, 'policy.wasm'))]]);
  const data = await readFile(path.join(folder, 'data.json')).catch(() => undefined);
  return data === undefined ? files : files.set('data.json', data);
}

function readData(bytes: Uint8Array | undefined): Readonly<Record<string, unknown>> {
  const data: unknown = bytes === undefined ? {} : JSON.parse(new TextDecoder().decode(bytes));
  if (typeof data !== 'object' || data === null || Array.isArray(data)) throw new Error('its data.json is not an object');
  const taken = RESERVED.find((root) => Object.hasOwn(data, root));
  if (taken !== undefined) throw new Error(`its data stands under "${taken}", a name of Tollgate; use another`);
  return data as Readonly<Record<string, unknown>>;
}

function textOf(header: Uint8Array, from: number, length: number): string {
  const field = header.subarray(from, from + length);
  const end = field.indexOf(0);
  return new TextDecoder().decode(end < 0 ? field : field.subarray(0, end)).trim();
}
