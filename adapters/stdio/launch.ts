/**
 * Owns the start of a server's process at the isolation that it asks for; refuses to start what cannot be isolated as
 * asked.
 */
import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { existsSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { searchFolders } from '../../catalogs/programs/helper-programs.ts';
import { NO_CONFINEMENT } from '../../catalogs/readers/confinement.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import type { CredentialStore } from '../oauth/sign-in-credentials.ts';
import { startSandboxed } from '../sandbox/bubblewrap/sandbox-start.ts';
import { type ClosedFiles, closePaths, outermostPaths } from '../sandbox/closed-paths/closure-mounts.ts';
import {
  type RepositoryScope,
  type WithheldSettings,
  watchRepositories,
} from '../sandbox/closed-paths/git-repositories.ts';
import { createPlaceholders } from '../sandbox/closed-paths/placeholders.ts';
import type { ContainerSpec } from '../sandbox/container/container-arguments.ts';
import { type ContainerEngine, findContainerEngine } from '../sandbox/container/container-engine.ts';
import { startContainer } from '../sandbox/container/container-start.ts';
import { withoutInheritedDescriptors } from '../sandbox/inherited-descriptors.ts';
import { proveIsolation } from '../sandbox/isolation-self-test.ts';
import { signalGroup } from '../sandbox/process-tree.ts';
import { findProgram } from '../sandbox/program-files.ts';
import { chooseSandboxUser, type Egress, type SandboxSettings, type SandboxSpec } from '../sandbox/sandbox-spec.ts';
import { checkVisiblePaths } from '../sandbox/visible-paths.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';
import { fillSecrets } from './server-secrets.ts';

/** A process that was started, with all that was made for it. */
export interface LaunchedProcess {
  /** Its pipes; leads a process group of its own. */
  readonly child: ChildProcessWithoutNullStreams;
  /**
   * Sends a signal to the server itself and what it started: in a sandbox to the process inside of it. False when
   * nothing is left.
   */
  signal(signal: NodeJS.Signals | 0): boolean;
  /** Ends everything at once, synchronously. */
  kill(): void;
  /** Once it has ended: SANDBOX_UNAVAILABLE when it never stood, where what isolates it can tell that only by then. */
  refusal?(): TollgateError | undefined;
  /** Once it has ended: whether memory was the reason, as far as that can be told. */
  hasLackedMemory?(): boolean;
  /** Whether its processes are as many as they may be, as far as that can be told. */
  isFull?(): boolean;
  /** Gives back what was made for it (proxy, sockets, folders); call it when the process has ended. Idempotent. */
  release(): Promise<void>;
}

/** What a start needs to know of the facade around it. Paths absolute and real. */
export interface LaunchHost {
  readonly workspace: string;
  /** Where a program starts whose settings name no folder; default: where this process did. */
  readonly folder?: string;
  /** State folder, vault, configuration: never visible, whatever the settings say. */
  readonly hidden: readonly string[];
  /** Control files, also those that do not exist: real places that no program may create. */
  readonly fixed?: readonly string[];
  /** The value of `${secret:name}`; its errors stop the start. */
  readonly secrets: (name: string) => Promise<string>;
  /** Sign-ins to remote servers. Without it none is used. */
  readonly credentials?: CredentialStore;
  /** Opens the proxy of a server that has allowed domains. Without it, such a server does not start. */
  readonly openEgress?: (settings: ServerSettings) => Promise<Egress>;
  /** Hears what was withheld of repositories that a server made. */
  readonly onWithheld?: (server: string, look: WithheldSettings) => void;
}

/** What a program needs to run at all; everything else of our environment could be a secret of another server. */
const INHERITED = ['PATH', 'HOME', 'LANG', 'LC_ALL', 'LC_CTYPE', 'TZ', 'TMPDIR', 'USER', 'LOGNAME'];
/** The part of it that names nothing of this machine. */
const LOCALE = ['LANG', 'LC_ALL', 'LC_CTYPE', 'TZ'];
/** What a server has whose settings say nothing: no file, no network. */
const NOTHING: SandboxSettings = {
  filesystem: { allowRead: [], allowWrite: [], denyRead: [] },
  network: { allowedDomains: [] },
  limits: { memoryMb: 256, processes: 64, fileMb: 256 },
};

/**
 * Starts a server, once secrets, ways out and isolation are in hand and `ready` has not thrown, and resolves once its
 * process exists: nobody has to wait for `spawn` or `error` of the child any more. Throws INIT_FAILED when its program
 * or folder is missing, and SANDBOX_UNAVAILABLE when its isolation cannot be had.
 */
export async function launch(
  settings: ServerSettings,
  host: LaunchHost,
  ready: () => Promise<void> = () => Promise.resolve(),
): Promise<LaunchedProcess> {
  const env = await fillSecrets(settings.env, host.secrets, 'env');
  if (settings.isolation === 'direct') {
    await ready();
    return launchDirect(settings, env, host.folder);
  }
  checkVisiblePaths(settings, host.workspace);
  const egress = await openEgress(settings, host);
  const holds = [createPlaceholders(host.fixed ?? [], settings.sandbox?.filesystem.allowWrite ?? [])];
  // Its names are free once nothing of it runs.
  let over: Promise<void> | undefined;
  const release = releaseOnce(
    egress,
    () =>
      void (over ?? Promise.resolve()).then(() => {
        for (const letGo of holds) letGo();
      }),
  );
  try {
    if (settings.isolation === 'container') {
      const {
        contained,
        engine,
        release: letGo,
        repositoryScope: grounds,
      } = await containedOf(settings, { host, env, ...(egress !== undefined && { egress }) });
      holds.push(letGo);
      await ready();
      // The search for what rules close takes its time.
      checkVisiblePaths(settings, host.workspace);
      const { ended, ...started } = await startContainer(contained, engine);
      return watched({ ...started, release }, { grounds, ended }, (look) => host.onWithheld?.(settings.name, look));
    }
    const jail = jailOf(settings, { host, env, ...(egress !== undefined && { egress }) });
    await proveIsolation(host.workspace);
    await ready();
    const { repositoryScope: grounds, ended, lost, ...jailed } = await startSandboxed(jail);
    over = ended.then(() => {
      if (lost !== undefined && lost.size > 0) host.onWithheld?.(settings.name, { withheld: [], lost: [...lost] });
    });
    return watched({ ...jailed, release }, { grounds, ended }, (look) => host.onWithheld?.(settings.name, look));
  } catch (thrown) {
    // Why it did not start is what counts.
    await release().catch(() => undefined);
    throw thrown;
  }
}

/** Its release looks at repositories once more, when nothing of it is left. */
function watched(
  launched: LaunchedProcess,
  { grounds, ended }: { readonly grounds: RepositoryScope | undefined; readonly ended: Promise<void> },
  tell: (look: WithheldSettings) => void,
): LaunchedProcess {
  if (grounds === undefined) return launched;
  const finish = watchRepositories(grounds, ended, tell);
  let released: Promise<void> | undefined;
  return {
    ...launched,
    release: () => (released ??= Promise.all([launched.release(), finish()]).then(() => undefined)),
  };
}

async function launchDirect(
  settings: ServerSettings,
  env: Readonly<Record<string, string>>,
  folder?: string,
): Promise<LaunchedProcess> {
  const { command = '', args, cwd = folder } = settings;
  // The very file that was looked at: the child's own PATH, or one with relative folders, could name another.
  const from = cwd ?? process.cwd();
  // What is written as a path is no other file for being no program: the system says why it does not start.
  const program = findProgram(command, from) ?? (command.includes('/') ? path.resolve(from, command) : undefined);
  if (program === undefined)
    throw new TollgateError('INIT_FAILED', {
      detail: `Server "${settings.name}" did not start: its command or its folder was not found.`,
    });
  const child = withoutInheritedDescriptors(['pipe', 'pipe', 'pipe'], (stdio) =>
    spawn(program, [...args], {
      cwd,
      env: { ...inherited(INHERITED), PATH: searchFolders().join(':'), ...env },
      detached: true,
      shell: false,
      stdio,
    }),
  );
  await started(child, settings.name);
  return {
    child: child as ChildProcessWithoutNullStreams,
    signal: (signal) => signalGroup(child, signal),
    kill: () => void signalGroup(child, 'SIGKILL'),
    release: () => Promise.resolve(),
  };
}

interface Given {
  readonly host: LaunchHost;
  /** Secrets filled in. */
  readonly env: Readonly<Record<string, string>>;
  readonly egress?: Egress;
}

async function containedOf(
  settings: ServerSettings,
  { host, env, egress }: Given,
): Promise<
  { readonly contained: Omit<ContainerSpec, 'id'>; readonly engine: ContainerEngine } & Omit<
    ClosedFiles,
    'closed' | 'lost'
  >
> {
  const { name: server, command = '', args, cwd, sandbox = NOTHING } = settings;
  if (sandbox.image === undefined)
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `Server "${server}" has no image for its container.`,
      next: `Add sandbox: {image: name@sha256:…} under servers.${server}.`,
    });
  const { allowRead, allowWrite } = sandbox.filesystem;
  // First, for it may take its time, and what is judged from here on shall hold at the start.
  const engine = await findContainerEngine();
  const roots = outermostPaths([...allowRead, ...allowWrite].filter((file) => existsSync(file)));
  const writable = outermostPaths(allowWrite.filter((file) => existsSync(file)));
  const {
    closed,
    release,
    repositoryScope: grounds,
  } = await closePaths(settings.confinement ?? NO_CONFINEMENT, { workspace: host.workspace, roots, writable }, (at) =>
    allowWrite.some((folder) => isPathWithin(at, folder)),
  );
  const contained = {
    server,
    image: sandbox.image,
    command,
    args,
    env,
    sandbox,
    closed,
    hidden: host.hidden,
    identity: chooseSandboxUser(host.workspace),
    ...(cwd !== undefined && { cwd }),
    ...(egress !== undefined && { egress }),
  };
  return { contained, engine, release, repositoryScope: grounds };
}

