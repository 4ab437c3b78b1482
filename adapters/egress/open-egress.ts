/** Opens the network access of a sandboxed server: the proxy, its socket, and the environment variables for both. */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { lstat, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { EGRESS_PORT, EGRESS_SOCKET, type Egress } from '../sandbox/sandbox-spec.ts';
import { Allowlist } from './allowlist.ts';
import type { BlockedAttempt } from './blocked-attempts.ts';
import type { Lookup } from './dial.ts';
import { EgressProxy, type ProxyLimits } from './egress-proxy.ts';

/** The server, and the targets that it may reach. */
export interface EgressPlan {
  readonly server: string;
  /** As parseDomain of catalogs/readers/domains.ts takes them. */
  readonly allowedDomains: readonly string[];
  /** In the same form. Denied targets win over allowed ones. */
  readonly deniedDomains?: readonly string[] | undefined;
  /** See Confinement.closedHosts. */
  readonly closedHosts?: readonly string[];
  /** The uid of the server on the host. Absent: any local user who finds the socket can use it. */
  readonly owner?: number;
  readonly limits?: Partial<ProxyLimits>;
  /** Identifies this process, so that a later one finds its orphaned folders. */
  readonly mark?: string;
}

/** The events of a proxy, and for tests how it resolves names. */
export interface EgressEvents {
  readonly onBlocked: (blocked: BlockedAttempt) => void;
  readonly lookup?: Lookup;
}

const PRELOAD = path.join(import.meta.dirname, 'preload.cjs');
/** Paths in the sandbox. */
const INSIDE = { preload: '/run/tollgate/egress.cjs', socket: EGRESS_SOCKET } as const;
const PREFIX = 'tollgate-egress-';
const MARK = 'owner';
const OWN_LOOPBACK = 'localhost,127.0.0.1,::1';

/**
 * Opens the proxy of one server. Throws CONFIG_INVALID for an entry that is not a domain, and SANDBOX_UNAVAILABLE if
 * its folder or its socket cannot be created.
 */
export async function openEgress(
  { server, allowedDomains, deniedDomains, closedHosts, owner, limits, mark }: EgressPlan,
  events: EgressEvents,
): Promise<Egress> {
  const allowlist = new Allowlist(allowedDomains, closedHosts, deniedDomains);
  const proxy = new EgressProxy({ server, allowlist, ...events, ...(limits !== undefined && { limits }) });
  let folder: string | undefined;
  const close = async (): Promise<void> => {
    await proxy.close();
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  };
  try {
    folder = mkdtempSync(path.join(tmpdir(), PREFIX));
    if (mark !== undefined) writeFileSync(path.join(folder, MARK), mark, { mode: 0o600 });
    const socket = path.join(folder, 'proxy.sock');
    // Others may enter but not list the folder: the server runs as another user.
    chmodSync(folder, 0o711);
    await proxy.listen(socket, owner);
    return {
      socket,
      env: envOf(allowlist),
      mounts: [
        { from: PRELOAD, to: INSIDE.preload },
        { from: socket, to: INSIDE.socket },
      ],
      close,
    };
  } catch (thrown) {
    await close();
    throw cannotOpen(server, thrown as NodeJS.ErrnoException);
  }
}

/** Creates the error for a folder that cannot be created, for example because the disk is full. */
function cannotOpen(server: string, cause: NodeJS.ErrnoException): TollgateError {
  return new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `The network access of server "${server}" could not be opened (${cause.code ?? 'unknown'}).`,
    next: 'Free space in the folder for temporary files (TMPDIR), and make it writable for Tollgate.',
    cause,
  });
}

/**
 * Removes orphaned folders of proxies: those of this user with a mark for which `isOrphan` returns true. Folders that
 * cannot be read are skipped.
 */
export async function sweepEgress(isOrphan: (mark: string) => boolean): Promise<void> {
  const names = (await readdir(tmpdir())).filter((name) => name.startsWith(PREFIX));
  for (const folder of names.map((name) => path.join(tmpdir(), name))) {
    const stat = await lstat(folder).catch(() => undefined);
    if (stat?.isDirectory() !== true || stat.uid !== process.geteuid?.()) continue;
    const mark = await readFile(path.join(folder, MARK), 'utf8').catch(() => undefined);
    if (mark !== undefined && isOrphan(mark)) await rm(folder, { recursive: true, force: true });
  }
}

/** Sets both spellings, because programs read one or the other. */
function envOf(allowlist: Allowlist): Readonly<Record<string, string>> {
  const proxy = `http://127.0.0.1:${EGRESS_PORT}`;
  const variables = {
    HTTP_PROXY: proxy,
    HTTPS_PROXY: proxy,
    ALL_PROXY: proxy,
    NO_PROXY: allowlist.namesLoopback ? '' : OWN_LOOPBACK,
  };
  const both = Object.entries(variables).flatMap(([name, value]) => [
    [name, value],
    [name.toLowerCase(), value],
  ]);
  return {
    ...(Object.fromEntries(both) as Record<string, string>),
    NODE_OPTIONS: `--require ${INSIDE.preload}`,
    TOLLGATE_EGRESS: INSIDE.socket,
  };
}
