/** Starts a shell command, and ends it together with all processes that it started. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { findHelper, searchFolders } from '../../../catalogs/programs/helper-programs.ts';
import type { Confinement } from '../../../catalogs/readers/confinement.ts';
import { withoutInheritedDescriptors } from '../../sandbox/inherited-descriptors.ts';
import { signalOne } from '../../sandbox/process-tree.ts';
import { killMarked, MARK_VARIABLE, newProcessMark } from '../../stdio/orphans.ts';
import { GIT_ENVIRONMENT } from './git-environment.ts';

const TERM_MS = 2000;
const KILL_MS = 2000;
const POLL_MS = 25;

/** Merges stderr into stdout, so that their lines stay in order. */
const WRAP = 'exec 2>&1; exec "$0" "$@"';
/**
 * Without this option, bash reads ~/.bashrc if its stdin is a socket, as it is for a child of Node. The home folder of
 * a command is the workspace, so an agent could write this file.
 */
const NO_STARTUP_FILE = '--norc';
/** Limits without a sandbox: no core dumps, files of at most 2 GiB, one hour of processor time. */
const LIMIT = 'for limit in "-c 0" "-f 2097152" "-t 3600"; do ulimit $limit 2>/dev/null || :; done; ';

/** A command to run. Without `input`, its stdin is empty. */
export interface ShellCommand {
  readonly command: string;
  /** The open folder, as a path for a child that starts at once. */
  readonly cwd: string;
  /** The absolute name of the same folder, for a sandbox. There, a link swapped in cannot lead outside. */
  readonly folder: string;
  /** The value of HOME. */
  readonly home: string;
  readonly input: boolean;
  /** Paths that rules close to the command. Only a sandbox can enforce them. */
  readonly confinement?: Confinement;
}

/** A started command. */
export interface RunningCommand {
  readonly child: ChildProcess;
  /** Returns true while a process of the command runs. */
  isRunning(): boolean;
  /** Ends the command and every process that it started. Returns true if certainly no process is left. */
  end(): Promise<boolean>;
  /** After the end: returns true if the command ended because it ran out of memory, as far as known. */
  ranOutOfMemory?(): boolean;
  /**
   * After the end: checks the repositories that the command changed. Returns the files that were withheld, and the
   * paths that were replaced from outside so that they were no longer closed to the command.
   */
  settle?(): Promise<Pick<CommandEnd, 'withheld' | 'lost'>>;
  /** Kills the command synchronously, for the exit of this process. */
  killNow(): void;
}

/** Starts a command, with the rights of this process or in a sandbox. Throws system errors unchanged. */
export type StartCommand = (command: ShellCommand) => Promise<RunningCommand>;

/** Returns the shell, its arguments and a clean environment, so that no secret of the facade reaches the command. */
export function shellInvocation(
  command: string,
  home: string,
  withLimits: boolean,
): { readonly shell: string; readonly args: readonly string[]; readonly env: Readonly<Record<string, string>> } {
  // `npm run` puts node_modules/.bin first in PATH. An agent could put a program there under a name that a rule allows.
  const searchPath = searchFolders().join(':') || '/usr/bin:/bin';
  const bash = findHelper('bash');
  const shell = bash ?? '/bin/sh';
  const options = bash === undefined ? ['-c'] : [NO_STARTUP_FILE, '-c'];
  const env = {
    PATH: searchPath,
    HOME: home,
    LANG: process.env.LANG ?? 'C.UTF-8',
    TERM: 'dumb',
    NO_COLOR: '1',
    PAGER: 'cat',
    ...GIT_ENVIRONMENT,
  };
  return { shell, args: [...options, withLimits ? LIMIT + WRAP : WRAP, shell, ...options, command], env };
}

/**
 * Starts commands in process groups of their own, with all rights of the user. A mark in the environment finds
 * processes that left their group, and orphans of a killed facade. `owner` is the part of the mark that names the
 * facade.
 */
export function directShell(owner: string): StartCommand {
  return async ({ command, cwd, home, input }) => {
    const { shell, args, env } = shellInvocation(command, home, true);
    const mark = newProcessMark(owner);
    const child = withoutInheritedDescriptors([input ? 'pipe' : 'ignore', 'pipe', 'ignore'], (stdio) =>
      spawn(shell, args, { cwd, detached: true, stdio, env: { ...env, [MARK_VARIABLE]: mark } }),
    );
    await new Promise<void>((resolve, reject) => child.once('spawn', resolve).once('error', reject));
    const group = child.pid ?? 0;
    const killOrphans = (): unknown => killMarked((found) => found === mark);
    return {
      child,
      isRunning: () => isGroupAlive(group),
      end: () => endProcessGroup(group).finally(killOrphans),
      killNow: () => {
        signalOne(-group, 'SIGKILL');
        killOrphans();
      },
    };
  };
}

/** Returns true while a process of the group runs. Zombies do not count. */
export function isGroupAlive(group: number): boolean {
  try {
    process.kill(-group, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
  if (!existsSync('/proc/self/stat')) return true;
  return readdirSync('/proc').some((entry) => /^\d+$/.test(entry) && isLiveMember(entry, group));
}

/**
 * Parses /proc/PID/stat. The name may contain any character, so the fields start after the last `)`: state, parent,
 * group.
 */
function isLiveMember(pid: string, group: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const [state, , pgrp] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return Number(pgrp) === group && state !== 'Z' && state !== 'X';
  } catch {
    return false;
  }
}

/** Sends SIGTERM to the group, and SIGKILL after two seconds. Returns true if no process of the group is left. */
export async function endProcessGroup(group: number): Promise<boolean> {
  signalOne(-group, 'SIGTERM');
  if (await waitUntil(() => !isGroupAlive(group), TERM_MS)) return true;
  signalOne(-group, 'SIGKILL');
  return waitUntil(() => !isGroupAlive(group), KILL_MS);
}

/** Polls until a condition is true. Returns false if it is not after `ms` milliseconds. */
export async function waitUntil(isDone: () => boolean, ms: number): Promise<boolean> {
  for (let waited = 0; waited <= ms; waited += POLL_MS) {
    if (isDone()) return true;
    await sleep(POLL_MS);
  }
  return false;
}

/** How a command ended. After a signal, `code` is 128 plus its number, as in shells. */
export interface CommandEnd {
  readonly code: number;
  readonly signal?: NodeJS.Signals;
  /** True if the command left background processes, which were ended. */
  readonly leftovers: boolean;
  /** True if the system ended the command because its processes reached the memory limit. */
  readonly outOfMemory: boolean;
  /** Files of repositories that were renamed, because git would run programs that they name. */
  readonly withheld: readonly string[];
  /** Closed paths that another program replaced while the command ran. The command was ended for this reason. */
  readonly lost: readonly string[];
  readonly at: number;
}
