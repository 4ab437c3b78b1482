/**
 * Examines what a machine has for isolation, and gives a fix for each problem. A sandbox counts as good only after its
 * self-test.
 */
import { execFile } from 'node:child_process';
import { chmodSync, chownSync, existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { asTollgateError } from '../../catalogs/errors/error-table.ts';
import { checkNamedHelper, HELPER_NAMES, HELPER_PATH, locateHelper } from '../../catalogs/programs/helper-programs.ts';
import { ownControlGroups } from './bubblewrap/control-group.ts';
import { INSTALL_HINTS, namespaceFix } from './bubblewrap/sandbox-tools.ts';
import { examineContainerEngines } from './container/container-engine.ts';
import { testIsolation } from './isolation-self-test.ts';
import { findProgram, isScript } from './program-files.ts';
import { chooseSandboxUser } from './sandbox-spec.ts';

const run = promisify(execFile);
const ANSWER_MS = 10_000;
const NOBODY = 65_534;

/** As `Finding` in facade/attention/doctor-findings.ts. */
interface Finding {
  readonly id:
    | 'bwrap'
    | 'prlimit'
    | 'socat'
    | 'rg'
    | 'opa'
    | 'helpers'
    | 'sandbox-user'
    | 'user-namespaces'
    | 'sandbox-memory'
    | 'sandbox-proof'
    | 'no-sandbox'
    | 'container-client'
    | 'program-missing'
    | 'script-missing';
  readonly name: string;
  readonly state: 'ok' | 'weak' | 'missing';
  readonly seen: string;
  readonly fix?: string;
}

/** As `Needs` in facade/attention/doctor-findings.ts. */
interface Needs {
  readonly workspace?: string;
  readonly sandbox: boolean;
  readonly egress: boolean;
  readonly container: boolean;
  readonly rego: boolean;
  readonly programs: readonly {
    readonly server: string;
    readonly command: string;
    readonly args: readonly string[];
    readonly cwd: string;
  }[];
}

/**
 * Examines programs, the workspace's owner and the container engines, and runs the self-test of the sandbox. Never
 * throws.
 */
export async function examineIsolation(needs: Needs): Promise<readonly Finding[]> {
  const sandbox = process.platform === 'linux' ? await examineSandbox(needs) : [unsupportedSystem(needs)];
  return [
    ...needs.programs.flatMap(missingFiles),
    ...sandbox,
    await ripgrep(sandbox),
    otherHelpers(),
    await program('opa', {
      needed: needs.rego,
      without: 'needed only for your own Rego',
      fix:
        'Install opa 0.70 or later in /usr/local/bin, ' +
        'or give its path: programs.opa in tollgate.yaml, TOLLGATE_OPA or --opa.',
      file: process.env.TOLLGATE_OPA,
      versionArg: 'version',
    }),
    await containerClient(needs.container),
  ];
}

/** Finds a missing program or script of a server. A missing script usually means that its package is not installed. */
function missingFiles({ server, command, args, cwd }: Needs['programs'][number]): readonly Finding[] {
  const missing = (id: 'program-missing' | 'script-missing', seen: string, fix: string): Finding => ({
    id,
    name: `server ${server}`,
    state: 'missing',
    seen: `${seen} does not exist`,
    fix,
  });
  const scripts = args.filter((arg) => isScript(arg) && !existsSync(path.resolve(cwd, arg)));
  return [
    ...(findProgram(command, cwd) === undefined
      ? [missing('program-missing', `the program ${command}`, 'Install it, or correct command in its entry.')]
      : []),
    ...scripts.map((file) =>
      missing('script-missing', file, 'Install its package again, or correct args in its entry.'),
    ),
  ];
}

async function examineSandbox({ workspace, sandbox, egress }: Needs): Promise<readonly Finding[]> {
  const without = 'this configuration does not need it';
  const tools = [
    await program('bwrap', { needed: sandbox, without, fix: INSTALL_HINTS.bwrap }),
    await program('prlimit', { needed: sandbox, without, fix: INSTALL_HINTS.prlimit }),
    await program('socat', {
      needed: egress,
      without: 'needed by servers with allowedDomains that are not Node.js',
      fix: INSTALL_HINTS.socat,
      versionArg: '-V',
    }),
  ];
  const owner = workspace === undefined ? undefined : ownerOf(workspace);
  const isReady = tools.slice(0, 2).every(({ state }) => state === 'ok') && owner?.state !== 'missing';
  return [
    ...tools,
    ...(owner === undefined ? [] : [owner]),
    namespaces(),
    await memory(),
    ...(isReady ? await proofs(workspace) : []),
  ];
}

/** A program to find. `without` says what happens if it is missing. */
interface WantedProgram {
  readonly needed: boolean;
  readonly without: string;
  readonly fix: string;
  readonly file?: string | undefined;
  /** Default `--version`. */
  readonly versionArg?: string;
}

/** ripgrep reads files that agents wrote, so it runs only in a sandbox. */
async function ripgrep(sandbox: readonly Finding[]): Promise<Finding> {
  const found = await program('rg', {
    needed: false,
    without: 'read uses its own, slower search',
    fix: 'sudo apt-get install ripgrep',
  });
  const problem = sandbox.find(
    ({ id, state }) =>
      state === 'missing' && ['bwrap', 'prlimit', 'sandbox-user', 'sandbox-proof', 'no-sandbox'].includes(id),
  );
  if (found.state !== 'ok' || problem === undefined) return found;
  return {
    ...found,
    state: 'weak',
    seen: `${found.seen}, not run: it needs a sandbox, so read uses its own, slower search`,
    ...(problem.fix !== undefined && { fix: problem.fix }),
  };
}

/** Reports the helpers that have no finding of their own. */
function otherHelpers(): Finding {
  const others = HELPER_NAMES.filter((name) => !['bwrap', 'prlimit', 'socat', 'rg', 'opa'].includes(name));
  const found = others.map((name) => ({ name, ...locateHelper(name) }));
  const names = found.filter((helper) => helper.refused !== undefined).map(({ name }) => name);
  const seen = found
    .map(
      ({ name, file, refused: why }) =>
        file ?? (why === undefined ? `${name} not installed` : `${name} not run: ${why}`),
    )
    .join('; ');
  return {
    id: 'helpers',
    name: 'other helpers',
    state: names.length === 0 ? 'ok' : 'weak',
    seen,
    ...(names.length > 0 && {
      fix: `Install ${names.join(', ')} for the whole system, or correct programs in tollgate.yaml.`,
    }),
  };
}

async function program(
  name: 'bwrap' | 'prlimit' | 'socat' | 'rg' | 'opa',
  { needed, without, fix, file, versionArg = '--version' }: WantedProgram,
): Promise<Finding> {
  const { file: found, refused } = file === undefined ? locateHelper(name) : checkNamedHelper(path.resolve(file));
  const absent = { id: name, name, state: needed ? 'missing' : 'weak' } as const;
  if (refused !== undefined) {
    const hint = `Set programs.${name} in tollgate.yaml to its path, or: ${fix}`;
    return { ...absent, seen: `not run: ${refused}`, fix: hint };
  }
  if (found === undefined) return { ...absent, seen: needed ? 'not installed' : `not installed: ${without}`, fix };
  const version = await run(found, [versionArg], { timeout: ANSWER_MS, env: { PATH: HELPER_PATH } }).then(
    ({ stdout }) => /\d+(?:\.\d+)+/.exec(stdout)?.[0] ?? '',
    () => '',
  );
  return { id: name, name, state: 'ok', seen: `${found} ${version}`.trim() };
}

/** If root runs Tollgate, a workspace of root cannot be isolated. */
function ownerOf(workspace: string): Finding {
  const base = { id: 'sandbox-user', name: 'user of sandboxes' } as const;
  try {
    const { uid } = chooseSandboxUser(workspace);
    return { ...base, state: 'ok', seen: `uid ${uid}` };
  } catch (thrown) {
    const user = process.env.SUDO_USER ?? 'USER';
    return {
      ...base,
      state: 'missing',
      seen: asTollgateError(thrown).message,
      fix: `Run Tollgate as an ordinary user, or: chown -R ${user}: ${workspace}`,
    };
  }
}

function namespaces(): Finding {
  const fix = namespaceFix();
  const base = { id: 'user-namespaces', name: 'user namespaces' } as const;
  return fix === undefined
    ? { ...base, state: 'ok', seen: 'allowed' }
    : {
        ...base,
        state: 'weak',
        seen: 'restricted by a setting of the kernel: the self-test below shows whether sandboxes work',
        fix,
      };
}

/** Reports whether the memory limit counts all processes of a sandbox together, or each process separately. */
async function memory(): Promise<Finding> {
  const base = { id: 'sandbox-memory', name: 'memory of sandboxes' } as const;
  const groups = await ownControlGroups();
  if (groups !== undefined)
    return {
      ...base,
      state: 'ok',
      seen: `counted for all processes of a sandbox together, by control groups of version ${groups.parent.version}`,
    };
  const fix =
    process.getuid?.() === 0
      ? 'Let Tollgate create control groups: in a container, mount /sys/fs/cgroup writable.'
      : 'Start Tollgate with a control group of its own: systemd-run --user --scope -p Delegate=yes tollgate serve';
  return {
    ...base,
    state: 'weak',
    seen: 'counted for each process separately: Tollgate has no control group that it may divide',
    fix,
  };
}

async function proofs(workspace: string | undefined): Promise<readonly Finding[]> {
  const folder = workspace ?? makeFolder();
  try {
    const proven = await testIsolation(folder);
    return proven.map(({ name, holds }) => ({
      id: 'sandbox-proof',
      name: `sandbox: ${name}`,
      state: holds ? 'ok' : 'missing',
      seen: holds ? 'proven' : 'does not hold',
      fix: 'Report this as a bug. Until it is fixed, use isolation: container.',
    }));
  } catch (thrown) {
    const { message, next } = asTollgateError(thrown);
    return [
      {
        id: 'sandbox-proof',
        name: 'sandbox',
        state: 'missing',
        seen: message,
        fix: /doctor/.test(next) ? (namespaceFix() ?? blockedFolder(folder) ?? next) : next,
      },
    ];
  } finally {
    if (workspace === undefined) rmSync(folder, { recursive: true, force: true });
  }
}

/** Creates a folder for a self-test without a configuration. */
function makeFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-doctor-'));
  chmodSync(folder, 0o755);
  if (process.getuid?.() === 0) chownSync(folder, NOBODY, NOBODY);
  return folder;
}

