/** Decides which folders are too broad for an isolated program, because the isolation would have no effect. */

import path from 'node:path';
import { wordSet } from '../text/word-set.ts';
import { isPathWithin } from './path-location.ts';

/** What a folder is compared with. Paths absolute and real. */
export interface ProtectedFolders {
  readonly home: string;
  /** State and audit. */
  readonly hidden: readonly string[];
}

/** Of the system: devices, sockets of services, settings of the machine. */
const SYSTEM = ['/boot', '/dev', '/proc', '/run', '/sys', '/var/run'];
const SYSTEM_WHOLE = ['/etc', '/var', '/home', '/root', '/tmp', '/mnt', '/media'];
const PROGRAMS = ['/bin', '/etc', '/lib', '/lib32', '/lib64', '/sbin', '/usr'];

/** Of a home folder: keys, tokens and browser data. */
const KEYS = [
  ...wordSet(`
    .aws .azure .config/gcloud .config/gh .config/google-chrome .docker .git-credentials .gnupg .kube
    .local/share/keyrings .mozilla .netrc .npmrc .password-store .pypirc .ssh .vault-token Library/Keychains
  `),
];

/** Returns why a path (absolute and real) must not be given, and what to do instead; undefined if it may be given. */
export function broadFolderProblem(
  file: string,
  writable: boolean,
  { home, hidden }: ProtectedFolders,
): string | undefined {
  if (path.dirname(file) === file) return 'it is the whole disk; name the folder that is needed';
  if (isPathWithin(home, file))
    return 'it contains the home folder with its keys and settings; name the folder that is needed';
  if (hidden.some((one) => isPathWithin(one, file) || isPathWithin(file, one)))
    return "it contains or is part of Tollgate's own state, which no program may see; name another folder";
  if (KEYS.map((name) => path.join(home, name)).some((key) => isPathWithin(key, file) || isPathWithin(file, key)))
    return 'it contains keys or tokens of the user; name another folder, and give single secrets with env';
  if (SYSTEM.some((one) => isPathWithin(file, one)) || SYSTEM_WHOLE.includes(file))
    return 'it contains devices, services or settings of the machine; name a single folder of your own';
  if (/(?:docker|podman|containerd)\.sock$/.test(file))
    return 'a program that reaches this socket controls the machine; omit it';
  return writable && PROGRAMS.some((one) => isPathWithin(file, one))
    ? 'programs and settings of the system must not be written; name a folder of your own'
    : undefined;
}