/** Settings that name nothing give nothing. */
function jailOf(settings: ServerSettings, { host, env, egress }: Given): SandboxSpec {
  const { command = '', args, cwd } = settings;
  const { filesystem, limits } = settings.sandbox ?? NOTHING;
  return {
    command,
    args,
    cwd: realPath(cwd ?? host.folder ?? process.cwd()),
    workspace: host.workspace,
    env: { ...inherited(LOCALE), ...env },
    read: cwd === undefined ? filesystem.allowRead : [cwd, ...filesystem.allowRead],
    write: filesystem.allowWrite,
    hidden: [...filesystem.denyRead, ...host.hidden],
    fixed: filesystem.denyWrite ?? [],
    limits,
    input: true,
    ...(settings.confinement !== undefined && { confinement: settings.confinement }),
    ...(egress !== undefined && { egress }),
  };
}

async function openEgress(settings: ServerSettings, host: LaunchHost): Promise<Egress | undefined> {
  if ((settings.sandbox ?? NOTHING).network.allowedDomains.length === 0) return undefined;
  if (host.openEgress !== undefined) return host.openEgress(settings);
  throw new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `Server "${settings.name}" has allowed domains, and nothing here can let it reach only those.`,
    next: 'Take `network.allowedDomains` out to start it without a network.',
  });
}

function releaseOnce(egress: Egress | undefined, letGo: () => void): () => Promise<void> {
  let released: Promise<void> | undefined;
  return () => {
    letGo();
    return (released ??= egress === undefined ? Promise.resolve() : egress.close());
  };
}

function started(child: ChildProcess, name: string): Promise<void> {
  return new Promise((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', (cause: NodeJS.ErrnoException) => {
      const why =
        cause.code === 'ENOENT'
          ? 'its command or its folder was not found'
          : `it could not be started (${cause.code ?? 'unknown'})`;
      reject(new TollgateError('INIT_FAILED', { detail: `Server "${name}" did not start: ${why}.`, cause }));
    });
  });
}

function realPath(folder: string): string {
  return existsSync(folder) ? realpathSync(folder) : folder;
}

function inherited(names: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.flatMap((key) => (process.env[key] === undefined ? [] : [[key, process.env[key]]])));
}
