/** Owns the ways in which the probes are run: one process each, which tries them all, started as Tollgate starts programs; and outside of everything as a control. */
import { spawn, spawnSync } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import path from 'node:path';
import { jailedShell } from '../../adapters/internal/jailed-shell.ts';
import { launch } from '../../adapters/launch.ts';
import type { LaunchHost } from '../../adapters/launch.ts';
import type { SandboxSettings, ServerSettings } from '../../adapters/settings.ts';
import { leak, OWNER, type Plant } from './plants.ts';

/** The program that tries. */
export const PROBES = path.join(import.meta.dirname, 'probes.mjs');

/** By name of the attempt; true: it got out. */
export type Results = Readonly<Record<string, boolean>>;

function sandboxFor({ workspace }: Plant): SandboxSettings {
  return {
    filesystem: { allowRead: [], allowWrite: [workspace], denyRead: [path.join(workspace, 'keys')] }, network: { allowedDomains: [] },
    limits: { memoryMb: 256, processes: 64, fileMb: 16 },
  };
}

function settingsFor(plant: Plant): ServerSettings {
  return {
    name: 'prober', transport: 'stdio', command: process.execPath, args: [PROBES], env: { OWN: plant.own }, headers: {},
    connectTimeoutMs: 10_000, maxRetries: 0, reconnectBackoffMs: 100, cwd: plant.workspace, sandbox: sandboxFor(plant),
  };
}

const hiddenOf = ({ workspace, state, vault }: Plant): readonly string[] => [state, vault, path.join(workspace, 'tollgate.yaml')];

function hostFor(plant: Plant): LaunchHost {
  return { workspace: plant.workspace, hidden: hiddenOf(plant), secrets: () => Promise.reject(new Error('none')) };
}

/** As a server. */
export async function asServer(plant: Plant): Promise<Results> {
  return resultsOf((await launch(settingsFor(plant), hostFor(plant))).child, { ...plant, pass: 'server' });
}

/** As a server of a Tollgate that an ordinary user runs; the build of this tree. */
export function asServerOfUser(plant: Plant): Promise<Results> {
  const dist = path.join(import.meta.dirname, '..', '..', 'dist', 'adapters', 'launch.js');
  const program = `const {launch} = await import(${JSON.stringify(dist)});
const {settings, host, plant} = JSON.parse(await new Response(process.stdin).text());
const {child} = await launch(settings, {...host, secrets: async () => ''});
child.stdin.end(JSON.stringify({...plant, facade: process.pid}));
child.stdout.pipe(process.stdout); child.stderr.pipe(process.stderr);
child.on('close', (code) => (process.exitCode = code ?? 1));`;
  const words = [process.execPath, '--input-type=module', '-e', program];
  const user = process.getuid?.() === 0 ? ['setpriv', `--reuid=${OWNER}`, `--regid=${OWNER}`, '--clear-groups', ...words] : words;
  const child = spawn(user[0] as string, user.slice(1), { cwd: '/', env: { ...process.env, HOME: path.dirname(plant.file) } });
  return resultsOf(child, { settings: settingsFor(plant), host: hostFor(plant), plant: { ...plant, pass: 'user' } });
}

/** As a command of the agent. */
export async function asCommand(plant: Plant): Promise<Results> {
  const { filesystem, ...rest } = sandboxFor(plant);
  const sandbox = { ...rest, filesystem: { ...filesystem, allowRead: [path.dirname(PROBES)] } };
  const start = jailedShell(() => ({ workspace: plant.workspace, sandbox, hidden: [plant.state, plant.vault], fixed: [path.join(plant.workspace, 'tollgate.yaml')] }));
  const { child } = await start({ command: `${process.execPath} ${PROBES}`, cwd: plant.workspace, folder: plant.workspace, home: path.dirname(plant.file), input: true });
  return resultsOf(child, { ...plant, pass: 'command' });
}

/** What needs Node alone, and does not ask what the image itself holds. */
export const IN_CONTAINER: readonly string[] = [
  'read the state folder', 'read the vault', 'read the configuration in the workspace', 'write the configuration in the workspace', 'look into a hidden folder of the workspace',
  'read a file of another user of the temporary folder', 'see files that others left in /dev/shm', 'follow a link in the workspace out of it', 'walk a linked folder in the workspace out of it',
  'walk out by the root of the first process', 'write a file in the folder of another', 'find a process by its name', 'read the environment of another server', 'inherit a variable of the facade',
  'reach a port of the host', 'reach a socket of the host by its path', 'reach an abstract socket of the host', 'reach the socket of docker', 'find a way to other machines', 'resolve a name',
  'send a datagram that arrives', 'be root', 'write settings of the kernel', 'have a program run at a crash', 'hold more memory than it may',
];

/** Has Node in it; fetched by the engine where it is not there. */
const IMAGE = process.env['TOLLGATE_PROBE_IMAGE'] ?? 'node:20';

/** Why no container can be tried here; undefined when one can. */
export function lackOfContainers(): string | undefined {
  return ['docker', 'podman'].some((name) => spawnSync(name, ['ps', '--quiet'], { timeout: 10_000 }).status === 0) ? undefined : 'neither docker nor podman answers on this machine';
}

/** As a server in a container. */
export async function inContainer(plant: Plant): Promise<Results> {
  const { filesystem, ...rest } = sandboxFor(plant);
  const sandbox = { ...rest, image: IMAGE, filesystem: { ...filesystem, allowRead: [path.dirname(PROBES)] } };
  const settings = { ...settingsFor(plant), command: 'node', isolation: 'container', sandbox } as const;
  return resultsOf((await launch(settings, hostFor(plant))).child, { ...plant, pass: 'container', only: IN_CONTAINER });
}

/** Outside of every sandbox, with an open file left to it; tries the named ones. */
export async function outsideOfAll(plant: Plant, only: readonly string[]): Promise<Results> {
  const left = leak(plant.file);
  const results = await resultsOf(spawn(process.execPath, [PROBES], { cwd: plant.workspace, stdio: ['pipe', 'pipe', 'pipe', left.fd] }), { ...plant, only, pass: 'outside' });
  left.close();
  return results;
}

function resultsOf(child: ChildProcess, told: unknown): Promise<Results> {
  return new Promise((resolve, reject) => {
    child.stdin?.end(JSON.stringify(told));
    let said = '';
    let complaint = '';
    child.stdout?.on('data', (text: Buffer) => (said += text.toString('utf8')));
    child.stderr?.on('data', (text: Buffer) => (complaint += text.toString('utf8')));
    child.on('close', (code) => (code === 0 ? resolve(JSON.parse(said.trim().split('\n').at(-1) ?? '') as Results) : reject(new Error(`probes ended with ${code}: ${complaint}${said.slice(-2000)}`))));
  });
}
