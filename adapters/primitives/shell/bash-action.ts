/** The actions of `bash`. A non-zero exit code is not an error of the tool. A cancelled command is ended. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { type ActionContext, fileSystemError } from '../workspace/action-context.ts';
import { invalidArguments, refusalResult, textResult } from '../workspace/file-text.ts';
import { openJudgedFolder } from '../workspace/open-folder.ts';
import { bindPath } from '../workspace/path-binding.ts';
import {
  continuedRun,
  formatSeconds,
  killedReport,
  newOutput,
  outputHistory,
  sessionList,
  sessionReport,
  wholeOutput,
} from './command-report.ts';
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

/** An action context with sessions. */
interface ShellContext extends ActionContext {
  readonly sessions: ShellSessions;
}

const RUN_MS = 120_000;
const MAX_RUN_MS = 600_000;
const WAIT_MS = 1000;
const MAX_WAIT_MS = 30_000;
/** Time between turning a run into a session and the hard timeout of the call. */
const MARGIN_MS = 500;
const MAX_LINES = 200_000;

/** Runs an action of `bash`. Concurrent sends to one session run one after the other. */
export async function bashAction(context: ShellContext, args: BashArgs): Promise<ToolResult> {
  checkBashArguments(args);
  switch (args.action ?? 'run') {
    case 'start':
      return start(context, args);
    case 'send':
      return context.locks.hold(`session ${context.call.scope} ${args.session}`, () => send(context, args));
    case 'poll':
      return poll(context, args);
    case 'kill':
      return kill(context, args);
    case 'list':
      return sessionList(context.sessions.list(context.call.scope));
    default:
      return run(context, args);
  }
}

/** Checks what the schema of `bash` cannot check. Does no I/O. Throws ARGS_INVALID. */
export function checkBashArguments({ action = 'run', command, limit, timeout_ms, wait_ms }: BashArgs): void {
  checkRange('limit', limit, MAX_LINES);
  checkRange('timeout_ms', timeout_ms, MAX_RUN_MS);
  if (wait_ms !== 0) checkRange('wait_ms', wait_ms, MAX_WAIT_MS);
  if (command?.includes('\0') === true) throw invalidArguments('command contains a NUL character.', 'Remove it.');
  if ((action === 'run' || action === 'start') && (command === undefined || command.trim() === ''))
    throw invalidArguments(`action="${action}" needs command.`, 'Set command to the shell command.');
}

function checkRange(name: string, value: number | undefined, max: number): void {
  if (value === undefined || (value >= 1 && value <= max)) return;
  throw invalidArguments(`${name} must be 1 to ${max}.`, `Omit ${name} for the default.`);
}

/** Starts a command. Ends it if the call was cancelled meanwhile, because the caller knows no id to end it with. */
async function launch(context: ShellContext, args: BashArgs, input: boolean): Promise<ShellSession> {
  const session = await startCommand(context, args, input);
  if (!context.signal.aborted) return session;
  await context.sessions.end(context.call.scope, session);
  throw new TollgateError('CANCELLED');
}

async function startCommand(context: ShellContext, args: BashArgs, input: boolean): Promise<ShellSession> {
  const pathHandle = bindPath(context.pathHandles.of(args.cwd ?? '.'), 'cwd');
  const { relative } = pathHandle.location;
  const folder = await openJudgedFolder(pathHandle).catch((error: unknown) => {
    throw fileSystemError(error, relative);
  });
  try {
    return await context.sessions.launch(context.call.scope, {
      command: args.command ?? '',
      cwd: folder.forChild(),
      folder: path.join(context.root, relative),
      home: context.root,
      input,
      ...(context.call.confinement && { confinement: context.call.confinement }),
    });
  } finally {
    await folder.close();
  }
}

async function run(context: ShellContext, args: BashArgs): Promise<ToolResult> {
  const { sessions, call, signal } = context;
  const ms = Math.max(1, Math.min(args.timeout_ms ?? RUN_MS, call.hardTimeoutMs - MARGIN_MS));
  const session = await launch(context, args, false);
  const ended = await session.waitForEnd(ms, signal);
  if (signal.aborted) {
    await sessions.end(call.scope, session);
    throw new TollgateError('CANCELLED');
  }
  if (ended) {
    sessions.release(call.scope, session);
    return wholeOutput(session, args.limit);
  }
  if (sessions.hasRoom(call.scope))
    return continuedRun(sessions.name(call.scope, session), session, { ms, limit: args.limit });
  const isGone = await sessions.end(call.scope, session);
  const text =
    `Not finished after ${formatSeconds(ms)}, and the limit of sessions is reached: the command was ended` +
    `${isGone ? '' : ', but one of its processes is still running'}.`;
  const next = 'End a session (bash action="list"), then run it with action="start".';
  return { ...textResult(text, next, newOutput(session, args.limit)), isError: true };
}

async function start(context: ShellContext, args: BashArgs): Promise<ToolResult> {
  const session = await launch(context, args, true);
  const id = await nameSession(context, session);
  await session.waitForOutput(args.wait_ms ?? WAIT_MS, context.signal);
  return sessionReport(id, session, args.limit);
}

async function nameSession(context: ShellContext, session: ShellSession): Promise<string> {
  try {
    return context.sessions.name(context.call.scope, session);
  } catch (error) {
    await context.sessions.end(context.call.scope, session);
    throw error;
  }
}

async function send(context: ShellContext, args: BashArgs): Promise<ToolResult> {
  const [id, session] = requestedSession(context, args);
  if (args.input === undefined && args.eof !== true)
    throw invalidArguments('action="send" needs input or eof=true.', 'Set input to the text for stdin.');
  const wait = args.wait_ms ?? WAIT_MS;
  const text = args.input === undefined ? '' : args.input + (args.raw === true ? '' : '\n');
  await session.send(text, args.eof === true, wait);
  await session.waitForOutput(wait, context.signal);
  return sessionReport(id, session, args.limit);
}

async function poll(context: ShellContext, args: BashArgs): Promise<ToolResult> {
  const [id, session] = requestedSession(context, args);
  if (args.offset !== undefined) return outputHistory(id, session, args);
  await session.waitForOutput(args.wait_ms ?? WAIT_MS, context.signal);
  if (context.signal.aborted) throw new TollgateError('CANCELLED');
  return sessionReport(id, session, args.limit);
}

async function kill(context: ShellContext, args: BashArgs): Promise<ToolResult> {
  const [id, session] = requestedSession(context, args);
  if (session.end !== undefined) return sessionReport(id, session, args.limit);
  if (await session.kill()) return killedReport(id, session, args.limit);
  return refusalResult(`Session ${id} was told to end, but one of its processes is still running.`, 'Tell the user.');
}

function requestedSession(context: ShellContext, args: BashArgs): readonly [string, ShellSession] {
  if (args.session === undefined)
    throw invalidArguments(`action="${args.action}" needs session.`, 'See bash action="list".');
  return [args.session, context.sessions.get(context.call.scope, args.session)];
}
