/** Owns the start of a program in a sandbox; refuses to hand over one whose sandbox was not set up to the end. */

import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { realpathSync } from 'node:fs';
import { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { closePlan } from '../closed-paths/closure-mounts.ts';
import { withoutInheritedDescriptors } from '../inherited-descriptors.ts';
import {
  descendantsOf,
  hasEnded,
  isGone,
  isProcessLimitReached,
  type ProcessIdentity,
  signalGroup,
  signalOne,
  stableDescendantsOf,
  startTimeOf,
} from '../process-tree.ts';
import { isSystemFile } from '../program-files.ts';
import { chooseSandboxUser, type SandboxedProcess, type SandboxSpec, type SandboxUser } from '../sandbox-spec.ts';
import { unmovedPaths } from '../visible-paths.ts';
import {
  bubblewrapOptions,
  generatedFiles,
  mergeMounts,
  planSandbox,
  resolveMountLinks,
  SANDBOX_FDS,
  type SandboxMount,
  sandboxCommand,
} from './bubblewrap-arguments.ts';
import { type ControlGroup, type ControlGroups, forgetControlGroups, ownControlGroups } from './control-group.ts';
import { checkMounts, ownMounts, replacedMountError, waitForMounts } from './mount-check.ts';
import { stagePlan } from './mount-staging.ts';
import { SandboxLifetime } from './sandbox-lifetime.ts';
import { findSandboxTools, namespaceFix, type SandboxTools } from './sandbox-tools.ts';
import { compileSeccompFilter } from './seccomp-filter.ts';

/** Setting up takes about 10 ms; a machine that needs this long has other troubles. */
const SETUP_MS = 20_000;
/** What a shell, and bubblewrap, end with after a program that SIGKILL ended. */
const KILLED = 137;

/**
 * Starts a program in a sandbox of its own (bubblewrap). Resolves when the sandbox stands and the program begins. Throws
 * SANDBOX_UNAVAILABLE when the sandbox cannot be made, and INIT_FAILED when there is no such program. Where there are control
 * groups, one counts its memory.
 */
export async function startSandboxed(
  jail: SandboxSpec,
  ours: () => Promise<ControlGroups | undefined> = ownControlGroups,
): Promise<SandboxedProcess> {
  const groups = await ours().catch(notCounted);
  const tools = findSandboxTools(jail.egress !== undefined);
  const identity = chooseSandboxUser(jail.workspace);
  const first = planSandbox(jail);
  if (first === undefined)
    throw new TollgateError('INIT_FAILED', {
      detail: 'The program was not found.',
      next: 'Check `command`, and that it is installed.',
    });
  const {
    plan,
    release,
    repositoryScope: grounds,
    lost,
  } = await closePlan(
    { ...first, mounts: mergeMounts(resolveMountLinks([...first.mounts, ...programsOf(tools)])) },
    jail,
  );
  let child: ChildProcess | undefined;
  let group: ControlGroup | undefined;
  try {
    const staged = stagePlan(plan, identity);
    group = groupFor(jail, identity, groups);
    const [command = '', ...args] = [
      ...(group?.commandPrefix ?? []),
      ...(staged?.commandPrefix ?? []),
      tools.bwrap,
      '--args',
      `${SANDBOX_FDS.args}`,
      '--',
      ...sandboxCommand(jail, plan, tools),
    ];
    child = withoutInheritedDescriptors(
      [jail.input ? 'pipe' : 'ignore', 'pipe', 'pipe', ...Object.values(SANDBOX_FDS).map(() => 'pipe' as const)],
      (stdio) =>
        spawn(command, args, {
          // What bubblewrap needs to know comes by descriptor; its environment can be read from within.
          env: {},
          cwd: '/',
          detached: true,
          shell: false,
          stdio,
          ...(identity.drop && staged === undefined && { uid: identity.uid, gid: identity.gid }),
        }),
    );
    const started = child;
    const life = new SandboxLifetime({ child, lost, release });
    const hasLackedMemory = watchMemory(child, group);
    const hold = group?.moveIn(await numberOf(child, identity));
    feed(
      child,
      new Map<number, string | Buffer>([
        [SANDBOX_FDS.args, bubblewrapOptions(jail, staged?.plan ?? plan, identity).join('\0')],
        [SANDBOX_FDS.seccomp, compileSeccompFilter({ counted: group !== undefined })],
        ...generatedFiles(identity),
      ]),
    );
    // Nothing runs before its places were looked at once more: since the plan was made, a link may have taken one.
    const inner = await standing(child, identity, {
      check: async (first, signal) => {
        const host = ownMounts();
        const mounts = await waitForMounts(first, host, signal);
        unmovedPaths([...jail.read, ...jail.write, ...(jail.fixed ?? [])], jail.workspace);
        checkMounts(plan, host, mounts);
        const process = { pid: first, startTime: startTimeOf(first) };
        life.watch(process, plan, { standing: mounts, kill: () => killSandbox(started, process) });
      },
      admit: async (first) => {
        await hold?.([first, ...stableDescendantsOf(first)]).catch(notCounted);
        if (life.looks()) throw replacedMountError();
      },
    });
    return {
      ...sandboxHandle(child, { pid: inner, startTime: startTimeOf(inner) }, life),
      hasLackedMemory,
      isFull: () => isProcessLimitReached(inner, jail.limits.processes),
      lost: life.opened,
      ...(grounds !== undefined && { repositoryScope: grounds }),
    };
  } catch (thrown) {
    if (child !== undefined) signalGroup(child, 'SIGKILL');
    else release();
    group?.remove();
    throw thrown;
  }
}

/** What does not exist has no number, and 0 would mean ourselves to the kernel. Throws SANDBOX_UNAVAILABLE. */
async function numberOf(child: ChildProcess, identity: SandboxUser): Promise<number> {
  if (child.pid !== undefined) return child.pid;
  const [cause] = (await once(child, 'error')) as [Error];
  throw refused(cause.message, identity);
}

function groupFor(
  { limits }: SandboxSpec,
  { uid }: SandboxUser,
  groups: ControlGroups | undefined,
): ControlGroup | undefined {
  try {
    return groups?.make(limits, uid);
  } catch (thrown) {
    return notCounted(thrown);
  }
}

/** Never one less limited than those before it. */
function notCounted(cause: unknown): never {
  forgetControlGroups();
  throw new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: 'The sandbox could not be put into a control group, which counts its memory.',
    next: 'Try again; if it stays so, start Tollgate anew: it looks then for what this machine lets it have.',
    cause,
  });
}

