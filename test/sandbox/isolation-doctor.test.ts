/** Tests `tollgate doctor`: its findings on this machine and on one without the tools, and its exit code. */
import { lchownSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { DoctorFinding } from '../../facade/attention/doctor-findings.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';
import { own } from './probe-targets.ts';

interface Report {
  readonly ok: boolean;
  readonly findings: readonly DoctorFinding[];
}

let project: Project;

beforeEach(() => {
  project = new Project();
});

afterEach(() => {
  project.remove();
});

async function examine(): Promise<Report & { readonly code: number }> {
  const { out, code } = await cli(project, ['doctor', '--json']);
  return { ...dataOf<Report>(out), code };
}

const states = ({ findings }: Report): Readonly<Record<string, string>> =>
  Object.fromEntries(findings.map(({ name, state }) => [name, state]));

/** Settings that make programs missing: each has a path that does not exist. */
function without(...names: readonly string[]): string {
  return `programs: {${names.map((name) => `${name}: ${path.join(project.folder, 'elsewhere', name)}`).join(', ')}}\n`;
}

function write(yaml: string): void {
  mkdirSync(path.join(project.folder, 'work'), { recursive: true });
  own(path.join(project.folder, 'work'));
  project.write('tollgate.yaml', `version: 1\nworkspace: work\n${yaml}`);
}

describe('tollgate doctor', () => {
  it('tests each property of the sandbox, and exits with 0' + verifies('PF-02', 'CY-24'), async () => {
    write('');
    const report = await examine();
    expect(states(report)).toMatchObject({
      'Node.js': 'ok',
      configuration: 'ok',
      'state folder': 'ok',
      bwrap: 'ok',
      prlimit: 'ok',
      socat: 'ok',
      rg: 'ok',
      'user of sandboxes': 'ok',
      'memory of sandboxes': 'ok',
    });
    const proofs = report.findings.filter(({ name }) => name.startsWith('sandbox: '));
    expect(proofs.length).toBeGreaterThanOrEqual(10);
    expect(proofs.filter(({ state }) => state !== 'ok')).toEqual([]);
    expect([report.ok, report.code]).toEqual([true, 0]);
    const { out } = await cli(project, ['doctor']);
    expect(out).toMatch(/^STATE +CHECK +FINDING +ID\n/);
    expect(out).toMatch(/ok +sandbox: ports of the host cannot +proven +sandbox-proof\n +be reached/);
  });

  it('names each missing program and the command that installs it, and exits with 1', async () => {
    write(
      `${without('bwrap', 'socat', 'rg', 'docker', 'podman')}servers:
  a: {command: x, sandbox: {network: {allowedDomains: [a.example]}}}
  b: {command: y, isolation: container, sandbox: {image: z}}
profiles: {default: {servers: [a, b]}}
`,
    );
    const report = await examine();
    expect([report.ok, report.code]).toEqual([false, 1]);
    expect(states(report)).toMatchObject({
      bwrap: 'missing',
      socat: 'missing',
      rg: 'weak',
      opa: 'weak',
      'container client': 'missing',
      prlimit: 'ok',
      'server a': 'missing',
    });
    const { out } = await cli(project, ['doctor']);
    for (const fix of [
      'sudo apt-get install bubblewrap',
      'sudo apt-get install socat',
      'sudo apt-get install ripgrep',
      'sudo apt-get install podman',
    ])
      expect(out).toContain(fix);
  });

  it('reports both container engines, and which of them answers', async () => {
    const folder = path.join(project.folder, 'elsewhere');
    mkdirSync(folder);
    write(without('docker', 'podman'));
    const put = (name: string, script: string): void =>
      writeFileSync(path.join(folder, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    const found = async (): Promise<DoctorFinding | undefined> =>
      (await examine()).findings.find(({ id }) => id === 'container-client');
    put('docker', 'echo no daemon >&2; exit 1');
    expect(await found()).toMatchObject({
      state: 'weak',
      seen: expect.stringContaining('/docker does not answer ("no daemon")') as string,
      fix: 'sudo systemctl start docker',
    });
    put('podman', `echo '{"host":{"cgroupControllers":["memory","pids"],"security":{"rootless":false}}}'`);
    expect(await found()).toMatchObject({
      state: 'ok',
      seen: expect.stringMatching(/podman answers; .*docker does not answer/) as string,
    });
  });

  it('shows where each helper is, and why it does not run one' + verifies('TR-23'), async () => {
    write(without('rg', 'setpriv'));
    const { findings } = await examine();
    const seen = (id: string): DoctorFinding | undefined => findings.find((finding) => finding.id === id);
    expect(seen('bwrap')?.seen).toContain('/usr/bin/bwrap');
    expect(seen('helpers')).toMatchObject({
      state: 'weak',
      seen: expect.stringMatching(
        /\/usr\/bin\/bash; .*setpriv not run: \S+\/elsewhere\/setpriv is not a program/,
      ) as string,
    });
    expect(seen('rg')).toMatchObject({
      state: 'weak',
      seen: expect.stringContaining('/elsewhere/rg is not a program') as string,
    });
    write('bash: {isolation: direct}\n');
    lchownSync(path.join(project.folder, 'work'), 0, 0);
    const rg = (await examine()).findings.find(({ id }) => id === 'rg');
    expect(rg).toMatchObject(
      process.getuid?.() === 0
        ? { state: 'weak', seen: expect.stringContaining('it needs a sandbox') as string }
        : { state: 'ok' },
    );
  });

  it('requires nothing that the configuration does not need', async () => {
    write(`${without('bwrap', 'prlimit', 'socat', 'rg')}bash: {isolation: direct}\n`);
    const report = await examine();
    expect(states(report)).toMatchObject({ bwrap: 'weak', prlimit: 'weak', socat: 'weak' });
    expect(report.code).toBe(0);
  });

  it('prints the commands that give the workspace to an ordinary user and close the state folder', async () => {
    write('state: ./state\n');
    lchownSync(path.join(project.folder, 'work'), 0, 0);
    mkdirSync(path.join(project.folder, 'state'), { mode: 0o755 });
    const report = await examine();
    expect(report.code).toBe(1);
    expect(report.findings.find(({ name }) => name === 'user of sandboxes')?.fix).toContain(
      `chown -R ${process.env.SUDO_USER ?? 'USER'}: ${path.join(project.folder, 'work')}`,
    );
    expect(report.findings.find(({ name }) => name === 'state folder')).toMatchObject({
      state: 'missing',
      fix: `chmod 700 ${path.join(project.folder, 'state')}`,
    });
  });

  it('works without a configuration, and reports a broken one', async () => {
    const report = await examine();
    expect(states(report)).toMatchObject({ configuration: 'weak', 'sandbox: no capability is held': 'ok' });
    expect(report.code).toBe(0);
    project.write('tollgate.yaml', 'versoin: 1\n');
    const broken = await examine();
    expect(broken.findings.find(({ name }) => name === 'configuration')).toMatchObject({
      state: 'missing',
      fix: 'tollgate check',
    });
    expect(broken.code).toBe(1);
  });
});
