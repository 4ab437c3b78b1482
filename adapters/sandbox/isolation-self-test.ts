/**
 * Tests that a sandbox isolates on this machine: a probe in a sandbox tries to reach a file and a port that were
 * planted for it.
 */
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { lastLine, startSandboxed } from './bubblewrap/sandbox-start.ts';
import { SANDBOX_HOME, type SandboxSpec } from './sandbox-spec.ts';

/** One property of the sandbox, and whether it holds on this machine. */
export interface IsolationProof {
  readonly name: string;
  readonly holds: boolean;
}

/**
 * Runs inside the sandbox and prints one line of JSON. The test is valid only if the planted file and port are
 * reachable from outside.
 */
const PROBE = String.raw`
const fs = require('node:fs');
const [file, port] = process.argv.slice(1);
const can = (action) => { try { action(); return true } catch { return false } };
const status = fs.readFileSync('/proc/self/status', 'latin1');
const field = (name) => new RegExp('^' + name + ':\\s*(\\S+)', 'm').exec(status)[1];
const socket = require('node:net').connect(Number(port), '127.0.0.1');
const done = (reached) => {
  socket.destroy();
  fs.writeSync(1, JSON.stringify({
    file: can(() => fs.readFileSync(file)),
    port: reached,
    capabilities: BigInt('0x' + field('CapEff')) !== 0n,
    gain: field('NoNewPrivs') !== '1',
    calls: field('Seccomp') !== '2',
    root: can(() => fs.writeFileSync('/tollgate-probe', '')),
    settings: can(() => fs.closeSync(fs.openSync('/proc/sys/kernel/core_pattern', 'r+'))),
    uid: process.getuid(),
    pids: fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name)).length,
  }));
};
socket.on('connect', () => done(true)).on('error', () => done(false)).setTimeout(1000, () => done(false));`;

/** Names the property that each answer of the probe tests. The answer true means that the property does not hold. */
const PROPERTIES: readonly (readonly [key: string, name: string])[] = [
  ['file', 'files of the host cannot be seen'],
  ['port', 'ports of the host cannot be reached'],
  ['capabilities', 'no capability is held'],
  ['gain', 'no right can be gained'],
  ['calls', 'system calls are filtered'],
  ['root', 'the root is read-only'],
  ['settings', 'settings of the kernel are read-only'],
];
/** At most: the first process of the sandbox, a shell, and the probe. */
const OWN_PROCESSES = 3;

const proofs = new Map<string, Promise<void>>();

/**
 * Tests the isolation once for each workspace. Throws SANDBOX_UNAVAILABLE if it fails; the next call then tests again.
 */
export function proveIsolation(workspace: string): Promise<void> {
  const known = proofs.get(workspace);
  if (known !== undefined) return known;
  const proof = prove(workspace);
  proofs.set(workspace, proof);
  proof.catch(() => proofs.delete(workspace));
  return proof;
}

async function prove(workspace: string): Promise<void> {
  const broken = (await testIsolation(workspace)).filter(({ holds }) => !holds).map(({ name }) => name);
  if (broken.length === 0) return;
  throw new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `The sandbox does not isolate on this machine. These properties do not hold: ${broken.join('; ')}.`,
    next: 'Run `tollgate doctor`. Until all properties hold, use `isolation: container`.',
  });
}

/** Runs the probe in a sandbox like that of a server. Throws SANDBOX_UNAVAILABLE if no sandbox can be made. */
export async function testIsolation(workspace: string): Promise<readonly IsolationProof[]> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-plant-'));
  const server = createServer((socket) => socket.destroy());
  try {
    const file = path.join(folder, 'planted');
    // All users may read it, so that only the sandbox can hide it.
    chmodSync(folder, 0o755);
    writeFileSync(file, 'planted', { mode: 0o644 });
    const port = await listen(server);
    const isPlanted = existsSync(file) && (await reaches(port));
    const answers = await runProbe(workspace, [file, `${port}`]);
    return [
      { name: 'the probe reaches the planted file and port from outside', holds: isPlanted },
      ...PROPERTIES.map(([key, name]) => ({ name, holds: answers[key] === false })),
      { name: 'the program is not root', holds: typeof answers.uid === 'number' && answers.uid !== 0 },
      {
        name: 'other processes cannot be seen',
        holds: typeof answers.pids === 'number' && answers.pids <= OWN_PROCESSES,
      },
    ];
  } finally {
    server.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function runProbe(workspace: string, args: readonly string[]): Promise<Readonly<Record<string, unknown>>> {
  const spec: SandboxSpec = {
    command: process.execPath,
    args: ['-e', PROBE, ...args],
    env: {},
    cwd: SANDBOX_HOME,
    workspace,
    read: [],
    write: [],
    hidden: [],
    // Without a control group, Node.js 24 needs more than 512 MB of data.
    limits: { memoryMb: 1024, processes: 64, fileMb: 16 },
    input: false,
  };
  const { child } = await startSandboxed(spec);
  const [output, errors] = await Promise.all([readText(child.stdout), readText(child.stderr)]);
  try {
    return JSON.parse(output) as Record<string, unknown>;
  } catch (cause) {
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `The test of the sandbox gave no result: ${lastLine(errors.trim())}`,
      next: 'Run `tollgate doctor`.',
      cause,
    });
  }
}

function listen(server: Server): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject).listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
  });
}

function reaches(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => (socket.destroy(), resolve(true)));
    socket.once('error', () => resolve(false));
  });
}
