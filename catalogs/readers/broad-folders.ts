/** Owns which folders are too broad to be given to an isolated program; refuses those with which its isolation would be one in name only. */
import path from 'node:path';

/** What a folder is judged by. Paths absolute and real. */
export interface ProtectedFolders {
  readonly home: string;
  /** State and audit. */
  readonly hidden: readonly string[];
}

/** Of the system: devices, sockets of services, settings of the machine. */
const SYSTEM = ['/boot', '/dev', '/proc', '/run', '/sys', '/var/run'];
const SYSTEM_WHOLE = ['/etc', '/var', '/home', '/root', '/tmp', '/mnt', '/media'];
const PROGRAMS = ['/bin', '/etc', '/lib', '/lib32', '/lib64', '/sbin', '/usr'];

/** Of a home: keys, tokens and what browsers keep. */
const KEYS = [
  '.aws',
  '.azure',
  '.config/gcloud',
  '.config/gh',
  '.config/google-chrome',
  '.docker',
  '.git-credentials',
  '.gnupg',
  '.kube',
  '.local/share/keyrings',
  '.mozilla',
  '.netrc',
  '.npmrc',
  '.password-store',
  '.pypirc',
  '.ssh',
  '.vault-token',
  'Library/Keychains',
];

/** Why a path (absolute and real) must not be given, and what to do instead; undefined when it may. */
export function broadFolderProblem(
  file: string,
  writable: boolean,
  { home, hidden }: ProtectedFolders,
): string | undefined {
  if (path.dirname(file) === file) return 'it is the whole disk; name the folder that is needed';
  if (isWithin(home, file))
    return 'it holds the home folder with its keys and settings; name the folder that is needed';
  if (hidden.some((one) => isWithin(one, file) || isWithin(file, one)))
    return "it holds or is part of Tollgate's own state, which no program may see; name another folder";
  if (KEYS.map((name) => path.join(home, name)).some((key) => isWithin(key, file) || isWithin(file, key)))
    return 'keys or tokens of the user are kept there; name another folder, and give single secrets with env';
  if (SYSTEM.some((one) => isWithin(file, one)) || SYSTEM_WHOLE.includes(file))
    return 'devices, services or settings of the machine are reached there; name a single folder of your own';
  if (/(?:docker|podman|containerd)\.sock$/.test(file))
    return 'whoever reaches this socket rules the machine; leave it out';
  return writable && PROGRAMS.some((one) => isWithin(file, one))
    ? 'programs and settings of the system must not be written; name a folder of your own'
    : undefined;
}

function isWithin(file: string, folder: string): boolean {
  return file === folder || folder === '/' || file.startsWith(`${folder}/`);
}
