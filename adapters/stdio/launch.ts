/** Starts the process of a server with the isolation of its settings. Without the isolation, it does not start. */
import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { searchFolders } from '../../catalogs/programs/helper-programs.ts';
import { NO_CONFINEMENT } from '../../catalogs/readers/confinement.ts';
import { isPathWithin, realOrAbsolute } from '../../catalogs/readers/path-location.ts';
import type { CredentialStore } from '../oauth/sign-in-credentials.ts';
import { startSandboxed } from '../sandbox/bubblewrap/sandbox-start.ts';
import { closePaths, outermostPaths } from '../sandbox/closed-paths/closure-mounts.ts';
import { type WithheldSettings, watchRepositories } from '../sandbox/closed-paths/git-repositories.ts';
import { createPlaceholders } from '../sandbox/closed-paths/placeholders.ts';
import { findContainerEngine } from '../sandbox/container/container-engine.ts';
import { startContainer } from '../sandbox/container/container-start.ts';
import { withoutInheritedDescriptors } from '../sandbox/inherited-descriptors.ts';
import { proveIsolation } from '../sandbox/isolation-self-test.ts';
import { signalGroup } from '../sandbox/process-tree.ts';
import { findProgram } from '../sandbox/program-files.ts';
import {
  chooseSandboxUser,
  type Egress,
  type SandboxedProcess,
  type SandboxSettings,
  type SandboxSpec,
} from '../sandbox/sandbox-spec.ts';
import { checkVisiblePaths } from '../sandbox/visible-paths.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';
import { fillSecrets } from './server-secrets.ts';

/** A started process, and what was made for it. */
export interface LaunchedProcess {
  /** Leads its own process group. */
  readonly child: ChildProcessWithoutNullStreams;
  /**
   * Sends a signal to the server and the processes that it started; in a sandbox, to the processes inside. 0 sends no
   * signal. Returns false if no process is left.
   */
  signal(signal: NodeJS.Signals | 0): boolean;
  /** Ends all processes at once, synchronously. */
  kill(): void;
  /** After the end: why the isolation failed at the start, for an engine that reports it only then. */
  refusal?(): TollgateError | undefined;
  /** After the end: true if memory was the reason. Absent if this cannot be known. */
  hasLackedMemory?(): boolean;
  /** True if the limit of processes is reached. Absent if this cannot be known. */
  isFull?(): boolean;
  /** Removes what was made for it (proxy, sockets, folders). Call it when the process has ended. Idempotent. */
  release(): Promise<void>;
}

/** What the facade gives to a start. All paths are absolute and real. */
export interface LaunchHost {
  readonly workspace: string;
  /** The working folder of a program whose settings have no `cwd`. Default: that of this process. */
  readonly folder?: string;
  /** State folder, vault and configuration. No settings can make them visible. */
  readonly hidden: readonly string[];
  /** Control files, even if they do not exist yet. No program may create them. */
  readonly fixed?: readonly string[];
  /** Returns the value of `${secret:name}`. An error stops the start. */
  readonly secrets: (name: string) => Promise<string>;
  /** Sign-ins to remote servers. Absent: none is used. */
  readonly credentials?: CredentialStore;
  /** Opens the proxy of a server that has allowed domains. Absent: such a server does not start. */
  readonly openEgress?: (settings: ServerSettings) => Promise<Egress>;
  /** Gets the settings of git repositories that were withheld, and closed paths that were opened. */
  readonly onWithheld?: (server: string, found: WithheldSettings) => void;
}

/** Variables that a program needs to run. Any other variable of our environment could be a secret of another server. */
const INHERITED = ['PATH', 'HOME', 'LANG', 'LC_ALL', 'LC_CTYPE', 'TZ', 'TMPDIR', 'USER', 'LOGNAME'];
/** Those that do not describe this machine. */
const LOCALE = ['LANG', 'LC_ALL', 'LC_CTYPE', 'TZ'];
/** The defaults of a server without sandbox settings: no file, no network. */
const DEFAULTS: SandboxSettings = {
  filesystem: { allowRead: [], allowWrite: [], denyRead: [] },
  network: { allowedDomains: [] },
  limits: { memoryMb: 256, processes: 64, fileMb: 256 },
};

/** One isolated start: the settings, and what was prepared for it. */
interface IsolatedStart {
  readonly settings: ServerSettings;
  readonly host: LaunchHost;
  /** Secrets are filled in. */
  readonly env: Readonly<Record<string, string>>;
  readonly egress: Egress | undefined;
  /** Runs directly before the program starts. */
  readonly ready: () => Promise<void>;
  /** Remove placeholders. Each may be called again. */
  readonly cleanups: (() => void)[];
}

