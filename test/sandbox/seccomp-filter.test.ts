/** Tests the filter of system calls on both processors, by an interpreter of its own for compiled BPF: what arm64 does is seen on x64 too. */
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

/** Runs a filter as the kernel does: loads of 32 bits, jumps forward, a verdict (kernel: filter.h, seccomp.h). */
function judge(filter: Buffer, { audit, nr, args = [] }: Call): number {
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

describe.each(PROCESSORS)('the filter of %s', (processor) => {
  const [filter, lenient] = [
    compileSeccompFilter({ counted: false, processor }),
    compileSeccompFilter({ counted: true, processor }),
  ];
  const numbers = NUMBERS[processor];
  const verdict = (nr: number, ...args: readonly number[]): number =>
    judge(filter, { audit: AUDIT[processor], nr, args });
  const counted = (nr: number, ...args: readonly number[]): number =>
    judge(lenient, { audit: AUDIT[processor], nr, args });

  it.each(['read', 'write', 'openat', 'execve', 'mmap', 'futex', 'epoll_wait'] as const)('allows %s', (name) => {
    expect(verdict(numbers[name])).toBe(ALLOW);
  });

  it.each(['ptrace', 'mount', 'bpf', 'keyctl', 'unshare', 'setns', 'userfaultfd'] as const)('refuses %s', (name) => {
    expect(verdict(numbers[name])).toBe(EPERM);
  });

  it('refuses io_uring and the mount calls of later kernels, and says of clone3 that there is none, so that libraries use clone', () => {
    for (const nr of [425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442]) expect(verdict(nr)).toBe(EPERM);
    expect(verdict(435)).toBe(ENOSYS);
  });

  it('lets clone make processes and threads, and no namespace', () => {
    for (const flags of [17, 0x003d0f00, 0x01200011]) expect(verdict(numbers.clone, flags)).toBe(ALLOW);
    for (const bit of [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000])
      expect(verdict(numbers.clone, bit | 17)).toBe(EPERM);
  });

  it('knows no memory that belongs to no process, so that programs fall back to files' + verifies('HE-07'), () => {
    for (const nr of numbers.memory) expect(verdict(nr)).toBe(ENOSYS);
  });

  it(
    'has it where a control group counts it, but none that nobody may look at, and none that claims to be a stack' +
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
    'maps private memory and files of any kind, and neither shared memory of no file nor what grows like a stack' +
      verifies('HE-07'),
    () => {
      const map = (flags: number): number => verdict(numbers.mmap, 0, 4096, 3, flags, 0xffffffff, 0);
      // Private, with the hint that thread stacks carry, without reserve, at a fixed place; of a file: shared, and checked for flags.
      for (const flags of [0x22, 0x20022, 0x4022, 0x32, 0x02, 0x01, 0x03, 0x8001]) expect(map(flags)).toBe(ALLOW);
      for (const flags of [0x21, 0x23, 0x31, 0x4021, 0x40021, 0x122, 0x102, 0x1_0000_0021])
        expect(map(flags)).toBe(EPERM);
    },
  );

  it('lets ioctl do all but type into a terminal, whatever stands in the upper half of the request', () => {
    expect(verdict(numbers.ioctl, 0, 0x5401)).toBe(ALLOW);
    for (const request of [0x5412, 0x541c, 0x1_0000_5412]) expect(verdict(numbers.ioctl, 0, request)).toBe(EPERM);
  });

  it('opens sockets of the four families that programs use, and of no other', () => {
    for (let family = 0; family < 64; family++)
      expect(verdict(numbers.socket, family)).toBe([1, 2, 10, 16].includes(family) ? ALLOW : EAFNOSUPPORT);
  });

  it('kills what claims to be of another processor, or uses a second table', () => {
    expect(judge(filter, { audit: 0x40000003, nr: 0 })).toBe(KILL);
    for (const other of PROCESSORS.filter((one) => one !== processor))
      expect(judge(filter, { audit: AUDIT[other], nr: 0 })).toBe(KILL);
    if (processor === 'x64') expect(verdict(0x40000000)).toBe(KILL);
  });

  it('comes to a verdict for every call', () => {
    fc.assert(
      fc.property(fc.nat(0xffffffff), fc.array(fc.maxSafeNat(), { maxLength: 6 }), (nr, args) => {
        for (const answer of [verdict(nr, ...args), counted(nr, ...args)])
          expect([ALLOW, KILL, EPERM, ENOSYS, EAFNOSUPPORT]).toContain(answer);
      }),
    );
  });
});

it('refuses a processor that it has no table for, with what to do', () => {
  expect(() => compileSeccompFilter({ counted: true, processor: 'mips' })).toThrow(
    expect.objectContaining({
      code: 'SANDBOX_UNAVAILABLE',
      next: expect.stringContaining('x64 or arm64') as string,
    }) as Error,
  );
});

describe('the filter of containers', () => {
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
  const of = (name: string): readonly Rule[] => syscalls.filter(({ names }) => names.includes(name));

  it('refuses, by name, all that a sandbox refuses on either processor', () => {
    const source = read('bubblewrap/seccomp-filter.ts');
    const table = /const DENIED[^{]*\{([^}]*)\}/.exec(source)?.[1] ?? '';
    const names = new Set([...table.matchAll(/(\w+): \[\d+/g)].map(([, name = '']) => name));
    expect(names.size).toBeGreaterThan(60);
    expect(
      [...names].filter((name) => !of(name).some(({ errnoRet, args }) => errnoRet === 1 && args === undefined)),
    ).toEqual([]);
    expect(['clone3', 'memfd_secret'].map((name) => of(name)[0]?.errnoRet)).toEqual([38, 38]);
  });

  it('looks at the same arguments', () => {
    const bits = of('clone').map(({ args }) => args?.[0]?.value ?? 0);
    expect(bits.reduce((all, bit) => all | bit, 0) >>> 0).toBe(0x7e020000);
    expect(of('ioctl').map(({ args }) => args?.[0]?.valueTwo)).toEqual([0x5412, 0x541c]);
    const refuses = (family: number): boolean =>
      of('socket').some(({ args }) =>
        args?.every(({ op, value }) => (op === 'SCMP_CMP_GT' ? family > value : family === value)),
      );
    expect([...Array(64).keys()].filter((family) => !refuses(family))).toEqual([1, 2, 10, 16]);
  });
});