/** Names the first folder above that other users may not enter. */
function blockedFolder(file: string): string | undefined {
  for (let folder = path.dirname(file); path.dirname(folder) !== folder; folder = path.dirname(folder))
    if ((statSync(folder).mode & 0o001) === 0) return `chmod o+x ${folder}`;
  return undefined;
}

/** Reports both clients, because Tollgate uses the first one that works. */
async function containerClient(needed: boolean): Promise<Finding> {
  const base = { id: 'container-client', name: 'container client' } as const;
  const absent = needed ? 'missing' : 'weak';
  const answers = await examineContainerEngines();
  if (answers.length === 0)
    return {
      ...base,
      state: absent,
      seen: `neither docker nor podman is installed${needed ? '' : ': needed only for isolation: container'}`,
      fix: 'sudo apt-get install podman',
    };
  const used = answers.find((answer) => 'engine' in answer);
  const problems = answers.flatMap((answer) => ('lack' in answer ? [`${answer.client} ${answer.lack}`] : []));
  if (used !== undefined) return { ...base, state: 'ok', seen: [`${used.client} answers`, ...problems].join('; ') };
  return {
    ...base,
    state: absent,
    seen: problems.join('; '),
    fix: answers.flatMap((answer) => ('fix' in answer ? [answer.fix] : [])).join('; or: '),
  };
}

function unsupportedSystem({ sandbox }: Needs): Finding {
  const fix =
    process.platform === 'win32'
      ? 'Run Tollgate inside WSL.'
      : 'Write isolation: container for servers and bash: {isolation: direct}, or run Tollgate on Linux.';
  return {
    id: 'no-sandbox',
    name: 'sandbox',
    state: sandbox ? 'missing' : 'weak',
    seen: `not available for ${process.platform}`,
    fix,
  };
}
