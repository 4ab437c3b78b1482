/** Owns the start of the agent's commands in a sandbox of their own; refuses to run one outside of it when none can be made. */
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Confinement } from '../../../catalogs/readers/confinement.ts';
import { startSandboxed } from '../../sandbox/bubblewrap/sandbox-start.ts';
import { type WithheldSettings, watchRepositories } from '../../sandbox/closed-paths/git-repositories.ts';
import { createPlaceholders } from '../../sandbox/closed-paths/placeholders.ts';
import { proveIsolation } from '../../sandbox/isolation-self-test.ts';
import type { Egress, SandboxedProcess, SandboxSettings } from '../../sandbox/sandbox-spec.ts';
import { type RunningCommand, type ShellCommand, type StartCommand, shellInvocation } from './shell-process.ts';

/** What commands are given. Asked for at each start, as the configuration may have changed. Paths absolute and real. */
export interface SandboxedShellSettings {
  readonly workspace: string;
  readonly sandbox: SandboxSettings;
  /** Never visible: state and vault. */
  readonly hidden: readonly string[];
  /** Never writable where a command sees them: what decides what the agent may do. */
  readonly fixed: readonly string[];
  readonly openEgress?: (confinement: Confinement | undefined) => Promise<Egress>;
  /** Hears what was withheld of repositories that a command made. */
  readonly onWithheld?: (look: WithheldSettings) => void;
}

const TERM_MS = 2000;
const KILL_MS = 2000;
const LOOK_MS = 25;

/** Starts commands in sandboxes, one for each, so that nothing but the workspace passes from one to the next. Throws SANDBOX_UNAVAILABLE. */
export function sandboxedShell(settings: () => SandboxedShellSettings): StartCommand {
  return async (command) => {
    const given = settings();
    await proveIsolation(given.workspace);
    const egress =
      given.sandbox.network.allowedDomains.length === 0 ? undefined : await given.openEgress?.(command.confinement);
    let release = (): void => undefined;
    try {
      release = createPlaceholders(given.fixed, given.sandbox.filesystem.allowWrite);
      const jailed = await startSandboxed(jailOf(command, given, egress));
      void jailed.ended.then(() => {
        release();
        if (jailed.lost !== undefined && jailed.lost.size > 0)
          given.onWithheld?.({ withheld: [], lost: [...jailed.lost] });
      });
      if (egress !== undefined) jailed.child.once('exit', () => void egress.close().catch(() => undefined)); // What is left is a folder of our own.
      return runningOf(jailed, given);
    } catch (thrown) {
      release();
      await egress?.close();
      throw thrown;
    }
  };
}

function jailOf(
  { command, folder, home, input, confinement }: ShellCommand,
  { workspace, sandbox, hidden, fixed }: SandboxedShellSettings,
  egress: Egress | undefined,
): Parameters<typeof startSandboxed>[0] {
  const { shell, args, env } = shellInvocation(command, home, false);
  const { PATH: _search, ...rest } = env;
  const { allowRead, allowWrite, denyRead, denyWrite = [] } = sandbox.filesystem;
  const seen = fixed.filter((file) => allowWrite.some((folder) => file.startsWith(`${folder}/`)));
  return {
    command: shell,
    args,
    env: rest,
    cwd: folder,
    workspace,
    read: allowRead,
    write: allowWrite,
    hidden: [...denyRead, ...hidden],
    fixed: [...seen, ...denyWrite],
    limits: sandbox.limits,
    input,
    ...(confinement !== undefined && { confinement }),
    ...(egress !== undefined && { egress }),
  };
}

function runningOf(jailed: SandboxedProcess, { workspace, onWithheld }: SandboxedShellSettings): RunningCommand {
  const withheld: string[] = [];
  const finish =
    jailed.repositoryScope &&
    watchRepositories(jailed.repositoryScope, jailed.ended, (look) => {
      withheld.push(...look.withheld.map((file) => path.relative(workspace, file)));
      onWithheld?.(look);
    });
  // Both streams are one inside; this one ends with the sandbox.
  jailed.child.stderr.resume();
  return {
    child: jailed.child,
    // What bubblewrap started ends with it.
    lives: () => jailed.child.exitCode === null && jailed.child.signalCode === null && jailed.signal(0),
    end: async () => {
      jailed.signal('SIGTERM');
      if (await isGone(jailed, TERM_MS)) return true;
      jailed.kill();
      return isGone(jailed, KILL_MS);
    },
    killNow: () => jailed.kill(),
    settle: async () => {
      await Promise.race([jailed.ended, sleep(KILL_MS, undefined, { ref: false })]);
      await finish?.();
      return { withheld, lost: [...(jailed.lost ?? [])].map((file) => path.relative(workspace, file)) };
    },
    hasLackedMemory: () => jailed.hasLackedMemory?.() === true,
  };
}

async function isGone(jailed: SandboxedProcess, within: number): Promise<boolean> {
  for (let waited = 0; waited <= within; waited += LOOK_MS) {
    if (!jailed.signal(0)) return true;
    await sleep(LOOK_MS);
  }
  return false;
}
