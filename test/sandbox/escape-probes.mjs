/** Runs the named escape probes and prints their results; true: it got out. Plain JavaScript that needs no build. */
import { spawnSync } from 'node:child_process';
import dgram from 'node:dgram';
import dns from 'node:dns/promises';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';

/** The targets of probe-targets.ts. They come from stdin, so that no process list shows them. */
const plant = JSON.parse(fs.readFileSync(0, 'utf8'));
const workspace = plant.workspace;

const can = (act) => {
  try {
    return act() !== false;
  } catch {
    return false;
  }
};
const reads = (file) => can(() => fs.readFileSync(file).length > 0);
const lists = (folder) => can(() => fs.readdirSync(folder).length > 0);
const opens = (file, flags) => can(() => fs.closeSync(fs.openSync(file, flags)));
/** Creates a new file and removes it. */
const creates = (folder) =>
  can(() => {
    const file = path.join(folder, `.tollgate-probe-${process.pid}`);
    fs.closeSync(fs.openSync(file, 'wx'));
    fs.unlinkSync(file);
  });
/** Outside, each probe must succeed, so it gets more time on a busy machine. */
const timeout = plant.pass === 'outside' ? 60_000 : 10_000;
const succeeds = (command, ...args) => spawnSync(command, args, { encoding: 'utf8', timeout }).status === 0;
const says = (command, ...args) => spawnSync(command, args, { encoding: 'utf8', timeout }).stdout ?? '';
const connects = (to) =>
  new Promise((resolve) => {
    const socket = net.connect(to, () => (socket.destroy(), resolve(true)));
    socket.once('error', () => resolve(false)).setTimeout(3000, () => (socket.destroy(), resolve(false)));
  });
const pids = () => fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name));
const anyProcess = (part, found) =>
  pids().some(
    (pid) => pid !== `${process.pid}` && can(() => fs.readFileSync(`/proc/${pid}/${part}`, 'latin1').includes(found)),
  );

/** Numbers of calls on x64 and arm64; 0 if the processor does not have the call. */
const CALLS = {
  ptrace: [101, 117],
  mount: [165, 40],
  umount2: [166, 39],
  pivot_root: [155, 41],
  chroot: [161, 51],
  unshare: [272, 97],
  setns: [308, 268],
  bpf: [321, 280],
  keyctl: [250, 219],
  add_key: [248, 217],
  request_key: [249, 218],
  userfaultfd: [323, 282],
  perf_event_open: [298, 241],
  io_uring_setup: [425, 425],
  kexec_load: [246, 104],
  init_module: [175, 105],
  finit_module: [313, 273],
  delete_module: [176, 106],
  open_by_handle_at: [304, 265],
  process_vm_readv: [310, 270],
  process_vm_writev: [311, 271],
  kcmp: [312, 272],
  swapon: [167, 224],
  reboot: [169, 142],
  syslog: [103, 116],
  clock_adjtime: [305, 266],
  fsopen: [430, 430],
  open_tree: [428, 428],
  move_mount: [429, 429],
  pidfd_getfd: [438, 438],
  fanotify_init: [300, 262],
  shmget: [29, 194],
  semget: [64, 190],
  msgget: [68, 186],
  memfd_create: [319, 279],
  memfd_secret: [447, 447],
  mmap: [9, 222],
  read: [0, 63],
  write: [1, 64],
  ioctl: [16, 29],
  clone: [56, 220],
  socket: [41, 198],
  modify_ldt: [154, 0],
  iopl: [172, 0],
};
const number = (name) => CALLS[name][process.arch === 'arm64' ? 1 : 0];

