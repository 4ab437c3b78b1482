/** The table of every error code of Tollgate. */

/**
 * How an error is returned: `result` is a tool result with `isError`, `rpc` a JSON-RPC error, `local` only appears on
 * the command line.
 */
export type ErrorWire = 'result' | 'rpc' | 'local';

/** One row: what happened, what to do next, and how it is returned. Texts never contain values of a call. */
export interface ErrorRow {
  readonly wire: ErrorWire;
  /** JSON-RPC number, present if `wire` is `rpc`. */
  readonly rpc?: number;
  readonly what: string;
  readonly next: string;
  readonly retryable: boolean;
}

const result = (what: string, next: string): ErrorRow => ({ wire: 'result', what, next, retryable: false });
const rpc = (number: number, what: string, next: string): ErrorRow => ({
  wire: 'rpc',
  rpc: number,
  what,
  next,
  retryable: false,
});
const local = (what: string, next: string): ErrorRow => ({ wire: 'local', what, next, retryable: false });
const retryable = (row: ErrorRow): ErrorRow => ({ ...row, retryable: true });

/**
 * The table. A published code keeps its meaning. docs/errors.md has a section for each code, and a test compares the
 * two.
 */
export const ERRORS = {
  IDENTITY: rpc(
    -32001,
    'The caller is not known here.',
    'Use the token of a principal in tollgate.yaml, or `--as` with its id.',
  ),
  UNKNOWN_TOOL: rpc(-32602, 'There is no tool of this name.', 'Call tools/list and use a name from it.'),
  UNKNOWN_RESOURCE: rpc(
    -32002,
    'There is no resource of this URI.',
    'Call resources/list or resources/templates/list and use a URI from it.',
  ),
  UNKNOWN_PROMPT: rpc(-32602, 'There is no prompt of this name.', 'Call prompts/list and use a name from it.'),
  UNKNOWN_TASK: rpc(
    -32602,
    'There is no task of this id.',
    'Use the id that the call returned, in the same session, before the task expires.',
  ),
  TASK_ENDED: rpc(-32602, 'The task has ended already.', 'Get its result with tasks/result.'),
  FORM_ASKS_SECRET: rpc(
    -32013,
    'The form of the server asks for a secret, so no one was asked.',
    'Give a secret to Tollgate with `tollgate secrets`, never in a form.',
  ),
  PROMPT_INVALID: rpc(
    -32012,
    'The server answered with a prompt that does not match its template.',
    'Continue without the prompt. The owner compares the server with `prompts` in tollgate.yaml.',
  ),
  PIN_MISMATCH: rpc(
    -32003,
    'The tool has changed since it was listed or approved.',
    'Call tools/list again. If the tool is no longer listed, an owner must approve it.',
  ),
  ARGS_INVALID: result('The arguments do not match the tool.', 'Correct the arguments named here and call again.'),
  DENIED: result('Policy refuses this call.', 'Do not repeat it unchanged. Choose another way, or ask the user.'),
  APPROVAL_REQUIRED: result(
    'A person must approve this call first, so it was not made.',
    'Tell the user which call and rule, and continue with other work.',
  ),
  LOOP_SPENT: result(
    'The approval of a loop covers no more calls.',
    'Tell the user how many calls are left to make. A new run asks again.',
  ),
  LOOP_LATE: result('The approval of a loop is no longer valid.', 'Tell the user. A new run asks again.'),
  LOOP_MISMATCH: result(
    'The approval of a loop does not cover these arguments.',
    'Make only calls that it covers, or tell the user. A new run asks again.',
  ),
  CODE_DIVERGED: result(
    'A run of code could not go on, because it made another call than before the wait.',
    'The tools have changed meanwhile. Check what the run has done, then run new code for the rest.',
  ),
  PLANNED: result(
    'The call is part of a plan that a person is shown, and was not made.',
    'Nothing to do: the call is made after the approval.',
  ),
  POLICY_FAILED: rpc(
    -32004,
    'The policy could not decide, so the call is refused.',
    'Tell the owner of the policy. The log of Tollgate has the cause.',
  ),
  BUDGET_EXCEEDED: retryable(
    result('A budget is spent.', 'Continue without this tool, or ask the user for a larger budget.'),
  ),
  RATE_LIMITED: retryable(result('Too many calls at once.', 'Wait for running calls to end, then call again.')),
  AUDIT_FAILED: retryable(
    rpc(
      -32005,
      'The audit log cannot be written, so nothing runs.',
      'Free space on the disk, or correct the audit folder, then call again.',
    ),
  ),
  OUTCOME_UNRECORDED: rpc(
    -32006,
    'The call ran or may have run, but its outcome could not be recorded; the result is withheld.',
    'Do not repeat the call without a check.',
  ),
  TOOL_TIMEOUT: result(
    'The tool did not answer in time and was cancelled.',
    'The call may have run: check before you repeat it. Then ask for less; an owner can increase the timeout.',
  ),
  TOOL_CRASHED: result(
    'The server ended while it worked on this call.',
    'The call may have run: check before you repeat it.',
  ),
  SERVER_UNAVAILABLE: retryable(
    result(
      'The server cannot be reached now.',
      'Call again later. If it stays unavailable, an owner looks at `tollgate servers`.',
    ),
  ),
  SWITCHED_OFF: result(
    'Everything is switched off, so nothing runs.',
    'Continue without tools. The owner turns everything on with `tollgate on`.',
  ),
  SUSPENDED: result(
    'An owner has suspended you, so nothing runs for you.',
    'Stop, and tell the user. An owner lifts it with `tollgate resume`.',
  ),
  UPSTREAM_TOO_LARGE: result(
    'The server sent more than the message limit. The call has run.',
    'Ask for a smaller part.',
  ),
  UPSTREAM_INVALID: result(
    'The server sent an answer that is not valid MCP.',
    'Report it to the owner of the server; the call may have run.',
  ),
  OUTPUT_INVALID: result(
    'The result does not match the schema that the tool declares.',
    'Report it to the owner of the server; the call has run.',
  ),
  NOT_SUPPORTED: result(
    'The server of this primitive cannot do this correctly.',
    'Use another action; the message says what is missing.',
  ),
  TOOL_FAILED: result('The tool reports a failure.', 'Read the message and correct the call.'),
  CANCELLED: rpc(-32010, 'The caller cancelled the request.', 'Nothing to do. The server may have run the call.'),
  INTERRUPTED: result(
    'Tollgate stopped, or the session ended, while the tool worked on this call.',
    'The call may have run: check before you repeat it.',
  ),
  REPLICA_LOST: result(
    'The replica of Tollgate that worked on this request ended, or can no longer be reached.',
    'The call may have run: check before you repeat it. The session goes on.',
  ),
  INTERNAL: rpc(-32603, 'Something went wrong inside Tollgate.', 'Tell the admin the decision id.'),
  WIRE_PARSE: rpc(
    -32700,
    'The message is not JSON.',
    'Send one JSON-RPC message per line, UTF-8, without a byte order mark.',
  ),
  WIRE_UTF8: rpc(-32700, 'The message is not valid UTF-8.', 'Encode the message as UTF-8.'),
  WIRE_LONE_SURROGATE: rpc(-32700, 'A string holds half of a surrogate pair.', 'Send whole code points.'),
  WIRE_DUPLICATE_KEY: rpc(-32600, 'An object names the same key twice.', 'Send each key once.'),
  WIRE_AMBIGUOUS_KEY: rpc(
    -32600,
    'A key differs from a key of the protocol only in upper and lower case.',
    'Spell the keys of the protocol exactly.',
  ),
  WIRE_DEPTH: rpc(-32600, 'The message is nested too deeply.', 'Nest at most 64 levels.'),
  WIRE_SIZE: rpc(-32600, 'The message is larger than the limit.', 'Send a smaller message.'),
  WIRE_ID: rpc(-32600, 'The id of the request is not a string or an integer.', 'Use a string or an integer as id.'),
  WIRE_VERSION: rpc(-32600, 'The message is not JSON-RPC 2.0.', 'Set "jsonrpc" to "2.0".'),
  WIRE_BATCH: rpc(-32600, 'Batches are not accepted.', 'Send one message at a time.'),
  WIRE_PARAMS: rpc(
    -32602,
    'The params of the request have the wrong form.',
    'Send params as the protocol defines them for this method.',
  ),
  WIRE_METHOD: rpc(-32601, 'This method is not supported.', 'The capabilities say what is supported.'),
  WIRE_NOTIFICATION_CALL: rpc(
    -32600,
    'A call has no id, so it could not be answered.',
    'Send calls as requests with an id.',
  ),
  WIRE_REVISION: rpc(
    -32022,
    'The request names a protocol revision that is not supported.',
    'Use a revision of data.supported. Before 2026-07-28, begin with initialize.',
  ),
  HEADER_MISMATCH: rpc(
    -32020,
    'A header of the request is missing, or says something else than its body.',
    'Repeat the values of the body in the headers. Call tools/list for the headers of a tool.',
  ),
  CLIENT_CAPABILITY: rpc(
    -32021,
    'The request needs a capability that the client did not declare with it.',
    'Declare the capabilities of data.requiredCapabilities if the client has them.',
  ),
  INPUT_STATE: rpc(
    -32602,
    'The requestState does not belong to this request: it was changed, has expired, or was used before.',
    'The call may have run: check before you repeat it. Then send it without requestState and inputResponses.',
  ),
  NOT_INITIALIZED: rpc(-32002, 'The session is not initialised.', 'Send initialize first.'),
  UPSTREAM_REQUEST_DENIED: rpc(
    -32601,
    'A server asked the client for something that is not supported here.',
    'Use a server that works without sampling, elicitation and roots.',
  ),
  URL_ELICITATION_DENIED: result(
    'The server asks the user to open addresses before it serves this call. The addresses were withheld.',
    'Tell the user that an owner signs in to this server, or sets it up, outside the call.',
  ),
  HTTP_AUTH: rpc(
    -32001,
    'The bearer token is missing or wrong.',
    'Send Authorization: Bearer with the token that `tollgate serve` prints.',
  ),
  ISSUER_UNAVAILABLE: retryable(
    rpc(
      -32007,
      'The keys of the issuer of the token cannot be read.',
      'Try again later. If it lasts, an owner checks listen.jwt and the network.',
    ),
  ),
  HTTP_HOST: rpc(
    -32001,
    'The Host header does not name this listener.',
    'Use the address that `tollgate serve` prints, or list the host under listen.hosts.',
  ),
  HTTP_ORIGIN: rpc(-32001, 'The Origin is not allowed.', 'List the origin under listen.origins.'),
  HTTP_BODY_TOO_LARGE: rpc(-32600, 'The body is larger than the limit.', 'Send a smaller body.'),
  HTTP_SESSION: rpc(-32001, 'There is no such session.', 'Send initialize again without a session id.'),
  HTTP_SESSIONS_FULL: retryable(
    rpc(-32007, 'There are too many sessions.', 'Close a session, or raise listen.maxSessions.'),
  ),
  HTTP_SESSIONS_QUOTA: retryable(
    rpc(
      -32007,
      'This principal has too many sessions.',
      'Close a session of this principal, or raise listen.maxSessionsPerPrincipal.',
    ),
  ),
  HTTP_PATH: rpc(-32600, 'There is nothing at this path.', 'The endpoint is /mcp.'),
  HTTP_METHOD: rpc(
    -32600,
    'This HTTP method or content type is not supported here.',
    'POST application/json, and accept application/json and text/event-stream.',
  ),
  SHUTTING_DOWN: retryable(rpc(-32008, 'Tollgate is stopping.', 'Connect again later.')),
  SANDBOX_UNAVAILABLE: result(
    'The server cannot be isolated as configured, so it is not started.',
    'Run `tollgate doctor`: it shows what is missing and the command that installs it.',
  ),
  SECRET_MISSING: result(
    'No source has a value for a secret that the server needs.',
    'Store it with `tollgate secret set NAME`, then call again.',
  ),
  VAULT_FAILED: result(
    'The vault of secrets cannot be used.',
    'Check the passphrase and vault.json. If the key is lost, set the secrets again.',
  ),
  LOGIN_FAILED: local(
    'The sign-in to the server did not succeed.',
    'Run `tollgate login NAME` again; docs/secrets.md says what it needs.',
  ),
  INSTALL_FAILED: local(
    'The package of a server was not installed.',
    'Correct what is named, and connect again. Nothing was left behind.',
  ),
  INIT_FAILED: local(
    'A server could not be initialised.',
    'Check its entry in tollgate.yaml; `tollgate doctor` finds what is missing.',
  ),
  CONSOLE_UNAVAILABLE: local(
    'The console cannot be opened.',
    'Do what the message says; the agents that Tollgate serves are not affected.',
  ),
  CONFIG_INVALID: local(
    'The configuration is refused.',
    'Correct each line that is named; `tollgate check` reads it again.',
  ),
  CONFIG_NOT_ACCEPTED: local(
    'No owner has accepted this configuration, and an agent could have written it.',
    'Read it, then accept it with: tollgate reload',
  ),
  POLICY_INVALID: local('A policy is refused.', 'Correct each line that is named; `tollgate check` reads it again.'),
  OPA_MISSING: local(
    'Your own Rego needs `opa`, and none was found.',
    'Install opa (docs/rego.md lists four ways) or ship a built bundle.',
  ),
  STATE_TOO_NEW: local('The state folder was written by a newer Tollgate.', 'Upgrade, or name another state folder.'),
  STATE_FAILED: retryable(
    rpc(-32009, 'The state database cannot be used.', 'Free space on the disk, or correct the state folder.'),
  ),
  STATE_AWAY: retryable(
    rpc(
      -32009,
      'The store of the shared state cannot be reached now, so nothing runs.',
      'Call again in a few seconds. If this continues, an owner checks the store: `tollgate state check`.',
    ),
  ),
  STATE_LOST: rpc(
    -32009,
    'The state of this installation is gone: its database was removed.',
    'Restore it with `tollgate state restore FILE`, or begin with an empty one: `tollgate state repair --start-empty`.',
  ),
  USAGE: local('The command line is not understood.', 'Read `tollgate --help`.'),
  CODE_SYNTAX: result('The code cannot be read.', 'Correct the line that is named and send the code again.'),
  CODE_FAILED: result(
    'The program ended with an error.',
    'Correct the line that is named. Calls that the program made before it have happened.',
  ),
  CODE_LIMIT: result(
    'The program exceeded a limit, which is named, and was ended.',
    'Do less in one run, as the message says. Calls that the program made before have happened.',
  ),
  CODE_CRASHED: result(
    'The engine that runs code ended while it ran the program.',
    'Simplify the program or use less data at once. Calls that it made may have happened.',
  ),
} as const satisfies Record<string, ErrorRow>;

