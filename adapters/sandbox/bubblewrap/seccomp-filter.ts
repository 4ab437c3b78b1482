/** Owns the filter of system calls that holds in every sandbox, as compiled BPF; refuses processors that it has no table for. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';

/** A processor: its number in the kernel's audit, and its numbers of the calls that are judged. */
interface Machine {
  readonly audit: number;
  /** First number of a second table under the same audit number (x32); absent where there is none. */
  readonly second?: number;
  readonly socket: number;
  readonly ioctl: number;
  readonly clone: number;
  readonly mmap: number;
  readonly denied: Readonly<Record<string, number>>;
  /** Memory that belongs to no process: only a control group counts it. */
  readonly shared: Readonly<Record<string, number>>;
}

/** Same number on every processor: calls that are younger than the common table. */
const COMMON = {
  io_uring_setup: 425,
  io_uring_enter: 426,
  io_uring_register: 427,
  open_tree: 428,
  move_mount: 429,
  fsopen: 430,
  fsconfig: 431,
  fsmount: 432,
  fspick: 433,
  pidfd_getfd: 438,
  process_madvise: 440,
  mount_setattr: 442,
  quotactl_fd: 443,
} as const;

/**
 * Calls that look into other processes, change mounts and namespaces, load code into the kernel, keep keys across sandboxes, set
 * the clock, or are known for faults of the kernel. Nothing that a server does in earnest needs one. Numbers: the kernel's
 * unistd tables of each processor.
 */
const MACHINES: ReadonlyMap<string, Machine> = new Map([
  [
    'x64',
    {
      audit: 0xc000003e,
      second: 0x40000000,
      socket: 41,
      ioctl: 16,
      clone: 56,
      mmap: 9,
      shared: { shmget: 29, semget: 64, msgget: 68, memfd_create: 319 },
      denied: {
        ...COMMON,
        ptrace: 101,
        syslog: 103,
        uselib: 134,
        ustat: 136,
        vhangup: 153,
        modify_ldt: 154,
        pivot_root: 155,
        adjtimex: 159,
        chroot: 161,
        acct: 163,
        settimeofday: 164,
        mount: 165,
        umount2: 166,
        swapon: 167,
        swapoff: 168,
        reboot: 169,
        sethostname: 170,
        setdomainname: 171,
        iopl: 172,
        ioperm: 173,
        create_module: 174,
        init_module: 175,
        delete_module: 176,
        get_kernel_syms: 177,
        query_module: 178,
        quotactl: 179,
        nfsservctl: 180,
        lookup_dcookie: 212,
        clock_settime: 227,
        kexec_load: 246,
        add_key: 248,
        request_key: 249,
        keyctl: 250,
        migrate_pages: 256,
        unshare: 272,
        move_pages: 279,
        perf_event_open: 298,
        fanotify_init: 300,
        name_to_handle_at: 303,
        open_by_handle_at: 304,
        clock_adjtime: 305,
        setns: 308,
        process_vm_readv: 310,
        process_vm_writev: 311,
        kcmp: 312,
        finit_module: 313,
        kexec_file_load: 320,
        bpf: 321,
        userfaultfd: 323,
      },
    },
  ],
  [
    'arm64',
    {
      audit: 0xc00000b7,
      socket: 198,
      ioctl: 29,
      clone: 220,
      mmap: 222,
      shared: { shmget: 194, semget: 190, msgget: 186, memfd_create: 279 },
      denied: {
        ...COMMON,
        lookup_dcookie: 18,
        umount2: 39,
        mount: 40,
        pivot_root: 41,
        nfsservctl: 42,
        chroot: 51,
        vhangup: 58,
        quotactl: 60,
        acct: 89,
        unshare: 97,
        kexec_load: 104,
        init_module: 105,
        delete_module: 106,
        clock_settime: 112,
        syslog: 116,
        ptrace: 117,
        reboot: 142,
        sethostname: 161,
        setdomainname: 162,
        settimeofday: 170,
        adjtimex: 171,
        add_key: 217,
        request_key: 218,
        keyctl: 219,
        swapon: 224,
        swapoff: 225,
        migrate_pages: 238,
        move_pages: 239,
        perf_event_open: 241,
        fanotify_init: 262,
        name_to_handle_at: 264,
        open_by_handle_at: 265,
        clock_adjtime: 266,
        setns: 268,
        process_vm_readv: 270,
        process_vm_writev: 271,
        kcmp: 272,
        finit_module: 273,
        bpf: 280,
        userfaultfd: 282,
        kexec_file_load: 294,
      },
    },
  ],
]);

