/** Owns the table of every code that Tollgate answers with; refuses codes that are not in it. */

/** How a refusal travels: `result` is a tool result with `isError`, `rpc` a JSON-RPC error, `local` only the command line. */
export type ErrorWire = 'result' | 'rpc' | 'local';

/** One row: the text for the public, what to do next, and how it travels. Texts never hold values from a call. */
export interface ErrorRow {
  readonly wire: ErrorWire;
  /** JSON-RPC number, present where `wire` is `rpc`. */
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

/** The table (design §2). A code, once published, keeps its meaning; docs/errors.md has a section for each, a test compares. */
export const ERRORS = {
  IDENTITY: rpc(
    -32001,
    'The caller is not known here.',
    'Connect with a token, or `--as` a principal, that tollgate.yaml lists.',
  ),
  UNKNOWN_TOOL: rpc(-32602, 'There is no tool of this name.', 'Call tools/list and use a name from it.'),
  PIN_MISMATCH: rpc(
    -32003,
    'The tool has changed since it was listed or approved.',
    'Call tools/list again; an owner approves a changed tool.',
  ),
  ARGS_INVALID: result('The arguments do not fit the tool.', 'Correct the arguments named here and call again.'),
  DENIED: result('Policy refuses this call.', 'Do not repeat it unchanged: choose another way, or ask the user.'),
  APPROVAL_REQUIRED: result(
    'A person must approve this call first, so it was not made.',
    'Tell the user which call and rule; go on with other work.',
  ),
  POLICY_FAILED: rpc(
    -32004,
    'The policy could not decide, so the call is refused.',
    'Tell the owner of the policy; the log of Tollgate holds the cause.',
  ),
  BUDGET_EXCEEDED: retryable(
    result('A budget is spent.', 'Go on without this tool, or ask the user for a larger budget.'),
  ),
  RATE_LIMITED: retryable(result('Too many calls at once.', 'Wait for running calls to end, then call again.')),
  AUDIT_FAILED: retryable(
    rpc(
      -32005,
      'The audit log cannot be written, so nothing runs.',
      'Free the disk or mend the audit folder, then call again.',
    ),
  ),
  OUTCOME_UNRECORDED: rpc(
    -32006,
    'The call ran, but its outcome could not be recorded; the result is withheld.',
    'Do not repeat the call: it was executed.',
  ),
  TOOL_TIMEOUT: result(
    'The tool did not answer in time and was cancelled.',
    'Ask for less, or raise the timeout of this server. It may have run.',
  ),
  TOOL_CRASHED: result(
    'The server ended while it worked on this call.',
    'The call may have run: check before you repeat it.',
  ),
  SERVER_UNAVAILABLE: retryable(
    result('The server is not reachable at present.', 'Call again later; `tollgate servers` shows its state.'),
  ),
  SWITCHED_OFF: result(
    'Everything is switched off, so nothing runs.',
    'Go on without tools. The owner turns it on with `tollgate on`.',
  ),
  UPSTREAM_TOO_LARGE: result('The server sent more than the wire limit.', 'Ask for a smaller part.'),
  UPSTREAM_INVALID: result(
    'The server sent an answer that is not valid MCP.',
    'Report it to the owner of the server; the call may have run.',
  ),
  OUTPUT_INVALID: result(
    'The result does not fit the schema that the tool declares.',
    'Report it to the owner of the server; the call has run.',
  ),
  NOT_SUPPORTED: result(
    'The backend cannot do this honestly.',
    'Use another action; the message says what is missing.',
  ),
  TOOL_FAILED: result('The tool reports a failure.', 'Read the message and correct the call.'),
  CANCELLED: rpc(-32010, 'The caller cancelled the request.', 'Nothing: the caller gave up.'),
  INTERRUPTED: result(
    'Tollgate stopped, or the session ended, while the tool worked on this call.',
    'The call may have run: check before you repeat it.',
  ),
  INTERNAL: rpc(-32603, 'Something went wrong inside Tollgate.', 'Quote the decision id to the admin.'),
  WIRE_PARSE: rpc(
    -32700,
    'The message is not JSON.',
    'Send one JSON-RPC message a line, UTF-8, without a byte order mark.',
  ),
  WIRE_UTF8: rpc(-32700, 'The message is not valid UTF-8.', 'Encode the message as UTF-8.'),
  WIRE_LONE_SURROGATE: rpc(-32700, 'A string holds half of a surrogate pair.', 'Send whole code points.'),
  WIRE_DUPLICATE_KEY: rpc(-32600, 'An object names the same key twice.', 'Send each key once.'),
  WIRE_AMBIGUOUS_KEY: rpc(
    -32600,
    'A key differs from one of the protocol only by case.',
    'Spell the keys of the protocol exactly.',
  ),
  WIRE_DEPTH: rpc(-32600, 'The message is nested too deeply.', 'Nest at most 64 levels.'),
  WIRE_SIZE: rpc(-32600, 'The message is larger than the wire limit.', 'Send a smaller message.'),
  WIRE_ID: rpc(-32600, 'The id of the request is not a string or an integer.', 'Use a string or an integer as id.'),
  WIRE_VERSION: rpc(-32600, 'The message is not JSON-RPC 2.0.', 'Set "jsonrpc" to "2.0".'),
  WIRE_BATCH: rpc(-32600, 'Batches are not accepted.', 'Send one message at a time.'),
  WIRE_PARAMS: rpc(
    -32602,
    'The params of the request do not have the right shape.',
    'Send params as the specification says.',
  ),
  WIRE_METHOD: rpc(
    -32601,
    'This method is not served here.',
    'Use tools/list and tools/call; the capabilities say what is served.',
  ),
  WIRE_NOTIFICATION_CALL: rpc(
    -32600,
    'A call came without an id, so it could have no answer.',
    'Send calls as requests with an id.',
  ),
  NOT_INITIALIZED: rpc(-32002, 'The session is not initialised.', 'Send initialize first.'),
  UPSTREAM_REQUEST_DENIED: rpc(
    -32601,
    'A server asked the client for something that is not served here.',
    'Servers must do without sampling, elicitation and roots.',
  ),
  URL_ELICITATION_DENIED: result(
    'The server asks that addresses are opened before it serves this call. They were withheld.',
    'Tell the user: an owner signs in to this server, or sets it up, outside the call.',
  ),
  HTTP_AUTH: rpc(
    -32001,
    'The bearer token is missing or wrong.',
    'Send Authorization: Bearer with the token that `tollgate serve` prints.',
  ),
  HTTP_HOST: rpc(
    -32001,
    'The Host header names another machine.',
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
  HTTP_PATH: rpc(-32600, 'Nothing is served at this path.', 'The endpoint is /mcp.'),
  HTTP_METHOD: rpc(
    -32600,
    'This HTTP method or content type is not served here.',
    'POST application/json, and accept application/json and text/event-stream.',
  ),
  SHUTTING_DOWN: retryable(rpc(-32008, 'Tollgate is stopping.', 'Connect again later.')),
  SANDBOX_UNAVAILABLE: result(
    'The server cannot be isolated as it is asked to be, so it is not started.',
    'Run `tollgate doctor`: it names what is missing and the command that installs it.',
  ),
  SECRET_MISSING: result(
    'A secret that the server needs is not in the vault.',
    'Store it with `tollgate secret set NAME`, then call again.',
  ),
  VAULT_FAILED: result(
    'The vault of secrets cannot be used.',
    'Mend what is named; a lost key cannot be replaced, set the secrets again.',
  ),
  LOGIN_FAILED: local(
    'The sign-in to the server did not succeed.',
    'Run `tollgate login NAME` again; docs/secrets.md says what it needs.',
  ),
  INSTALL_FAILED: local(
    'The package of a server was not installed.',
    'Mend what is named, and connect again; nothing was left behind.',
  ),
  INIT_FAILED: local(
    'A server could not be initialised.',
    'Check its entry in tollgate.yaml; `tollgate doctor` looks for what is missing.',
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
    'Rego of your own needs `opa`, and none was found.',
    'Install opa (the four ways are in docs/policies.md) or ship a built bundle.',
  ),
  STATE_TOO_NEW: local('The state folder was written by a newer Tollgate.', 'Upgrade, or name another state folder.'),
  STATE_FAILED: retryable(rpc(-32009, 'The state database cannot be used.', 'Free the disk or mend the state folder.')),
  STATE_LOST: rpc(
    -32009,
    'The state of this installation is gone: its database was removed.',
    'Put it back with `tollgate state restore FILE`, or begin with an empty one: `tollgate state repair --start-empty`.',
  ),
  USAGE: local('The command line is not understood.', 'Read `tollgate --help`.'),
} as const satisfies Record<string, ErrorRow>;

/** A code of the table. */
export type ErrorCode = keyof typeof ERRORS;

/** What a person must mend before a server can start. It reaches whoever asks in its own words, and is no failure of the server. */
export const OWNER_CORRECTABLE: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'SANDBOX_UNAVAILABLE',
  'SECRET_MISSING',
  'VAULT_FAILED',
]);

/** What a refusal may carry beside its code. `detail` and `next` are public: never a secret, a host path or an argument's value. */
export interface Refusal {
  /** One line: what exactly. Replaces the row's `what`. */
  readonly detail?: string;
  /** One line: what to do. Replaces the row's `next`. */
  readonly next?: string;
  /** Public facts for machines, placed in `data` (rpc) or `_meta` (result). */
  readonly data?: Readonly<Record<string, unknown>>;
  /** Given where the row says that the same call may succeed later, and this one does not until a person decides otherwise. */
  readonly retryable?: false;
  /** Private: for the log of the process only. */
  readonly cause?: unknown;
}

/** The one error that stages throw. `message` is public. */
export class TollgateError extends Error {
  readonly code: ErrorCode;
  readonly next: string;
  readonly data: Readonly<Record<string, unknown>>;
  /** Whether the same call may succeed later by itself. */
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

/** Turns anything thrown into the one error; what is not ours becomes INTERNAL with the original kept private. */
export function asTollgateError(thrown: unknown): TollgateError {
  return thrown instanceof TollgateError ? thrown : new TollgateError('INTERNAL', { cause: thrown });
}
