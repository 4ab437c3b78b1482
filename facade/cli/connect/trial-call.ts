/**
 * Offers one harmless call after connecting, so that the owner sees that the service answers. It is a call like any
 * other: decided, budgeted and recorded. No argument is made up.
 */
import { parseJsonDoc } from '../../../adapters/rpc/message-parser.ts';
import { joinText } from '../../../adapters/rpc/wire-message.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import type { CallDecision, Principal } from '../../../policies/port.ts';
import { ownerForStdio } from '../../config/stdio-identity.ts';
import type { ExposedTool } from '../../exposure/exposed-tool.ts';
import type { AssembledFacade } from '../../runtime/assembled-facade.ts';
import type { Operator, Reply } from '../../serve/facade-port.ts';
import { readForOwner, readPrincipal, withFacade } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { MAX_COLUMNS, printable } from '../print.ts';
import { decideOnly } from '../serving/try-command.ts';
import { askYes, isInteractive } from '../terminal-prompt.ts';
import type { Wiring } from '../wiring.ts';
import type { ConnectOptions } from './connect-consent.ts';

/** A call that can be made without a person's values. */
export interface TrialCall {
  /** As the agent sees it. */
  readonly name: string;
  readonly args: Readonly<Record<string, unknown>>;
}

/** The result of the offer. `data` is for --json. */
export interface Trial {
  readonly code: number;
  readonly data: Readonly<Record<string, unknown>>;
}

/** Rules about the labels of a run make a call that is allowed now one that may be asked about later. */
const MAY_ALLOW: ReadonlySet<string> = new Set(['always', 'maybe']);
/** Lines of a result that are shown. */
const SHOWN = 5;
/** A server that answers nothing must not keep the terminal. */
const TRIAL_MS = 30_000;

/**
 * Asks at a terminal, or with --test makes the call without a question. Returns undefined if nothing was asked for.
 * Throws as `assemble`.
 */
export async function offerTrial(
  server: string,
  { options, io, wiring }: { readonly options: ConnectOptions; readonly io: Io; readonly wiring: Wiring },
): Promise<Trial | undefined> {
  const isAsked = options.test === true;
  if (!isAsked && (options.json === true || !isInteractive(io))) return undefined;
  const config = readForOwner(options, io);
  const principal = readPrincipal(config, options, io);
  let trial: Trial | undefined;
  await withFacade({ config, options: {}, io, assemble: wiring.assemble }, async (assembled) => {
    const { visible } = await assembled.deps.nameTables.tableFor(principal);
    const call = chooseTrial(visible, server);
    const isAllowed = call !== undefined && (await decideTrial(assembled, { principal, call })).outcome === 'allow';
    if (!isAllowed) trial = isAsked ? none(io, principal, server) : undefined;
    else if (isAsked || (await askYes(io, `Make one harmless call now: ${callText(call)}?`))) {
      const by: Operator = { by: ownerForStdio(config, { by: options.as, user: io.user }).id, user: io.user };
      trial = await makeCall(assembled, { principal, call, by }, io);
    }
    return EXIT.ok;
  });
  return trial;
}

/**
 * Returns a call of a tool that only reads, that the policy may allow, and whose required arguments have a default or a
 * list of values in the schema. A tool without required arguments comes first.
 */
export function chooseTrial(
  visible: readonly Pick<ExposedTool, 'name' | 'text' | 'entry' | 'server' | 'decision'>[],
  server: string,
): TrialCall | undefined {
  const calls = visible
    .filter(
      ({ entry, server: { name }, decision }) =>
        name === server && entry?.semantics.verb === 'read' && MAY_ALLOW.has(decision?.verdict ?? 'never'),
    )
    .flatMap(({ name, text }) => {
      const args = argumentsFor((JSON.parse(text) as { readonly inputSchema?: unknown }).inputSchema);
      return args === undefined ? [] : [{ name, args }];
    });
  return calls.sort((one, other) => Object.keys(one.args).length - Object.keys(other.args).length)[0];
}

