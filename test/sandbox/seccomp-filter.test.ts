/** Tests the system call filter for both processors. A BPF interpreter runs the filter for arm64 on x64 too. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { compileSeccompFilter } from '../../adapters/sandbox/bubblewrap/seccomp-filter.ts';
import { verifies } from '../verifies.ts';

const [ALLOW, KILL, EPERM, ENOSYS, EAFNOSUPPORT] = [0x7fff0000, 0x80000000, 0x00050001, 0x00050026, 0x00050061];
const AUDIT = { x64: 0xc000003e, arm64: 0xc00000b7 } as const;
const PROCESSORS = ['x64', 'arm64'] as const;

interface Call {
  readonly audit: number;
  readonly nr: number;
  readonly args?: readonly number[];
}

/** Runs a filter as the kernel does (filter.h and seccomp.h of the kernel), and returns its verdict. */
function runFilter(filter: Buffer, { audit, nr, args = [] }: Call): number {
  const data = Buffer.alloc(64);
  data.writeUInt32LE(nr, 0);
  data.writeUInt32LE(audit, 4);
  args.forEach((arg, index) => data.writeBigUInt64LE(BigInt(arg), 16 + 8 * index));
  let accumulator = 0;
  for (let at = 0; at < filter.length / 8; ) {
    const [code, yes, no, value] = [
      filter.readUInt16LE(at * 8),
      filter.readUInt8(at * 8 + 2),
      filter.readUInt8(at * 8 + 3),
      filter.readUInt32LE(at * 8 + 4),
    ];
    at += 1;
    if (code === 0x06) return value;
    if (code === 0x20) accumulator = data.readUInt32LE(value);
    else if (code === 0x15) at += accumulator === value ? yes : no;
    else if (code === 0x35) at += accumulator >= value ? yes : no;
    else if (code === 0x45) at += (accumulator & value) !== 0 ? yes : no;
    else if (code === 0x54) accumulator = (accumulator & value) >>> 0;
    else throw new Error(`unknown instruction ${code}`);
  }
  throw new Error('the filter has no end');
}

const NUMBERS = {
  x64: {
    read: 0,
    write: 1,
    openat: 257,
    execve: 59,
    mmap: 9,
    futex: 202,
    epoll_wait: 232,
    socket: 41,
    ioctl: 16,
    clone: 56,
    ptrace: 101,
    mount: 165,
    bpf: 321,
    keyctl: 250,
    unshare: 272,
    setns: 308,
    userfaultfd: 323,
    memory: [29, 64, 68, 319, 447],
  },
  arm64: {
    read: 63,
    write: 64,
    openat: 56,
    execve: 221,
    mmap: 222,
    futex: 98,
    epoll_wait: 22,
    socket: 198,
    ioctl: 29,
    clone: 220,
    ptrace: 117,
    mount: 40,
    bpf: 280,
    keyctl: 219,
    unshare: 97,
    setns: 268,
    userfaultfd: 282,
    memory: [194, 190, 186, 279, 447],
  },
} as const;

