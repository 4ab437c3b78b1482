/** Starts a program in a sandbox by bubblewrap. The program starts only after the finished sandbox was checked. */
import type { ChildProcess, ChildProcessWithoutNullStreams } from 'node:child_process';
import { once } from 'node:events';
import { Duplex } from 'node:stream';
import { text as readText } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { closePlan } from '../closed-paths/closure-mounts.ts';
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
  readOnlyMount,
  resolveMountLinks,
  SANDBOX_FDS,
  type SandboxPlan,
  sandboxCommand,
} from './bubblewrap-arguments.ts';
import { type ControlGroup, type ControlGroups, forgetControlGroups, ownControlGroups } from './control-group.ts';
import { checkMounts, ownMounts, replacedMountError, waitForMounts } from './mount-check.ts';
import { spawnBubblewrap, stagePlan } from './mount-staging.ts';
import { SandboxLifetime } from './sandbox-lifetime.ts';
import { findSandboxTools, namespaceFix, type SandboxTools } from './sandbox-tools.ts';
import { compileSeccompFilter } from './seccomp-filter.ts';

/** Maximum time for the setup, which usually takes about 10 ms. */
const SETUP_MS = 20_000;
/** Exit code of a shell or of bubblewrap after SIGKILL ended the program. */
const KILLED = 137;

/**
 * Starts a program in its own sandbox, and resolves when the program begins. A control group counts the memory of the
 * sandbox where control groups are available. Throws SANDBOX_UNAVAILABLE if the sandbox cannot be made, and INIT_FAILED
 * if the program is missing.
 */
export async function startSandboxed(
  spec: SandboxSpec,
  findGroups: () => Promise<ControlGroups | undefined> = ownControlGroups,
): Promise<SandboxedProcess> {
  const groups = await findGroups().catch(refuseUncounted);
  const tools = findSandboxTools(spec.egress !== undefined);
  const identity = chooseSandboxUser(spec.workspace);
  const { plan, release, repositoryScope, lost } = await closePlan(planWithTools(spec, tools), spec);
  let child: ChildProcess | undefined;
  let group: ControlGroup | undefined;
  try {
    const staged = stagePlan(plan, identity);
    group = makeGroup(spec, identity, groups);
    const command = sandboxCommand(spec, { plan, tools, counted: group !== undefined });
    child = spawnBubblewrap([tools.bwrap, '--args', `${SANDBOX_FDS.args}`, '--', ...command], {
      identity,
      staged,
      groupPrefix: group?.commandPrefix ?? [],
      stdio: [spec.input ? 'pipe' : 'ignore', 'pipe', 'pipe', ...Object.values(SANDBOX_FDS).map(() => 'pipe' as const)],
    });
    const lifetime = new SandboxLifetime(child, lost, release);
    const hasLackedMemory = watchMemory(child, group);
    const moveDescendants = group?.moveIn(await pidOf(child, identity));
    writeInputs(
      child,
      new Map<number, string | Buffer>([
        [SANDBOX_FDS.args, bubblewrapOptions(spec, staged?.plan ?? plan, identity).join('\0')],
        [SANDBOX_FDS.seccomp, compileSeccompFilter({ counted: group !== undefined })],
        ...generatedFiles(identity),
      ]),
    );
    const first = await waitForSetup(child, identity, setupChecks({ spec, plan, child, lifetime, moveDescendants }));
    return {
      ...sandboxHandle(child, { pid: first, startTime: startTimeOf(first) }),
      ended: lifetime.ended,
      hasLackedMemory,
      isFull: () => isProcessLimitReached(first, spec.limits.processes),
      lost: lifetime.opened,
      repositoryScope,
    };
  } catch (thrown) {
    if (child !== undefined) signalGroup(child, 'SIGKILL');
    else release();
    group?.remove();
    throw thrown;
  }
}

/** Plans the sandbox with the programs that run inside it. Throws INIT_FAILED. */
function planWithTools(spec: SandboxSpec, { prlimit, socat }: SandboxTools): SandboxPlan {
  const plan = planSandbox(spec);
  if (plan === undefined)
    throw new TollgateError('INIT_FAILED', {
      detail: 'The program was not found.',
      next: 'Check `command`, and that it is installed.',
    });
  const tools = [prlimit, socat].filter((file) => file !== undefined && !isSystemFile(file)) as string[];
  return { ...plan, mounts: mergeMounts(resolveMountLinks([...plan.mounts, ...tools.map(readOnlyMount)])) };
}

/** Returns the number of a child that exists: for the kernel, 0 would mean this process. Throws SANDBOX_UNAVAILABLE. */
async function pidOf(child: ChildProcess, identity: SandboxUser): Promise<number> {
  if (child.pid !== undefined) return child.pid;
  const [cause] = (await once(child, 'error')) as [Error];
  throw setupError(cause.message, identity);
}

