/** Runs every escape probe in a real sandbox, and outside as a control: a probe that never succeeds proves nothing. */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ownControlGroups } from '../../adapters/sandbox/bubblewrap/control-group.ts';
import { verifies } from '../verifies.ts';
import {
  ALLOWED_IN_CONTAINER,
  FATAL_WHERE_COUNTED,
  IMAGE,
  PROBES,
  type Results,
  runAsCommand,
  runAsServer,
  runAsUserServer,
  runInContainer,
  runOutside,
} from './probe-runs.ts';
import { type Planted, plantAll } from './probe-targets.ts';

/** Probes whose control depends on the kernel or on a container around the tests. In the sandbox they must fail. */
const WITHOUT_CONTROL: ReadonlySet<string> = new Set([
  'see the home folder by HOME',
  'see the command line of its sandbox with its environment in it',
  'find a way to other machines',
  'reach the address of cloud metadata',
  'open a socket to the hypervisor',
  'open a socket to the ciphers of the kernel',
  'open a socket for whole packets',
  'make a device',
  'open devices of the host',
  'write settings of the kernel',
  'have a program run at a crash',
  'command the kernel by sysrq',
  'read memory of the kernel',
  'see keys of others',
  'make calls by the second table of the processor',
  'fill /dev/shm',
  'fill /run',
  'leave a core of its memory',
  'call io_uring_setup',
  'call kcmp',
  'call modify_ldt',
  'call iopl',
  'call userfaultfd',
  'call memfd_secret',
  'mount memory',
  'gain rights by su',
  'make namespaces',
  'make a hard link to a program',
  'raise its own limits',
  'make the host end others first when memory is short',
  'raise its own priority',
  'walk out by the root of the first process',
  'enter the namespaces of the first process',
]);

const NAMES = [...readFileSync(PROBES, 'utf8').matchAll(/^(?: {2}|PROBES\[)'([^']+)'[\]:]/gm)].map(
  ([, name = '']) => name,
);
const CALLS = [...readFileSync(PROBES, 'utf8').matchAll(/\['([a-z_0-9]+)', (?:[-\d']|process)/g)].map(
  ([, name = '']) => `call ${name}`,
);
const ALL = [...NAMES, ...CALLS];
const IN_CONTAINER = ALL.filter((name) => !ALLOWED_IN_CONTAINER.has(name) && !FATAL_WHERE_COUNTED.includes(name));
const CONTROLS = ALL.filter((name) => !WITHOUT_CONTROL.has(name));

/** Allowed if a control group counts the sandbox's memory, because it counts this memory too (memory-limit.test.ts). */
const ALLOWED_WHERE_COUNTED = ['call shmget', 'call semget', 'call msgget', 'call memfd_create'];

/** Allowed: a command may read the files that govern it, but cannot change them. */
const ALLOWED_FOR_COMMANDS = ['read the configuration in the workspace'];

const NO_ENGINE = 'This machine has no container engine.';

let planted: Planted;
let allowedInside: readonly string[];
/** Probes that run in one process. Those that kill it run alone. */
let together: readonly string[];
let inside: Results;
let outside: Results;
let ofUser: Results;
let ofCommand: Results;
let ofContainer: Results;

beforeAll(async () => {
  process.env.TOLLGATE_PROBE_LEAK = 'leaked';
  planted = await plantAll();
  const isCounted = (await ownControlGroups()) !== undefined;
  allowedInside = isCounted ? ALLOWED_WHERE_COUNTED : [];
  together = isCounted ? ALL.filter((name) => !FATAL_WHERE_COUNTED.includes(name)) : ALL;
  const { plant } = planted;
  // They spend most of their time waiting for answers that must not come.
  [inside, ofUser, ofCommand, ofContainer] = await Promise.all([
    runAsServer(plant, together),
    runAsUserServer(plant),
    runAsCommand(plant, together),
    IMAGE === '' ? Promise.resolve({}) : runInContainer(plant, IN_CONTAINER),
  ]);
  outside = await runOutside(plant, CONTROLS);
}, 120_000);

/** Runs one probe. If the kernel killed it for its memory, alone or with its sandbox, it did not get out. */
function runAlone(pass: typeof runAsServer, name: string): Promise<Results> {
  return pass(planted.plant, [name]).catch((thrown: unknown) => {
    expect(String(thrown)).toMatch(/probes ended with (137|SIGKILL)/);
    return { [name]: false };
  });
}

afterAll(() => {
  delete process.env.TOLLGATE_PROBE_LEAK;
  planted.close();
});

describe('a server in a sandbox', () => {
  it('runs at least a hundred probes', () => {
    expect(Object.keys(inside).sort()).toEqual([...together].sort());
    expect(ALL.length).toBeGreaterThanOrEqual(100);
  });

  it.each(ALL)('cannot %s, unless this is allowed' + verifies('PF-02', 'CY-24'), async (name) => {
    const { [name]: found } = together.includes(name) ? inside : await runAlone(runAsServer, name);
    expect(found).toBe(allowedInside.includes(name));
  });
});

describe('no probe gets out', () => {
  const escapes = (results: Results, of: readonly string[] = ALL): readonly string[] =>
    of.filter((name) => results[name] !== false);

  it('from a server of a Tollgate that an ordinary user runs' + verifies('PF-02', 'CY-24'), () => {
    expect(escapes(ofUser)).toEqual([]);
  });

  it('from a command of the agent' + verifies('CY-24', 'HB-10'), () => {
    expect(escapes(ofCommand, together)).toEqual([...ALLOWED_FOR_COMMANDS, ...allowedInside]);
  });

  it('from a server in a container of a real engine' + verifies('CY-24', 'HB-10'), ({ skip }) => {
    skip(IMAGE === '', NO_ENGINE);
    expect([...ALLOWED_IN_CONTAINER.keys(), ...FATAL_WHERE_COUNTED].filter((name) => !ALL.includes(name))).toEqual([]);
    expect(Object.keys(ofContainer).length).toBeGreaterThanOrEqual(100);
    expect(IN_CONTAINER.filter((name) => ofContainer[name] !== false)).toEqual([]);
  });

  it.for(FATAL_WHERE_COUNTED)('with the attempt to %s in a container', async (name, { skip }) => {
    skip(IMAGE === '', NO_ENGINE);
    expect(await runAlone(runInContainer, name)).toEqual({ [name]: false });
  });
});

describe('root outside of a sandbox', () => {
  const isRoot = process.getuid?.() === 0;
  const WHY = 'Only root can be the control: another user is refused outside of a sandbox too.';

  it('is the control for most probes', ({ skip }) => {
    skip(!isRoot, WHY);
    expect(CONTROLS.length).toBeGreaterThanOrEqual(70);
    expect([...WITHOUT_CONTROL].filter((name) => !ALL.includes(name))).toEqual([]);
  });

  it.for(CONTROLS)('can %s', (name, { skip }) => {
    skip(!isRoot, WHY);
    expect(outside[name]).toBe(true);
  });
});
