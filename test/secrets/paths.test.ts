/**
 * Tests a run in which everything fails: no message to a model or a user shows a value of the environment or a path of
 * the host.
 * Covers: facade/secrets.
 */

import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cli, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { Child } from '../process/child.ts';
import { verifies } from '../verifies.ts';

/** A word in `env` of every server that occurs nowhere else. */
const VALUES = ['plain-word-of-the-environment', 'key-word-of-the-environment'];
const ENV = `env: {PLAIN: ${VALUES[0]}, API_KEY: ${VALUES[1]}}`;

/** A path that a call names itself. The record of this call names it, as docs/audit.md says, and nothing else does. */
const ASKED = '/etc/nonexistent-file';
const withoutAskedPath = (log: string): string => log.replaceAll(`"facts":{"paths":["${ASKED}"]}`, '');

describe('a run in which everything fails', () => {
  const project = new Project();
  /** Paths outside the workspace. A text may name the workspace to those who work in it, but no path around it. */
  const around = [project.root, '/nonexistent', path.join(import.meta.dirname, '..', 'fixtures')];
  const told = new Map<string, string>();

  beforeAll(async () => {
    project.write('work/locked/file', 'x');
    project.write(
      'tollgate.yaml',
      `version: 1
workspace: ./work
state: ../state
servers:
  gone: {command: /nonexistent/program, isolation: direct, ${ENV}}
  homeless: {command: node, cwd: /nonexistent/folder, isolation: direct, ${ENV}}
  exits: ${server(['chaos.mjs', 'exit-before'], ENV)}
  quiet: ${server(['chaos.mjs', 'mute'], `connectTimeoutMs: 300, ${ENV}`)}
  works: ${server(['chaos.mjs', 'ok'], ENV)}
  jailed: {command: /nonexistent/program, isolation: sandbox, ${ENV}}
expose: {primitives: workspace, tools: [gone.*, homeless.*, exits.*, quiet.*, works.*, jailed.*]}
profiles: {default: {servers: [gone, homeless, exits, quiet, works, jailed]}}
rules: [{id: all, outcome: allow, when: {verbs: [read, write, destructive, execute]}}]
`,
    );
    await project.approve();
    const child = new Child(project, ['run']);
    await child.hello();
    await child.ask('tools/list');
    const calls: readonly (readonly [string, unknown])[] = [
      ['read', { path: 'missing.txt' }],
      ['read', { path: '../../state/state.db' }],
      ['read', { path: ASKED }],
      ['read', { path: 'locked' }],
      ['read', { action: 'search', path: 'nowhere', pattern: 'x' }],
      ['write', { path: 'locked', content: 'x' }],
      ['write', { path: 'locked/file/below', content: 'x' }],
      ['edit', { path: 'missing.txt', old_string: 'a', new_string: 'b' }],
      ['read', { path: 'locked/file', more: 1 }],
      ['gone_x', {}],
      ['works_die', {}],
      ['works_echo', 'no object'],
    ];
    for (const [name, args] of calls) await child.call(name, args);
    child.process.stdin.end();
    await child.ended;
    told.set('replies', child.out).set('log', child.err);
    for (const argv of [
      ['servers'],
      ['servers', '--json'],
      ['tools'],
      ['try', 'read', '{"path": "../x"}'],
      ['audit', 'list'],
      ['plan', 'list'],
      ['secret', 'list'],
      ['servers', '--log', 'exits'],
    ]) {
      const { out, err } = await cli(project, argv);
      told.set(`tollgate ${argv.join(' ')}`, out + err);
    }
    const audit = path.join(project.home, 'state', 'audit');
    for (const name of existsSync(audit) ? readdirSync(audit) : [])
      if (statSync(path.join(audit, name)).isFile())
        told.set(`audit ${name}`, withoutAskedPath(readFileSync(path.join(audit, name), 'utf8')));
  }, 60_000);
  afterAll(() => project.remove());

  it('reports each fault', () => {
    expect([...told.keys()].some((name) => name.startsWith('audit '))).toBe(true);
    expect(told.get('replies')).toContain('ARGS_INVALID');
    for (const name of ['gone', 'homeless', 'exits', 'quiet', 'jailed'])
      expect(told.get('tollgate servers --json')).toContain(`"${name}"`);
  });

  it('shows no value of the environment' + verifies('HA-24'), () => {
    expect([...told].filter(([, text]) => VALUES.some((value) => text.includes(value))).map(([name]) => name)).toEqual(
      [],
    );
  });

  inFull('shows no path of the host' + verifies('HA-24'), () => {
    const found = [...told].flatMap(([name, text]) =>
      around.flatMap((place) =>
        [...text.matchAll(new RegExp(`.{0,80}${place}(?!/home/project/work).{0,60}`, 'g'))].map(
          ([line]) => `${name}: ${line}`,
        ),
      ),
    );
    expect(found).toEqual([]);
  });
});