/** Makes a system call in its own process. Returns its errno, 0 for success, or 'killed' if the filter killed it. */
function errnoOf(nr, ...args) {
  const texts = args.filter((arg) => typeof arg === 'string');
  const words = args.map((arg) => (typeof arg === 'number' ? arg : `$t[${texts.indexOf(arg)}]`));
  const code = `my @t = (${texts.map((text) => `"${text}"`).join(', ')}); $! = 0; my $r = syscall(${[nr, ...words].join(', ')}); print $r == -1 ? $! + 0 : 0;`;
  const { stdout, stderr, signal } = spawnSync('perl', ['-e', code], { encoding: 'utf8' });
  if (signal !== null) return 'killed';
  if (stdout === '') throw new Error(`call ${nr} could not be tried: ${stderr}`);
  return Number(stdout);
}
const EPERM = 1;
const ENOSYS = 38;
const UNKNOWN = 'shmget semget msgget memfd_create memfd_secret'.split(' ');
/** The kernel rejects meaningless arguments. A filtered call fails with EPERM, or as if it did not exist. */
const reaches = (name, ...args) =>
  number(name) !== 0 && errnoOf(number(name), ...args) !== (UNKNOWN.includes(name) ? ENOSYS : EPERM);

/** Returns true if one process gets 272 MB in parts of 8 MB. Perl code `take` makes a part, and `give` frees it. */
const holds = (take, give = '') =>
  says(
    'perl',
    '-e',
    `my ($size, $sum, @kept) = (8 << 20, 0); my $block = "x" x $size; open my $zero, '<', '/dev/zero';
sub fill { my $at = shift; return $at > 0 && syscall(${number('read')}, fileno $zero, $at, $size) == $size }
for (1..34) { my ($name, $id, $fd, $to) = ('x'); ${take} or last; $sum++ } print $sum; for (@kept) { ${give} }`,
  ) === '34';
const maps = (flags, file = '-1') => `fill(syscall(${number('mmap')}, 0, $size, 3, ${flags}, ${file}, 0))`;

/** Returns how many of `wanted` processes run at once. */
const forks = (wanted) =>
  Number(
    says(
      'perl',
      '-e',
      `my @p; for (1..${wanted}) { my $p = fork; last unless defined $p; if (!$p) { sleep 60; exit } push @p, $p } print scalar @p; kill 9, @p;`,
    ),
  );
/** Returns how many megabytes files of 8 MB fill in a folder before an error, at most 320. */
const fills = (folder) => {
  const block = Buffer.alloc(8 * 1024 * 1024, 1);
  const files = [];
  const filled = can(() => {
    for (let index = 0; index < 40; index++) {
      files.push(path.join(folder, `.fill-${process.pid}-${index}`));
      fs.writeFileSync(files.at(-1), block);
    }
  });
  for (const file of files) can(() => fs.unlinkSync(file));
  return filled;
};

