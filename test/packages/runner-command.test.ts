/** Tests what is read of the command lines with which clients start packages, and of the names that people write. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { readPackageSpec } from '../../facade/packages/package-spec.ts';
import { readRunner } from '../../facade/packages/runner-command.ts';
import { verifies } from '../verifies.ts';

interface Case {
  readonly runs: readonly string[];
  readonly fault?: string;
}

const CASES = parse(readFileSync(path.join(import.meta.dirname, 'runner-commands.yaml'), 'utf8')) as readonly Case[];

describe('a command line of a client' + verifies('FH-15'), () => {
  it.each(CASES.map((one) => [one.runs.join(' '), one] as const))('%s', (_line, { runs, fault, ...wanted }) => {
    const [command, ...args] = runs;
    expect(readRunner({ command, args })).toEqual(
      fault === undefined
        ? { args: [], env: {}, passed: [], mounts: [], unkept: [], ...wanted }
        : { fault: expect.stringContaining(fault) as string },
    );
  });

  it.each(['node', 'npm', 'docker', 'uv', '/usr/bin/python3'])('%s downloads nothing', (command) => {
    expect(readRunner({ command, args: ['server.js'] })).toBeUndefined();
  });
});

const COMMIT = '0123456789abcdef0123456789abcdef01234567';

describe('the name of a package' + verifies('FH-10'), () => {
  it.each([
    ['npm:@scope/name@^1.2', { kind: 'npm', name: '@scope/name', version: '^1.2' }],
    ['pypi:name[cli,dev]@1.0', { kind: 'pypi', name: 'name', version: '1.0', extras: 'cli,dev' }],
    ['pypi:name==1.0', { kind: 'pypi', name: 'name', version: '1.0' }],
    ['oci:ghcr.io/me/notes:1', { kind: 'oci', image: 'ghcr.io/me/notes:1' }],
    [`git:https://example.org/a.git#${COMMIT}`, { kind: 'git', url: 'https://example.org/a.git', commit: COMMIT }],
    ['./notes', { kind: 'folder', folder: '/project/notes' }],
    ['~/notes', { kind: 'folder', folder: '/home/me/notes' }],
    ['tracker.example.org', undefined],
    ['memory', undefined],
  ])('%s', (text, spec) => {
    expect(readPackageSpec(text, { cwd: '/project', home: '/home/me' })).toEqual(spec);
  });

  it.each([
    ['npm:', 'is not the name of a package of npm'],
    ['npm:../a', 'is not the name of a package of npm'],
    ['npm:a@1;rm', 'is not a version of a package'],
    ['pypi:-r', 'is not the name of a package of pypi'],
    ['pypi:name[a;b]', 'does not name extras of a package'],
    ['oci:--privileged', 'is not the name of an image'],
    ['git:https://example.org/a.git', 'without a complete commit'],
    ['git:https://example.org/a.git#main', 'without a complete commit'],
    [`git:https://user:secret@example.org/a#${COMMIT}`, 'contains a user'],
    [`git:file:///tmp/a#${COMMIT}`, 'is not https, ssh or git@HOST:PATH'],
    [`git:ext::sh -c id#${COMMIT}`, 'is not https, ssh or git@HOST:PATH'],
  ])('%s is refused', (text, message) => {
    expect(() => readPackageSpec(text, { cwd: '/', home: '/' })).toThrow(message);
  });
});
