/** Owns the start of a program in a sandbox and its signals; refuses to hand over one whose sandbox was not set up to the end. */
import { spawn } from 'node:child_process';
import type { ChildProcess, ChildProcessWithoutNullStreams } from 'node:child_process';
import { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../catalogs/errors.ts';
import { signalGroup } from '../process-group.ts';
import { commandOf, FDS, madeFiles, optionsOf, planJail, unite, type Mount } from './bubblewrap.ts';
import { coverPlan } from './covers.ts';
import { asJudged } from './given.ts';
import { chooseIdentity } from './identity.ts';
import { forgetGroups, ownGroups, type Group, type Groups } from './group.ts';
import type { Identity, Jail, Jailed } from './jail.ts';
import { withoutForeign } from './descriptors.ts';
import { compileFilter } from './seccomp.ts';
import { throughLinks } from './links.ts';
import { isOfSystem } from './programs.ts';
import { stagePlan } from './stage.ts';
import { findTools, namespaceFix, type Tools } from './tools.ts';
import { descendantsOf, restingDescendantsOf, signalOne } from './tree.ts';

/** Setting up takes about 10 ms; a machine that needs this long has other troubles. */
const SETUP_MS = 20_000;
/** What a shell, and bubblewrap, end with after a program that SIGKILL ended. */
const KILLED = 137;

/**
 * Starts a program in a sandbox of its own (bubblewrap). Resolves when the sandbox stands and the program begins. Throws
 * SANDBOX_UNAVAILABLE when the sandbox cannot be made, and INIT_FAILED when there is no such program. Where there are control
 * groups, one counts its memory.
 */
export async function startJailed(jail: Jail, ours: () => Promise<Groups | undefined> = ownGroups): Promise<Jailed> {
  const groups = await ours();
  const tools = findTools(jail.egress !== undefined);
  const identity = chooseIdentity(jail.workspace);
  const first = planJail(jail);
  if (first === undefined) throw new TollgateError('INIT_FAILED', { detail: 'The program was not found.', next: 'Check `command`, and that it is installed.' });
  const plan = await coverPlan({ ...first, mounts: unite(throughLinks([...first.mounts, ...mountsOf(tools)])) }, jail);
  const staged = stagePlan(plan, identity);
  const group = groupFor(jail, identity, groups);
  const [command = '', ...args] = [...(group?.words ?? []), ...(staged?.words ?? []), tools.bwrap, '--args', `${FDS.args}`, '--', ...commandOf(jail, plan, tools)];
  const child = withoutForeign([jail.input ? 'pipe' : 'ignore', 'pipe', 'pipe', ...Object.values(FDS).map(() => 'pipe' as const)], (stdio) =>
    spawn(command, args, {
      // What bubblewrap needs to know comes by descriptor; its environment can be read from within.
      env: {}, cwd: '/', detached: true, shell: false, stdio, ...(identity.drop && staged === undefined && { uid: identity.uid, gid: identity.gid }),
    }));
  const hasLackedMemory = watchMemory(child, group);
  const hold = group?.hold(child.pid ?? 0);
  feed(child, new Map<number, string | Buffer>([[FDS.args, optionsOf(jail, staged?.plan ?? plan, identity).join('\0')], [FDS.seccomp, compileFilter({ counted: group !== undefined })], ...madeFiles(identity)]));
  // Nothing runs before its places were looked at once more: since the plan was made, a link may have taken one.
  const inner = await standing(child, identity, async (first) => {
    asJudged([...jail.read, ...jail.write, ...(jail.fixed ?? [])], jail.workspace);
    await hold?.([first, ...restingDescendantsOf(first)]).catch(notCounted);
  });
  return {
    child: child as ChildProcessWithoutNullStreams,
    signal: (signal) => signalInside(child, inner, signal),
    kill: () => {
      signalOne(inner, 'SIGKILL');
      signalGroup(child, 'SIGKILL');
    },
    hasLackedMemory,
  };
}

function groupFor({ limits }: Jail, { uid }: Identity, groups: Groups | undefined): Group | undefined {
  try {
    return groups?.make(limits, uid);
  } catch (thrown) {
    forgetGroups();
    return notCounted(thrown);
  }
}

/** Never one less limited than those before it. */
function notCounted(cause: unknown): never {
  throw new TollgateError('SANDBOX_UNAVAILABLE', { detail: 'The sandbox could not be put into a control group, which counts its memory.', next: 'Try again; if it stays so, run `tollgate doctor`.', cause });
}

/** Removes the group at the end of what is in it; the answer tells whether memory was the end. */
function watchMemory(child: ChildProcess, group: Group | undefined): () => boolean {
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
function mountsOf({ prlimit, socat }: Tools): readonly Mount[] {
  return [prlimit, socat].filter((file) => file !== undefined).filter((file) => !isOfSystem(file)).map((file) => ({ from: file, to: file, writable: false }));
}

function feed(child: ChildProcess, contents: ReadonlyMap<number, string | Buffer>): void {
  for (const [fd, content] of contents) {
    // EPIPE: bubblewrap ended before it read this; its exit tells why.
    pipeOf(child, fd)?.on('error', () => undefined).end(content);
  }
}

/** Pipes beyond the three are sockets, open both ways. */
function pipeOf(child: ChildProcess, fd: number): Duplex | undefined {
  const pipe = (child.stdio as readonly unknown[])[fd];
  return pipe instanceof Duplex ? pipe : undefined;
}

/** Waits until all stands inside, lets the program begin, and returns the first process of the sandbox. */
async function standing(child: ChildProcess, identity: Identity, admit: (first: number) => Promise<void>): Promise<number> {
  const [gate, status] = [pipeOf(child, FDS.gate), pipeOf(child, FDS.status)];
  if (gate === undefined || status === undefined) throw new TollgateError('SANDBOX_UNAVAILABLE', { detail: 'No further process could be started.' });
  // ECONNRESET: it was killed before it read that it may go; its exit tells.
  for (const pipe of [gate, status]) pipe.on('error', () => undefined);
  const failed = new Promise<never>((_, reject) => {
    child.once('error', (thrown) => reject(refused(thrown.message, identity)));
    child.once('exit', () => void saidBy(child).then((said) => reject(refused(said, identity))));
  });
  const stands = Promise.all([numberIn(status), new Promise((resolve) => gate.once('data', resolve))]);
  const late = sleep(SETUP_MS, undefined, { ref: false }).then(() => {
    throw new TollgateError('SANDBOX_UNAVAILABLE', { detail: 'The sandbox was not set up in time.' });
  });
  try {
    const [first] = await Promise.race([stands, failed, late]);
    await Promise.race([admit(first), failed, late]);
    gate.end('\n');
    return first;
  } catch (thrown) {
    signalGroup(child, 'SIGKILL');
    throw thrown;
  }
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
function refused(said: string, { uid }: Identity): TollgateError {
  const cause = new Error(said);
  if (/source path|Can't (?:find|get type|open)|Permission denied|EACCES/.test(said) && !/namespace|uid map/.test(said)) {
    return new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `A folder that the sandbox needs cannot be reached by user ${uid}, as whom the program runs.`,
      next: 'Let that user pass: `chmod o+x` on the folders above the program, the workspace and what `filesystem` names; `tollgate doctor` names them.', cause,
    });
  }
  const fix = namespaceFix();
  if (fix === undefined && !/namespace|[ug]id map|RTM_NEW/.test(said)) {
    return new TollgateError('SANDBOX_UNAVAILABLE', { detail: `bubblewrap did not set the sandbox up: ${lastLine(said)}`, next: 'Run `tollgate doctor`: it shows which part is refused. With TOLLGATE_LOG=debug, the command shows all that bubblewrap said.', cause });
  }
  const next = fix === undefined ? 'Run `tollgate doctor`: it shows which part is refused.' : `Allow them: ${fix}`;
  return new TollgateError('SANDBOX_UNAVAILABLE', { detail: 'This system does not let users make namespaces.', next, cause });
}

/** In plain letters; only places that every sandbox has are named. */
export function lastLine(said: string): string {
  const line = said.split('\n').at(-1) ?? '';
  return JSON.stringify(line.replace(/\/[^\s:'"]*/g, (place) => (/^\/(?:newroot\/|oldroot\/)?(?:proc|sys|dev|usr)\b[\w/.-]*$/.test(place) ? place : '(a path)')).replace(/[^\x20-\x7e]/g, '?').slice(0, 200));
}

/** Bubblewrap would die of a signal without a word to the program: it goes to all processes inside, and 0 asks for the first of them. */
function signalInside(child: ChildProcess, first: number, signal: NodeJS.Signals | 0): boolean {
  if (child.exitCode !== null || child.signalCode !== null) return false;
  if (signal === 0 || signal === 'SIGKILL') return signalOne(first, signal);
  for (const pid of descendantsOf(first)) signalOne(pid, signal);
  return signalOne(first, 0);
}
