/** Starts the built console in a project of its own, and signs in over HTTP or in Chromium. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir, userInfo } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { PassThrough } from 'node:stream';
import { PROGRAM } from '../../catalogs/programs/own-code.ts';
import { start as startCommand } from '../cli/terminal.ts';
import { giveAway, installSystem } from '../servers/system.ts';

/** The built program, whether the sources or the built module run. */
const MAIN = path.join(PROGRAM, 'facade', 'main.js');

/** The answer of one request. */
export interface ConsoleAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
}

/** A session: the value of its cookie, and the token of the page. */
export interface ConsoleSessionKeys {
  readonly cookie: string;
  readonly page: string;
}

/** A running console with its project. */
export interface ConsoleBench {
  readonly folder: string;
  readonly url: string;
  readonly port: number;
  /** The code that the terminal shows. It works once. */
  readonly code: string;
  /** Runs a command in the project, in this process. Returns its output. Throws if it fails, unless `mayFail`. */
  run(words: readonly string[], mayFail?: true): Promise<string>;
  /** Starts a command that runs on. `output` resolves when its stderr has a text. */
  start(words: readonly string[]): {
    readonly serving: ChildProcess;
    readonly output: (text: RegExp) => Promise<RegExpExecArray>;
  };
  ask(path: string, options?: ConsoleAsk): Promise<ConsoleAnswer>;
  signIn(): Promise<ConsoleSessionKeys>;
  close(): Promise<void>;
}

/** What one request sends. */
export interface ConsoleAsk {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  readonly session?: ConsoleSessionKeys;
}

/** The configuration of a project without a sandbox, so that it needs nothing of this machine. */
export const PLAIN_CONFIG = `version: 1
workspace: ./work
principals:
  - {id: admin, owner: true}
  - {id: agent, profiles: [default]}
policies: [rules.yaml]
expose: {primitives: workspace}
`;

const RULES = `rules:
  - {id: no-secrets, when: {paths: ["**/.env"]}, outcome: deny, message: Secrets stay here.}
  - {id: read-files, when: {verbs: [read]}, outcome: allow}
  - {id: ask-writes, when: {verbs: [write]}, outcome: ask, message: A person decides about writes.}
`;

/** Makes a project and starts its console. `config`: of tollgate.yaml. */
export async function openConsoleBench(config = PLAIN_CONFIG, rules = RULES): Promise<ConsoleBench> {
  installSystem(() => undefined);
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-console-test-'));
  for (const name of ['home', 'state', 'project/work'])
    mkdirSync(path.join(folder, name), { recursive: true, mode: 0o700 });
  const project = path.join(folder, 'project');
  writeFileSync(path.join(project, 'tollgate.yaml'), config);
  writeFileSync(path.join(project, 'rules.yaml'), rules);
  writeFileSync(path.join(project, 'work', 'notes.txt'), 'hello\n');
  giveAway(path.join(project, 'work'));
  const env = { ...process.env, HOME: path.join(folder, 'home'), XDG_STATE_HOME: path.join(folder, 'state') };
  const run: ConsoleBench['run'] = async (words, mayFail) => {
    const io = { env, user: userInfo().username, stdin: new PassThrough().end() };
    const { code, out, err } = await startCommand({ home: env.HOME, folder: project }, words, io).ended;
    if (code !== 0 && mayFail !== true) throw new Error(`${words.join(' ')}: ${err}`);
    return out;
  };
  const start: ConsoleBench['start'] = (words) => {
    const serving = spawn(process.execPath, [MAIN, ...words], {
      cwd: project,
      env,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let text = '';
    serving.stderr.setEncoding('utf8').on('data', (part: string) => (text += part));
    const output = async (wanted: RegExp): Promise<RegExpExecArray> => {
      for (;;) {
        const found = wanted.exec(text);
        if (found !== null) return found;
        await new Promise((resolve) => serving.stderr.once('data', () => setImmediate(resolve)));
      }
    };
    return { serving, output };
  };
  const child = spawn(process.execPath, [MAIN, 'console', '--as', 'admin', '--json'], {
    cwd: project,
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const { url, code } = await firstLine(child);
  const port = Number(new URL(url).port);
  const ask: ConsoleBench['ask'] = (to, options = {}) => askConsole(port, to, options);
  return {
    folder: project,
    url,
    port,
    code,
    run,
    start,
    ask,
    signIn: async () => {
      const answer = await ask('/api/sign-in', { body: { code } });
      const cookie = String(answer.headers['set-cookie']).split(';')[0] ?? '';
      return { cookie, page: (JSON.parse(answer.text) as { page: string }).page };
    },
    close: async () => {
      await new Promise((resolve) => child.once('close', resolve) && child.kill('SIGTERM'));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Approves the start and the tools of a server, by the hashes of what is shown. */
export async function approveServer({ run }: ConsoleBench, name: string, ...options: readonly string[]): Promise<void> {
  const words = ['approve', name, '--as', 'admin', '--json', ...options];
  const hashOf = async (part: 'start' | 'tools', ...yes: readonly string[]): Promise<string> => {
    const shown = JSON.parse(await run([...words, ...yes], true)) as Readonly<
      Record<typeof part, { readonly hash: string }>
    >;
    return shown[part].hash;
  };
  const start = await hashOf('start');
  await run([...words, '--yes', start, await hashOf('tools', '--yes', start)]);
}

async function firstLine({ stdout }: ChildProcess): Promise<{ readonly url: string; readonly code: string }> {
  if (stdout === null) throw new Error('no output');
  for await (const line of createInterface({ input: stdout })) return JSON.parse(line) as { url: string; code: string };
  throw new Error('The console did not start.');
}

function askConsole(port: number, to: string, { method, headers, body, session }: ConsoleAsk): Promise<ConsoleAnswer> {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        host: '127.0.0.1',
        port,
        path: to,
        method: method ?? (body === undefined ? 'GET' : 'POST'),
        headers: {
          ...(body !== undefined && { 'content-type': 'application/json' }),
          ...(session !== undefined && { cookie: session.cookie, 'x-tollgate-page': session.page }),
          ...headers,
        },
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (part: string) => (text += part));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }));
      },
    );
    sent.on('error', reject);
    sent.end(body === undefined ? undefined : JSON.stringify(body));
  });
}
