/** Runs `call`: an owner makes one call by hand, by the path of every call, and sees its result. */
import { Cancellation } from '../../../adapters/rpc/cancellation.ts';
import { isObject } from '../../../adapters/rpc/wire-message.ts';
import { ERRORS, type ErrorCode, TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Principal } from '../../../policies/port.ts';
import { ownerForStdio } from '../../config/stdio-identity.ts';
import type { ExposedTool } from '../../exposure/exposed-tool.ts';
import { LIST_WAIT_MS } from '../../exposure/server-definitions.ts';
import type { AssembledFacade } from '../../runtime/assembled-facade.ts';
import type { Reply } from '../../serve/facade-port.ts';
import { HostRefusal, replyResult } from '../../serve/host/reply-result.ts';
import { askedPrincipal, type CommonOptions, readForOwner, withFacade } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json, printable } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { argumentsFor, type WrittenArguments, writtenArguments } from './call-arguments.ts';
import { explainUnknown, findListed } from './named-tool.ts';

/** Options of `call`. */
export interface CallOptions extends CommonOptions {
  readonly tool: string;
  readonly args: readonly string[];
  /** The principal that the call is made for. Default: the owner. */
  readonly as?: string;
  /** The owner who calls, if the user may be several. */
  readonly by?: string;
}

/** What one call is made of. */
interface HandCall {
  readonly options: CallOptions;
  readonly owner: string;
  readonly principal: Principal;
  readonly written: WrittenArguments;
  readonly io: Io;
  readonly assembled: AssembledFacade;
  readonly signal: Cancellation;
}

/** Letters of an id that `audit show` finds it by. */
const SHORT_ID = 13;
/** Milliseconds that a cancelled call may take to end and to be recorded. */
const SETTLE_MS = 2000;

/**
 * Prints the result. Exit code 6 if the tool reports a failure. Throws USAGE, IDENTITY, and the refusal of the call by
 * its code: APPROVAL_REQUIRED if no one has approved it in time.
 */
export async function runCall(options: CallOptions, io: Io, { assemble }: Pick<Wiring, 'assemble'>): Promise<number> {
  const config = readForOwner(options, io);
  const owner = ownerForStdio(config, { by: options.by, user: io.user });
  const principal = options.as === undefined ? owner : askedPrincipal(config, options, io);
  const written = writtenArguments(options.args, { command: 'call', io });
  const { stopped } = io;
  return withFacade({ config, options, io, assemble }, async (assembled) => {
    const signal = new Cancellation();
    const late = stopped.then(async () => {
      signal.abort(new TollgateError('CANCELLED', { detail: 'You stopped the call.' }));
      await new Promise((resolve) => setTimeout(resolve, SETTLE_MS).unref());
      throw signal.reason;
    });
    const call = { options, owner: owner.id, principal, written, io, assembled, signal };
    return printed(await Promise.race([made(call), late]), options, io);
  });
}

/** Makes the call in a session of its own, and returns the JSON of its result. Throws the refusal. */
async function made(call: HandCall): Promise<string> {
  const { options, owner, principal, written, io, assembled, signal } = call;
  const { gateway } = assembled;
  const { tool: name } = options;
  const session = gateway.openSession(principal, 'stdio', { operator: { by: owner, user: io.user } });
  const args = argumentsFor(written, await listedTool(call), 'call');
  const reply = await gateway.perform(session, {
    name,
    args,
    signal,
    onProgress: ({ message }) => void (typeof message === 'string' && io.stderr(`${printable(message)}\n`)),
  });
  try {
    return replyResult(reply satisfies Reply);
  } catch (thrown) {
    throw await explainUnknown(refusalOf(thrown), { name, principal, assembled });
  }
}

/** Lists the tools first, as an agent does. A name without a tool is refused and recorded by the call itself. */
async function listedTool({ options, principal, assembled }: HandCall): Promise<ExposedTool | undefined> {
  try {
    const table = await assembled.deps.nameTables.tableFor(principal, undefined, LIST_WAIT_MS);
    return findListed(table, options.tool);
  } catch {
    return undefined;
  }
}

/** Returns a refusal of the pipeline as the command line reports it. */
function refusalOf(thrown: unknown): unknown {
  if (!(thrown instanceof HostRefusal)) return thrown;
  const { code = 'INTERNAL', next = '', decision, approval } = thrown.refusal;
  const record = decision === undefined ? '' : ` Its record: tollgate audit show ${decision.slice(0, SHORT_ID)}`;
  return new TollgateError(Object.hasOwn(ERRORS, code) ? (code as ErrorCode) : 'INTERNAL', {
    detail: thrown.message,
    next:
      approval === undefined || code !== 'APPROVAL_REQUIRED'
        ? `${next}${record}`
        : `Decide: tollgate approvals show ${approval}. After the approval, repeat this command, unchanged.`,
    data: { ...(decision !== undefined && { decision }), ...(approval !== undefined && { approval }) },
  });
}

/** A result of a tool, as the pipeline has shaped it. */
interface ShownResult {
  readonly content?: readonly unknown[];
  readonly structuredContent?: unknown;
  readonly isError?: boolean;
}

/** Prints a result: its text on stdout, and what else it has on stderr. */
function printed(text: string, { json: asJson }: CallOptions, io: Io): number {
  const { content = [], structuredContent, isError = false } = JSON.parse(text) as ShownResult;
  const code = isError ? EXIT.toolError : EXIT.ok;
  if (asJson === true) {
    io.stdout(`${text}\n`);
    return code;
  }
  const blocks = content.filter(isObject);
  const texts = blocks.flatMap(textOf);
  for (const one of texts) io.stdout(one.endsWith('\n') ? one : `${one}\n`);
  if (texts.length === 0 && structuredContent !== undefined) io.stdout(json(structuredContent));
  for (const block of blocks.filter((one) => textOf(one).length === 0))
    io.stderr(`The result also has ${describe(block)}. To see it, add --json.\n`);
  if (isError) io.stderr(`${ERRORS.TOOL_FAILED.what}\n`);
  return code;
}

function textOf({ type, text, resource }: Readonly<Record<string, unknown>>): readonly string[] {
  const found = type === 'text' ? text : isObject(resource) ? resource.text : undefined;
  return typeof found === 'string' ? [found] : [];
}

function describe({ type, mimeType, uri, data }: Readonly<Record<string, unknown>>): string {
  const size = typeof data === 'string' ? `${data.length} characters of base64` : undefined;
  const facts = [mimeType, uri, size].filter((one) => typeof one === 'string').join(', ');
  return printable(`a block of type ${String(type)}${facts === '' ? '' : ` (${facts})`}`);
}
