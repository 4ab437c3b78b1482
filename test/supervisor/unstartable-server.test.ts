/**
 * Tests servers that cannot start until a person fixes something: every command and call names the fault, and the next
 * use starts a fixed server.
 */

import { chownSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type HelperName, useHelpers } from '../../catalogs/programs/helper-programs.ts';
import { cli, dataOf, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const NOTES = path.join(import.meta.dirname, '..', 'fixtures', 'chaos.mjs');
const IMAGE = `example/notes@sha256:${'0'.repeat(64)}`;
const SECRET = 'Secret "notes.key" is not in the vault.';

let project: Project;
let withheld: Readonly<Record<string, string>> = {};
let facade: TestFacade | undefined;
beforeEach(() => {
  project = new Project();
  mkdirSync(path.join(project.folder, 'workspace'));
  own('workspace', 1000);
  withhold('bwrap', 'prlimit', 'socat', 'docker', 'podman');
});
afterEach(async () => {
  withhold();
  vi.restoreAllMocks();
  await facade?.close();
  facade = undefined;
  project.remove();
});

const own = (file: string, uid: number): void => chownSync(path.join(project.folder, file), uid, uid);

/** Makes these programs unusable: the configuration names paths where there is no file. */
function withhold(...programs: readonly HelperName[]): void {
  withheld = Object.fromEntries(programs.map((program) => [program, `/missing/${program}`]));
  useHelpers({ programs: withheld, writable: [] });
}

const isolated = (more: string): string =>
  `{command: ${JSON.stringify(process.execPath)}, args: [${JSON.stringify(NOTES)}, ok]${more}}`;
const SERVERS: Readonly<Record<string, string>> = {
  jailed: isolated(', sandbox: {limits: {memoryMb: 1024}}'),
  bridged: isolated(', sandbox: {network: {allowedDomains: [notes.example]}}'),
  boxed: isolated(`, isolation: container, sandbox: {image: "${IMAGE}"}`),
  keyed: server(['chaos.mjs', 'ok'], 'env: {NOTES_KEY: "${secret:notes.key}"}, start: eager'),
};

async function open(onLog: (line: string) => void = () => undefined): Promise<TestFacade> {
  const names = Object.keys(SERVERS);
  facade = await startFacade(
    `version: 1
workspace: ./workspace
state: ./state
programs: ${JSON.stringify(withheld)}
servers: {${Object.entries(SERVERS)
      .map(([name, text]) => `${name}: ${text}`)
      .join(', ')}}
principals: [{id: alice, stdio: true, owner: true}]
profiles: {default: {servers: [${names.join(', ')}], expose: {tools: [${names.map((name) => `"${name}.*"`).join(', ')}]}}}
rules: [{id: all, outcome: allow, when: {}}]
`,
    { folder: project.folder, onLog },
  );
  return facade;
}

describe('a server that cannot start until a person fixes something', () => {
  it(
    'names the fault to calls, to its owner, and in the audit, although it was never listed' + verifies('HE-07'),
    async () => {
      const said: string[] = [];
      const one = await open((line) => said.push(line));
      const session = one.open('alice');
      one.assembled.warmUp();
      await expect
        .poll(() => said.join(''))
        .toContain(`server keyed was not started: ${SECRET} Store it with \`tollgate secret set notes.key\``);
      const bwrap =
        'The program bwrap is not run: /missing/bwrap is not a program.\nInstall it for the whole system (sudo apt-get install bubblewrap), or give its path under programs in tollgate.yaml.';
      for (const [tool, code, text] of [
        ['jailed_echo', 'SANDBOX_UNAVAILABLE', bwrap],
        ['bridged_echo', 'SANDBOX_UNAVAILABLE', bwrap],
        [
          'boxed_echo',
          'SANDBOX_UNAVAILABLE',
          'Neither docker nor podman is installed, and `isolation: container` needs one of them.\nInstall one: sudo apt-get install podman',
        ],
        [
          'keyed_echo',
          'SECRET_MISSING',
          `${SECRET}\nStore it with \`tollgate secret set notes.key\`, then call again.`,
        ],
      ] as const) {
        expect(await one.call(session, tool, {})).toMatchObject({
          code,
          text,
          result: { isError: true, _meta: { 'tollgate/retryable': false } },
        });
      }
      expect(await one.call(session, 'other_echo', {})).toMatchObject({ code: 'UNKNOWN_TOOL' });
      const records = one.records();
      const ends = records.filter(({ type }) => type === 'outcome' || type === 'decision');
      expect(
        new Set(
          records.filter(({ event }) => event === 'start.failed').map(({ server: name, code }) => `${name} ${code}`),
        ),
      ).toEqual(
        new Set([
          'jailed SANDBOX_UNAVAILABLE',
          'bridged SANDBOX_UNAVAILABLE',
          'boxed SANDBOX_UNAVAILABLE',
          'keyed SECRET_MISSING',
        ]),
      );
      expect(ends.map(({ code }) => code)).toEqual([
        'SANDBOX_UNAVAILABLE',
        'SANDBOX_UNAVAILABLE',
        'SANDBOX_UNAVAILABLE',
        'SECRET_MISSING',
        'UNKNOWN_TOOL',
      ]);

      const { out, code } = await cli(project, ['servers', '--json']);
      const rows = dataOf<{ servers: { name: string; state: string; reason: string }[] }>(out).servers.filter(
        ({ name }) => name in SERVERS,
      );
      expect([code, rows.map(({ name, state }) => `${name} ${state}`)]).toEqual([
        5,
        ['jailed unavailable', 'bridged unavailable', 'boxed unavailable', 'keyed unavailable'],
      ]);
      expect(rows.map(({ reason }) => reason).join('\n')).toMatch(
        /apt-get install bubblewrap[^]*apt-get install bubblewrap[^]*apt-get install podman[^]*secret set notes\.key/,
      );

      const looked = await cli(project, ['approve', 'boxed']);
      expect([looked.code, looked.err]).toEqual([
        5,
        expect.stringContaining(
          'SANDBOX_UNAVAILABLE: Neither docker nor podman is installed, and `isolation: container` needs one of them.\nInstall one: sudo apt-get install podman',
        ),
      ]);
    },
  );

  inFull('starts with the next use once it is fixed, and names the next fault' + verifies('HA-08'), async () => {
    own('workspace', 0);
    withhold('socat');
    const one = await open();
    const session = one.open('alice');
    let minutes = 0;
    // What could not be listed is left alone for a while.
    const later = async (name: string): Promise<string> => {
      vi.spyOn(Date, 'now').mockReturnValue(performance.timeOrigin + performance.now() + ++minutes * 60_000);
      const { code, text } = await one.call(session, `${name}_echo`, { n: 1 });
      return `${code} ${text}`;
    };
    for (let tries = 0; tries < 5; tries++)
      expect(await later('jailed')).toMatch(
        /^SANDBOX_UNAVAILABLE Tollgate runs as root and the workspace belongs to root[^]*chown -R/,
      );
    own('workspace', 1000);
    expect(await later('bridged')).toBe(
      'SANDBOX_UNAVAILABLE The program socat is not run: /missing/socat is not a program.\nInstall it for the whole system (sudo apt-get install socat), or give its path under programs in tollgate.yaml.',
    );
    expect(await later('jailed')).toBe(' {"n":1}');
    const stdin = new PassThrough();
    stdin.end('a-long-enough-value');
    await cli(project, ['secret', 'set', 'notes.key'], { stdin });
    expect(await later('keyed')).toBe(' {"n":1}');
    expect(one.records().filter(({ event }) => event === 'failed' || event === 'crashed')).toEqual([]);
  });
});
