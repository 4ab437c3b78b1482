/** Owns the look at what a machine has for isolation, thing by thing with its fix; refuses to call a sandbox good that was not tried. */
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

/** As `Finding` in facade/cli/configuration/doctor-findings.ts. */
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

/** As `Needs` in facade/cli/configuration/doctor-findings.ts. */
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

/** Looks at programs, the workspace's owner and the container's daemon, and proves the sandbox with its self-test. Never throws. */
export async function examineIsolation(needs: Needs): Promise<readonly Finding[]> {
  const sandbox = process.platform === 'linux' ? await examineSandbox(needs) : [elsewhere(needs)];
  return [
    ...needs.programs.flatMap(lackingOf),
    ...sandbox,
    await searcher(sandbox),
    others(),
    await program('opa', {
      needed: needs.rego,
      without: 'only Rego of your own needs it',
      fix: 'Install opa 0.70 or later in /usr/local/bin, or name it: programs.opa in tollgate.yaml, TOLLGATE_OPA or --opa.',
      file: process.env.TOLLGATE_OPA,
      ask: 'version',
    }),
    await containerClient(needs.container),
  ];
}

/** The program of a server, and the scripts among its arguments: an uninstalled package is a script that is not there. */
function lackingOf({ server, command, args, cwd }: Needs['programs'][number]): readonly Finding[] {
  const gone = args.filter((arg) => isScript(arg) && !existsSync(path.resolve(cwd, arg)));
  const isThere = findProgram(command, cwd) !== undefined;
  return [
    ...(isThere
      ? []
      : [
          {
            id: 'program-missing',
            name: `server ${server}`,
            state: 'missing',
            seen: `the program ${command} is not there`,
            fix: 'Install it, or correct command in its entry.',
          } as const,
        ]),
    ...gone.map(
      (file) =>
        ({
          id: 'script-missing',
          name: `server ${server}`,
          state: 'missing',
          seen: `${file} is not there`,
          fix: 'Install its package anew, or correct args in its entry.',
        }) as const,
    ),
  ];
}