/** Decides the call without making it. A call that the policy would ask about or deny is not made. */
export async function decideTrial(
  assembled: AssembledFacade,
  { principal, call }: { readonly principal: Principal; readonly call: TrialCall },
): Promise<CallDecision> {
  const { exposed } = await assembled.deps.nameTables.resolve(principal, call.name);
  const args = parseJsonDoc(JSON.stringify(call.args));
  return (await decideOnly(assembled, { principal, exposed, args })).decision;
}

/** Returns the required arguments with values that the schema itself names; undefined if it names none for one. */
function argumentsFor(schema: unknown): TrialCall['args'] | undefined {
  const {
    required = [],
    properties = {},
    ...rest
  } = (schema ?? {}) as {
    readonly required?: readonly string[];
    readonly properties?: Readonly<Record<string, unknown>>;
  } & Readonly<Record<string, unknown>>;
  // These may require more than `required` says.
  if (['allOf', 'anyOf', 'oneOf', 'not', 'if', 'dependentRequired', 'minProperties'].some((key) => key in rest))
    return undefined;
  const values = required.map((name) => {
    const property = (Object.hasOwn(properties, name) ? properties[name] : {}) as Readonly<Record<string, unknown>>;
    const [first] = [property.default, property.const, ...(Array.isArray(property.enum) ? property.enum : [])].filter(
      (value) => value !== undefined,
    );
    return [name, first] as const;
  });
  return values.some(([, value]) => value === undefined) ? undefined : Object.fromEntries(values);
}

function none(io: Io, principal: Principal, server: string): Trial {
  const why =
    `No test call: ${server} has no tool that only reads, that the policy allows ${principal.id} without a question, ` +
    'and whose arguments are known.';
  io.stderr(`${printable(why)}\nSee what its agent can call: tollgate tools --as ${principal.id}\n`);
  return { code: EXIT.ok, data: { tool: null, reason: why } };
}

/** Exit code 6 if the call fails: the service is connected, and does not answer as it should. */
async function makeCall(
  { gateway }: AssembledFacade,
  trial: { readonly principal: Principal; readonly call: TrialCall; readonly by: Operator },
  io: Io,
): Promise<Trial> {
  const { call } = trial;
  const { ok, text } = await performTrial(gateway, trial);
  const all = text.split('\n').filter((line) => line.trim() !== '');
  const lines = all.slice(0, SHOWN).map((line) => printable(line.slice(0, MAX_COLUMNS - 4)));
  const end = all.length > SHOWN ? [`(${all.length - SHOWN} more lines)`] : [];
  io.stderr(`${callText(call)} ${ok ? 'answered' : 'failed'}:\n`);
  io.stderr([...lines, ...end].map((line) => `    ${line}\n`).join(''));
  return { code: ok ? EXIT.ok : EXIT.toolError, data: { tool: call.name, arguments: call.args, ok, lines } };
}

/** What a trial call got. */
export interface TrialReply {
  readonly ok: boolean;
  readonly text: string;
}

/** Makes one call in a session of its own. `by`: the owner who makes it by hand; its records name both. */
export async function performTrial(
  gateway: AssembledFacade['gateway'],
  { principal, call, by }: { readonly principal: Principal; readonly call: TrialCall; readonly by: Operator },
): Promise<TrialReply> {
  const session = gateway.openSession(principal, 'stdio', { operator: by });
  try {
    const signal = AbortSignal.any([session.closed as AbortSignal, AbortSignal.timeout(TRIAL_MS)]);
    const args = parseJsonDoc(JSON.stringify(call.args));
    return read(await gateway.perform(session, { name: call.name, args, signal }));
  } finally {
    await gateway.closeSession(session);
  }
}

function read(reply: Reply): TrialReply {
  if (reply.kind === 'error') return { ok: false, text: reply.error.message };
  const { content = [], isError = false } = JSON.parse(joinText(reply.text)) as ToolResult;
  return { ok: !isError, text: content.map((item) => item.text ?? `[${item.type}]`).join('\n') };
}

function callText({ name, args }: TrialCall): string {
  return printable(Object.keys(args).length === 0 ? name : `${name} ${JSON.stringify(args)}`).slice(
    0,
    MAX_COLUMNS - 40,
  );
}
