/** Starts each command of an agent in a sandbox of its own. If no sandbox can be created, the command does not run. */
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Confinement } from '../../../catalogs/readers/confinement.ts';
import { startSandboxed } from '../../sandbox/bubblewrap/sandbox-start.ts';
import { type WithheldSettings, watchRepositories } from '../../sandbox/closed-paths/git-repositories.ts';
import { createPlaceholders } from '../../sandbox/closed-paths/placeholders.ts';
import { proveIsolation } from '../../sandbox/isolation-self-test.ts';
import { type Egress, SANDBOX_HOME, type SandboxedProcess, type SandboxSettings } from '../../sandbox/sandbox-spec.ts';
import {
  type RunningCommand,
  type ShellCommand,
  type StartCommand,
  shellInvocation,
  waitUntil,
} from './shell-process.ts';

/** Settings of the sandboxes. Read at each start, because the configuration may change. Paths are absolute and real. */
export interface SandboxedShellSettings {
  readonly workspace: string;
  readonly sandbox: SandboxSettings;
  /** Paths that no command can see, such as state and vault. */
  readonly hidden: readonly string[];
  /** Paths that no command can write, because they decide what the agent may do. */
  readonly fixed: readonly string[];
  readonly openEgress?: (confinement: Confinement | undefined) => Promise<Egress>;
  /** Called with the settings that were withheld in repositories that a command changed. */
  readonly onWithheld?: (change: WithheldSettings) => void;
}

/**
 * The home of a command is the workspace. Caches and logs of these package managers would be left there, and shown as
 * changes by git. Build caches stay, because each later build would be slow without them.
 */
const CACHES = { npm_config_cache: `${SANDBOX_HOME}/.npm`, PIP_CACHE_DIR: `${SANDBOX_HOME}/.cache/pip` };
const TERM_MS = 2000;
const KILL_MS = 2000;

/** Starts each command in a new sandbox, so that commands share only the workspace. Throws SANDBOX_UNAVAILABLE. */
export function sandboxedShell(settings: () => SandboxedShellSettings): StartCommand {
  return async (command) => {
    const current = settings();
    await proveIsolation(current.workspace);
    const egress =
      current.sandbox.network.allowedDomains.length === 0 ? undefined : await current.openEgress?.(command.confinement);
    let release = (): void => undefined;
    try {
      release = createPlaceholders(current.fixed, current.sandbox.filesystem.allowWrite);
      const sandboxed = await startSandboxed(sandboxSpecOf(command, current, egress));
      void sandboxed.ended.then(() => {
        release();
        if (sandboxed.lost !== undefined && sandboxed.lost.size > 0)
          current.onWithheld?.({ withheld: [], lost: [...sandboxed.lost] });
      });
      // A failed close leaves only a private folder of Tollgate.
      if (egress !== undefined) sandboxed.child.once('exit', () => void egress.close().catch(() => undefined));
      return runningCommand(sandboxed, current);
    } catch (thrown) {
      release();
      await egress?.close();
      throw thrown;
    }
  };
}

function sandboxSpecOf(
  { command, folder, home, input, confinement }: ShellCommand,
  { workspace, sandbox, hidden, fixed }: SandboxedShellSettings,
  egress: Egress | undefined,
): Parameters<typeof startSandboxed>[0] {
  const { shell, args, env } = shellInvocation(command, home, false);
  const { PATH: _search, ...rest } = env;
  const { allowRead, allowWrite, denyRead, denyWrite = [] } = sandbox.filesystem;
  const visibleFixed = fixed.filter((file) => allowWrite.some((folder) => file.startsWith(`${folder}/`)));
  return {
    command: shell,
    args,
    env: { ...rest, ...CACHES },
    cwd: folder,
    workspace,
    read: allowRead,
    write: allowWrite,
    hidden: [...denyRead, ...hidden],
    fixed: [...visibleFixed, ...denyWrite],
    limits: sandbox.limits,
    input,
    ...(confinement !== undefined && { confinement }),
    ...(egress !== undefined && { egress }),
  };
}

function runningCommand(
  sandboxed: SandboxedProcess,
  { workspace, onWithheld }: SandboxedShellSettings,
): RunningCommand {
  const withheld: string[] = [];
  const finish =
    sandboxed.repositoryScope &&
    watchRepositories(sandboxed.repositoryScope, sandboxed.ended, (change) => {
      withheld.push(...change.withheld.map((file) => path.relative(workspace, file)));
      onWithheld?.(change);
    });
  // The shell merges stderr into stdout. This stream is only drained.
  sandboxed.child.stderr.resume();
  return {
    child: sandboxed.child,
    // When bubblewrap ends, all processes of the sandbox end.
    isRunning: () => sandboxed.child.exitCode === null && sandboxed.child.signalCode === null && sandboxed.signal(0),
    end: async () => {
      sandboxed.signal('SIGTERM');
      if (await waitUntil(() => !sandboxed.signal(0), TERM_MS)) return true;
      sandboxed.kill();
      return waitUntil(() => !sandboxed.signal(0), KILL_MS);
    },
    killNow: () => sandboxed.kill(),
    settle: async () => {
      await Promise.race([sandboxed.ended, sleep(KILL_MS, undefined, { ref: false })]);
      await finish?.();
      return { withheld, lost: [...(sandboxed.lost ?? [])].map((file) => path.relative(workspace, file)) };
    },
    ranOutOfMemory: () => sandboxed.hasLackedMemory?.() === true,
  };
}
