/** Owns the look at the files that a server would run: its program and its scripts, with digests; runs none of them, and refuses to guess at those of a container's image. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, readFile, realpath, stat } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { findProgram } from './sandbox/programs.ts';
import type { ServerSettings } from './settings.ts';

/** A file as it is now: its real path and the SHA-256 of its bytes, hex. */
export interface FileFact {
  readonly path: string;
  readonly sha256: string;
}

/** The files behind a command. */
export interface StartFiles {
  /** Real path of the folder it starts in. */
  readonly folder: string;
  /** Absent when there is no such program here. */
  readonly program?: FileFact;
  /** Scripts among the arguments, and what the program reads from its folder to know what to run. */
  readonly scripts: readonly FileFact[];
}

/** `folder` is where a program starts whose settings name none. */
export type Inspect = (settings: Pick<ServerSettings, 'command' | 'args' | 'cwd' | 'isolation'>, folder: string) => Promise<StartFiles>;

const SCRIPT = /\.(?:[cm]?[jt]sx?|py|pyz|rb|pl|sh|bash|php|lua|jar|wasm|node|so)$/i;
const INTERPRETER = /^(?:node|bun|deno|tsx|python[\d.]*|ruby|perl|php|lua|java|sh|bash|dash|zsh)$/;
/** What programs read in their folder to know what to run. */
const MANIFESTS: ReadonlyMap<string, readonly string[]> = new Map(Object.entries({ npm: ['package.json'], pnpm: ['package.json'], yarn: ['package.json'], bun: ['package.json'], deno: ['deno.json'], make: ['Makefile', 'makefile'], just: ['justfile'], uv: ['pyproject.toml'] }));
/** What stands for a folder or a name without an ending. */
const ENTRIES = ['package.json', 'index.js', 'index.mjs', 'index.cjs', '__main__.py', '__init__.py'];
const ENDINGS = ['.js', '.mjs', '.cjs', '.py', '.rb'];

/** Reads what a start would run. Never throws for a file that is not there. */
export const inspectStart: Inspect = async ({ command = '', args, cwd, isolation }, folder) => {
  const place = await realOf(cwd ?? folder);
  const found = isolation === 'container' ? undefined : findProgram(command, place);
  const program = found === undefined ? undefined : await factOf(found);
  const files = new Set<string>();
  for (const candidate of candidatesOf(path.basename(command), args, place)) if (await isCode(candidate)) files.add(candidate.file);
  const scripts = await Promise.all([...files].map(factOf));
  return { folder: place, ...(program !== undefined && { program }), scripts: scripts.filter((fact) => fact !== undefined) };
};

interface Candidate {
  readonly file: string;
  /** It is run whatever it looks like. */
  readonly sure: boolean;
}

function candidatesOf(name: string, args: readonly string[], folder: string): readonly Candidate[] {
  const first = INTERPRETER.test(name) ? args.findIndex((arg) => !arg.startsWith('-')) : -1;
  const own = (MANIFESTS.get(name) ?? []).map((file) => ({ file: path.join(folder, file), sure: true }));
  return [...own, ...args.flatMap((arg, index) => {
    const isModule = /^python/.test(name) && args[index - 1] === '-m';
    const file = fileOf(isModule ? arg.replaceAll('.', '/') : arg.replace(/^-[^=]*=/, ''), folder);
    if (file === undefined) return [];
    const behind = [...ENTRIES.map((entry) => path.join(file, entry)), ...ENDINGS.map((ending) => file + ending)];
    return index === first || isModule ? [file, ...behind].map((one) => ({ file: one, sure: true })) : [{ file, sure: false }];
  })];
}

function fileOf(text: string, folder: string): string | undefined {
  if (text === '' || text.includes('\0')) return undefined;
  if (!text.startsWith('file:')) return path.resolve(folder, text);
  return URL.canParse(text) && new URL(text).host === '' ? fileURLToPath(text) : undefined;
}

/** Data that a server is handed changes with every use; only what runs is looked at. */
async function isCode({ file, sure }: Candidate): Promise<boolean> {
  try {
    const found = await stat(file);
    if (!found.isFile()) return false;
    return sure || SCRIPT.test(file) || (found.mode & 0o111) !== 0 || (await firstBytes(file)) === '#!';
  } catch {
    return false;
  }
}

async function firstBytes(file: string): Promise<string> {
  const handle = await open(file);
  try {
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(2), 0, 2, 0);
    return buffer.subarray(0, bytesRead).toString('latin1');
  } finally {
    await handle.close();
  }
}

async function realOf(folder: string): Promise<string> {
  return realpath(folder).catch(() => path.resolve(folder));
}

const digests = new Map<string, string>();
const MAX_KEPT = 256;

/** A file that the kernel calls unchanged (inode, size, times of content and of inode) is not read again: programs are large. */
async function factOf(file: string): Promise<FileFact | undefined> {
  try {
    const real = await realpath(file);
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(real, { bigint: true });
    const key = [real, dev, ino, size, mtimeNs, ctimeNs].join('\0');
    const sha256 = digests.get(key) ?? (await digestOf(real, size));
    if (digests.size >= MAX_KEPT) digests.clear();
    digests.set(key, sha256);
    return { path: real, sha256 };
  } catch {
    return undefined;
  }
}

const SMALL = 1024n * 1024n;

async function digestOf(file: string, size: bigint): Promise<string> {
  const hash = createHash('sha256');
  if (size <= SMALL) return hash.update(await readFile(file)).digest('hex');
  for await (const chunk of createReadStream(file, { highWaterMark: Number(SMALL) })) hash.update(chunk as Buffer);
  return hash.digest('hex');
}
