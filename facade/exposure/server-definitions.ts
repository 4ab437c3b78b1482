/**
 * The resources, templates and prompts that servers list, made safe to show. A server that fails or is slow delays no
 * other.
 */
import type { ServerLists } from '../../adapters/port.ts';
import type { CancelSignal } from '../../adapters/rpc/cancellation.ts';
import { definitionJson } from '../../adapters/rpc/definition-text.ts';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import { escapeHostile } from '../../catalogs/text/hostile-text.ts';
import { withoutOwnKeys } from '../../catalogs/tools/own-meta-keys.ts';
import type { ListDecision, ListTool, Policy, Principal } from '../../policies/port.ts';
import type { Redactor } from '../output/redactor.ts';
import { mapStrings } from '../output/result-cleaning.ts';
import type { ServedServer } from './served-server.ts';

/**
 * Milliseconds that a list waits for a server that is asked for the first time. Most servers start in this time, and
 * some clients never list again. A slower server delays no one longer.
 */
export const LIST_WAIT_MS = 5000;

/** A definition of a server that may be shown, and the server. */
export interface ShownDefinition<Kind extends keyof ServerLists> {
  readonly served: ServedServer;
  readonly definition: ServerLists[Kind][number];
  /** The definition as the server listed it. */
  readonly source: ServerLists[Kind][number];
}

/** Servers, and how to ask them for a list. */
export interface DefinitionRequest<Kind extends keyof ServerLists> {
  readonly servers: readonly ServedServer[];
  readonly kind: Kind;
  readonly redactor: Redactor;
  /** The profiles of the caller: a process with another environment may list other resources. */
  readonly profiles: readonly string[];
  readonly signal?: CancelSignal;
  /** Returns false for a definition that is left out. Absent: all are shown. */
  readonly admits?: (served: ServedServer, definition: ServerLists[Kind][number]) => boolean;
}

/**
 * Returns what the servers list, in their order. A server that fails, or does not answer in time, has no definitions
 * in the list. Throws CANCELLED.
 */
export async function readDefinitions<Kind extends keyof ServerLists>({
  servers,
  kind,
  redactor,
  profiles,
  signal,
  admits,
}: DefinitionRequest<Kind>): Promise<readonly ShownDefinition<Kind>[]> {
  const lists = await Promise.all(
    servers.map(async (served) => {
      const asking = { profiles, ...(signal !== undefined && { signal }) };
      const reading = served.adapter.list?.(kind, asking) ?? Promise.resolve([] as unknown as ServerLists[Kind]);
      const list = await within(reading, LIST_WAIT_MS).catch((thrown: unknown) => {
        if (asTollgateError(thrown).code === 'CANCELLED') throw thrown;
        return [] as unknown as ServerLists[Kind];
      });
      const admitted = admits === undefined ? [...list] : list.filter((definition) => admits(served, definition));
      return admitted.map((source) => ({ served, definition: safe(source, redactor), source }));
    }),
  );
  return lists.flat();
}

/** Rejects after `ms`. The list goes on, so that the next request gets it. */
function within<T>(reading: Promise<T>, ms: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new TollgateError('SERVER_UNAVAILABLE')), ms);
  });
  return Promise.race([reading, late]).finally(() => clearTimeout(timer));
}

/**
 * Returns a definition without what could speak for Tollgate, without icons (a client would open their addresses), and
 * with every text redacted and escaped.
 */
function safe<Definition extends object>(definition: Definition, redactor: Redactor): Definition {
  const { icons: _, ...rest } = withoutOwnKeys(definition) as { icons?: unknown };
  return mapStrings(rest, (text) => escapeHostile(redactor.redact(text).value).text) as Definition;
}

/** Returns the list decisions of the policy, in the same order. Throws POLICY_FAILED. */
export async function listDecisions(
  policy: Policy,
  principal: Principal,
  tools: readonly ListTool[],
): Promise<readonly ListDecision[]> {
  if (tools.length === 0) return [];
  const decisions = await policy.list(principal, tools);
  if (decisions.length === tools.length) return decisions;
  throw new TollgateError('POLICY_FAILED', { detail: 'The policy did not decide every entry of the list.' });
}

/**
 * Returns a definition as it is listed. What is the same as in `source` keeps its text. A call of one that is listed as
 * `maybe` can be refused.
 */
export function listedText(
  definition: object,
  {
    verdict,
    source,
  }: { readonly verdict: ListDecision['verdict']; readonly source: Readonly<Record<string, unknown>> },
): string {
  if (verdict === 'always') return definitionJson(definition, source);
  const { _meta, ...rest } = definition as { readonly _meta?: object };
  return definitionJson({ ...rest, _meta: { ..._meta, 'tollgate/verdict': verdict } }, source);
}
