/**
 * Provides the container engine of the tests and an image made of programs of this machine. It throws without a
 * container.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { installPrograms } from './system.ts';

const PACKAGES = [
  ['podman', 'podman'],
  ['runc', 'runc'],
  ['catatonit', 'catatonit'],
] as const;
/** The programs besides Node that the probes and the bridge to the proxy need. */
const PROGRAMS = [
  'sh',
  'perl',
  'socat',
  'cat',
  'dd',
  'env',
  'find',
  'id',
  'mknod',
  'mount',
  'nsenter',
  'prlimit',
  'sleep',
  'su',
  'umount',
  'unshare',
];

/**
 * Installs podman, sets the variables with the settings of the tests, and makes the image once per machine. Throws if
 * it cannot.
 */
export function installEngine(say: (line: string) => void): void {
  installPrograms(PACKAGES, say);
  process.env.CONTAINERS_CONF = path.join(import.meta.dirname, '..', 'fixtures', 'containers.conf');
  // Only podman has the image, so a docker that answers on this machine must not be used.
  process.env.DOCKER_HOST = 'unix:///var/empty/no-docker.sock';
  const image = imageName();
  process.env.TOLLGATE_TEST_IMAGE = image;
  if (spawnSync('podman', ['image', 'exists', image]).status === 0) return;
  say(`making the image ${image}`);
  makeImage(image, { programs: PROGRAMS, node: process.execPath });
}

/** The name of the image depends on the Node version and the list of programs. */
function imageName(): string {
  const { size, mtimeMs } = statSync(process.execPath);
  return `localhost/tollgate-test:${createHash('sha256')
    .update(`${process.version} ${size} ${mtimeMs} ${PROGRAMS.join(' ')}`)
    .digest('hex')
    .slice(0, 12)}`;
}

/** What an image consists of. `native`: libraries of Node.js whose own libraries it must have. */
export interface ImageParts {
  readonly programs: readonly string[];
  readonly node: string;
  readonly native?: readonly string[];
}

/** Makes an image from programs of this machine, because the tests reach no registry of images. */
export function makeImage(image: string, { programs, node, native = [] }: ImageParts): void {
  const root = mkdtempSync(path.join(tmpdir(), 'tollgate-image-'));
  try {
    for (const folder of ['bin', 'sbin', 'lib', 'lib64']) {
      mkdirSync(path.join(root, 'usr', folder), { recursive: true });
      symlinkSync(`usr/${folder}`, path.join(root, folder));
    }
    const found = programs.map(
      (name) =>
        (process.env.PATH ?? '')
          .split(':')
          .map((folder) => path.join(folder, name))
          .find((file) => existsSync(file)) ?? name,
    );
    for (const file of new Set(found.flatMap((program) => [program, ...librariesOf(program)])))
      copy(file, path.join(root, file));
    for (const file of [node, ...native].flatMap(librariesOf)) copy(file, path.join(root, file));
    copy(node, path.join(root, 'usr/local/bin/node'));
    for (const folder of ['tmp', 'app', 'etc']) mkdirSync(path.join(root, folder), { recursive: true });
    chmodSync(path.join(root, 'tmp'), 0o1777);
    const archive = `${root}.tar`;
    must('tar', ['-C', root, '-cf', archive, '.']);
    must('podman', ['import', '--quiet', archive, image]);
  } finally {
    for (const file of [root, `${root}.tar`]) rmSync(file, { recursive: true, force: true });
  }
}

/** Lists a program with its libraries and the loader that it names. */
function librariesOf(program: string): readonly string[] {
  return (
    spawnSync('ldd', [program], { encoding: 'utf8' })
      .stdout.match(/\/\S+/g)
      ?.filter((file) => existsSync(file)) ?? []
  );
}

function copy(from: string, to: string): void {
  mkdirSync(path.dirname(to), { recursive: true });
  copyFileSync(from, to);
}

function must(program: string, args: readonly string[]): void {
  const { status, stderr } = spawnSync(program, args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`${program} ${args[0]} failed: ${stderr}`);
}
