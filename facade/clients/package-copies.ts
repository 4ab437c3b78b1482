/**
 * Finds the packages that servers of clients download at each start, and pins them, so that copies can run the
 * installed packages instead. A bridge to a remote server (mcp-remote) becomes the remote server.
 */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { InstallWorld } from '../packages/installer.ts';
import { installPackage, pinPackage } from '../packages/package-source.ts';
import { type PinnedPackage, packageFolder } from '../packages/pinned-package.ts';
import { type RunnerCommand, readRunner } from '../packages/runner-command.ts';
import type { ClientEntry } from './client-entry.ts';

/** What a copy of an entry starts. */
export interface CopyStart {
  /** The entry with the server's own arguments, variables, address and headers. */
  readonly entry: ClientEntry;
  /** Absent for a remote server. */
  readonly pinned?: PinnedPackage;
  /** Folders that a container gets, as its command line writes them. */
  readonly mounts: RunnerCommand['mounts'];
  /** What is not kept, each with the reason. */
  readonly unkept: readonly string[];
}

/** The starts of the entries that download a package, or why one cannot be pinned. */
export type CopyStarts = ReadonlyMap<ClientEntry, CopyStart | { readonly fault: string }>;

/** The world of pinning. `into`: a folder for archives, which must stay until the packages are installed. */
export interface PinWorld extends InstallWorld {
  readonly into: string;
}

/** How the fault of a package begins that could not be looked up; the next run tries again. */
export const UNPINNED = 'its package cannot be pinned: ';
/** How many packages are looked up or installed at the same time. */
const AT_ONCE = 4;
/** Options of mcp-remote without a meaning here. The value is the number of words that follow. */
const BRIDGE_OPTIONS: Readonly<Record<string, number>> = {
  '--allow-http': 0,
  '--debug': 0,
  '--silent': 0,
  '--enable-proxy': 0,
  '--host': 1,
  '--resource': 1,
  '--auth-timeout': 1,
  '--ignore-tool': 1,
  '--static-oauth-client-metadata': 1,
  '--static-oauth-client-info': 1,
};

/** Pins the packages of entries, four at a time; one that fails says why. Throws CANCELLED after the signal. */
export async function pinCopies(entries: readonly ClientEntry[], world: PinWorld): Promise<CopyStarts> {
  const starts = new Map<ClientEntry, CopyStart | { readonly fault: string }>();
  /** Several entries may run the same package. */
  const pins = new Map<string, Promise<PinnedPackage>>();
  await eachAtOnce(entries, async (entry) => {
    const runner = readRunner(entry);
    if (runner === undefined) return;
    starts.set(entry, 'fault' in runner ? runner : await startOf(entry, runner, { pins, world }));
  });
  return starts;
}

/**
 * Installs the packages of copies into the state folder, four at a time. Throws INSTALL_FAILED or CANCELLED after the
 * running ones have ended. Installed packages stay, so that the next run continues.
 */
export function installCopies(
  copies: readonly { readonly name: string; readonly pinned: PinnedPackage }[],
  state: string,
  world: InstallWorld,
): Promise<void> {
  return eachAtOnce(copies, async ({ name, pinned }) => {
    world.say(`Installing ${pinned.name} ${pinned.version} …`);
    await installPackage(pinned, packageFolder(state, name, pinned.version), world);
  });
}

/**
 * As `installCopies`, but a package that cannot be installed does not stop the others. Returns why, by the name of the
 * copy. Throws CANCELLED after the running ones have ended.
 */
export async function installEach(
  copies: readonly { readonly name: string; readonly pinned: PinnedPackage }[],
  state: string,
  world: InstallWorld,
): Promise<ReadonlyMap<string, string>> {
  const failed = new Map<string, string>();
  await eachAtOnce(copies, async (copy) => {
    try {
      await installCopies([copy], state, world);
    } catch (thrown) {
      if (!(thrown instanceof TollgateError) || thrown.code === 'CANCELLED') throw thrown;
      failed.set(copy.name, `${thrown.message} ${thrown.next}`);
    }
  });
  return failed;
}

/** Runs `work` for every item, four at a time. Stops at the first error, and throws it after the others have ended. */
async function eachAtOnce<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const left = [...items];
  const failed: unknown[] = [];
  const worker = async (): Promise<void> => {
    for (let item = left.shift(); item !== undefined && failed.length === 0; item = left.shift())
      await work(item).catch((thrown: unknown) => void failed.push(thrown));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  if (failed.length > 0) throw failed[0];
}

async function startOf(
  entry: ClientEntry,
  runner: RunnerCommand,
  { pins, world }: { readonly pins: Map<string, Promise<PinnedPackage>>; readonly world: PinWorld },
): Promise<CopyStart | { readonly fault: string }> {
  const { spec, bin, args, env, passed, mounts, unkept } = runner;
  if (spec.kind === 'npm' && spec.name === 'mcp-remote') return readBridge(entry, args);
  const key = JSON.stringify([spec, bin]);
  try {
    const pinning = { into: world.into, ...(bin !== undefined && { bin }) };
    const pin = pins.get(key) ?? pinPackage(spec, pinning, world);
    pins.set(key, pin);
    const pinned = await pin;
    // What the client would take from its own environment is asked for.
    const asked = passed.filter((name) => !Object.hasOwn(entry.env, name)).map((name) => [name, `\${input:${name}}`]);
    const own = { ...entry, args, env: { ...Object.fromEntries(asked), ...entry.env, ...env } };
    world.say(`${entry.name}: ${pinned.name} ${pinned.version}`);
    return { entry: own, pinned, mounts, unkept };
  } catch (thrown) {
    if (!(thrown instanceof TollgateError) || thrown.code === 'CANCELLED') throw thrown;
    return { fault: `${UNPINNED}${thrown.message} ${thrown.next}` };
  }
}

/** Reads `mcp-remote URL [PORT] [--header NAME:VALUE] [--transport STRATEGY]`. */
function readBridge(entry: ClientEntry, words: readonly string[]): CopyStart | { readonly fault: string } {
  const [url = '', ...rest] = words;
  if (!/^https?:\/\//.test(url)) return { fault: 'mcp-remote has no address as its first argument' };
  const headers: Record<string, string> = {};
  const unkept: string[] = [];
  let transport: ClientEntry['transport'] = 'http';
  for (let at = 0; at < rest.length; at += 1) {
    const word = rest[at] ?? '';
    if (word === '--header') {
      const [, name, value = ''] = /^([\w-]+)\s*:\s*(.*)$/s.exec(rest[(at += 1)] ?? '') ?? [];
      if (name === undefined) return { fault: 'a --header of mcp-remote is not written as NAME:VALUE' };
      headers[name] = filledFrom(entry.env, value);
    } else if (word === '--transport') {
      if ((rest[(at += 1)] ?? '').startsWith('sse')) transport = 'sse';
    } else {
      unkept.push(/^\d+$/.test(word) ? `${word}: Tollgate chooses the port of a sign-in` : `${word}: mcp-remote's own`);
      at += BRIDGE_OPTIONS[word] ?? 0;
    }
  }
  const { command: _command, cwd: _cwd, ...own } = entry;
  return { entry: { ...own, args: [], env: {}, url, headers, transport }, mounts: [], unkept };
}

/** mcp-remote replaces `${NAME}` in headers by variables of its environment. */
function filledFrom(env: Readonly<Record<string, string>>, text: string): string {
  return text.replace(/\${1,2}\{(?:env:)?([A-Za-z_]\w*)\}/g, (whole, name: string) =>
    Object.hasOwn(env, name) ? (env[name] ?? '') : whole,
  );
}
