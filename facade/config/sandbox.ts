/** Owns what isolated programs are given by tollgate.yaml; refuses folders so broad that the isolation would be one in name only. */
import path from 'node:path';
import { parseDomain } from '../../catalogs/domains.ts';
import { isWithin, realPath } from './files.ts';
import type { BashConfig, SandboxConfig } from './isolation.ts';
import { quote } from './problems.ts';
import type { Path, Report } from './problems.ts';
import type { Written, WrittenBash, WrittenSandbox } from './written.ts';

/** Defaults of limits; the schema names the same ones. HE-07: 256 MB a server. Commands of the agent build whole projects. */
const SERVER_LIMITS = { memoryMb: 256, processes: 64, fileMb: 256 } as const;
const BASH_LIMITS = { memoryMb: 4096, processes: 512, fileMb: 2048 } as const;

/** Where paths begin, absolute: those of a sandbox at the workspace. */
export interface SandboxBase {
  /** Absent when it was refused. */
  readonly workspace?: string;
  readonly home: string;
}

/** What a server is given. One that serves primitives has the workspace, unless its settings say what it writes. */
export function sandboxOf(written: WrittenSandbox | undefined, base: SandboxBase, serves: boolean): SandboxConfig {
  const { filesystem = {}, network = {}, limits, image } = written ?? {};
  const place = (paths: readonly string[] | undefined): readonly string[] => (paths ?? []).map((one) => placeOf(one, base));
  return {
    filesystem: { allowRead: place(filesystem.allowRead), allowWrite: place(filesystem.allowWrite ?? (serves ? ['.'] : [])), denyRead: place(filesystem.denyRead) },
    network: { allowedDomains: network.allowedDomains ?? [] },
    limits: { ...SERVER_LIMITS, ...limits },
    ...(image !== undefined && { image }),
  };
}

/** How commands of the agent run: in a sandbox with the workspace, without a network. */
export function bashOf(written: WrittenBash | undefined, base: SandboxBase): BashConfig {
  const { isolation = 'sandbox', limits, ...given } = written ?? {};
  return { isolation, sandbox: sandboxOf({ ...given, limits: { ...BASH_LIMITS, ...limits } }, base, true) };
}

function placeOf(written: string, { workspace, home }: SandboxBase): string {
  return realPath(written === '~' || written.startsWith('~/') ? path.join(home, written.slice(1)) : path.resolve(workspace ?? home, written));
}

/** What must stay out of every sandbox. Absolute and real. */
export interface Guarded extends SandboxBase {
  readonly report: Report;
  /** State and audit. */
  readonly hidden: readonly string[];
}

/** Reports what contradicts itself or gives too much, entry by entry. */
export function checkSandboxes(written: Written, guarded: Guarded): void {
  for (const [name, server] of Object.entries(written.servers ?? {})) {
    const at = ['servers', name];
    if (server.isolation === 'container' && server.sandbox?.image === undefined) guarded.report.refuse([...at, 'isolation'], `server ${quote(name)}: a container has no image; add sandbox: {image: name@sha256:…}`);
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
  report.refuseKey(at, 'settings of a sandbox beside isolation direct: nothing would enforce them; remove one of the two');
}

function checkDomains(network: WrittenSandbox['network'], at: Path, { report }: Guarded): void {
  network?.allowedDomains?.forEach((one, index) => {
    const domain = parseDomain(one);
    if ('fault' in domain) report.refuse([...at, 'allowedDomains', index], `an allowed domain is ${domain.fault}`);
  });
}

function checkPaths(filesystem: WrittenSandbox['filesystem'], at: Path, guarded: Guarded): void {
  for (const list of ['allowRead', 'allowWrite'] as const) {
    filesystem?.[list]?.forEach((one, index) => {
      const fault = breadthOf(placeOf(one, guarded), list === 'allowWrite', guarded);
      if (fault !== undefined) guarded.report.refuse([...at, list, index], `the path is too broad: ${fault}`);
    });
  }
}

/** Of the system: devices, sockets of services, settings of the machine. */
const SYSTEM = ['/boot', '/dev', '/proc', '/run', '/sys', '/var/run'];
const SYSTEM_WHOLE = ['/etc', '/var', '/home', '/root', '/tmp', '/mnt', '/media'];
const PROGRAMS = ['/bin', '/etc', '/lib', '/lib32', '/lib64', '/sbin', '/usr'];

/** Of a home: keys, tokens and what browsers keep. */
const KEYS = [
  '.aws', '.azure', '.config/gcloud', '.config/gh', '.config/google-chrome', '.docker', '.git-credentials', '.gnupg', '.kube', '.local/share/keyrings', '.mozilla', '.netrc', '.npmrc',
  '.password-store', '.pypirc', '.ssh', '.vault-token', 'Library/Keychains',
];

/** Why a path must not be given, and what to do instead; undefined when it may. */
function breadthOf(file: string, writable: boolean, { home, hidden }: Guarded): string | undefined {
  const realHome = realPath(home);
  if (path.dirname(file) === file) return 'it is the whole disk; name the folder that is needed';
  if (isWithin(realHome, file)) return 'it holds the home folder with its keys and settings; name the folder that is needed';
  if (hidden.some((one) => isWithin(one, file) || isWithin(file, one))) return "it holds or is part of Tollgate's own state, which no program may see; name another folder";
  if (KEYS.map((name) => path.join(realHome, name)).some((key) => isWithin(key, file) || isWithin(file, key))) return 'keys or tokens of the user are kept there; name another folder, and give single secrets with env';
  if (SYSTEM.some((one) => isWithin(file, one)) || SYSTEM_WHOLE.includes(file)) return 'devices, services or settings of the machine are reached there; name a single folder of your own';
  if (/(?:docker|podman|containerd)\.sock$/.test(file)) return 'whoever reaches this socket rules the machine; leave it out';
  return writable && PROGRAMS.some((one) => isWithin(file, one)) ? 'programs and settings of the system must not be written; name a folder of your own' : undefined;
}