const PROBES = {
  // Files of the host.
  'read the state folder': () => reads(plant.state),
  'read the vault': () => reads(plant.vault),
  'read the configuration in the workspace': () => reads(path.join(workspace, 'tollgate.yaml')),
  'write the configuration in the workspace': () =>
    can(
      () =>
        fs.statSync(path.join(workspace, 'tollgate.yaml')).isFile() &&
        fs.appendFileSync(path.join(workspace, 'tollgate.yaml'), '#') === undefined,
    ),
  'replace the configuration in the workspace': () =>
    can(
      () =>
        fs.renameSync(path.join(workspace, 'tollgate.yaml'), path.join(workspace, 'tollgate.old')) ??
        fs.renameSync(path.join(workspace, 'tollgate.old'), path.join(workspace, 'tollgate.yaml')),
    ),
  'look into a hidden folder of the workspace': () => lists(path.join(workspace, 'keys')),
  'read a file of another user of the temporary folder': () => reads(plant.file),
  'read /etc/shadow': () => reads('/etc/shadow'),
  'read the accounts of the host': () => can(() => /^root:/m.test(fs.readFileSync('/etc/passwd', 'utf8'))),
  'list /root, /home or /var': () => lists('/root') || lists('/home') || lists('/var/lib'),
  'see the home folder by HOME': () =>
    !['/tmp', '/tmp/home'].includes(process.env.HOME) && lists(process.env.HOME ?? '/root'),
  'see files that others left in /dev/shm': () => reads(plant.shm),
  'follow a link in the workspace out of it': () => reads(path.join(workspace, 'link')),
  'walk a linked folder in the workspace out of it': () => lists(path.join(workspace, 'linked')),
  'walk out by /proc/self/cwd': () => reads(`/proc/self/cwd/${path.relative(workspace, plant.file)}`),
  'walk out by the root of the first process': () => reads(`/proc/1/root${plant.file}`),
  'make a hard link to a file outside': () =>
    can(() => (fs.linkSync(plant.file, path.join(workspace, 'hard')), fs.unlinkSync(path.join(workspace, 'hard')))),
  'make a hard link to a program': () =>
    can(() => (fs.linkSync('/usr/bin/env', path.join(workspace, 'env')), fs.unlinkSync(path.join(workspace, 'env')))),
  'write a file in the folder of another': () =>
    can(() => fs.writeFileSync(`${plant.file}.made`, '') ?? fs.unlinkSync(`${plant.file}.made`)),
  'write in /usr, /etc, /var or the root': () => ['/usr/bin', '/etc', '/var', '/', '/dev'].some(creates),
  'change its own program': () => opens(process.argv[1], 'r+'),
  'change a program of the system': () => opens('/usr/bin/id', 'a'),
  // Processes of the host.
  'see processes of the host': () => pids().length > 20,
  'find a process by its name': () => anyProcess('cmdline', plant.victim.name),
  'read the environment of another server': () => anyProcess('environ', plant.victim.secret),
  'read the environment of the facade': () => can(() => fs.readFileSync(`/proc/${plant.facade}/environ`).length > 0),
  'inherit a variable of the facade': () => process.env.TOLLGATE_PROBE_LEAK !== undefined,
  'inherit an open file of the facade': () =>
    fs
      .readdirSync('/proc/self/fd')
      .map((fd) => can(() => fs.readlinkSync(`/proc/self/fd/${fd}`)) && fs.readlinkSync(`/proc/self/fd/${fd}`))
      .some((to) => to === plant.file),
  'see the command line of its sandbox with its environment in it': () =>
    can(() => fs.readFileSync('/proc/1/cmdline', 'utf8').includes(plant.own)) ||
    can(() => fs.readFileSync('/proc/1/environ', 'utf8').includes(plant.own)),
  'kill a process of the host': () => can(() => process.kill(plant.victim.pid, 0)),
  'trace a process of the host': () => errnoOf(number('ptrace'), 16, plant.victim.pid, 0, 0) === 0,
  'read the memory of a process of the host': () => opens(`/proc/${plant.victim.pid}/mem`, 'r'),
  'reach shared memory of the host by its key': () =>
    says('perl', '-e', `print defined shmget(${plant.shmKey}, 0, 0) ? 1 : 0`) === '1',
  'raise its own priority': () => can(() => os.setPriority(-10)),
  'make the host end others first when memory is short': () =>
    can(() => fs.writeFileSync('/proc/self/oom_score_adj', '-900')),
  // The network.
  'reach a port of the host': () => connects({ port: plant.port, host: '127.0.0.1' }),
  'reach a port of the host by its name': () =>
    connects({ port: plant.port, host: os.hostname() }).then(
      (open) => open || connects({ port: plant.port, host: 'localhost' }),
    ),
  'reach a socket of the host by its path': () => connects({ path: plant.socket }),
  'reach an abstract socket of the host': () => connects({ path: `\0${plant.abstract}` }),
  'reach the socket of docker': () =>
    ['/var/run/docker.sock', '/run/docker.sock', '/run/podman/podman.sock', plant.docker]
      .map((file) => fs.existsSync(file))
      .includes(true),
  'find a way to other machines': () =>
    Object.keys(os.networkInterfaces()).some((name) => name !== 'lo') ||
    fs.readFileSync('/proc/net/route', 'utf8').trim().split('\n').length > 1,
  'reach the address of cloud metadata': () => connects({ port: 80, host: '169.254.169.254' }),
  'resolve a name': () => {
    const resolver = new dns.Resolver({ timeout: 1500, tries: 1 });
    resolver.setServers([`127.0.0.1:${plant.dns}`]);
    return resolver.resolve4('probe.example').then(
      (found) => found.length > 0,
      () => false,
    );
  },
  'send a datagram that arrives': () =>
    new Promise((resolve) => {
      const socket = dgram.createSocket('udp4');
      const end = (arrived) => resolve(arrived) ?? socket.close();
      const timer = setTimeout(end, 1500, false);
      socket
        .once('message', () => (clearTimeout(timer), end(true)))
        .once('error', () => (clearTimeout(timer), end(false)));
      socket.send('ping', plant.echo, '127.0.0.1');
    }),
  'open a raw socket': () => errnoOf(number('socket'), 2, 3, 1) === 0,
  'open a socket for whole packets': () => errnoOf(number('socket'), 17, 3, 768) === 0,
  'open a socket to the hypervisor': () => errnoOf(number('socket'), 40, 1, 0) === 0,
  'open a socket to the ciphers of the kernel': () => errnoOf(number('socket'), 38, 5, 0) === 0,
  // Rights.
  'be root': () =>
    process.getuid() === 0 || /^CapEff:\s*0*[1-9a-f]/m.test(fs.readFileSync('/proc/self/status', 'latin1')),
  'become root': () => can(() => process.setuid(0)),
  'gain rights by a set-uid program': () => says(path.join(workspace, 'set-uid'), '-u').trim() === '0',
  'gain rights by su': () => succeeds('su', '-c', 'true'),
  'raise its own limits': () =>
    succeeds('prlimit', `--pid=${process.pid}`, '--nproc=100000:100000', '--fsize=unlimited:unlimited'),
  'mount memory': () => {
    const mounted = succeeds('mount', '-t', 'tmpfs', 'probe', plant.mountpoint);
    if (mounted) spawnSync('umount', [plant.mountpoint]);
    return mounted;
  },
  'make the system writable again': () => reaches('mount', '', '/usr', '', 4128, ''),
  'take away a cover': () => reaches('umount2', `${workspace}/none`, 0),
  'make namespaces': () => succeeds('unshare', '-Urm', 'true'),
  'enter the namespaces of the first process': () => succeeds('nsenter', '-t', '1', '-m', 'true') && lists('/root'),
  'make namespaces by clone': () => reaches('clone', 0x10000000 | 17, 0, 0, 0, 0),
  'change the root': () => reaches('chroot', `${workspace}/none`),
  'make a device': () =>
    succeeds('mknod', path.join(workspace, 'device'), 'b', '8', '0') &&
    (fs.unlinkSync(path.join(workspace, 'device')), true),
  'open devices of the host': () =>
    ['/dev/mem', '/dev/kmsg', '/dev/kvm', '/dev/fuse', '/dev/vda', '/dev/sda', '/dev/loop-control'].some((file) =>
      fs.existsSync(file),
    ),
  'type into the terminal of its starter': () => reaches('ioctl', 0, 0x5412, 'x'),
  // The kernel.
  'write settings of the kernel': () => opens('/proc/sys/kernel/core_pattern', 'r+'),
  'have a program run at a crash': () =>
    can(() => fs.writeFileSync('/proc/sys/kernel/core_pattern', fs.readFileSync('/proc/sys/kernel/core_pattern'))),
  'command the kernel by sysrq': () =>
    can(() => fs.writeSync(fs.openSync('/proc/sysrq-trigger', 'w'), '')) && fs.statSync('/proc/sysrq-trigger').isFile(),
  'read memory of the kernel': () =>
    reads('/proc/kallsyms') || (opens('/proc/kcore', 'r') && fs.statSync('/proc/kcore').size > 0),
  'read the command line of the kernel': () => reads('/proc/cmdline'),
  'see devices and control groups in /sys': () => lists('/sys'),
  'see keys of others': () => reads('/proc/keys'),
  ...Object.fromEntries(
    [
      ['keyctl', 0, -3, 0],
      ['add_key', 'user', 'probe', 'x', 1, -2],
      ['request_key', 'user', 'probe', '', -2],
      ['userfaultfd', 1],
      ['bpf', 0, 0, 0],
      ['perf_event_open', 0, 0, -1, -1, 0],
      ['io_uring_setup', 1, 0],
      ['kexec_load', 0, 0, 0, -1],
      ['init_module', 0, 0, ''],
      ['finit_module', -1, '', 0],
      ['delete_module', 'tollgate-none', 2048],
      ['open_by_handle_at', -1, 0, 0],
      ['process_vm_readv', process.pid, 0, 0, 0, 0, 0],
      ['process_vm_writev', process.pid, 0, 0, 0, 0, 0],
      ['kcmp', process.pid, process.pid, 1, 0, 0],
      ['swapon', '/none', 0],
      ['reboot', 0, 0, 0],
      ['syslog', 10, 0, 0],
      ['clock_adjtime', 0, 0],
      ['setns', -1, 0],
      ['pivot_root', '/none', '/none'],
      ['fsopen', 'none', 0],
      ['open_tree', -1, '/none', 0],
      ['move_mount', -1, '', -1, '', 0],
      ['pidfd_getfd', -1, 0, 0],
      ['fanotify_init', 0, 0],
      ['modify_ldt', 9, 0, 0],
      ['iopl', 9],
      ['shmget', 1, 0, 0],
      ['semget', 0, -1, 0],
      ['msgget', 1, 0],
      ['memfd_create', '', -1],
      ['memfd_secret', -1],
    ].map(([name, ...args]) => [`call ${name}`, () => reaches(name, ...args)]),
  ),
  'make calls by the second table of the processor': () =>
    process.arch === 'x64' && errnoOf(0x40000000 + 39) !== 'killed',
  // Limits.
  'run more processes than it may': () => forks(120) >= 120,
  'hold more memory than it may': () =>
    succeeds(
      process.execPath,
      '-e',
      'const a = []; for (let i = 0; i < 24; i++) a.push(Buffer.alloc(16 << 20, 1)); process.exit(a.length === 24 ? 0 : 1)',
    ),
  'hold more memory in the heap than it may': () =>
    succeeds(
      process.execPath,
      '--max-old-space-size=4096',
      '-e',
      'const a = []; for (let i = 0; i < 36; i++) a.push(new Array(1 << 20).fill(i + 0.5)); process.exit(0)',
    ),
  'hold more memory in private maps than it may': () => holds(maps(0x22)),
  'hold more memory in shared maps than it may': () => holds(maps(0x21)),
  'hold more memory in shared maps of zeros than it may': () =>
    holds(`(open $to, '+<', '/dev/zero') && ${maps(1, 'fileno $to')}`),
  'hold more memory in maps like a stack than it may': () => holds(maps(0x122)),
  'hold more memory in shared memory of System V than it may': () =>
    holds(
      'defined($id = shmget 0, $size, 0600) && push(@kept, $id) && shmwrite($id, $block, 0, $size)',
      'shmctl $_, 0, 0',
    ),
  'hold more memory in files of no folder than it may': () =>
    holds(
      `($fd = syscall(${number('memfd_create')}, $name, 0)) > 0 && syscall(${number('write')}, $fd, $block, $size) == $size`,
    ),
  'keep more files open than it may': () =>
    says(
      'perl',
      '-e',
      'my @kept; for (1..1100) { open my $file, "<", "/" or last; push @kept, $file } print scalar @kept',
    ) === '1100',
  'write a larger file than it may': () => {
    const file = path.join(workspace, `large-${plant.pass}`);
    const written = succeeds('dd', 'if=/dev/zero', `of=${file}`, 'bs=1M', 'count=40');
    can(() => fs.unlinkSync(file));
    return written;
  },
  'fill /tmp': () => fills('/tmp'),
  'fill /dev/shm': () => fills('/dev/shm'),
  'fill /run': () => fills('/run'),
  'leave a core of its memory': () => says('sh', '-c', 'ulimit -Hc').trim() !== '0',
};

const MEANT = ['/tmp', '/run', '/dev/shm', workspace];
PROBES['find another place to write'] = () =>
  says('find', '/', '-maxdepth', '3', '-path', '/proc', '-prune', '-o', '-type', 'd', '-print')
    .split('\n')
    .some((folder) => folder !== '' && !MEANT.some((meant) => folder.startsWith(meant)) && creates(folder));

const results = {};
for (const [name, probe] of Object.entries(PROBES)) {
  if (plant.only === undefined || plant.only.includes(name)) results[name] = Boolean(await probe());
}
process.stdout.write(`${JSON.stringify(results)}\n`);
