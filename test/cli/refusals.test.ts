/** Tests the errors for bad input: code, place and exit code, and never a stack. */

import { mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import Libsql from 'libsql';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import type { ErrorCode } from '../../catalogs/errors/error-table.ts';
import { EXIT } from '../../facade/cli/command-io.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { type Answer, cli, dataOf, server } from './terminal.ts';

const PLAIN = 'version: 1\nworkspace: ./workspace\n';
const REGO = `${PLAIN}policies: [rego]\n`;

let project: Project;

beforeEach(() => {
  project = new Project();
  mkdirSync(path.join(project.folder, 'workspace'));
});
afterEach(() => project.remove());

function expectRefusal({ code, out, err }: Answer, name: ErrorCode, exit: number): void {
  expect([code, out]).toEqual([exit, '']);
  expect(err.startsWith(`${name}: `), err).toBe(true);
  expect(err).not.toMatch(/^ +at /m);
  expect(err).not.toContain(project.root);
}

/** A row of refusals.yaml. */
interface Case {
  readonly name: string;
  readonly config?: string;
  readonly whole?: string;
  readonly files?: Readonly<Record<string, string>>;
  readonly code: ErrorCode;
  readonly problems: readonly string[];
}

const CASES = parse(readFileSync(path.join(import.meta.dirname, 'refusals.yaml'), 'utf8')) as readonly Case[];

describe('check and every start report the place of each error', () => {
  it.each(partOf(CASES, 4))('$name', async ({ config = '', whole, files = {}, code, problems }) => {
    project.write('tollgate.yaml', whole ?? `${PLAIN}${config}\n`);
    for (const [name, text] of Object.entries(files)) project.write(name, text);
    const checked = await cli(project, ['check']);
    expectRefusal(checked, code, EXIT.usage);
    expect(checked.err).toMatch(/^[A-Z_]+: (The configuration|A policy) is refused\.\n/);
    const lines = checked.err.trimEnd().split('\n').slice(1, -1);
    expect(lines).toHaveLength(problems.length);
    for (const [index, expected] of problems.entries()) expect(lines[index]).toMatch(new RegExp(`^${expected}`));
    const started = await cli(project, ['run']);
    expect(started).toEqual(checked);
    const { error } = dataOf<{
      error: { code: string; next: string; problems: { file: string; line: number; column: number }[] };
    }>((await cli(project, ['tools', '--json'])).err);
    expect(error).toMatchObject({ code, next: expect.stringContaining('tollgate check') });
    expect(error.problems).toHaveLength(problems.length);
  });
});

describe('a file that cannot be used', () => {
  it.each([
    ['a missing file', 'nowhere.yaml', /^nowhere\.yaml:1:1: .*there is no such file; write one with: tollgate init$/m],
    ['a folder', 'workspace', /^workspace:1:1: .*it is a folder/m],
  ])('%s is no configuration', async (_, name, expected) => {
    const answer = await cli(project, ['check', '-c', name]);
    expectRefusal(answer, 'CONFIG_INVALID', EXIT.usage);
    expect(answer.err).toMatch(expected);
  });

  inFull('is Rego without opa: the error says how to get opa', async () => {
    project.write('tollgate.yaml', REGO);
    project.write('rego/mine.rego', 'package policy.mine\n\nallow contains "all" if true\n');
    const answer = await cli(project, ['check', '--opa', path.join(project.folder, 'no-opa')]);
    expectRefusal(answer, 'OPA_MISSING', EXIT.usage);
    expect(await cli(project, ['check'])).toMatchObject({ code: EXIT.ok });
  });

  it('is a state folder that is a file', async () => {
    project.write('in-the-way', '');
    project.write('tollgate.yaml', `${PLAIN}state: ./in-the-way\n`);
    for (const command of [['tools'], ['run'], ['serve']])
      expectRefusal(await cli(project, command), 'STATE_FAILED', EXIT.unexpected);
  });

  it('is an audit folder that is a file: no command starts', async () => {
    project.write('in-the-way', '');
    project.write(
      'tollgate.yaml',
      `${PLAIN}state: ./state\naudit: {folder: ./in-the-way}\nservers: {story: ${server(['story-server.mjs'])}}\n`,
    );
    const answer = await cli(project, ['servers']);
    expectRefusal(answer, 'AUDIT_FAILED', EXIT.unexpected);
  });

  it('is the state of a newer Tollgate', async () => {
    project.write('tollgate.yaml', `${PLAIN}state: ./state\n`);
    mkdirSync(path.join(project.folder, 'state'));
    const database = new Libsql(path.join(project.folder, 'state', 'state.db'));
    database.exec('PRAGMA user_version = 99');
    database.close();
    const answer = await cli(project, ['run']);
    expectRefusal(answer, 'STATE_TOO_NEW', EXIT.unexpected);
    expect(answer.err).toMatch(/schema version 99.*\nUpgrade, or name another state folder\.\n$/);
  });

  it('is a token file that others can read', async () => {
    project.write('tollgate.yaml', `${PLAIN}state: ./state\nlisten: {port: 0}\n`);
    project.write('state/token', 'x');
    const answer = await cli(project, ['serve']);
    expectRefusal(answer, 'STATE_FAILED', EXIT.unexpected);
    expect(answer.err).toContain('Delete the file named token in the state folder');
    expect((await cli(project, ['audit', 'verify', '--json'])).out).toContain('"state": "closed"');
  });
});
