/** Runs commands in this process with an Io of strings and streams; returns their output and exit code. */

import path from 'node:path';
import { PassThrough } from 'node:stream';
import type { Io } from '../../facade/cli/command-io.ts';
import { runCli } from '../../facade/cli/program.ts';
import type { Wiring } from '../../facade/cli/wiring.ts';
import { APP_MODULE } from '../../facade/main.ts';
import type { Project } from '../config/project.ts';
import { acceptFor } from '../stories/accept-configuration.ts';

/** How a command ended. */
export interface Answer {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** A command that runs. */
export interface Running {
  readonly stdin: PassThrough;
  /** The protocol messages that `run` writes. */
  readonly wire: PassThrough;
  readonly said: { out: string; err: string };
  /** Stops the command as a signal does. */
  stop(): void;
  readonly ended: Promise<Answer>;
}

const FIXTURES = path.join(import.meta.dirname, '..', 'fixtures');

/** Returns a server of test/fixtures as a YAML flow map for a configuration. */
export function server(words: readonly string[], more = ''): string {
  const [script = '', ...args] = words;
  const settings = [
    `command: ${JSON.stringify(process.execPath)}`,
    `args: ${JSON.stringify([path.join(FIXTURES, script), ...args])}`,
    'isolation: direct',
    ...(more === '' ? [] : [more]),
  ];
  return `{${settings.join(', ')}}`;
}

/** Starts a command in a project. Its configuration is accepted first. */
export function start(
  project: Pick<Project, 'home' | 'folder'>,
  argv: readonly string[],
  more: Partial<Io> = {},
  wiring: Wiring = APP_MODULE,
): Running {
  const [stdin, wire] = [new PassThrough(), new PassThrough()];
  const said = { out: '', err: '' };
  let stop = (): void => undefined;
  const stopped = new Promise<void>((resolve) => (stop = resolve));
  const io: Io = {
    stdout: (text) => void (said.out += text),
    stderr: (text) => void (said.err += text),
    isTTY: false,
    env: {},
    home: project.home,
    cwd: project.folder,
    user: 'somebody',
    self: ['tollgate'],
    stdin,
    out: wire,
    stopped,
    ...more,
  };
  acceptFor(argv, { folder: io.cwd, home: io.home, env: io.env });
  const ended = runCli(argv, io, wiring).then((code) => ({ code, ...said }));
  return { stdin, wire, said, stop, ended };
}

/** Runs a command to its end. */
export async function cli(project: Project, argv: readonly string[], more: Partial<Io> = {}): Promise<Answer> {
  return start(project, argv, more).ended;
}

/** Parses the JSON that a command printed. */
export function dataOf<T>(text: string): T {
  return JSON.parse(text) as T;
}