describe.each(PROCESSORS)('the filter for %s', (processor) => {
  const [filter, countedFilter] = [
    compileSeccompFilter({ counted: false, processor }),
    compileSeccompFilter({ counted: true, processor }),
  ];
  const numbers = NUMBERS[processor];
  const verdict = (nr: number, ...args: readonly number[]): number =>
    runFilter(filter, { audit: AUDIT[processor], nr, args });
  const counted = (nr: number, ...args: readonly number[]): number =>
    runFilter(countedFilter, { audit: AUDIT[processor], nr, args });

  it.each(['read', 'write', 'openat', 'execve', 'mmap', 'futex', 'epoll_wait'] as const)('allows %s', (name) => {
    expect(verdict(numbers[name])).toBe(ALLOW);
  });

  it.each(['ptrace', 'mount', 'bpf', 'keyctl', 'unshare', 'setns', 'userfaultfd'] as const)('refuses %s', (name) => {
    expect(verdict(numbers[name])).toBe(EPERM);
  });

  it('refuses io_uring and newer mount calls, and reports clone3 as missing, so that libraries use clone', () => {
    for (const nr of [425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442]) expect(verdict(nr)).toBe(EPERM);
    expect(verdict(435)).toBe(ENOSYS);
  });

  it('lets clone create processes and threads, but no namespaces', () => {
    for (const flags of [17, 0x003d0f00, 0x01200011]) expect(verdict(numbers.clone, flags)).toBe(ALLOW);
    for (const bit of [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000])
      expect(verdict(numbers.clone, bit | 17)).toBe(EPERM);
  });

  it(
    'reports calls for memory of no process as missing, so that programs fall back to files' + verifies('HE-07'),
    () => {
      for (const nr of numbers.memory) expect(verdict(nr)).toBe(ENOSYS);
    },
  );

  it(
    'allows such memory if a control group counts it, but not secret memory or maps that grow like a stack' +
      verifies('HE-07'),
    () => {
      const [secret = 0, ...shared] = [...numbers.memory].reverse();
      for (const nr of shared) expect(counted(nr)).toBe(ALLOW);
      expect(counted(secret)).toBe(ENOSYS);
      for (const [flags, answer] of [
        [0x21, ALLOW],
        [0x22, ALLOW],
        [0x23, ALLOW],
        [0x122, EPERM],
        [0x102, EPERM],
      ] as const)
        expect(counted(numbers.mmap, 0, 4096, 3, flags, 0xffffffff, 0)).toBe(answer);
      for (const name of ['ptrace', 'mount', 'bpf', 'keyctl', 'unshare', 'setns', 'userfaultfd'] as const)
        expect(counted(numbers[name])).toBe(EPERM);
    },
  );

  it(
    'allows maps of private memory and of files, but not shared anonymous maps or maps that grow like a stack' +
      verifies('HE-07'),
    () => {
      const map = (flags: number): number => verdict(numbers.mmap, 0, 4096, 3, flags, 0xffffffff, 0);
      // Private, MAP_STACK, MAP_NORESERVE, MAP_FIXED; of a file: private, shared, MAP_SHARED_VALIDATE, MAP_POPULATE.
      for (const flags of [0x22, 0x20022, 0x4022, 0x32, 0x02, 0x01, 0x03, 0x8001]) expect(map(flags)).toBe(ALLOW);
      for (const flags of [0x21, 0x23, 0x31, 0x4021, 0x40021, 0x122, 0x102, 0x1_0000_0021])
        expect(map(flags)).toBe(EPERM);
    },
  );

  it('allows ioctl except to write terminal input, whatever the upper half of the request contains', () => {
    expect(verdict(numbers.ioctl, 0, 0x5401)).toBe(ALLOW);
    for (const request of [0x5412, 0x541c, 0x1_0000_5412]) expect(verdict(numbers.ioctl, 0, request)).toBe(EPERM);
  });

  it('allows sockets of only the four families that programs use', () => {
    for (let family = 0; family < 64; family++)
      expect(verdict(numbers.socket, family)).toBe([1, 2, 10, 16].includes(family) ? ALLOW : EAFNOSUPPORT);
  });

  it('kills a process that uses calls of another processor or of a second table', () => {
    expect(runFilter(filter, { audit: 0x40000003, nr: 0 })).toBe(KILL);
    for (const other of PROCESSORS.filter((one) => one !== processor))
      expect(runFilter(filter, { audit: AUDIT[other], nr: 0 })).toBe(KILL);
    if (processor === 'x64') expect(verdict(0x40000000)).toBe(KILL);
  });

  it('has a verdict for every call', () => {
    fc.assert(
      fc.property(fc.nat(0xffffffff), fc.array(fc.maxSafeNat(), { maxLength: 6 }), (nr, args) => {
        for (const answer of [verdict(nr, ...args), counted(nr, ...args)])
          expect([ALLOW, KILL, EPERM, ENOSYS, EAFNOSUPPORT]).toContain(answer);
      }),
    );
  });
});

it('refuses a processor without a table, and says what to do', () => {
  expect(() => compileSeccompFilter({ counted: true, processor: 'mips' })).toThrow(
    expect.objectContaining({
      code: 'SANDBOX_UNAVAILABLE',
      next: expect.stringContaining('x64 or arm64') as string,
    }) as Error,
  );
});

describe('the filter for containers', () => {
  interface Rule {
    readonly names: readonly string[];
    readonly errnoRet: number;
    readonly args?: readonly {
      readonly index: number;
      readonly value: number;
      readonly valueTwo?: number;
      readonly op: string;
    }[];
  }
  const read = (name: string): string =>
    readFileSync(path.join(import.meta.dirname, '..', '..', 'adapters', 'sandbox', name), 'utf8');
  const { syscalls } = JSON.parse(read('container/seccomp.json')) as { syscalls: readonly Rule[] };
  const rulesFor = (name: string): readonly Rule[] => syscalls.filter(({ names }) => names.includes(name));

  it('refuses by name every call that the filter of sandboxes refuses', () => {
    const source = read('bubblewrap/seccomp-filter.ts');
    const table = /const DENIED[^{]*\{([^}]*)\}/.exec(source)?.[1] ?? '';
    const names = new Set([...table.matchAll(/(\w+): \[\d+/g)].map(([, name = '']) => name));
    expect(names.size).toBeGreaterThan(60);
    expect(
      [...names].filter((name) => !rulesFor(name).some(({ errnoRet, args }) => errnoRet === 1 && args === undefined)),
    ).toEqual([]);
    expect(['clone3', 'memfd_secret'].map((name) => rulesFor(name)[0]?.errnoRet)).toEqual([38, 38]);
  });

  it('checks the same arguments', () => {
    const bits = rulesFor('clone').map(({ args }) => args?.[0]?.value ?? 0);
    expect(bits.reduce((all, bit) => all | bit, 0) >>> 0).toBe(0x7e020000);
    expect(rulesFor('ioctl').map(({ args }) => args?.[0]?.valueTwo)).toEqual([0x5412, 0x541c]);
    const refuses = (family: number): boolean =>
      rulesFor('socket').some(({ args }) =>
        args?.every(({ op, value }) => (op === 'SCMP_CMP_GT' ? family > value : family === value)),
      );
    expect([...Array(64).keys()].filter((family) => !refuses(family))).toEqual([1, 2, 10, 16]);
  });
});
