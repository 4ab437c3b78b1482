/** Stage 2, resolve: the exposed name becomes the tool that the client was shown. */
import { abortable } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { type Awaitable, andThen } from '../../catalogs/text/awaitable.ts';
import type { Principal } from '../../policies/port.ts';
import { type ExposedTool, onlyReads } from '../exposure/exposed-tool.ts';
import { noteFound } from '../exposure/list-tools.ts';
import type { NameTable } from '../exposure/name-table.ts';
import type { NameTables } from '../exposure/name-tables.ts';
import type { PromptTables } from '../exposure/prompt-tables.ts';
import type { ResourceTables } from '../exposure/resource-tables.ts';
import { CALL_READ, CALL_WRITE, isWrapper, wrapperFault } from '../exposure/wrapped-calls.ts';
import type { CallRequest } from '../serve/facade-port.ts';
import type { Caller } from './identify.ts';

/** What stage 2 needs. */
export interface ResolveDependencies {
  readonly nameTables: Pick<NameTables, 'resolve' | 'serverOf'>;
  readonly resources: Pick<ResourceTables, 'resolve' | 'serverOf'>;
  readonly prompts: Pick<PromptTables, 'resolve' | 'serverOf'>;
}

/** The tool that a name stands for, and the table that it is in. */
export interface ResolvedTool {
  readonly table: NameTable;
  readonly exposed: ExposedTool;
}

/** How an operation finds what it names. Throws UNKNOWN_TOOL and what `resolve` throws. */
export type ResolveStep = (deps: ResolveDependencies, caller: Caller, request: CallRequest) => Awaitable<ResolvedTool>;

/** How an operation names the server of what could not be resolved, as far as it is known. It asks no server. */
export type ServerStep = (
  deps: ResolveDependencies,
  principal: Principal,
  request: Pick<CallRequest, 'name' | 'args'>,
) => string | undefined;

/** Returns the server of a tool. */
export const serverOfTool: ServerStep = ({ nameTables }, principal, { name }) => nameTables.serverOf(principal, name);

/**
 * Resolves a name. A call by `call_read` or `call_write` needs that this caller has that tool, and `call_read` only
 * calls what reads. Throws PIN_MISMATCH if the definition changed after this client was shown it (a "rug pull"),
 * ARGS_INVALID for the wrong one of these two tools, and what `NameTables.resolve` throws.
 */
export function resolve(
  { nameTables }: ResolveDependencies,
  { principal, session }: Caller,
  request: CallRequest,
): Awaitable<ResolvedTool> {
  const { name, via, signal } = request;
  const find = (one: string): Awaitable<ResolvedTool> => abortable(nameTables.resolve(principal, one, session), signal);
  if (via === undefined) return andThen(find(name), (resolved) => shownTool(resolved, session, request));
  return andThen(find(via), () =>
    andThen(find(name), (resolved) => {
      const { table, exposed } = shownTool(resolved, session, request);
      if (via === CALL_READ && !onlyReads(exposed)) throw needsWrite(exposed.name);
      noteFound(session, table, [exposed]);
      return resolved;
    }),
  );
}

/** Returns the tool if the client was shown this definition of it, or none. */
function shownTool(resolved: ResolvedTool, { listed, found }: Caller['session'], request: CallRequest): ResolvedTool {
  const { name, pin } = resolved.exposed;
  if (isWrapper(resolved.exposed)) throw wrapperFault(request);
  const known = listed.get(name) ?? found.get(name);
  if (known === undefined || known === pin) return resolved;
  throw new TollgateError(
    'PIN_MISMATCH',
    listed.has(name) ? {} : { next: 'Find it again with find_tools. If it is not found, an owner must approve it.' },
  );
}

function needsWrite(name: string): TollgateError {
  return new TollgateError('ARGS_INVALID', {
    detail: `name: ${name} may do more than read`,
    next: `Call it with ${CALL_WRITE}.`,
    data: { paths: ['name'] },
  });
}

/** Returns the server of a call that was refused before it was lowered, as far as it is known. */
export function refusedServer(
  deps: ResolveDependencies,
  { serverOf }: { readonly serverOf: ServerStep },
  call: { readonly exposed: ExposedTool | undefined; readonly session: Caller['session']; readonly asked: CallRequest },
): string | undefined {
  const { exposed, session, asked } = call;
  return exposed !== undefined && exposed.routedServers === undefined
    ? exposed.server.name
    : serverOf(deps, session.principal, asked);
}