function makeGroup(
  { limits }: SandboxSpec,
  { uid }: SandboxUser,
  groups: ControlGroups | undefined,
): ControlGroup | undefined {
  try {
    return groups?.make(limits, uid);
  } catch (thrown) {
    return refuseUncounted(thrown);
  }
}

/**
 * If control groups are available but one cannot be created, the sandbox does not start: it would have weaker limits
 * than others.
 */
function refuseUncounted(cause: unknown): never {
  forgetControlGroups();
  throw new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: 'The sandbox could not be put into a control group, which counts its memory.',
    next: 'Try again. If it fails again, restart Tollgate, so that it checks which control groups this machine allows.',
    cause,
  });
}

/** Removes the group when the child ends. The returned function tells whether the memory limit ended it. */
function watchMemory(child: ChildProcess, group: ControlGroup | undefined): () => boolean {
  let lacked = false;
  const finish = (): void => {
    // The kernel killed the whole group, or the program's first process.
    lacked = group?.hasKilled() === true && (child.signalCode === 'SIGKILL' || child.exitCode === KILLED);
    group?.remove();
  };
  child.once('exit', finish).once('error', finish);
  return () => lacked;
}

function writeInputs(child: ChildProcess, contents: ReadonlyMap<number, string | Buffer>): void {
  for (const [fd, content] of contents) {
    // EPIPE: bubblewrap ended before it read this. Its exit tells why.
    pipeOf(child, fd)
      ?.on('error', () => undefined)
      .end(content);
  }
}

/** Pipes after stdin, stdout and stderr are sockets that are open in both directions. */
function pipeOf(child: ChildProcess, fd: number): Duplex | undefined {
  const pipe = (child.stdio as readonly unknown[])[fd];
  return pipe instanceof Duplex ? pipe : undefined;
}

/** Checks that must pass before the program starts. */
interface SetupChecks {
  /** Called when everything is mounted and nothing runs. `signal` fires when the setup has ended. */
  readonly mounted: (first: number, signal: AbortSignal) => Promise<void>;
  /** Called when everything except the program itself runs. */
  readonly ready: (first: number) => Promise<void>;
}

/** Checks the paths again: a link may have replaced one since the plan was made. */
function setupChecks({
  spec,
  plan,
  child,
  lifetime,
  moveDescendants,
}: {
  readonly spec: SandboxSpec;
  readonly plan: SandboxPlan;
  readonly child: ChildProcess;
  readonly lifetime: SandboxLifetime;
  readonly moveDescendants: ((pids: readonly number[]) => Promise<void>) | undefined;
}): SetupChecks {
  return {
    mounted: async (first, signal) => {
      const host = ownMounts();
      const mounts = await waitForMounts(first, host, signal);
      unmovedPaths([...spec.read, ...spec.write, ...(spec.fixed ?? [])], spec.workspace);
      checkMounts(plan, host, mounts);
      const process = { pid: first, startTime: startTimeOf(first) };
      lifetime.watch(process, plan, { mounts, kill: () => killSandbox(child, process) });
    },
    ready: async (first) => {
      await moveDescendants?.([first, ...stableDescendantsOf(first)]).catch(refuseUncounted);
      if (lifetime.checkClosedPaths()) throw replacedMountError();
    },
  };
}

/** Waits until the sandbox is set up, lets the program start, and returns the first process of the sandbox. */
async function waitForSetup(child: ChildProcess, identity: SandboxUser, checks: SetupChecks): Promise<number> {
  const [gate, status, block] = [
    pipeOf(child, SANDBOX_FDS.gate),
    pipeOf(child, SANDBOX_FDS.status),
    pipeOf(child, SANDBOX_FDS.block),
  ];
  if (gate === undefined || status === undefined || block === undefined)
    throw new TollgateError('SANDBOX_UNAVAILABLE', { detail: 'No further process could be started.' });
  // ECONNRESET: it was killed before it read the permission to start. Its exit tells why.
  for (const pipe of [gate, status, block]) pipe.on('error', () => undefined);
  let onExit = (): void => undefined;
  const failed = new Promise<never>((_, reject) => {
    child.once('error', (thrown) => reject(setupError(thrown.message, identity)));
    onExit = () =>
      void stderrOf(child)
        .then((output) => setupError(output, identity))
        .catch((thrown: unknown) => thrown)
        .then(reject);
    child.once('exit', onExit);
  });
  const ready = new Promise((resolve) => gate.once('data', resolve));
  const over = new AbortController();
  const late = sleep(SETUP_MS, undefined, { ref: false }).then(() => {
    throw new TollgateError('SANDBOX_UNAVAILABLE', { detail: 'The sandbox was not set up in time.' });
  });
  try {
    const first = await Promise.race([firstPidFrom(status), failed, late]);
    await Promise.race([checks.mounted(first, over.signal), ready.then(refuseEarlyStart), failed, late]);
    block.end('\n');
    await Promise.race([ready, failed, late]);
    await Promise.race([checks.ready(first), failed, late]);
    gate.end('\n');
    return first;
  } finally {
    over.abort();
    // From now on the caller reads the output. It may already have closed it when the child exits.
    child.off('exit', onExit);
  }
}

