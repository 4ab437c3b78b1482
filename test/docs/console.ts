/** Owns lines of a page, run as a reader runs them: a plain command in this process, which starts none, and all that needs a shell in one; refuses to wait for a person. */
import { spawn } from 'node:child_process';
import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { type Answer, start } from '../cli/terminal.ts';
import { MAIN } from '../process/child.ts';

/** How a line ended; `shown` is all that stands on the screen. */
export interface Shown extends Answer {
  readonly shown: string;
}

/** Where lines are run. */
export interface Desk {
  readonly home: string;
  readonly folder: string;
  readonly env: Readonly<Record<string, string>>;
}

const QUOTED = /'[^']*'|"[^"]*"/g;
/** One command of Tollgate, without anything that only a shell understands. */
const PLAIN = /^tollgate(?: [^|<>;&$`*?~\\#()]*)?$/;

/** Words as a shell reads them of a plain command. */
export function wordsOf(line: string): readonly string[] {
  return [...line.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
    ([, single, double, plain]) => single ?? double ?? plain ?? '',
  );
}

/** Puts the program as it ships into `<root>/bin`, under the name that npm would link; the answer is the PATH that finds it. */
export function linkProgram(root: string): string {
  const [bin, link] = [path.join(root, 'bin'), path.join(root, 'tollgate')];
  mkdirSync(bin);
  symlinkSync(MAIN, link);
  writeFileSync(path.join(bin, 'tollgate'), `#!/bin/sh\nexec "${process.execPath}" "${link}" "$@"\n`);
  chmodSync(path.join(bin, 'tollgate'), 0o755);
  return `${bin}:${process.env.PATH ?? ''}`;
}

/** Runs a line to its end. */
export async function runLine(line: string, desk: Desk): Promise<Shown> {
  return PLAIN.test(line.replace(QUOTED, '')) ? inProcess(line, desk) : inShell(line, desk);
}

async function inProcess(line: string, { home, folder, env }: Desk): Promise<Shown> {
  const said = { out: '', err: '', shown: '' };
  const say =
    (stream: 'out' | 'err') =>
    (text: string): void => {
      said[stream] += text;
      said.shown += text;
    };
  const { ended } = start({ home, folder }, wordsOf(line).slice(1), {
    env,
    user: userInfo().username,
    stdin: new PassThrough().end(),
    stdout: say('out'),
    stderr: say('err'),
  });
  const { code } = await ended;
  return { ...said, code };
}

function inShell(line: string, { folder, env }: Desk): Promise<Shown> {
  const child = spawn('bash', ['-c', line], { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] });
  const said = { out: '', err: '', shown: '' };
  const hear =
    (stream: 'out' | 'err') =>
    (text: string): void => {
      said[stream] += text;
      said.shown += text;
    };
  child.stdout.setEncoding('utf8').on('data', hear('out'));
  child.stderr.setEncoding('utf8').on('data', hear('err'));
  return new Promise((resolve) => child.once('close', (code) => resolve({ ...said, code: code ?? -1 })));
}
