/** Owns how a command that failed says so, and its exit code; refuses to print a stack, except to who asks for the log's details. */
import { inspect } from 'node:util';
import { asTollgateError, type ErrorCode } from '../../catalogs/errors/error-table.ts';
import { formatProblems, type Problem } from '../config/config-problems.ts';
import { EXIT, type Io } from './command-io.ts';
import { printable } from './print.ts';

/** Exit codes of refusals; every other code is a fault. */
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
  IDENTITY: EXIT.auth,
  SERVER_UNAVAILABLE: EXIT.server,
  INIT_FAILED: EXIT.server,
  SANDBOX_UNAVAILABLE: EXIT.server,
  SECRET_MISSING: EXIT.server,
  LOGIN_FAILED: EXIT.server,
  APPROVAL_REQUIRED: EXIT.approval,
  CONFIG_NOT_ACCEPTED: EXIT.approval,
};

/** Says on stderr, with its code, one line what and one line what next, and in between each problem of a file as `file:line:col: message`. */
export function reportError(thrown: unknown, { json, io }: { readonly json: boolean; readonly io: Io }): number {
  const error = asTollgateError(thrown);
  const isOurs = error.code !== 'INTERNAL';
  // What a sandbox said holds paths of the host: for the owner at the terminal, who asks for it.
  if (
    (!isOurs || error.code === 'SANDBOX_UNAVAILABLE' || error.code === 'INIT_FAILED') &&
    error.cause !== undefined &&
    io.env.TOLLGATE_LOG === 'debug'
  )
    io.stderr(`${inspect(error.cause)}\n`);
  const next = isOurs ? error.next : 'Run it again with TOLLGATE_LOG=debug, and report what it says.';
  const problems = error.data.problems;
  const lines = Array.isArray(problems) ? `${formatProblems(problems as readonly Problem[])}\n` : '';
  // The list says it better than the summary of it that a message holds.
  const what = lines === '' ? error.message : error.row.what;
  io.stderr(
    json
      ? `${JSON.stringify({ error: { code: error.code, message: error.message, next, ...error.data } })}\n`
      : `${error.code}: ${printable(what)}\n${lines}${printable(next)}\n`,
  );
  return EXITS[error.code] ?? EXIT.unexpected;
}
