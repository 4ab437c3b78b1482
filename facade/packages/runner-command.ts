/**
 * Reads how a client starts a package: with npx, uvx, `docker run` and the like. Nothing of the command line is lost:
 * what Tollgate does not keep is listed.
 */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isToken } from '../config/servers/secret-shapes.ts';
import { programOf } from '../config/servers/spawn-rules.ts';
import { type PackageSpec, readImage, readNpm, readPypi } from './package-spec.ts';

/** A folder that a container gets. */
interface Mount {
  readonly from: string;
  readonly to: string;
  readonly isReadOnly: boolean;
}

/** What a command line of a runner says. */
export interface RunnerCommand {
  readonly spec: PackageSpec;
  /** The program of the package, if it is named. */
  readonly bin?: string;
  /** The arguments of the server. */
  readonly args: readonly string[];
  /** Variables that the command line sets. */
  readonly env: Readonly<Record<string, string>>;
  /** Names of variables that it passes on from its own environment. */
  readonly passed: readonly string[];
  readonly mounts: readonly Mount[];
  /** Options that have no effect here, each with the reason. */
  readonly unkept: readonly string[];
}

/** A command line of a runner that cannot be converted, and why. */
export interface UnreadRunner {
  readonly fault: string;
}

type Words = readonly string[];

/** Options without a value that only concern the runner itself. */
const SILENT: Readonly<Record<'npm' | 'pypi' | 'oci', ReadonlySet<string>>> = {
  npm: new Set('-y --yes -q --quiet -s --silent --bun --prefer-offline --prefer-online'.split(' ')),
  pypi: new Set('-q --quiet --refresh --no-progress --isolated --offline'.split(' ')),
  oci: new Set('-i --interactive --rm --init -q --quiet --sig-proxy -ti -it -t --tty'.split(' ')),
};
/** Options with a value whose effect Tollgate decides itself. */
const DECIDED: Readonly<Record<'npm' | 'pypi' | 'oci', Readonly<Record<string, string>>>> = {
  npm: { '--registry': 'npm is configured in ~/.npmrc', '--node-options': 'options of Node.js load code' },
  pypi: {
    '--python': "the system's Python runs it",
    '-p': "the system's Python runs it",
    '--with': 'only the package itself is installed',
    '--index-url': 'pip is configured in pip.conf',
    '--index': 'pip is configured in pip.conf',
    '--extra-index-url': 'pip is configured in pip.conf',
  },
  oci: {
    '--pull': 'the image is pinned',
    '--name': 'Tollgate names its containers',
    '--network': 'sandbox.network.allowedDomains lists hosts',
    '--net': 'sandbox.network.allowedDomains lists hosts',
    '-u': 'Tollgate chooses a user without rights',
    '--user': 'Tollgate chooses a user without rights',
    '-m': 'sandbox.limits.memoryMb limits memory',
    '--memory': 'sandbox.limits.memoryMb limits memory',
    '--cpus': 'sandbox.limits limits processors',
    '--platform': 'the image is pinned',
    '--log-driver': 'Tollgate reads its log',
    '--label': 'Tollgate labels its containers',
    '-l': 'Tollgate labels its containers',
    '-p': 'a server talks over stdio, so it needs no port',
    '--publish': 'a server talks over stdio, so it needs no port',
    '-w': 'the image decides its working folder',
    '--workdir': 'the image decides its working folder',
    '--env-file': 'write its variables into env',
    '--add-host': 'sandbox.network.allowedDomains lists hosts',
    '--restart': 'Tollgate restarts servers',
    '--hostname': 'Tollgate names its containers',
    '-h': 'Tollgate names its containers',
  },
};
const RUNNERS: ReadonlyMap<string, readonly [kind: 'npm' | 'pypi' | 'oci', sub: readonly string[]]> = new Map([
  ['npx', ['npm', []]],
  ['bunx', ['npm', []]],
  ['pnpx', ['npm', []]],
  ['npm', ['npm', ['exec', 'x']]],
  ['pnpm', ['npm', ['dlx']]],
  ['yarn', ['npm', ['dlx']]],
  ['bun', ['npm', ['x']]],
  ['uvx', ['pypi', []]],
  ['pipx', ['pypi', ['run']]],
  ['docker', ['oci', ['run']]],
  ['podman', ['oci', ['run']]],
]);

/**
 * Returns the package that a runner would download, with everything else that its command line says; why it cannot be
 * converted; undefined for a program that downloads nothing.
 */
export function readRunner({
  command,
  args,
}: {
  readonly command?: string | undefined;
  readonly args: Words;
}): RunnerCommand | UnreadRunner | undefined {
  const program = programOf(command ?? '');
  // `uv tool run` is uvx.
  if (program === 'uv' && args[0] === 'tool' && args[1] === 'run') return reading('pypi', args.slice(2));
  const [kind, sub = []] = RUNNERS.get(program) ?? [];
  if (kind === undefined || (sub.length > 0 && !sub.includes(args[0] ?? ''))) return undefined;
  return reading(kind, sub.length > 0 ? args.slice(1) : args);
}

function reading(kind: 'npm' | 'pypi' | 'oci', words: Words): RunnerCommand | UnreadRunner {
  try {
    return kind === 'oci' ? readContainer(words) : readDownloader(kind, words);
  } catch (thrown) {
    if (!(thrown instanceof TollgateError)) throw thrown;
    return { fault: thrown.message };
  }
}

/** The options before the package, and the words from it on. */
interface Options {
  /** Options that Tollgate keeps, with their values. */
  readonly kept: readonly (readonly [name: string, value: string])[];
  readonly unkept: readonly string[];
  readonly rest: Words;
}