/**
 * Starts a server and resolves when its process exists. The child has then emitted `spawn`. `ready` runs directly
 * before the program starts, after secrets, proxy and isolation are prepared. Its errors stop the start. Throws
 * INIT_FAILED if the program or its folder is missing, and SANDBOX_UNAVAILABLE if the isolation is not available.
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
  const cleanups: (() => void)[] = [];
  const start: IsolatedStart = { settings, host, env, egress, ready, cleanups };
  /** The placeholders stay until no process of the sandbox runs. */
  let over = Promise.resolve();
  let released: Promise<void> | undefined;
  const release = (): Promise<void> => {
    void over.then(() => {
      for (const cleanup of cleanups) cleanup();
    });
    return (released ??= egress === undefined ? Promise.resolve() : egress.close());
  };
  const report = (found: WithheldSettings): void => host.onWithheld?.(settings.name, found);
  try {
    cleanups.push(createPlaceholders(host.fixed ?? [], settings.sandbox?.filesystem.allowWrite ?? []));
    const started = await (settings.isolation === 'container' ? startInContainer(start) : startInSandbox(start));
    const { ended, lost } = started;
    if (lost !== undefined)
      over = ended.then(() => {
        if (lost.size > 0) report({ withheld: [], lost: [...lost] });
      });
    return watchScope(started, release, report);
  } catch (thrown) {
    // The caller needs the reason of the failed start, not a failure to clean up.
    await release().catch(() => undefined);
    throw thrown;
  }
}

/** Watches the git repositories of a program. Its release scans them once more, when no process is left. */
function watchScope(
  { repositoryScope, ended, lost, ...started }: SandboxedProcess,
  release: () => Promise<void>,
  report: (found: WithheldSettings) => void,
): LaunchedProcess {
  if (repositoryScope === undefined) return { ...started, release };
  const finish = watchRepositories(repositoryScope, ended, report);
  let released: Promise<void> | undefined;
  return {
    ...started,
    release: () => (released ??= Promise.all([release(), finish()]).then(() => undefined)),
  };
}

async function launchDirect(
  settings: ServerSettings,
  env: Readonly<Record<string, string>>,
  folder?: string,
): Promise<LaunchedProcess> {
  const { command = '', args, cwd = folder } = settings;
  // Start exactly the file that was checked. The child's own PATH, or one with relative folders, could name another.
  const from = cwd ?? process.cwd();
  // A command that is a path always means this file. If it is not a program, the system says why it does not start.
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
  await waitForSpawn(child, settings.name);
  return {
    child: child as ChildProcessWithoutNullStreams,
    signal: (signal) => signalGroup(child, signal),
    kill: () => void signalGroup(child, 'SIGKILL'),
    release: () => Promise.resolve(),
  };
}

async function startInContainer({
  settings,
  host,
  env,
  egress,
  ready,
  cleanups,
}: IsolatedStart): Promise<SandboxedProcess> {
  const { name: server, command = '', args, cwd, sandbox = DEFAULTS, confinement = NO_CONFINEMENT } = settings;
  const { image } = sandbox;
  if (image === undefined)
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `Server "${server}" has no image for its container.`,
      next: `Add sandbox: {image: name@sha256:…} under servers.${server}.`,
    });
  const { allowRead, allowWrite } = sandbox.filesystem;
  // This can take seconds, so the paths are checked after it.
  const engine = await findContainerEngine();
  const { workspace, hidden } = host;
  const roots = outermostPaths([...allowRead, ...allowWrite].filter((file) => existsSync(file)));
  const writable = outermostPaths(allowWrite.filter((file) => existsSync(file)));
  const { closed, release, repositoryScope } = await closePaths(confinement, { workspace, roots, writable }, (at) =>
    allowWrite.some((folder) => isPathWithin(at, folder)),
  );
  cleanups.push(release);
  const identity = chooseSandboxUser(workspace);
  await ready();
  // The search for closed paths took time.
  checkVisiblePaths(settings, workspace);
  const contained = { server, image, command, args, cwd, env, sandbox, closed, hidden, identity, egress };
  return { ...(await startContainer(contained, engine)), repositoryScope };
}

async function startInSandbox(start: IsolatedStart): Promise<SandboxedProcess> {
  const spec = sandboxSpec(start);
  await proveIsolation(start.host.workspace);
  await start.ready();
  return startSandboxed(spec);
}

function sandboxSpec({ settings, host, env, egress }: IsolatedStart): SandboxSpec {
  const { command = '', args, cwd, confinement } = settings;
  const { filesystem, limits } = settings.sandbox ?? DEFAULTS;
  return {
    command,
    args,
    cwd: realOrAbsolute(cwd ?? host.folder ?? process.cwd()),
    workspace: host.workspace,
    env: { ...inherited(LOCALE), ...env },
    read: cwd === undefined ? filesystem.allowRead : [cwd, ...filesystem.allowRead],
    write: filesystem.allowWrite,
    hidden: [...filesystem.denyRead, ...host.hidden],
    fixed: filesystem.denyWrite ?? [],
    limits,
    input: true,
    confinement,
    egress,
  };
}

async function openEgress(settings: ServerSettings, host: LaunchHost): Promise<Egress | undefined> {
  if ((settings.sandbox ?? DEFAULTS).network.allowedDomains.length === 0) return undefined;
  if (host.openEgress !== undefined) return host.openEgress(settings);
  throw new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `Server "${settings.name}" has allowed domains, but no proxy is available that limits it to them.`,
    next: 'Remove `network.allowedDomains` to start it without a network.',
  });
}

function waitForSpawn(child: ChildProcess, name: string): Promise<void> {
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

function inherited(names: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.flatMap((key) => (process.env[key] === undefined ? [] : [[key, process.env[key]]])));
}
