/** Tests the image of the Containerfile: built, and run read-only by a user who is not root. */
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Project } from '../config/project.ts';
import { Child } from '../process/child.ts';
import { makeImage } from '../servers/engine.ts';
import { installNodes, NODE_PACKAGES } from '../servers/install.ts';
import { verifies } from '../verifies.ts';
import { installPacked, packedPackage } from './packed-package.ts';

const ROOT = path.join(import.meta.dirname, '..', '..');
const BASE = `localhost/tollgate-base:${process.pid}`;
const IMAGE = `localhost/tollgate-image:${process.pid}`;
/** The user of the image. */
const USER = 10_001;
const PROGRAMS = [
  'sh',
  'bash',
  'cat',
  'mkdir',
  'chown',
  'chmod',
  'sleep',
  'catatonit',
  'bwrap',
  'prlimit',
  'socat',
  'rg',
];
/** What docs/container.md says to grant, so that bubblewrap can work in the container. */
const GRANTS = ['--security-opt', 'seccomp=unconfined', '--security-opt', 'unmask=ALL'];

let project: Project;

const podman = (words: readonly string[]): string => execFileSync('podman', words, { encoding: 'utf8' });

beforeAll(async () => {
  await installNodes(() => undefined);
  const installed = installPacked(packedPackage().archive);
  makeImage(BASE, {
    programs: PROGRAMS,
    node: path.join(NODE_PACKAGES, 'node_modules/node-newest/bin/node'),
    native: [path.join(installed, 'node_modules/@libsql/linux-x64-gnu/index.node')],
  });
  podman([
    'build',
    '--quiet',
    '--build-arg',
    `BASE=${BASE}`,
    '-f',
    path.join(ROOT, 'Containerfile'),
    '-t',
    IMAGE,
    installed,
  ]);
  project = new Project();
  for (const folder of ['config', 'state', 'workspace']) mkdirSync(path.join(project.folder, folder), { mode: 0o755 });
  for (const folder of ['state', 'workspace']) chownSync(path.join(project.folder, folder), USER, USER);
  project.write('workspace/notes.md', 'from the workspace\n');
  project.write(
    'config/tollgate.yaml',
    `version: 1
workspace: /workspace
state: /state/tollgate
principals: [{id: agent, stdio: true}]
rules: [{id: all, outcome: allow, when: {servers: [workspace]}}]
`,
  );
});

afterAll(() => {
  project.remove();
  spawnSync('podman', ['rmi', '--force', IMAGE, BASE]);
});

/** Runs `tollgate run` in a container that is removed at its end. */
function run(name: string, options: readonly string[] = []): Child {
  const mounts = ['config:/config:ro', 'state:/state', 'workspace:/workspace'];
  return new Child(project, ['run'], {
    asItIs: true,
    env: { CONTAINERS_CONF: process.env.CONTAINERS_CONF ?? '' },
    program: [
      ...['podman', 'run', '--rm', '--interactive', '--read-only', '--network', 'none', '--name', name],
      // The machine of the tests may permit no more.
      ...['--ulimit', 'nofile=1024:1024', '--ulimit', 'nproc=4096:4096'],
      ...mounts.flatMap((mount) => ['--volume', path.join(project.folder, mount)]),
      ...options,
      IMAGE,
    ],
  });
}

async function end(child: Child, name: string): Promise<void> {
  child.process.stdin.end();
  expect(await child.ended).toEqual({ code: 0, signal: null });
  expect(podman(['ps', '--all', '--quiet', '--filter', `name=^${name}$`])).toBe('');
}