/** Reads options up to the first word that is none. `wanted`: options with a value that the caller keeps. */
function readOptions(kind: 'npm' | 'pypi' | 'oci', words: Words, wanted: ReadonlySet<string>): Options {
  const kept: [string, string][] = [];
  const unkept: string[] = [];
  let at = 0;
  for (; at < words.length && words[at]?.startsWith('-') === true; at += 1) {
    const word = words[at] ?? '';
    if (word === '--') return { kept, unkept, rest: words.slice(at + 1) };
    const [, name = word, written] = /^(--[^=]+)=(.*)$/s.exec(word) ?? /^(-[ev])(.+)$/s.exec(word) ?? [];
    const why = DECIDED[kind][name];
    if (SILENT[kind].has(word)) continue;
    if (!wanted.has(name) && why === undefined) {
      if (written === undefined && !/^--no-/.test(name)) throw unknown(name);
      unkept.push(`${name}: Tollgate does not know this option`);
      continue;
    }
    const value = written ?? words[(at += 1)] ?? '';
    if (why === undefined) kept.push([name, value]);
    else unkept.push(`${[name, ...(isToken(value) ? [] : [value])].join(' ')}: ${why}`);
  }
  return { kept, unkept, rest: words.slice(at) };
}

function unknown(name: string): TollgateError {
  return new TollgateError('USAGE', {
    detail: `its option ${name} is not known here, so it is not clear which word is the package`,
    next: 'Connect the package itself: tollgate connect --help',
  });
}

function readDownloader(kind: 'npm' | 'pypi', words: Words): RunnerCommand {
  const source = kind === 'npm' ? ['-p', '--package'] : ['--from', '--spec'];
  const { kept, unkept, rest } = readOptions(kind, words, new Set(source));
  const [first = '', ...after] = rest;
  const [[, from] = [], ...more] = kept;
  const text = from ?? first;
  if (text === '' || /^(?:[./~]|\w+:|git\+)/.test(text) || /[#:]/.test(text))
    throw new TollgateError('USAGE', {
      detail: `it starts ${JSON.stringify(text.slice(0, 100))}, which is not a package of ${kind} by its name`,
      next: 'Connect the package itself: tollgate connect --help',
    });
  return {
    spec: kind === 'npm' ? readNpm(text) : readPypi(text),
    ...(from !== undefined && { bin: first }),
    // npx hands over the words after `--` too.
    args: after[0] === '--' ? after.slice(1) : after,
    env: {},
    passed: [],
    mounts: [],
    unkept: [...unkept, ...more.map(([name, value]) => `${name} ${value}: only the first package is installed`)],
  };
}

const MOUNTS = ['-v', '--volume', '--mount'];

function readContainer(words: Words): RunnerCommand {
  const { kept, unkept, rest } = readOptions('oci', words, new Set(['-e', '--env', '--entrypoint', ...MOUNTS]));
  const [image = '', ...args] = rest;
  const spec = readImage(image);
  const valuesOf = (...names: Words): Words => kept.flatMap(([name, value]) => (names.includes(name) ? [value] : []));
  const read = valuesOf(...MOUNTS).map((text) => ({ text, mount: mountOf(text) }));
  const mounts = read.flatMap(({ mount }) => (mount === undefined ? [] : [mount]));
  const [entry] = valuesOf('--entrypoint');
  return {
    spec,
    ...(entry !== undefined && { bin: entry }),
    args: args.map((arg) => placed(arg, mounts)),
    env: Object.fromEntries(
      valuesOf('-e', '--env').flatMap((text) => {
        const [, name, value = ''] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
        return name === undefined ? [] : [[name, placed(value, mounts)]];
      }),
    ),
    passed: valuesOf('-e', '--env').filter((text) => /^[A-Za-z_]\w*$/.test(text)),
    mounts,
    unkept: [
      ...unkept,
      ...read.flatMap(({ text, mount }) =>
        mount === undefined ? [`the mount ${text}: it is no folder of this machine`] : [],
      ),
      ...mounts.flatMap(({ from, to }) =>
        from === to ? [] : [`${to}: the server sees this folder at its own place, ${from}`],
      ),
    ],
  };
}

/** Reads `FROM:TO[:ro]`, or `type=bind,src=FROM,dst=TO[,readonly]`; undefined for a volume of the engine. */
function mountOf(text: string): Mount | undefined {
  const fields = new Map(text.split(',').map((part) => [part.replace(/=.*$/s, ''), part.replace(/^[^=]*=?/s, '')]));
  if (text.includes('='))
    return mountAt(
      fields.get('src') ?? fields.get('source') ?? '',
      fields.get('dst') ?? fields.get('destination') ?? fields.get('target') ?? '',
      ['readonly', 'ro'].some((name) => fields.has(name) && fields.get(name) !== 'false'),
    );
  // A variable such as ${workspaceFolder} contains no colon, but ${env:HOME} does.
  const [from = '', to = '', options = ''] = text.split(/:(?![^{]*\})/);
  return mountAt(from, to, options.split(',').includes('ro'));
}

function mountAt(from: string, to: string, isReadOnly: boolean): Mount | undefined {
  return /^(?:[~./]|\$\{)/.test(from) && to.startsWith('/') ? { from, to, isReadOnly } : undefined;
}

/** A path of the container as a path of this machine. */
function placed(text: string, mounts: readonly Mount[]): string {
  const mount = mounts.find(({ to }) => text === to || text.startsWith(`${to}/`));
  return mount === undefined ? text : mount.from + text.slice(mount.to.length);
}