/** Removes the group at the end of what is in it; the answer tells whether memory was the end. */
function watchMemory(child: ChildProcess, group: ControlGroup | undefined): () => boolean {
  let lacked = false;
  const finish = (): void => {
    // In one piece, or by the signal that its first process had.
    lacked = group?.hasKilled() === true && (child.signalCode === 'SIGKILL' || child.exitCode === KILLED);
    group?.remove();
  };
  child.once('exit', finish).once('error', finish);
  return () => lacked;
}

/** What runs inside, where it does not lie with the programs of the system. */
function programsOf({ prlimit, socat }: SandboxTools): readonly SandboxMount[] {
  return [prlimit, socat]
    .filter((file) => file !== undefined)
    .filter((file) => !isSystemFile(file))
    .map((file) => ({ from: file, to: file, writable: false, real: realpathSync(file) }));
}

function feed(child: ChildProcess, contents: ReadonlyMap<number, string | Buffer>): void {
  for (const [fd, content] of contents) {
    // EPIPE: bubblewrap ended before it read this; its exit tells why.
    pipeOf(child, fd)
      ?.on('error', () => undefined)
      .end(content);
  }
}

/** Pipes beyond the three are sockets, open both ways. */
function pipeOf(child: ChildProcess, fd: number): Duplex | undefined {
  const pipe = (child.stdio as readonly unknown[])[fd];
  return pipe instanceof Duplex ? pipe : undefined;
}

/** What is looked at before a sandbox may go on. */
interface Looks {
  /** When all is mounted and nothing runs; `signal` fires when nobody waits for it any more. */
  readonly check: (first: number, signal: AbortSignal) => Promise<void>;
  /** When all but the program itself runs. */
  readonly admit: (first: number) => Promise<void>;
}

/** Waits until all stands inside, lets the program begin, and returns the first process of the sandbox. */
async function standing(child: ChildProcess, identity: SandboxUser, { check, admit }: Looks): Promise<number> {
  const [gate, status, block] = [
    pipeOf(child, SANDBOX_FDS.gate),
    pipeOf(child, SANDBOX_FDS.status),
    pipeOf(child, SANDBOX_FDS.block),
  ];
  if (gate === undefined || status === undefined || block === undefined)
    throw new TollgateError('SANDBOX_UNAVAILABLE', { detail: 'No further process could be started.' });
  // ECONNRESET: it was killed before it read that it may go; its exit tells.
  for (const pipe of [gate, status, block]) pipe.on('error', () => undefined);
  let onExit = (): void => undefined;
  const failed = new Promise<never>((_, reject) => {
    child.once('error', (thrown) => reject(refused(thrown.message, identity)));
    onExit = () =>
      void saidBy(child)
        .then((said) => refused(said, identity))
        .catch((thrown: unknown) => thrown)
        .then(reject);
    child.once('exit', onExit);
  });
  const stands = new Promise((resolve) => gate.once('data', resolve));
  const over = new AbortController();
  const late = sleep(SETUP_MS, undefined, { ref: false }).then(() => {
    throw new TollgateError('SANDBOX_UNAVAILABLE', { detail: 'The sandbox was not set up in time.' });
  });
  try {
    const first = await Promise.race([numberIn(status), failed, late]);
    await Promise.race([check(first, over.signal), stands.then(notHeld), failed, late]);
    block.end('\n');
    await Promise.race([stands, failed, late]);
    await Promise.race([admit(first), failed, late]);
    gate.end('\n');
    return first;
  } finally {
    over.abort();
    // From here on what it says is read by whoever has it, who may have closed it by then.
    child.off('exit', onExit);
  }
}