/** bubblewrap must wait until the sandbox was checked. One that does not wait cannot be trusted. */
function refuseEarlyStart(): never {
  throw new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: 'bubblewrap started the program before the sandbox was checked.',
    next: 'Run `tollgate doctor`: it shows which bubblewrap is used.',
  });
}

/**
 * Returns the first process of the sandbox. bubblewrap reports its number in the PID namespace that it shares with
 * Tollgate.
 */
function firstPidFrom(status: Duplex): Promise<number> {
  return new Promise((resolve) => {
    let text = '';
    status.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      const found = /"child-pid": *(\d+)/.exec(text)?.[1];
      if (found !== undefined) resolve(Number(found));
    });
  });
}

/** Returns what bubblewrap wrote before it ended. No one else has read it yet. */
async function stderrOf({ stderr }: ChildProcess): Promise<string> {
  return stderr === null ? '' : (await readText(stderr)).trim();
}

/**
 * Explains known failures, each with its fix. The output of bubblewrap contains paths of the host, so only the cause
 * has all of it.
 */
function setupError(output: string, { uid }: SandboxUser): TollgateError {
  const error = (detail: string, next: string): TollgateError =>
    new TollgateError('SANDBOX_UNAVAILABLE', { detail, next, cause: new Error(output) });
  const isNamespaceProblem = /namespace|[ug]id map|RTM_NEW/.test(output);
  if (
    /source path|Can't (?:find|get type|open)|Permission denied|EACCES/.test(output) &&
    !/namespace|uid map/.test(output)
  )
    return error(
      `User ${uid}, who runs the program, cannot reach a folder that the sandbox needs.`,
      'Let this user pass: `chmod o+x` on the folders above the program, above the workspace and above the paths in ' +
        '`filesystem`. `tollgate doctor` names them.',
    );
  const fix = namespaceFix();
  if (fix === undefined && !isNamespaceProblem)
    return error(
      `bubblewrap did not set the sandbox up: ${lastLine(output)}`,
      'Run `tollgate doctor`: it shows which part fails. With TOLLGATE_LOG=debug, the command shows the whole output ' +
        'of bubblewrap.',
    );
  return error(
    'This system does not let users create namespaces.',
    fix === undefined ? 'Run `tollgate doctor`: it shows which part fails.' : `Allow them: ${fix}`,
  );
}

/** Returns the last line of an output in ASCII. It replaces paths, except those that every sandbox has. */
export function lastLine(output: string): string {
  const line = output.split('\n').at(-1) ?? '';
  return JSON.stringify(
    line
      .replace(/\/[^\s:'"]*/g, (file) =>
        /^\/(?:newroot\/|oldroot\/)?(?:proc|sys|dev|usr)\b[\w/.-]*$/.test(file) ? file : '(a path)',
      )
      .replace(/[^\x20-\x7e]/g, '?')
      .slice(0, 200),
  );
}

/** Returns the handle of a sandbox that is set up. `first` is its first process, as the host numbers it. */
function sandboxHandle(
  child: ChildProcess,
  first: ProcessIdentity,
): Pick<SandboxedProcess, 'child' | 'signal' | 'kill'> {
  return {
    child: child as ChildProcessWithoutNullStreams,
    signal: (signal) => (signal === 0 ? !hasEnded(first) : signalInside(first, signal)),
    kill: () => killSandbox(child, first),
  };
}

/** Kills all processes of a sandbox. */
function killSandbox(child: ChildProcess, first: ProcessIdentity): void {
  // The caller may ask after the end, when another process may have this number. Only `first` is killed, because
  // bubblewrap then reaps it and ends. If bubblewrap were killed too, process 1 of the machine or container would have
  // to reap `first`, and may not do so.
  if (isGone(first.pid, first.startTime) || !signalOne(first.pid, 'SIGKILL')) signalGroup(child, 'SIGKILL');
}

/** Signals the processes inside. bubblewrap itself would end at a signal without passing it to the program. */
function signalInside(first: ProcessIdentity, signal: NodeJS.Signals): boolean {
  if (hasEnded(first)) return false;
  if (signal === 'SIGKILL') return signalOne(first.pid, signal);
  for (const pid of descendantsOf(first.pid)) signalOne(pid, signal);
  // True even if all have ended since: they existed at the call.
  return true;
}
