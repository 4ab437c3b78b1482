/** Owns the actions of bash; refuses to take a command's exit code for an error of ours, and to leave a given-up command running. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { note } from '../../../catalogs/text/text-pages.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { type ActionContext, fileSystemError } from '../workspace/action-context.ts';
import { headOf, invalidArguments, printableName, textResult } from '../workspace/file-text.ts';
import { openJudgedFolder } from '../workspace/open-folder.ts';
import { bindPath } from '../workspace/path-binding.ts';
import { formatSeconds, newOutput, nextPollCall, outputHistory, sessionReport, wholeOutput } from './command-report.ts';
import type { ShellSession } from './shell-session.ts';
import type { ShellSessions } from './shell-sessions.ts';

/** Arguments of `bash`, catalogs/primitives/schemas.json. */
export interface BashArgs {
  readonly action?: 'run' | 'start' | 'send' | 'poll' | 'kill' | 'list' | undefined;
  readonly command?: string | undefined;
  readonly cwd?: string | undefined;
  readonly timeout_ms?: number | undefined;
  readonly session?: string | undefined;
  readonly input?: string | undefined;
  readonly raw?: boolean | undefined;
  readonly eof?: boolean | undefined;
  readonly wait_ms?: number | undefined;
  readonly offset?: number | undefined;
  readonly limit?: number | undefined;
}

/** A desk with sessions. `hardTimeoutMs` is the facade's own end of the call: a run is promoted before it. */
export interface ShellContext extends ActionContext {
  readonly sessions: ShellSessions;
  readonly hardTimeoutMs: number;
}

const RUN_MS = 120_000;
const MAX_RUN_MS = 600_000;
const WAIT_MS = 1000;
const MAX_WAIT_MS = 30_000;
/** Kept between the promotion of a run and the facade's hard end of the call. */
const MARGIN_MS = 500;
const MAX_LINES = 200_000;

/** Runs commands and keeps sessions. Sends to one session take turns. */
export async function bashAction(desk: ShellContext, args: BashArgs): Promise<ToolResult> {
  within('limit', args.limit, MAX_LINES);
  within('timeout_ms', args.timeout_ms, MAX_RUN_MS);
  if (args.wait_ms !== 0) within('wait_ms', args.wait_ms, MAX_WAIT_MS);
  switch (args.action ?? 'run') {
    case 'start':
      return start(desk, args);
    case 'send':
      return desk.locks.hold(`session ${desk.scope} ${args.session}`, () => send(desk, args));
    case 'poll':
      return poll(desk, args);
    case 'kill':
      return kill(desk, args);
    case 'list':
      return list(desk);
    default:
      return run(desk, args);
  }
}

function within(name: string, value: number | undefined, most: number): void {
  if (value === undefined || (value >= 1 && value <= most)) return;
  throw invalidArguments(`${name} must be 1 to ${most}.`, `Leave ${name} out for the default.`);
}

/** What began before a call was cancelled must not outlive it without an id that the caller knows. */
async function launch(desk: ShellContext, args: BashArgs, input: boolean): Promise<ShellSession> {
  const session = await begin(desk, args, input);
  if (!desk.signal.aborted) return session;
  await session.kill();
  desk.sessions.release(desk.scope, session);
  throw new TollgateError('CANCELLED');
}

async function begin(desk: ShellContext, args: BashArgs, input: boolean): Promise<ShellSession> {
  if (args.command === undefined || args.command.trim() === '')
    throw invalidArguments(`action="${args.action ?? 'run'}" needs command.`, 'Give the shell command.');
  if (args.command.includes('\0')) throw invalidArguments('command holds NUL.', 'Give plain text.');
  const held = bindPath(desk.pathHandles.of(args.cwd ?? '.'), 'cwd');
  const { relative } = held.location;
  const folder = await openJudgedFolder(held).catch((error: unknown) => {
    throw fileSystemError(error, relative);
  });
  try {
    return await desk.sessions.launch(desk.scope, {
      command: args.command,
      cwd: folder.forChild(),
      folder: path.join(desk.root, relative),
      home: desk.root,
      input,
      ...(desk.confinement === undefined ? {} : { confinement: desk.confinement }),
    });
  } finally {
    await folder.close();
  }
}

