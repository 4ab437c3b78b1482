/**
 * Tests the questions of commands at a real terminal: a pseudo-terminal, the built program, and typed keys.
 * Covers: facade/cli/serving, facade/serve, facade/runtime.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { loadInForce } from '../../facade/config/config-in-force.ts';
import { Project } from '../config/project.ts';
import { partOf } from '../harness/slices.ts';
import { installPrograms } from '../servers/system.ts';
import { verifies } from '../verifies.ts';
import { MAIN } from './child.ts';

installPrograms([['python3', 'python3']], () => undefined);

/** Types one answer at each question. Returns what the terminal showed, and the exit code. */
const TYPIST = `
import json, os, pty, sys
argv, answers = json.loads(sys.argv[1])
pid, terminal = pty.fork()
if pid == 0: os.execv(argv[0], argv)
seen, asked = b'', 0
while True:
    try: part = os.read(terminal, 65536)
    except OSError: break
    if not part: break
    seen += part
    if seen.count(b'[y/N] ') > asked and asked < len(answers):
        os.write(terminal, answers[asked].encode())
        asked += 1
print(json.dumps([seen.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), asked]))`;

interface Shown {
  readonly text: string;
  readonly code: number;
  /** Questions that were answered. */
  readonly asked: number;
}

let project: Project;
beforeEach(() => {
  project = new Project();
});
afterEach(() => project.remove());

function atTerminal(argv: readonly string[], answers: readonly string[]): Shown {
  const run = spawnSync('python3', ['-I', '-c', TYPIST, JSON.stringify([[process.execPath, MAIN, ...argv], answers])], {
    cwd: project.folder,
    encoding: 'utf8',
    timeout: 60_000,
    env: { PATH: process.env.PATH, HOME: project.home, TERM: 'dumb' },
  });
  if (run.status !== 0) throw new Error(run.stderr);
  const [text, code, asked] = JSON.parse(run.stdout) as [string, number, number];
  return { text: text.replaceAll('\r\n', '\n'), code, asked };
}

const yaml = (rule: string): string =>
  `version: 1\nworkspace: .\nrules: [{id: ${rule}, outcome: allow, when: {verbs: [read]}}]\n`;
const rules = (): readonly unknown[] => loadInForce(project.file, { env: {}, home: project.home }).config.rules;
const CTRL_C = '\u0003';

describe('tollgate reload at a terminal', () => {
  it(
    'shows what may allow more, and accepts it only on yes, not on another key, an empty line or Ctrl-C' +
      verifies('TR-33'),
    () => {
      project.write('tollgate.yaml', yaml('first'));
      const first = atTerminal(['reload'], ['y\n']);
      expect(first).toMatchObject({
        code: EXIT.ok,
        asked: 1,
        text: expect.stringContaining('Accepted. A running Tollgate uses it within a second.') as string,
      });
      project.write('tollgate.yaml', yaml('second'));
      for (const answer of partOf(['\n', 'n\n', 'yess\n', CTRL_C], 3)) {
        const shown = atTerminal(['reload'], [answer]);
        expect([answer, shown.asked, shown.code === EXIT.ok, shown.text]).toEqual([
          answer,
          1,
          false,
          expect.stringContaining('rule second (allow)'),
        ]);
        expect(rules()).toMatchObject([{ id: 'first' }]);
      }
      expect(atTerminal(['reload'], ['YES\n']).code).toBe(EXIT.ok);
      expect(rules()).toMatchObject([{ id: 'second' }]);
      expect(atTerminal(['reload'], ['y\n'])).toMatchObject({
        code: EXIT.ok,
        asked: 0,
        text: expect.stringContaining('Already accepted') as string,
      });
    },
  );
});

describe('tollgate init at a terminal', () => {
  const outside = (): readonly string[] => {
    const folder = path.join(project.home, '.config', 'tollgate');
    return existsSync(folder) ? readdirSync(folder) : [];
  };

  it('writes the configuration outside the workspace on yes' + verifies('TR-35'), () => {
    const shown = atTerminal(['init'], ['y\n']);
    expect(shown).toMatchObject({
      code: EXIT.ok,
      asked: 1,
      text: expect.stringMatching(
        /Keep the configuration in\s.*\.config\/tollgate\/[^]*where\s+no\s+agent\s+can\s+write\s+it\?/,
      ) as string,
    });
    expect([outside().length, existsSync(project.file)]).toEqual([1, false]);
    expect(readdirSync(path.join(project.home, '.config', 'tollgate', outside()[0] ?? '')).sort()).toEqual([
      'policies',
      'tollgate.yaml',
    ]);
  });

  it('writes it in the project on any other answer, and accepts what it wrote' + verifies('TR-35'), () => {
    expect(atTerminal(['init'], ['n\n'])).toMatchObject({ code: EXIT.ok, asked: 1 });
    expect([outside(), existsSync(project.file)]).toEqual([[], true]);
    expect(loadInForce(project.file, { env: {}, home: project.home })).toMatchObject({ differing: [] });
  });

  it('writes nothing on Ctrl-C', () => {
    const { asked, code } = atTerminal(['init'], [CTRL_C]);
    expect([asked, code === EXIT.ok]).toEqual([1, false]);
    expect([outside(), existsSync(project.file)]).toEqual([[], false]);
  });
});
