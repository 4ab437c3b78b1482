/** Stage 2, resolve: the exposed name becomes the tool that the client was shown. */
import { abortable } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { type Awaitable, andThen } from '../../catalogs/text/awaitable.ts';
import type { ExposedTool } from '../exposure/exposed-tool.ts';
import type { NameTable } from '../exposure/name-table.ts';
import type { NameTables } from '../exposure/name-tables.ts';
import type { PromptTables } from '../exposure/prompt-tables.ts';
import type { ResourceTables } from '../exposure/resource-tables.ts';
import type { CallRequest } from '../serve/facade-port.ts';
import type { Caller } from './identify.ts';

/** What stage 2 needs. */
export interface ResolveDependencies {
  readonly nameTables: Pick<NameTables, 'resolve'>;
  readonly resources: Pick<ResourceTables, 'resolve'>;
  readonly prompts: Pick<PromptTables, 'resolve'>;
}

/** The tool that a name stands for, and the table that it is in. */
export interface ResolvedTool {
  readonly table: NameTable;
  readonly exposed: ExposedTool;
}

/** How an operation finds what it names. Throws UNKNOWN_TOOL and what `resolve` throws. */
export type ResolveStep = (deps: ResolveDependencies, caller: Caller, request: CallRequest) => Awaitable<ResolvedTool>;

/**
 * Resolves a name. Throws PIN_MISMATCH if the definition changed after this client was shown it (a "rug pull"), and
 * what `NameTables.resolve` throws.
 */
export function resolve(
  { nameTables }: ResolveDependencies,
  { principal, session }: Caller,
  { name, signal }: CallRequest,
): Awaitable<ResolvedTool> {
  return andThen(abortable(nameTables.resolve(principal, name, session), signal), (resolved) => {
    const listedPin = session.listed.get(resolved.exposed.name);
    if (listedPin !== undefined && listedPin !== resolved.exposed.pin) throw new TollgateError('PIN_MISMATCH');
    return resolved;
  });
}