async function run(desk: ShellContext, args: BashArgs): Promise<ToolResult> {
  const timeout = Math.max(1, Math.min(args.timeout_ms ?? RUN_MS, desk.hardTimeoutMs - MARGIN_MS));
  const session = await launch(desk, args, false);
  const ended = await session.waitForEnd(timeout, desk.signal);
  if (desk.signal.aborted) {
    await session.kill();
    desk.sessions.release(desk.scope, session);
    throw new TollgateError('CANCELLED');
  }
  if (ended) {
    desk.sessions.release(desk.scope, session);
    return wholeOutput(session, args.limit);
  }
  if (desk.sessions.hasRoom(desk.scope)) {
    const id = desk.sessions.name(desk.scope, session);
    return textResult(
      newOutput(session, args.limit),
      note(
        `not finished after ${formatSeconds(timeout)}; it goes on as session ${id}, without stdin. ${nextPollCall(id)}`,
      ),
    );
  }
  const gone = await session.kill();
  desk.sessions.release(desk.scope, session);
  const text = `Not finished after ${formatSeconds(timeout)}, and there is no room for a further session: the command was ended${gone ? '' : ', but a process of it still runs'}.`;
  return {
    ...textResult(
      text,
      'End a session (bash action="list"), then run it with action="start".',
      newOutput(session, args.limit),
    ),
    isError: true,
  };
}

async function start(desk: ShellContext, args: BashArgs): Promise<ToolResult> {
  const session = await launch(desk, args, true);
  const id = await named(desk, session);
  await session.waitForNews(args.wait_ms ?? WAIT_MS, desk.signal);
  return sessionReport(id, session, args.limit);
}

async function named(desk: ShellContext, session: ShellSession): Promise<string> {
  try {
    return desk.sessions.name(desk.scope, session);
  } catch (error) {
    await session.kill();
    desk.sessions.release(desk.scope, session);
    throw error;
  }
}

async function send(desk: ShellContext, args: BashArgs): Promise<ToolResult> {
  const [id, session] = wanted(desk, args);
  if (args.input === undefined && args.eof !== true)
    throw invalidArguments('action="send" needs input or eof=true.', 'Give the text for stdin.');
  const wait = args.wait_ms ?? WAIT_MS;
  const text = args.input === undefined ? '' : args.input + (args.raw === true ? '' : '\n');
  await session.send(text, args.eof === true, wait);
  await session.waitForNews(wait, desk.signal);
  return sessionReport(id, session, args.limit);
}

async function poll(desk: ShellContext, args: BashArgs): Promise<ToolResult> {
  const [id, session] = wanted(desk, args);
  if (args.offset !== undefined) return outputHistory(id, session, args);
  await session.waitForNews(args.wait_ms ?? WAIT_MS, desk.signal);
  if (desk.signal.aborted) throw new TollgateError('CANCELLED');
  return sessionReport(id, session, args.limit);
}

async function kill(desk: ShellContext, args: BashArgs): Promise<ToolResult> {
  const [id, session] = wanted(desk, args);
  if (session.end !== undefined) return sessionReport(id, session, args.limit);
  const gone = await session.kill();
  if (gone) return textResult(newOutput(session, args.limit), note(`session ${id} and all its processes were ended`));
  return {
    ...textResult(`Session ${id} was told to end, but a process of it still runs.`, 'Tell the user.'),
    isError: true,
  };
}

function list(desk: ShellContext): ToolResult {
  const lines = [...desk.sessions.list(desk.scope)].map(([id, session]) => {
    const state = session.end === undefined ? 'running' : `exit ${session.end.code}`;
    return `${id} ${state}, age ${formatSeconds(Date.now() - session.startedAt)}, ${session.log.unread} unread lines: ${headOf(printableName(session.command), 200)}`;
  });
  return textResult(lines.length > 0 ? lines.join('\n') : note('no sessions'));
}

function wanted(desk: ShellContext, args: BashArgs): readonly [string, ShellSession] {
  if (args.session === undefined)
    throw invalidArguments(`action="${args.action}" needs session.`, 'See bash action="list".');
  return [args.session, desk.sessions.get(desk.scope, args.session)];
}
