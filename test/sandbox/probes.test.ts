/** Runs every attempt to get out of a sandbox, in the real one; and outside of it as a control, for a probe that cannot succeed proves nothing. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { launch } from '../../adapters/launch.ts';
import type { LaunchHost } from '../../adapters/launch.ts';
import type { ServerSettings } from '../../adapters/settings.ts';
import { verifies } from '../verifies.ts';
import { leak, plantAll } from './plants.ts';
import type { Plant, Planted } from './plants.ts';

const PROBES = path.join(import.meta.dirname, 'probes.mjs');

/** What depends on the machine: another kernel, another container around the tests. They must fail in the sandbox all the same. */
const WITHOUT_CONTROL: ReadonlySet<string> = new Set([
  'see the home folder by HOME', 'see the command line of its sandbox with its environment in it', 'find a way to other machines', 'reach the address of cloud metadata',
  'open a socket to the hypervisor', 'open a socket to the ciphers of the kernel', 'open a socket for whole packets', 'make a device', 'open devices of the host', 'write settings of the kernel',
  'have a program run at a crash', 'command the kernel by sysrq', 'read memory of the kernel', 'see keys of others', 'make calls by the second table of the processor', 'fill /dev/shm', 'fill /run',
  'leave a core of its memory', 'call io_uring_setup', 'call kcmp', 'call modify_ldt', 'call iopl', 'call userfaultfd', 'mount memory', 'gain rights by su', 'make namespaces', 'make a hard link to a program', 'raise its own limits',
  'make the host end others first when memory is short', 'raise its own priority', 'walk out by the root of the first process', 'enter the namespaces of the first process',
]);

type Results = Readonly<Record<string, boolean>>;

let planted: Planted;
let inside: Results;
let outside: Results;

beforeAll(async () => {
  process.env['TOLLGATE_PROBE_LEAK'] = 'leaked';
  planted = await plantAll();
  const { plant } = planted;
  inside = await resultsOf((await launch(settingsFor(plant), hostFor(plant))).child, plant);
  const left = leak(plant.file);
  outside = await resultsOf(spawn(process.execPath, [PROBES], { cwd: plant.workspace, stdio: ['pipe', 'pipe', 'pipe', left.fd] }), plant);
  left.close();
}, 120_000);

afterAll(() => {
  delete process.env['TOLLGATE_PROBE_LEAK'];
  planted.close();
});

function settingsFor(plant: Plant): ServerSettings {
  const { workspace, own } = plant;
  return {
    name: 'prober', transport: 'stdio', command: process.execPath, args: [PROBES], env: { OWN: own }, headers: {},
    connectTimeoutMs: 10_000, maxRetries: 0, reconnectBackoffMs: 100, cwd: workspace,
    sandbox: {
      filesystem: { allowRead: [], allowWrite: [workspace], denyRead: [path.join(workspace, 'keys')] }, network: { allowedDomains: [] },
      limits: { memoryMb: 256, processes: 64, fileMb: 16 },
    },
  };
}

function hostFor({ workspace, state, vault }: Plant): LaunchHost {
  return { workspace, hidden: [state, vault, path.join(workspace, 'tollgate.yaml')], secrets: () => Promise.reject(new Error('none')) };
}

function resultsOf(child: ChildProcess, plant: Plant): Promise<Results> {
  return new Promise((resolve, reject) => {
    child.stdin?.end(JSON.stringify(plant));
    let said = '';
    let complaint = '';
    child.stdout?.on('data', (text: Buffer) => (said += text.toString('utf8')));
    child.stderr?.on('data', (text: Buffer) => (complaint += text.toString('utf8')));
    child.on('close', (code) => (code === 0 ? resolve(JSON.parse(said.trim().split('\n').at(-1) ?? '') as Results) : reject(new Error(`probes ended with ${code}: ${complaint}`))));
  });
}

const NAMES = [...readFileSync(PROBES, 'utf8').matchAll(/^(?: {2}|PROBES\[)'([^']+)'[\]:]/gm)].map(([, name = '']) => name);
const CALLS = [...readFileSync(PROBES, 'utf8').matchAll(/\['([a-z_0-9]+)', (?:[-\d']|process)/g)].map(([, name = '']) => `call ${name}`);
const ALL = [...NAMES, ...CALLS];

describe('no server gets out of its sandbox', () => {
  it('with a hundred ways to try', () => {
    expect(Object.keys(inside).sort()).toEqual([...ALL].sort());
    expect(ALL.length).toBeGreaterThanOrEqual(100);
  });

  it.each(ALL)('to %s' + verifies('PF-02', 'CY-24'), (name) => {
    expect(inside[name]).toBe(false);
  });
});

describe('the probes can succeed: outside of the sandbox, with the rights of root', () => {
  const controls = ALL.filter((name) => !WITHOUT_CONTROL.has(name));

  it('nearly all of them', () => {
    expect(process.getuid?.(), 'these tests run as root, or the controls show nothing').toBe(0);
    expect(controls.length).toBeGreaterThanOrEqual(70);
    expect([...WITHOUT_CONTROL].filter((name) => !ALL.includes(name))).toEqual([]);
  });

  it.each(controls)('to %s', (name) => {
    expect(outside[name]).toBe(true);
  });
});