/** A code of the table. */
export type ErrorCode = keyof typeof ERRORS;

/**
 * Something that a person must correct before a server can start. The caller gets it in its own words, and it is no
 * failure of the server.
 */
export const OWNER_CORRECTABLE: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'SANDBOX_UNAVAILABLE',
  'SECRET_MISSING',
  'VAULT_FAILED',
]);

/**
 * What an error may carry besides its code. `detail` and `next` are public: never a secret, a host path or an
 * argument's value.
 */
export interface Refusal {
  /** One line: what happened exactly. Replaces the row's `what`. */
  readonly detail?: string;
  /** One line: what to do. Replaces the row's `next`. */
  readonly next?: string;
  /** Public facts for programs, in `data` (rpc) or `_meta` (result). */
  readonly data?: Readonly<Record<string, unknown>>;
  /** Whether the same call may succeed later without a person's help. Set if this differs from the row. */
  readonly retryable?: boolean;
  /** Private: only for the log of the process. */
  readonly cause?: unknown;
}

/** The one error class of the stages. `message` is public. */
export class TollgateError extends Error {
  readonly code: ErrorCode;
  readonly next: string;
  readonly data: Readonly<Record<string, unknown>>;
  /** Whether the same call may succeed later. */
  readonly retryable: boolean;

  constructor(code: ErrorCode, refusal: Refusal = {}) {
    super(refusal.detail ?? ERRORS[code].what, refusal.cause === undefined ? undefined : { cause: refusal.cause });
    this.name = 'TollgateError';
    this.code = code;
    this.next = refusal.next ?? ERRORS[code].next;
    this.data = refusal.data ?? {};
    this.retryable = refusal.retryable ?? ERRORS[code].retryable;
  }

  get row(): ErrorRow {
    return ERRORS[this.code];
  }
}

/**
 * Returns any thrown value as a TollgateError. An unexpected error becomes INTERNAL, and the original stays private.
 */
export function asTollgateError(thrown: unknown): TollgateError {
  return thrown instanceof TollgateError ? thrown : new TollgateError('INTERNAL', { cause: thrown });
}