/** clone3, whose flags lie behind a pointer, where no filter can look: "no such call" has libraries fall back to clone. memfd_secret, whose memory nobody may look at. */
const ABSENT = [435, 447];
/** MAP_SHARED (bit of MAP_SHARED_VALIDATE too) with MAP_ANONYMOUS, and MAP_GROWSDOWN: the kernel takes one for a file's and the other for a stack, and counts neither as data of a process. */
const SHARED_ANONYMOUS = 0x21;
const STACK_LIKE = 0x100;
/** CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID and NET. */
const NEW_NAMESPACES = 0x7e020000;
/** TIOCSTI and TIOCLINUX type into the terminal of whoever started us (CVE-2017-5226). */
const TYPING_IOCTLS = [0x5412, 0x541c];
/** AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. The rest bypasses the network namespace (vsock) or is old kernel code that nobody needs. */
const FAMILIES = [1, 2, 10, 16];

const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
const EPERM = 0x00050001;
const ENOSYS = 0x00050026;
const EAFNOSUPPORT = 0x00050061;

/** Offsets in `struct seccomp_data`; arguments by their low half, which is all that these calls read. */
const NUMBER = 0;
const AUDIT = 4;
const argument = (index: number): number => 16 + 8 * index;

/** What a filter is made for. `counted`: a control group counts all memory of the sandbox, that of no process too. Default: this processor. */
export interface SeccompFilterSpec {
  readonly counted: boolean;
  readonly processor?: string;
}

/**
 * Compiles the filter, as `struct sock_filter` in the order of bytes of both. Where nothing would count shared memory, there is none: its
 * calls are answered as by a kernel without them, so that who asks in earnest falls back to a file, which /dev/shm and /tmp bound.
 * Throws SANDBOX_UNAVAILABLE for an unknown processor.
 */
export function compileSeccompFilter({ counted, processor = process.arch }: SeccompFilterSpec): Buffer {
  const machine = MACHINES.get(processor);
  if (machine === undefined) {
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `There is no filter of system calls for the processor ${processor}.`,
      next: 'Use a machine with x64 or arm64, or `isolation: container`.',
    });
  }
  const program = new Program();
  program.load(AUDIT).unless(machine.audit, KILL).load(NUMBER);
  if (machine.second !== undefined) program.from(machine.second, KILL);
  for (const number of Object.values(machine.denied)) program.when(number, EPERM);
  for (const number of [...ABSENT, ...(counted ? [] : Object.values(machine.shared))]) program.when(number, ENOSYS);
  program.call(machine.clone, (body) => body.load(argument(0)).whenAny(NEW_NAMESPACES, EPERM));
  program.call(machine.mmap, (body) => {
    const limited = body.load(argument(3)).whenAny(STACK_LIKE, EPERM);
    return counted ? limited : limited.only(SHARED_ANONYMOUS).when(SHARED_ANONYMOUS, EPERM);
  });
  program.call(machine.ioctl, (body) =>
    TYPING_IOCTLS.reduce((all, request) => all.when(request, EPERM), body.load(argument(1))),
  );
  program.call(machine.socket, (body) => body.load(argument(0)).admit(FAMILIES, EAFNOSUPPORT));
  return program.end(ALLOW);
}

type Instruction = readonly [code: number, yes: number, no: number, value: number];

const LOAD = 0x20;
const EQUAL = 0x15;
const AT_LEAST = 0x35;
const ANY_BIT = 0x45;
const AND = 0x54;
const RETURN = 0x06;

/** Instructions as they are written down; each test is followed by its own verdict, so that no jump is far. */
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

  from(value: number, verdict: number): this {
    return this.#add([AT_LEAST, 0, 1, value], [RETURN, 0, 0, verdict]);
  }

  whenAny(bits: number, verdict: number): this {
    return this.#add([ANY_BIT, 0, 1, bits], [RETURN, 0, 0, verdict]);
  }

  /** Clears all other bits of what was loaded. */
  only(bits: number): this {
    return this.#add([AND, 0, 0, bits]);
  }

  /** Lets the listed values pass. */
  admit(values: readonly number[], verdict: number): this {
    for (const value of values) this.when(value, ALLOW);
    return this.#add([RETURN, 0, 0, verdict]);
  }

  /** Judges the arguments of one call; what the body does not judge is allowed, for it has loaded over the call's number. */
  call(number: number, judge: (body: Program) => Program): this {
    const body = judge(new Program()).#steps;
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
