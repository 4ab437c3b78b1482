/** Runs a program at a real terminal (`script` of util-linux), and answers its questions key by key. */
import { spawn } from 'node:child_process';

/** A question that is waited for, and the keys that answer it. */
export type AnsweredQuestion = readonly [question: string, keys: string];

/** What a run showed, and its exit code. */
export interface TerminalEnd {
  readonly code: number | null;
  /** Without colours. */
  readonly text: string;
}

/** A terminal of some columns. */
export interface TerminalWorld {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly columns: number;
}

/** Runs words of a command line in a terminal. Questions are answered in order. */
export function runAtTerminal(
  words: readonly string[],
  answers: readonly AnsweredQuestion[],
  { cwd, env, columns }: TerminalWorld,
): Promise<TerminalEnd> {
  const line = words.map((word) => `'${word}'`).join(' ');
  const child = spawn('script', ['-qefc', `stty cols ${columns} rows 45; exec ${line}`, '/dev/null'], {
    cwd,
    env: { ...env, SHELL: '/bin/bash', TERM: 'xterm' },
  });
  const left = [...answers];
  let [text, read] = ['', 0];
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.stdout.on('data', (chunk: Buffer) => {
      text = (text + chunk.toString('utf8')).replace(/\u001b\[[0-9;]*m/g, '').replaceAll('\r', '');
      const [next] = left;
      const at = next === undefined ? -1 : flat(text.slice(read)).indexOf(flat(next[0]));
      if (next === undefined || at < 0) return;
      read = text.length;
      left.shift();
      child.stdin.write(next[1]);
    });
    child.on('close', (code) => resolve({ code, text }));
  });
}

/** A question may be broken at any word. */
function flat(text: string): string {
  return text.replace(/\s+/g, ' ');
}