/** What has begun before it was let go was not set up by bubblewrap as we know it. */
function notHeld(): never {
  throw new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: 'bubblewrap started the program before the sandbox was checked.',
    next: 'Run `tollgate doctor`: it shows which bubblewrap is used.',
  });
}

/** Process number of the sandbox's first process, in the namespace of bubblewrap, which is ours. */
function numberIn(status: Duplex): Promise<number> {
  return new Promise((resolve) => {
    let text = '';
    status.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      const found = /"child-pid": *(\d+)/.exec(text)?.[1];
      if (found !== undefined) resolve(Number(found));
    });
  });
}

/** What bubblewrap wrote before it gave up; nobody else has read it yet. */
async function saidBy(child: ChildProcess): Promise<string> {
  const said: Buffer[] = [];
  for await (const chunk of child.stderr ?? []) said.push(chunk as Buffer);
  return Buffer.concat(said).toString('utf8').trim();
}

/** The reasons that are known, each with what mends it. The words of bubblewrap hold paths of the host, so they stay whole in the cause. */
function refused(said: string, { uid }: SandboxUser): TollgateError {
  const cause = new Error(said);
  if (
    /source path|Can't (?:find|get type|open)|Permission denied|EACCES/.test(said) &&
    !/namespace|uid map/.test(said)
  ) {
    return new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `A folder that the sandbox needs cannot be reached by user ${uid}, as whom the program runs.`,
      next: 'Let that user pass: `chmod o+x` on the folders above the program, the workspace and what `filesystem` names; `tollgate doctor` names them.',
      cause,
    });
  }
  const fix = namespaceFix();
  if (fix === undefined && !/namespace|[ug]id map|RTM_NEW/.test(said)) {
    return new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `bubblewrap did not set the sandbox up: ${lastLine(said)}`,
      next: 'Run `tollgate doctor`: it shows which part is refused. With TOLLGATE_LOG=debug, the command shows all that bubblewrap said.',
      cause,
    });
  }
  const next = fix === undefined ? 'Run `tollgate doctor`: it shows which part is refused.' : `Allow them: ${fix}`;
  return new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: 'This system does not let users make namespaces.',
    next,
    cause,
  });
}

/** In plain letters; only places that every sandbox has are named. */
export function lastLine(said: string): string {
  const line = said.split('\n').at(-1) ?? '';
  return JSON.stringify(
    line
      .replace(/\/[^\s:'"]*/g, (place) =>
        /^\/(?:newroot\/|oldroot\/)?(?:proc|sys|dev|usr)\b[\w/.-]*$/.test(place) ? place : '(a path)',
      )
      .replace(/[^\x20-\x7e]/g, '?')
      .slice(0, 200),
  );
}

/** Of a sandbox that stands: `first` is its first process, as we number it. */
export function sandboxHandle(
  child: ChildProcess,
  first: ProcessIdentity,
  life: Pick<SandboxLifetime, 'ended'>,
): SandboxedProcess {
  return {
    child: child as ChildProcessWithoutNullStreams,
    signal: (signal) => (signal === 0 ? !hasEnded(first) : signalInside(first, signal)),
    kill: () => killSandbox(child, first),
    ended: life.ended,
  };
}

/** Ends all of it at once. */
export function killSandbox(child: ChildProcess, first: ProcessIdentity): void {
  // Asked for after the end too, when its number may be that of another. Bubblewrap reaps its first process and ends with it; killed
  // beside it, it would leave it to process 1 of the machine or container, which may reap nothing.
  if (isGone(first.pid, first.startTime) || !signalOne(first.pid, 'SIGKILL')) signalGroup(child, 'SIGKILL');
}

/** Bubblewrap would die of a signal without a word to the program: it goes to all processes inside. */
function signalInside(first: ProcessIdentity, signal: NodeJS.Signals): boolean {
  if (hasEnded(first)) return false;
  if (signal === 'SIGKILL') return signalOne(first.pid, signal);
  for (const pid of descendantsOf(first.pid)) signalOne(pid, signal);
  // Also where all of it has ended by now: the signal was for something that was there.
  return true;
}
