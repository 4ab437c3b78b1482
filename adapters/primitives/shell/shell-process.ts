/** Owns the start and the certain end of a command with all its children; refuses to leave a process of its group behind. */

import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { findHelper, searchFolders } from '../../../catalogs/programs/helper-programs.ts';
import type { Confinement } from '../../../catalogs/readers/confinement.ts';
import { withoutInheritedDescriptors } from '../../sandbox/inherited-descriptors.ts';
import { killMarked, MARK_VARIABLE, newProcessMark } from '../../stdio/orphans.ts';
import { GIT_ENVIRONMENT } from './git-environment.ts';

const TERM_MS = 2000;
const KILL_MS = 2000;
const LOOK_MS = 25;

/** Both streams are one pipe, so that their lines keep their order. */
const WRAP = 'exec 2>&1; exec "$0" "$@"';
/** Without it bash reads ~/.bashrc when its stdin is a socket, which is what Node makes, and the home of a command is the workspace. */
const NO_STARTUP_FILE = '--norc';
/** Outside of a sandbox, which has limits of its own: no core, files of 2 GiB, an hour of processor time. */
const LIMIT = 'for limit in "-c 0" "-f 2097152" "-t 3600"; do ulimit $limit 2>/dev/null || :; done; ';

/** What to run. Without `input`, stdin is empty. */
export interface ShellCommand {
  readonly command: string;
  /** The folder held open, as a path for a child that starts at once. */
  readonly cwd: string;
  /** The same folder by its name, absolute: for a sandbox, in which a link swapped in leads nowhere else. */
  readonly folder: string;
  /** Becomes HOME. */
  readonly home: string;
  readonly input: boolean;
  /** What rules close to it; only a sandbox can. */
  readonly confinement?: Confinement;
}

/** A command that was started, and its end. */
export interface RunningCommand {
  readonly child: ChildProcess;
  /** True while anything of it runs. */
  lives(): boolean;
  /** Ends it and everything that it started; true when it is certain that nothing is left. */
  end(): Promise<boolean>;
  /** Once it has ended: whether memory was the reason, as far as that can be told. */
  hasLackedMemory?(): boolean;
  /**
   * Once it has ended: looks at what it left in repositories, and gives the names of what was withheld, and of what was not closed to it to the
   * end, for which it was ended.
   */
  settle?(): Promise<Pick<CommandEnd, 'withheld' | 'lost'>>;
  /** At once and synchronously: for the end of our own process. */
  killNow(): void;
}

/** Starts commands: in this process's own rights, or isolated. Errors of the system are thrown as they come. */
export type StartCommand = (command: ShellCommand) => Promise<RunningCommand>;

/** The shell, its arguments and its environment: clean, so that no secret of the facade's gets in. */
export function shellInvocation(
  command: string,
  home: string,
  limited: boolean,
): { readonly shell: string; readonly args: readonly string[]; readonly env: Readonly<Record<string, string>> } {
  // `npm run` puts node_modules/.bin first: a name that a rule knows would be the agent's program.
  const search = searchFolders().join(':') || '/usr/bin:/bin';
  const bash = findHelper('bash');
  const shell = bash ?? '/bin/sh';
  const options = bash === undefined ? ['-c'] : [NO_STARTUP_FILE, '-c'];
  const env = {
    PATH: search,
    HOME: home,
    LANG: process.env.LANG ?? 'C.UTF-8',
    TERM: 'dumb',
    NO_COLOR: '1',
    PAGER: 'cat',
    ...GIT_ENVIRONMENT,
  };
  return { shell, args: [...options, limited ? LIMIT + WRAP : WRAP, shell, ...options, command], env };
}

/**
 * Starts commands in process groups of their own, with all rights of the user. What leaves its group, or is left behind by a
 * killed facade, is found by the mark that it carries; `owner` is the facade's part of it.
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
    const killStrays = (): unknown => killMarked((found) => found === mark);
    return {
      child,
      lives: () => isGroupAlive(group),
      end: () => endProcessGroup(group).finally(killStrays),
      killNow: () => {
        signalGroup(group, 'SIGKILL');
        killStrays();
      },
    };
  };
}

/** True while a process of the group runs. One that ended but was not collected by its parent does not count. */
export function isGroupAlive(group: number): boolean {
  try {
    process.kill(-group, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
  if (!existsSync('/proc/self/stat')) return true;
  return readdirSync('/proc').some((entry) => /^\d+$/.test(entry) && isLiveMember(entry, group));
}

/** Fields after the name, which may hold anything up to the last `)`: state, parent, group. */
function isLiveMember(pid: string, group: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const [state, , pgrp] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return Number(pgrp) === group && state !== 'Z' && state !== 'X';
  } catch {
    return false;
  }
}

/** TERM to the group, after two seconds KILL; true when nothing of the group is left. */
export async function endProcessGroup(group: number): Promise<boolean> {
  signalGroup(group, 'SIGTERM');
  if (await isGone(group, TERM_MS)) return true;
  signalGroup(group, 'SIGKILL');
  return isGone(group, KILL_MS);
}

/** Sends a signal to every process of a group. One that is gone, or belongs to root by now (set-uid), is for groupLives to tell. */
function signalGroup(group: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-group, signal);
  } catch (error) {
    if (!['ESRCH', 'EPERM'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}

async function isGone(group: number, within: number): Promise<boolean> {
  for (let waited = 0; waited <= within; waited += LOOK_MS) {
    if (!isGroupAlive(group)) return true;
    await sleep(LOOK_MS);
  }
  return false;
}
/** How a command ended. `code` is 128 + the signal's number for a signal, as shells say it. */
export interface CommandEnd {
  readonly code: number;
  readonly signal?: NodeJS.Signals;
  /** Processes that the command had left in the background were ended. */
  readonly leftovers: boolean;
  /** The system ended it, because all its processes together had reached the limit. */
  readonly lackedMemory: boolean;
  /** Files of repositories that have another name now, because git would run what they name. */
  readonly withheld: readonly string[];
  /** What something else replaced while the command ran, so that it was not closed to it any more. The command was ended for that. */
  readonly lost: readonly string[];
  readonly at: number;
}
