/** Reads what tollgate.yaml gives to isolated programs. Folders that are too broad for an isolation are refused. */
import path from 'node:path';
import { broadFolderProblem, type ProtectedFolders } from '../../../catalogs/readers/broad-folders.ts';
import { parseDomain } from '../../../catalogs/readers/domains.ts';
import type { ServerConfig } from '../config.ts';
import { type Path, type Problem, type ProblemReport, quote } from '../config-problems.ts';
import { realPath } from '../reading/text-files.ts';
import type { WrittenBash, WrittenConfig, WrittenSandbox } from '../written-config.ts';
import type { BashConfig, SandboxConfig } from './isolation-settings.ts';

/**
 * Defaults of limits; the schema has the same ones. HE-07: 256 MB per server. Commands of the agent build whole
 * projects, and end. A server may run for weeks, so a sum of CPU time cannot show an error.
 */
const SERVER_LIMITS = { memoryMb: 256, processes: 64, fileMb: 256 } as const;
const BASH_LIMITS = { memoryMb: 4096, processes: 512, fileMb: 2048, cpuSeconds: 3600 } as const;

/** Where paths begin, absolute: those of a sandbox at the workspace. */
export interface SandboxBase {
  /** Absent if it was refused. */
  readonly workspace?: string;
  readonly home: string;
}

/**
 * Returns what a server is given. One that serves primitives gets the workspace, unless its settings say what it
 * writes.
 */
export function sandboxOf(written: WrittenSandbox | undefined, base: SandboxBase, serves: boolean): SandboxConfig {
  const { filesystem = {}, network = {}, limits, image } = written ?? {};
  const place = (paths: readonly string[] | undefined): readonly string[] =>
    (paths ?? []).map((one) => placeOf(one, base));
  return {
    // Deny lists are absent if they are not written, so that approvals from before they existed stay valid.
    filesystem: {
      allowRead: place(filesystem.allowRead),
      allowWrite: place(filesystem.allowWrite ?? (serves ? ['.'] : [])),
      denyRead: place(filesystem.denyRead),
      ...(filesystem.denyWrite !== undefined && { denyWrite: place(filesystem.denyWrite) }),
    },
    network: {
      allowedDomains: network.allowedDomains ?? [],
      ...(network.deniedDomains !== undefined && { deniedDomains: network.deniedDomains }),
    },
    limits: { ...SERVER_LIMITS, ...limits },
    ...(image !== undefined && { image }),
  };
}

/** Returns how commands of the agent run: in a sandbox with the workspace, without a network. */
export function bashOf(written: WrittenBash | undefined, base: SandboxBase): BashConfig {
  const { isolation = 'sandbox', acceptPathRaces = false, limits, ...given } = written ?? {};
  return {
    isolation,
    acceptPathRaces,
    sandbox: sandboxOf({ ...given, limits: { ...BASH_LIMITS, ...limits } }, base, true),
  };
}

function placeOf(written: string, { workspace, home }: SandboxBase): string {
  return realPath(
    written === '~' || written.startsWith('~/')
      ? path.join(home, written.slice(1))
      : path.resolve(workspace ?? home, written),
  );
}

/** What must stay out of every sandbox. Absolute and real. */
export interface Guarded extends SandboxBase {
  readonly report: ProblemReport;
  /** State and audit. */
  readonly hidden: readonly string[];
}

const MOVING_IMAGE =
  'the image has no digest, so its name may lead to another image tomorrow that no one approved; write name@sha256:…, or the id of your own image';

/** Returns what the owner should know of the image. */
export function imageRemarks({
  isolation,
  sandbox,
}: {
  readonly isolation?: string;
  readonly sandbox?: { readonly image?: string };
}): readonly string[] {
  return isolation !== 'container' || /(?:^|^sha256:|@sha256:)[\da-f]{64}$/.test(sandbox?.image ?? '')
    ? []
    : [MOVING_IMAGE];
}

/**
 * A sandboxed server gets the folder that it starts in. Reports one that is too broad if tollgate.yaml contains it; a
 * server of an included file becomes unusable, with a warning.
 */
export function checkFolders(
  servers: Map<string, ServerConfig>,
  own: (name: string) => boolean,
  guarded: Guarded,
): readonly Problem[] {
  return [...servers.values()].flatMap((server) => {
    const { name, cwd, source, isolation = 'sandbox' } = server;
    const fault =
      cwd === undefined || isolation !== 'sandbox'
        ? undefined
        : broadFolderProblem(realPath(cwd), false, preciousOf(guarded));
    if (fault === undefined) return [];
    const message = `a sandboxed server may read the folder that it starts in, and this one is too broad: ${fault}`;
    if (own(name)) guarded.report.refuse(['servers', name, 'cwd'], message);
    else if (server.unusable === undefined) servers.set(name, { ...server, unusable: message });
    return own(name)
      ? []
      : [{ file: source, line: 1, column: 1, message: `server ${quote(name)}: cannot be used: ${message}` }];
  });
}

function preciousOf({ home, hidden }: Guarded): ProtectedFolders {
  return { home: realPath(home), hidden };
}

/** Reports contradictions and too much access, entry by entry. */
export function checkSandboxes(written: WrittenConfig, guarded: Guarded): void {
  for (const [name, server] of Object.entries(written.servers ?? {})) {
    const at = ['servers', name];
    if (server.isolation === 'container' && server.sandbox?.image === undefined)
      guarded.report.refuse(
        [...at, 'isolation'],
        `server ${quote(name)}: a container has no image; add sandbox: {image: name@sha256:…}`,
      );
    else
      for (const remark of imageRemarks(server))
        guarded.report.warn([...at, 'sandbox', 'image'], `server ${quote(name)}: ${remark}`);
    if (server.isolation === 'direct' && server.sandbox !== undefined) refuseIdle([...at, 'sandbox'], guarded);
    checkPaths(server.sandbox?.filesystem, [...at, 'sandbox', 'filesystem'], guarded);
    checkDomains(server.sandbox?.network, [...at, 'sandbox', 'network'], guarded);
  }
  const { isolation, ...given } = written.bash ?? {};
  const [idle] = isolation === 'direct' ? Object.keys(given) : [];
  if (idle !== undefined) refuseIdle(['bash', idle], guarded);
  checkPaths(given.filesystem, ['bash', 'filesystem'], guarded);
  checkDomains(given.network, ['bash', 'network'], guarded);
}

function refuseIdle(at: Path, { report }: Guarded): void {
  report.refuseKey(at, 'sandbox settings together with isolation direct have no effect; remove one of the two');
}

function checkDomains(network: WrittenSandbox['network'], at: Path, { report }: Guarded): void {
  for (const [list, which] of [
    ['allowedDomains', 'an allowed'],
    ['deniedDomains', 'a denied'],
  ] as const) {
    network?.[list]?.forEach((one, index) => {
      const domain = parseDomain(one);
      if ('fault' in domain) report.refuse([...at, list, index], `${which} domain is ${domain.fault}`);
    });
  }
}

function checkPaths(filesystem: WrittenSandbox['filesystem'], at: Path, guarded: Guarded): void {
  for (const list of ['allowRead', 'allowWrite'] as const) {
    filesystem?.[list]?.forEach((one, index) => {
      const fault = broadFolderProblem(placeOf(one, guarded), list === 'allowWrite', preciousOf(guarded));
      if (fault !== undefined) guarded.report.refuse([...at, list, index], `the path is too broad: ${fault}`);
    });
  }
}
