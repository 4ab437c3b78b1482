/** Runs the escape probes in every place where Tollgate starts programs, and outside of all sandboxes as a control. */
import { type ChildProcess, spawn } from 'node:child_process';
import path from 'node:path';
import { sandboxedShell } from '../../adapters/primitives/shell/sandboxed-shell.ts';
import type { SandboxSettings } from '../../adapters/sandbox/sandbox-spec.ts';
import { type LaunchHost, launch } from '../../adapters/stdio/launch.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import { leak, OWNER, type Plant } from './probe-targets.ts';

/** The program that contains the probes. */
export const PROBES = path.join(import.meta.dirname, 'escape-probes.mjs');

/** By name of the probe; true if it got out. */
export type Results = Readonly<Record<string, boolean>>;

function sandboxFor({ workspace }: Plant): SandboxSettings {
  return {
    filesystem: { allowRead: [], allowWrite: [workspace], denyRead: [path.join(workspace, 'keys')] },
    network: { allowedDomains: [] },
    limits: { memoryMb: 256, processes: 64, fileMb: 16 },
  };
}

function settingsFor(plant: Plant): ServerSettings {
  return {
    name: 'prober',
    transport: 'stdio',
    command: process.execPath,
    args: [PROBES],
    env: { OWN: plant.own },
    headers: {},
    connectTimeoutMs: 10_000,
    maxRetries: 0,
    reconnectBackoffMs: 100,
    cwd: plant.workspace,
    sandbox: sandboxFor(plant),
  };
}

const hiddenOf = ({ workspace, state, vault }: Plant): readonly string[] => [
  state,
  vault,
  path.join(workspace, 'tollgate.yaml'),
];

function hostFor(plant: Plant): LaunchHost {
  return { workspace: plant.workspace, hidden: hiddenOf(plant), secrets: () => Promise.reject(new Error('none')) };
}

/** Runs the named probes as a server. */
export async function runAsServer(plant: Plant, only: readonly string[]): Promise<Results> {
  return resultsOf((await launch(settingsFor(plant), hostFor(plant))).child, { ...plant, only, pass: 'server' });
}

/** Runs all probes as a server of a Tollgate that an ordinary user runs. Needs a build in `dist`. */
export function runAsUserServer(plant: Plant): Promise<Results> {
  const dist = path.join(import.meta.dirname, '..', '..', 'dist', 'adapters', 'stdio', 'launch.js');
  const program = `const {launch} = await import(${JSON.stringify(dist)});
const {settings, host, plant} = JSON.parse(await new Response(process.stdin).text());
const {child} = await launch(settings, {...host, secrets: async () => ''});
child.stdin.end(JSON.stringify({...plant, facade: process.pid}));
child.stdout.pipe(process.stdout); child.stderr.pipe(process.stderr);
child.on('close', (code) => (process.exitCode = code ?? 1));`;
  const words = [process.execPath, '--input-type=module', '-e', program];
  const user =
    process.getuid?.() === 0 ? ['setpriv', `--reuid=${OWNER}`, `--regid=${OWNER}`, '--clear-groups', ...words] : words;
  const child = spawn(user[0] as string, user.slice(1), {
    cwd: '/',
    env: { ...process.env, HOME: path.dirname(plant.file) },
  });
  return resultsOf(child, { settings: settingsFor(plant), host: hostFor(plant), plant: { ...plant, pass: 'user' } });
}

/** Runs the named probes as a command of the agent. */
export async function runAsCommand(plant: Plant, only: readonly string[]): Promise<Results> {
  const { filesystem, ...rest } = sandboxFor(plant);
  const sandbox = { ...rest, filesystem: { ...filesystem, allowRead: [path.dirname(PROBES)] } };
  const start = sandboxedShell(() => ({
    workspace: plant.workspace,
    sandbox,
    hidden: [plant.state, plant.vault],
    fixed: [path.join(plant.workspace, 'tollgate.yaml')],
  }));
  const { child } = await start({
    command: `${process.execPath} ${PROBES}`,
    cwd: plant.workspace,
    folder: plant.workspace,
    home: path.dirname(plant.file),
    input: true,
  });
  return resultsOf(child, { ...plant, only, pass: 'command' });
}

/** Probes that may succeed in a container, each with the reason. */
export const ALLOWED_IN_CONTAINER: ReadonlyMap<string, string> = new Map([
  [
    'see the command line of its sandbox with its environment in it',
    'its first process is an init, which has the variables of the server',
  ],
  ['read memory of the kernel', 'the engine hides files that show memory; names without addresses remain'],
  ['read the command line of the kernel', 'the engine shows it'],
  ['see devices and control groups in /sys', 'the engine shows them, read-only'],
  ...['shmget', 'semget', 'msgget', 'memfd_create'].map(
    (call) => [`call ${call}`, 'a control group counts their memory'] as const,
  ),
]);

/** Probes that take memory of no process. If a control group counts it, the kernel kills the whole sandbox. */
export const FATAL_WHERE_COUNTED: readonly string[] = [
  'hold more memory in shared maps than it may',
  'hold more memory in shared memory of System V than it may',
  'hold more memory in files of no folder than it may',
];

/** The image that test/servers/engine.ts makes of this machine's own programs. */
export const IMAGE = process.env.TOLLGATE_TEST_IMAGE ?? '';

/** Runs the named probes as a server in a container. */
export async function runInContainer(plant: Plant, only: readonly string[]): Promise<Results> {
  const { filesystem, ...rest } = sandboxFor(plant);
  const sandbox = { ...rest, image: IMAGE, filesystem: { ...filesystem, allowRead: [path.dirname(PROBES)] } };
  const settings = { ...settingsFor(plant), command: 'node', isolation: 'container', sandbox } as const;
  return resultsOf((await launch(settings, hostFor(plant))).child, { ...plant, pass: 'container', only });
}

/** Runs the named probes outside of every sandbox, with an inherited open file. */
export async function runOutside(plant: Plant, only: readonly string[]): Promise<Results> {
  const leaked = leak(plant.file);
  const results = await resultsOf(
    spawn(process.execPath, [PROBES], { cwd: plant.workspace, stdio: ['pipe', 'pipe', 'pipe', leaked.fd] }),
    { ...plant, only, pass: 'outside' },
  );
  leaked.close();
  return results;
}

function resultsOf(child: ChildProcess, input: unknown): Promise<Results> {
  return new Promise((resolve, reject) => {
    child.stdin?.end(JSON.stringify(input));
    let output = '';
    let errors = '';
    child.stdout?.on('data', (text: Buffer) => (output += text.toString('utf8')));
    child.stderr?.on('data', (text: Buffer) => (errors += text.toString('utf8')));
    child.on('close', (code, signal) =>
      code === 0
        ? resolve(JSON.parse(output.trim().split('\n').at(-1) ?? '') as Results)
        : reject(new Error(`probes ended with ${code ?? signal}: ${errors}${output.slice(-2000)}`)),
    );
  });
}
