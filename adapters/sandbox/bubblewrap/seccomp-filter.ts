/** Compiles the system call filter of every sandbox as BPF. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';

/** Numbers of a call on x64 and on arm64, which may not have it. */
type CallNumbers = readonly [x64: number, arm64?: number];

/**
 * Calls that inspect other processes, change mounts and namespaces, load code into the kernel, keep keys across
 * sandboxes, set the clock, or are known for kernel bugs. Servers do not need them. Numbers: the kernel's tables of
 * system calls.
 */
const DENIED: Readonly<Record<string, CallNumbers>> = {
  ptrace: [101, 117],
  syslog: [103, 116],
  uselib: [134],
  ustat: [136],
  vhangup: [153, 58],
  modify_ldt: [154],
  pivot_root: [155, 41],
  adjtimex: [159, 171],
  chroot: [161, 51],
  acct: [163, 89],
  settimeofday: [164, 170],
  mount: [165, 40],
  umount2: [166, 39],
  swapon: [167, 224],
  swapoff: [168, 225],
  reboot: [169, 142],
  sethostname: [170, 161],
  setdomainname: [171, 162],
  iopl: [172],
  ioperm: [173],
  create_module: [174],
  init_module: [175, 105],
  delete_module: [176, 106],
  get_kernel_syms: [177],
  query_module: [178],
  quotactl: [179, 60],
  nfsservctl: [180, 42],
  lookup_dcookie: [212, 18],
  clock_settime: [227, 112],
  kexec_load: [246, 104],
  add_key: [248, 217],
  request_key: [249, 218],
  keyctl: [250, 219],
  migrate_pages: [256, 238],
  unshare: [272, 97],
  move_pages: [279, 239],
  perf_event_open: [298, 241],
  fanotify_init: [300, 262],
  name_to_handle_at: [303, 264],
  open_by_handle_at: [304, 265],
  clock_adjtime: [305, 266],
  setns: [308, 268],
  process_vm_readv: [310, 270],
  process_vm_writev: [311, 271],
  kcmp: [312, 272],
  finit_module: [313, 273],
  kexec_file_load: [320, 294],
  bpf: [321, 280],
  userfaultfd: [323, 282],
  io_uring_setup: [425, 425],
  io_uring_enter: [426, 426],
  io_uring_register: [427, 427],
  open_tree: [428, 428],
  move_mount: [429, 429],
  fsopen: [430, 430],
  fsconfig: [431, 431],
  fsmount: [432, 432],
  fspick: [433, 433],
  pidfd_getfd: [438, 438],
  process_madvise: [440, 440],
  mount_setattr: [442, 442],
  quotactl_fd: [443, 443],
};

/** Calls that allocate memory outside of any process. Only a control group counts it. */
const SHARED_MEMORY: Readonly<Record<string, CallNumbers>> = {
  shmget: [29, 194],
  semget: [64, 190],
  msgget: [68, 186],
  memfd_create: [319, 279],
};

/**
 * A processor: its number for the kernel's audit, its column in the tables, and its numbers of calls whose arguments
 * are checked.
 */
interface Machine {
  readonly audit: number;
  readonly column: 0 | 1;
  /** First number of a second table under the same audit number (x32); absent if there is none. */
  readonly secondTable?: number;
  readonly socket: number;
  readonly ioctl: number;
  readonly clone: number;
  readonly mmap: number;
}

const MACHINES: ReadonlyMap<string, Machine> = new Map([
  ['x64', { audit: 0xc000003e, column: 0, secondTable: 0x40000000, socket: 41, ioctl: 16, clone: 56, mmap: 9 }],
  ['arm64', { audit: 0xc00000b7, column: 1, socket: 198, ioctl: 29, clone: 220, mmap: 222 }],
]);

/**
 * clone3: its flags lie behind a pointer, which a filter cannot read; as a missing call, libraries fall back to clone.
 * memfd_secret: no one can inspect its memory.
 */
const ABSENT = [435, 447];
/**
 * MAP_SHARED (also a bit of MAP_SHARED_VALIDATE) with MAP_ANONYMOUS, and MAP_GROWSDOWN. The kernel treats the first as
 * memory of a file and the second as a stack, and counts neither as data of a process.
 */
const SHARED_ANONYMOUS = 0x21;
const STACK_LIKE = 0x100;
/** CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID and NET. */
const NEW_NAMESPACES = 0x7e020000;
/** TIOCSTI and TIOCLINUX write input to the terminal that started Tollgate (CVE-2017-5226). */
const TYPING_IOCTLS = [0x5412, 0x541c];
/**
 * AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. Others bypass the network namespace (vsock) or are old kernel code without
 * use here.
 */
const FAMILIES = [1, 2, 10, 16];

const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
const EPERM = 0x00050001;
const ENOSYS = 0x00050026;
const EAFNOSUPPORT = 0x00050061;

