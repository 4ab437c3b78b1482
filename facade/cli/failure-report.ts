/**
 * Reports the error of a command that failed, and returns its exit code. A stack is printed only with
 * TOLLGATE_LOG=debug.
 */
import { inspect } from 'node:util';
import { asTollgateError, type ErrorCode } from '../../catalogs/errors/error-table.ts';
import { formatProblems, type Problem } from '../config/config-problems.ts';
import { EXIT, type Io } from './command-io.ts';
import { printable } from './print.ts';

/** Exit codes of refusals. Every other error code has exit code 1. */
const EXITS: Readonly<Partial<Record<ErrorCode, number>>> = {
  USAGE: EXIT.usage,
  CONFIG_INVALID: EXIT.usage,
  POLICY_INVALID: EXIT.usage,
  OPA_MISSING: EXIT.usage,
  DENIED: EXIT.refused,
  POLICY_FAILED: EXIT.refused,
  UNKNOWN_TOOL: EXIT.refused,
  ARGS_INVALID: EXIT.refused,
  PIN_MISMATCH: EXIT.refused,
  BUDGET_EXCEEDED: EXIT.refused,
  RATE_LIMITED: EXIT.refused,
  IDENTITY: EXIT.auth,
  SERVER_UNAVAILABLE: EXIT.server,
  INIT_FAILED: EXIT.server,
  SANDBOX_UNAVAILABLE: EXIT.server,
  SECRET_MISSING: EXIT.server,
  LOGIN_FAILED: EXIT.server,
  TOOL_FAILED: EXIT.toolError,
  TOOL_CRASHED: EXIT.toolError,
  TOOL_TIMEOUT: EXIT.toolError,
  APPROVAL_REQUIRED: EXIT.approval,
  CONFIG_NOT_ACCEPTED: EXIT.approval,
};

/**
 * Prints an error on stderr: one line with its code and what happened, each problem of a file as
 * `file:line:col: message`, and one line what to do.
 */
export function reportError(thrown: unknown, { json, io }: { readonly json: boolean; readonly io: Io }): number {
  const error = asTollgateError(thrown);
  const isOurs = error.code !== 'INTERNAL';
  // The message of a sandbox has paths of the host. It is only for an owner who asks for it.
  if (
    (!isOurs || error.code === 'SANDBOX_UNAVAILABLE' || error.code === 'INIT_FAILED') &&
    error.cause !== undefined &&
    io.env.TOLLGATE_LOG === 'debug'
  )
    io.stderr(`${inspect(error.cause)}\n`);
  const next = isOurs ? error.next : 'Run it again with TOLLGATE_LOG=debug, and report what it says.';
  const problems = error.data.problems;
  const lines = Array.isArray(problems) ? `${formatProblems(problems as readonly Problem[])}\n` : '';
  // The list says more than the summary in the message.
  const what = lines === '' ? error.message : error.row.what;
  io.stderr(
    json
      ? `${JSON.stringify({ error: { code: error.code, message: error.message, next, ...error.data } })}\n`
      : `${error.code}: ${rowsOf(what, lines, next)}`,
  );
  return EXITS[error.code] ?? EXIT.unexpected;
}

/**
 * Returns what happened, the lines of problems, and what to do. Further rows of both texts, such as a line of code with
 * a caret, are indented, so that none looks like a message of its own.
 */
function rowsOf(what: string, lines: string, next: string): string {
  const [first = '', ...more] = what.split('\n');
  const before = next.split('\n');
  const last = before.pop() ?? '';
  const indented = [...more, ...before].map((row) => `  ${printable(row)}\n`).join('');
  return `${printable(first)}\n${indented}${lines}${printable(last)}\n`;
}