async function examineSandbox({ workspace, sandbox, egress }: Needs): Promise<readonly Finding[]> {
  const without = 'nothing here asks for it';
  const tools = [
    await program('bwrap', { needed: sandbox, without, fix: INSTALL_HINTS.bwrap }),
    await program('prlimit', { needed: sandbox, without, fix: INSTALL_HINTS.prlimit }),
    await program('socat', {
      needed: egress,
      without: 'needed by servers with allowedDomains that are not Node.js',
      fix: INSTALL_HINTS.socat,
      ask: '-V',
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

interface Wanted {
  readonly needed: boolean;
  readonly without: string;
  readonly fix: string;
  readonly file?: string | undefined;
  readonly ask?: string;
}

/** ripgrep reads files of agents, so it runs in a sandbox or not at all. */
async function searcher(sandbox: readonly Finding[]): Promise<Finding> {
  const found = await program('rg', {
    needed: false,
    without: 'read searches with a slower search of its own',
    fix: 'sudo apt-get install ripgrep',
  });
  const lack = sandbox.find(
    ({ id, state }) =>
      state === 'missing' && ['bwrap', 'prlimit', 'sandbox-user', 'sandbox-proof', 'no-sandbox'].includes(id),
  );
  if (found.state !== 'ok' || lack === undefined) return found;
  return {
    ...found,
    state: 'weak',
    seen: `${found.seen}, not run: there is no sandbox for it, so read searches with a slower search of its own`,
    ...(lack.fix !== undefined && { fix: lack.fix }),
  };
}

/** Helpers that no other finding is about. */
function others(): Finding {
  const looks = HELPER_NAMES.filter((name) => !['bwrap', 'prlimit', 'socat', 'rg', 'opa'].includes(name)).map(
    (name) => ({
      name,
      ...locateHelper(name),
    }),
  );
  const refused = looks.filter((look) => look.refused !== undefined);
  const seen = looks
    .map(
      ({ name, file, refused: why }) =>
        file ?? (why === undefined ? `${name} not installed` : `${name} not run: ${why}`),
    )
    .join('; ');
  return {
    id: 'helpers',
    name: 'other helpers',
    state: refused.length === 0 ? 'ok' : 'weak',
    seen,
    ...(refused.length > 0 && {
      fix: `Install ${refused.map(({ name }) => name).join(', ')} for the whole system, or correct programs in tollgate.yaml.`,
    }),
  };
}

async function program(
  name: 'bwrap' | 'prlimit' | 'socat' | 'rg' | 'opa',
  { needed, without, fix, file, ask = '--version' }: Wanted,
): Promise<Finding> {
  const { file: found, refused } = file === undefined ? locateHelper(name) : checkNamedHelper(path.resolve(file));
  if (refused !== undefined)
    return {
      id: name,
      name,
      state: needed ? 'missing' : 'weak',
      seen: `not run: ${refused}`,
      fix: `Install it for the whole system, or name one under programs in tollgate.yaml: ${fix}`,
    };
  if (found === undefined)
    return {
      id: name,
      name,
      state: needed ? 'missing' : 'weak',
      seen: needed ? 'not installed' : `not installed: ${without}`,
      fix,
    };
  const version = await run(found, [ask], { timeout: ANSWER_MS, env: { PATH: HELPER_PATH } }).then(
    ({ stdout }) => /\d+(?:\.\d+)+/.exec(stdout)?.[0] ?? '',
    () => '',
  );
  return { id: name, name, state: 'ok', seen: `${found} ${version}`.trim() };
}

/** Root's workspace cannot be isolated when root runs us. */
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
    ? { ...base, state: 'ok', seen: 'not forbidden' }
    : {
        ...base,
        state: 'weak',
        seen: 'restricted by a setting of the kernel: the proof below shows whether it holds here',
        fix,
      };
}

/** How the limit of memory holds: for a sandbox as one, or for each process by itself. */
async function memory(): Promise<Finding> {
  const base = { id: 'sandbox-memory', name: 'memory of sandboxes' } as const;
  const groups = await ownControlGroups();
  if (groups !== undefined)
    return {
      ...base,
      state: 'ok',
      seen: `counted for each as one, by control groups of version ${groups.parent.version}`,
    };
  const fix =
    process.getuid?.() === 0
      ? 'Let Tollgate make control groups: in a container, mount /sys/fs/cgroup writable.'
      : 'Start Tollgate with a control group of its own: systemd-run --user --scope -p Delegate=yes tollgate serve';
  return {
    ...base,
    state: 'weak',
    seen: 'counted for each process by itself: there is no control group that Tollgate may divide',
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
      fix: 'Report it; until then: isolation: container',
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

/** A place to prove it without a configuration. */
function makeFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-doctor-'));
  chmodSync(folder, 0o755);
  if (process.getuid?.() === 0) chownSync(folder, NOBODY, NOBODY);
  return folder;
}

/** The first folder above, which others may not pass. */
function blockedFolder(file: string): string | undefined {
  for (let folder = path.dirname(file); path.dirname(folder) !== folder; folder = path.dirname(folder))
    if ((statSync(folder).mode & 0o001) === 0) return `chmod o+x ${folder}`;
  return undefined;
}

/** Both clients are told of, since the first that can be used is. */
async function containerClient(needed: boolean): Promise<Finding> {
  const base = { id: 'container-client', name: 'container client' } as const;
  const absent = needed ? 'missing' : 'weak';
  const answers = await examineContainerEngines();
  if (answers.length === 0)
    return {
      ...base,
      state: absent,
      seen: `neither docker nor podman is installed${needed ? '' : ': only isolation container needs one'}`,
      fix: 'sudo apt-get install podman',
    };
  const used = answers.find((answer) => 'engine' in answer);
  const lacks = answers.flatMap((answer) => ('lack' in answer ? [`${answer.client} ${answer.lack}`] : []));
  if (used !== undefined) return { ...base, state: 'ok', seen: [`${used.client} answers`, ...lacks].join('; ') };
  return {
    ...base,
    state: absent,
    seen: lacks.join('; '),
    fix: answers.flatMap((answer) => ('fix' in answer ? [answer.fix] : [])).join('; or: '),
  };
}

function elsewhere({ sandbox }: Needs): Finding {
  const fix =
    process.platform === 'win32'
      ? 'Run Tollgate inside WSL.'
      : 'Write isolation: container for servers and bash: {isolation: direct}, or run Tollgate on Linux.';
  return {
    id: 'no-sandbox',
    name: 'sandbox',
    state: sandbox ? 'missing' : 'weak',
    seen: `there is none for ${process.platform}`,
    fix,
  };
}
