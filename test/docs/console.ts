/**
 * Runs lines of a page as a reader would. A plain `tollgate` command runs in this process, because starting one is
 * slow. Other lines run in a shell. Nothing waits for a person.
 */
import { spawn } from 'node:child_process';
import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { type Answer, start } from '../cli/terminal.ts';
import { MAIN } from '../process/child.ts';

/** The result of a line; `shown` is everything on the screen. */
export interface Shown extends Answer {
  readonly shown: string;
}

/** The place in which lines run. */
export interface CommandPlace {
  readonly home: string;
  readonly folder: string;
  readonly env: Readonly<Record<string, string>>;
}

const QUOTED = /'[^']*'|"[^"]*"/g;
/** Matches one Tollgate command without shell syntax. */
const PLAIN = /^tollgate(?: [^|<>;&$`*?~\\#()]*)?$/;

/** Splits a plain command into words, as a shell does. */
export function wordsOf(line: string): readonly string[] {
  return [...line.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
    ([, single, double, plain]) => single ?? double ?? plain ?? '',
  );
}

/** Links the built program as `<root>/bin/tollgate`, as npm would. Returns a PATH that finds it. */
export function linkProgram(root: string): string {
  const [bin, link] = [path.join(root, 'bin'), path.join(root, 'tollgate')];
  mkdirSync(bin);
  symlinkSync(MAIN, link);
  writeFileSync(path.join(bin, 'tollgate'), `#!/bin/sh\nexec "${process.execPath}" "${link}" "$@"\n`);
  chmodSync(path.join(bin, 'tollgate'), 0o755);
  return `${bin}:${process.env.PATH ?? ''}`;
}

/** Runs a line until it ends. */
export async function runLine(line: string, place: CommandPlace): Promise<Shown> {
  return PLAIN.test(line.replace(QUOTED, '')) ? inProcess(line, place) : inShell(line, place);
}

async function inProcess(line: string, { home, folder, env }: CommandPlace): Promise<Shown> {
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

function inShell(line: string, { folder, env }: CommandPlace): Promise<Shown> {
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
