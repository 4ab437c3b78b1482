/** Reads what isolated programs get, and refuses folders that are too broad. */
import path from 'node:path';
import { broadFolderProblem, type ProtectedFolders } from '../../../catalogs/readers/broad-folders.ts';
import { parseDomain } from '../../../catalogs/readers/domains.ts';
import type { BashConfig, SandboxConfig, ServerConfig } from '../config.ts';
import { fileProblem, type Path, type Problem, type ProblemReport, quote } from '../config-problems.ts';
import { realPath } from '../reading/text-files.ts';
import type { WrittenBash, WrittenConfig, WrittenSandbox } from '../written-config.ts';

/**
 * Defaults of limits; the schema has the same ones. HE-07: 256 MB per server. Commands of the agent may build whole
 * projects, so they get more memory. A server may run for weeks, so it has no limit of CPU time.
 */
const SERVER_LIMITS = { memoryMb: 256, processes: 64, fileMb: 256 } as const;
const BASH_LIMITS = { memoryMb: 4096, processes: 512, fileMb: 2048, cpuSeconds: 3600 } as const;

/** The folders that paths of a sandbox are relative to, absolute. */
export interface SandboxBase {
  /** Absent if it was refused. */
  readonly workspace?: string;
  readonly home: string;
}

/** Returns what a server gets. By default, one that serves primitives (`serves`) may write the workspace. */
export function sandboxOf(written: WrittenSandbox | undefined, base: SandboxBase, serves: boolean): SandboxConfig {
  const { filesystem = {}, network = {}, limits, image } = written ?? {};
  const place = (paths: readonly string[] | undefined): readonly string[] =>
    (paths ?? []).map((one) => placeOf(one, base));
  return {
    // Without a written deny list there is none, so that approvals of earlier versions stay valid.
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
  const { isolation = 'sandbox', acceptPathRaces = false, limits, ...settings } = written ?? {};
  return {
    isolation,
    acceptPathRaces,
    sandbox: sandboxOf({ ...settings, limits: { ...BASH_LIMITS, ...limits } }, base, true),
  };
}

function placeOf(written: string, { workspace, home }: SandboxBase): string {
  return realPath(
    written === '~' || written.startsWith('~/')
      ? path.join(home, written.slice(1))
      : path.resolve(workspace ?? home, written),
  );
}

/** What must stay out of every sandbox. Paths are absolute and real. */
export interface Guarded extends SandboxBase {
  readonly report: ProblemReport;
  /** State and audit. */
  readonly hidden: readonly string[];
}

const MOVING_IMAGE =
  'the image has no digest, so its name may lead to another image tomorrow that no one approved; write ' +
  'name@sha256:…, or the id of your own image';

/** Returns a warning for the owner if the image has no digest. */
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
 * Checks the start folders of sandboxed servers, which they may read. A folder that is too broad is an error in
 * tollgate.yaml; a server of an included file becomes unusable, with a warning.
 */
export function checkFolders(
  servers: Map<string, ServerConfig>,
  isOwn: (name: string) => boolean,
  guarded: Guarded,
): readonly Problem[] {
  return [...servers.values()].flatMap((server) => {
    const { name, cwd, source, isolation = 'sandbox' } = server;
    const fault =
      cwd === undefined || isolation !== 'sandbox'
        ? undefined
        : broadFolderProblem(realPath(cwd), false, protectedFolders(guarded));
    if (fault === undefined) return [];
    const message = `a sandboxed server may read the folder that it starts in, and this one is too broad: ${fault}`;
    if (isOwn(name)) guarded.report.refuse(['servers', name, 'cwd'], message);
    else if (server.unusable === undefined) servers.set(name, { ...server, unusable: message });
    return isOwn(name) ? [] : [fileProblem(source, `server ${quote(name)}: cannot be used: ${message}`)];
  });
}

function protectedFolders({ home, hidden }: Guarded): ProtectedFolders {
  return { home: realPath(home), hidden };
}

/** Reports contradicting settings, folders that are too broad, and malformed domains. */
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
    if (server.isolation === 'direct' && server.sandbox !== undefined) refuseUnused([...at, 'sandbox'], guarded);
    checkPaths(server.sandbox?.filesystem, [...at, 'sandbox', 'filesystem'], guarded);
    checkDomains(server.sandbox?.network, [...at, 'sandbox', 'network'], guarded);
  }
  const { isolation, ...settings } = written.bash ?? {};
  const [unused] = isolation === 'direct' ? Object.keys(settings) : [];
  if (unused !== undefined) refuseUnused(['bash', unused], guarded);
  checkPaths(settings.filesystem, ['bash', 'filesystem'], guarded);
  checkDomains(settings.network, ['bash', 'network'], guarded);
}

function refuseUnused(at: Path, { report }: Guarded): void {
  report.refuseKey(at, 'sandbox settings together with isolation direct have no effect; remove one of the two');
}

function checkDomains(network: WrittenSandbox['network'], at: Path, { report }: Guarded): void {
  for (const [list, article] of [
    ['allowedDomains', 'an allowed'],
    ['deniedDomains', 'a denied'],
  ] as const) {
    network?.[list]?.forEach((one, index) => {
      const domain = parseDomain(one);
      if ('fault' in domain) report.refuse([...at, list, index], `${article} domain is ${domain.fault}`);
    });
  }
}

function checkPaths(filesystem: WrittenSandbox['filesystem'], at: Path, guarded: Guarded): void {
  for (const list of ['allowRead', 'allowWrite'] as const) {
    filesystem?.[list]?.forEach((one, index) => {
      const fault = broadFolderProblem(placeOf(one, guarded), list === 'allowWrite', protectedFolders(guarded));
      if (fault !== undefined) guarded.report.refuse([...at, list, index], `the path is too broad: ${fault}`);
    });
  }
}
