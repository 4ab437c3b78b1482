/** Runs every attempt to get out of a sandbox, in the real one; and outside of it as a control, for a probe that cannot succeed proves nothing. */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ownControlGroups } from '../../adapters/sandbox/bubblewrap/control-group.ts';
import { verifies } from '../verifies.ts';
import {
  asCommand,
  asServer,
  asServerOfUser,
  FATAL_WHERE_COUNTED,
  inContainer,
  OTHERWISE_IN_CONTAINER,
  outsideOfAll,
  PROBES,
  type Results,
} from './probe-runs.ts';
import { type Planted, plantAll } from './probe-targets.ts';

/** What depends on the machine: another kernel, another container around the tests. They must fail in the sandbox all the same. */
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
const IN_CONTAINER = ALL.filter((name) => !OTHERWISE_IN_CONTAINER.has(name) && !FATAL_WHERE_COUNTED.includes(name));
const CONTROLS = ALL.filter((name) => !WITHOUT_CONTROL.has(name));

/** Meant where a control group counts the sandbox's memory: that of no process too. test/sandbox/memory-limit.test.ts shows where it ends. */
const MEANT_WHERE_COUNTED = ['call shmget', 'call semget', 'call msgget', 'call memfd_create'];

/** Meant: a command sees the files that decide over it, and cannot change them. */
const MEANT_FOR_COMMANDS = ['read the configuration in the workspace'];

let planted: Planted;
let meantInside: readonly string[];
/** In one process: those that end it come by themselves. */
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
  meantInside = isCounted ? MEANT_WHERE_COUNTED : [];
  together = isCounted ? ALL.filter((name) => !FATAL_WHERE_COUNTED.includes(name)) : ALL;
  const { plant } = planted;
  // Most of their time is waiting for what must not answer.
  [inside, ofUser, ofCommand, ofContainer] = await Promise.all([
    asServer(plant, together),
    asServerOfUser(plant),
    asCommand(plant, together),
    inContainer(plant, IN_CONTAINER),
  ]);
  outside = await outsideOfAll(plant, CONTROLS);
}, 120_000);

/** Held less than it wanted, or was ended with all that was around it. */
function alone(pass: typeof asServer, name: string): Promise<Results> {
  return pass(planted.plant, [name]).catch((thrown: unknown) => {
    expect(String(thrown)).toContain('probes ended with 137');
    return { [name]: false };
  });
}

afterAll(() => {
  delete process.env.TOLLGATE_PROBE_LEAK;
  planted.close();
});

describe('no server gets out of its sandbox', () => {
  it('with a hundred ways to try', () => {
    expect(Object.keys(inside).sort()).toEqual([...together].sort());
    expect(ALL.length).toBeGreaterThanOrEqual(100);
  });

  it.each(ALL)('to %s' + verifies('PF-02', 'CY-24'), async (name) => {
    const { [name]: found } = together.includes(name) ? inside : await alone(asServer, name);
    expect(found).toBe(meantInside.includes(name));
  });
});

describe('nor by another way in', () => {
  const gotOut = (results: Results, of: readonly string[] = ALL): readonly string[] =>
    of.filter((name) => results[name] !== false);

  it('as a server of a Tollgate that an ordinary user runs' + verifies('PF-02', 'CY-24'), () => {
    expect(gotOut(ofUser)).toEqual([]);
  });

  it('as a command of the agent' + verifies('CY-24', 'HB-10'), () => {
    expect(gotOut(ofCommand, together)).toEqual([...MEANT_FOR_COMMANDS, ...meantInside]);
  });

  it('as a server in a container of a real engine' + verifies('CY-24', 'HB-10'), () => {
    expect([...OTHERWISE_IN_CONTAINER.keys(), ...FATAL_WHERE_COUNTED].filter((name) => !ALL.includes(name))).toEqual(
      [],
    );
    expect(Object.keys(ofContainer).length).toBeGreaterThanOrEqual(100);
    expect(IN_CONTAINER.filter((name) => ofContainer[name] !== false)).toEqual([]);
  });

  it.each(FATAL_WHERE_COUNTED)('to %s, as a server in a container', async (name) => {
    expect(await alone(inContainer, name)).toEqual({ [name]: false });
  });
});

describe('the probes can succeed: outside of the sandbox, with the rights of root', () => {
  it('nearly all of them', () => {
    expect(process.getuid?.(), 'these tests run as root, or the controls show nothing').toBe(0);
    expect(CONTROLS.length).toBeGreaterThanOrEqual(70);
    expect([...WITHOUT_CONTROL].filter((name) => !ALL.includes(name))).toEqual([]);
  });

  it.each(CONTROLS)('to %s', (name) => {
    expect(outside[name]).toBe(true);
  });
});