describe('the image', () => {
  it(
    'serves over stdio with a read-only root and without root, and ends with its input' + verifies('FH-65'),
    async () => {
      const name = `tollgate-plain-${process.pid}`;
      const child = run(name);
      await child.hello();
      const { result } = await child.ask('tools/list');
      expect(result?.tools?.map((tool) => tool.name)).toEqual(['read', 'write', 'edit', 'bash']);
      const [first = '', ...others] = podman(['top', name, 'user,comm']).trim().split('\n').slice(1);
      expect(first).toMatch(/^(10001|tollgate) +catatonit$/);
      expect(others.filter((line) => !/^(10001|tollgate) /.test(line))).toEqual([]);
      const read = await child.call('read', { path: 'notes.md' });
      expect(read.result?.content?.[0]?.text).toBe('from the workspace\n');
      // Without the rights that a sandbox needs, no command runs.
      const refused = await child.call('bash', { command: 'cat notes.md' });
      expect(refused.result?._meta?.['tollgate/code']).toBe('SANDBOX_UNAVAILABLE');
      expect(refused.result?.content?.[0]?.text).toContain('Run `tollgate doctor`');
      await end(child, name);
    },
  );

  it('runs commands in a sandbox with what the page on containers grants' + verifies('FH-65'), async () => {
    const name = `tollgate-granted-${process.pid}`;
    const child = run(name, GRANTS);
    await child.hello();
    const said = await child.call('bash', { command: 'cat notes.md' });
    expect(said.result?.content?.[0]?.text).toContain('from the workspace');
    await end(child, name);
  });

  it('serves HTTP as the pod of docs/kubernetes does' + verifies('FL-15'), async () => {
    const name = `tollgate-pod-${process.pid}`;
    project.write(
      'pod/tollgate.yaml',
      `version: 1
workspace: /workspace
state: /state/tollgate
principals: [{id: admin, owner: true, token: "\${env:ADMIN_TOKEN}"}]
rules: [{id: all, outcome: allow, when: {}}]
listen: {host: 0.0.0.0}
`,
    );
    chmodSync(path.join(project.folder, 'pod'), 0o755);
    mkdirSync(path.join(project.folder, 'empty'));
    chmodSync(path.join(project.folder, 'empty'), 0o777);
    podman([
      ...['run', '--detach', '--name', name, '--network', 'none'],
      // Any user, as a namespace of Kubernetes may demand. The image itself has no folder for it.
      ...['--user', '65532:65532', '--read-only', '--read-only-tmpfs=false', '--cap-drop', 'ALL'],
      ...['--security-opt', 'no-new-privileges', '--ulimit', 'nofile=1024:1024', '--ulimit', 'nproc=4096:4096'],
      // An emptyDir is a folder of root that everyone may write to.
      ...['--volume', `${path.join(project.folder, 'empty')}:/state`, '--tmpfs', '/tmp:rw,mode=1777'],
      ...['--volume', `${path.join(project.folder, 'pod')}:/config:ro`, '--env', 'ADMIN_TOKEN=token-of-the-admin-0123'],
      IMAGE,
    ]);
    try {
      const ask = (route: string, how = ''): string => {
        const code = `fetch('http://127.0.0.1:7310${route}'${how}).then(async (r) => console.log(r.status, await r.text()))`;
        const { stdout, stderr } = spawnSync('podman', ['exec', name, 'node', '-e', code], { encoding: 'utf8' });
        return (stdout === '' ? stderr + podman(['logs', name]) : stdout).trim();
      };
      await expect.poll(() => ask('/readyz'), { timeout: 40_000 }).toBe('200 {"status":"ready"}');
      expect(ask('/livez')).toBe('200 {"status":"live"}');
      const token = ", {headers: {authorization: 'Bearer token-of-the-admin-0123'}}";
      expect(ask('/metrics', token)).toMatch(/^200 [^]*\ntollgate_calls_in_flight 0$/m);
      const status = podman(['exec', name, 'cat', '/proc/1/status']);
      expect(status).toMatch(/^Uid:\t65532\t65532\t65532\t65532$/m);
      expect(status).toMatch(/^CapBnd:\t0+$/m);
      expect(status).toMatch(/^NoNewPrivs:\t1$/m);
    } finally {
      podman(['stop', '--time', '20', name]);
      podman(['rm', name]);
    }
  });

  it('ends with the signal that an engine sends' + verifies('FH-65'), async () => {
    const name = `tollgate-stopped-${process.pid}`;
    const child = run(name);
    await child.hello();
    podman(['stop', '--time', '20', name]);
    expect((await child.ended).code).not.toBe(137);
    expect(podman(['ps', '--all', '--quiet', '--filter', `name=^${name}$`])).toBe('');
  });
});