/** Offsets in `struct seccomp_data`. Of an argument, only the low half is loaded, because these calls read no more. */
const NUMBER = 0;
const AUDIT = 4;
const argument = (index: number): number => 16 + 8 * index;

/** What a filter depends on. */
export interface SeccompFilterSpec {
  /** A control group counts all memory of the sandbox, also shared memory. */
  readonly counted: boolean;
  /** Default: the processor of this machine. */
  readonly processor?: string;
}

/**
 * Compiles the filter as an array of `struct sock_filter`, in little-endian order. If nothing counts shared memory, its
 * calls fail as on a kernel without them. Programs then fall back to files, which the sizes of /dev/shm and /tmp limit.
 * Throws SANDBOX_UNAVAILABLE for an unknown processor.
 */
export function compileSeccompFilter({ counted, processor = process.arch }: SeccompFilterSpec): Buffer {
  const machine = MACHINES.get(processor);
  if (machine === undefined)
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `Tollgate has no system call filter for the processor ${processor}.`,
      next: 'Use a machine with x64 or arm64, or `isolation: container`.',
    });
  const program = new Program();
  program.load(AUDIT).unless(machine.audit, KILL).load(NUMBER);
  const numbersOf = (calls: typeof DENIED): readonly number[] =>
    Object.values(calls).flatMap((numbers) => numbers[machine.column] ?? []);
  if (machine.secondTable !== undefined) program.atLeast(machine.secondTable, KILL);
  for (const number of numbersOf(DENIED)) program.when(number, EPERM);
  for (const number of [...ABSENT, ...(counted ? [] : numbersOf(SHARED_MEMORY))]) program.when(number, ENOSYS);
  program.call(machine.clone, (body) => body.load(argument(0)).whenAny(NEW_NAMESPACES, EPERM));
  program.call(machine.mmap, (body) => {
    const limited = body.load(argument(3)).whenAny(STACK_LIKE, EPERM);
    return counted ? limited : limited.mask(SHARED_ANONYMOUS).when(SHARED_ANONYMOUS, EPERM);
  });
  program.call(machine.ioctl, (body) =>
    TYPING_IOCTLS.reduce((all, request) => all.when(request, EPERM), body.load(argument(1))),
  );
  program.call(machine.socket, (body) => body.load(argument(0)).allowOnly(FAMILIES, EAFNOSUPPORT));
  return program.end(ALLOW);
}

type Instruction = readonly [code: number, yes: number, no: number, value: number];

const LOAD = 0x20;
const EQUAL = 0x15;
const AT_LEAST = 0x35;
const ANY_BIT = 0x45;
const AND = 0x54;
const RETURN = 0x06;

/** Builds a BPF program. A verdict follows each test directly, so that jumps stay short. */
class Program {
  readonly #steps: Instruction[] = [];

  load(offset: number): this {
    return this.#add([LOAD, 0, 0, offset]);
  }

  when(value: number, verdict: number): this {
    return this.#add([EQUAL, 0, 1, value], [RETURN, 0, 0, verdict]);
  }

  unless(value: number, verdict: number): this {
    return this.#add([EQUAL, 1, 0, value], [RETURN, 0, 0, verdict]);
  }

  atLeast(value: number, verdict: number): this {
    return this.#add([AT_LEAST, 0, 1, value], [RETURN, 0, 0, verdict]);
  }

  whenAny(bits: number, verdict: number): this {
    return this.#add([ANY_BIT, 0, 1, bits], [RETURN, 0, 0, verdict]);
  }

  /** Clears all other bits of the loaded value. */
  mask(bits: number): this {
    return this.#add([AND, 0, 0, bits]);
  }

  /** Allows the listed values only. */
  allowOnly(values: readonly number[], verdict: number): this {
    for (const value of values) this.when(value, ALLOW);
    return this.#add([RETURN, 0, 0, verdict]);
  }

  /**
   * Checks the arguments of one call. All other arguments are allowed: the body has overwritten the loaded call number.
   */
  call(number: number, check: (body: Program) => Program): this {
    const body = check(new Program()).#steps;
    return this.#add([EQUAL, 0, body.length + 1, number], ...body, [RETURN, 0, 0, ALLOW]);
  }

  end(verdict: number): Buffer {
    this.#add([RETURN, 0, 0, verdict]);
    const bytes = Buffer.alloc(this.#steps.length * 8);
    this.#steps.forEach(([code, yes, no, value], index) => {
      bytes.writeUInt16LE(code, index * 8);
      bytes.writeUInt8(yes, index * 8 + 2);
      bytes.writeUInt8(no, index * 8 + 3);
      bytes.writeUInt32LE(value, index * 8 + 4);
    });
    return bytes;
  }

  #add(...steps: readonly Instruction[]): this {
    this.#steps.push(...steps);
    return this;
  }
}
