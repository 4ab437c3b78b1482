/**
 * Stores the approved definitions of tools, and finds the tools that differ from them. A definition must equal the
 * approved one in every byte.
 */

import { isDeepStrictEqual } from 'node:util';
import type { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { loadMapping } from '../../../catalogs/primitives/primitive-mapping.ts';
import type { RawTool } from '../../../catalogs/tools/tool-definition.ts';
import type { OfferedTools } from '../../../policies/authoring/authoring-port.ts';
import { createDigest, findKeyFile } from '../../audit/key-files.ts';
import type { Config, ServerConfig } from '../../config/config.ts';
import { createSemantics } from '../../exposure/served-server.ts';
import { hasState, openOwnerState } from '../../secrets/opened-state.ts';
import type { State } from '../../state/state-port.ts';
import { ConsentStore } from './consent-store.ts';
import {
  limitPendingItem,
  type PendingItem,
  type PendingTools,
  pendingItemOf,
  pendingToolsIn,
  readPendingItem,
  withholdsSameTools,
} from './pending-tools.ts';
import { pendingRefusal } from './server-refusals.ts';
import { cachedPins, type ToolSet, toolDriftOf, toolSetHash } from './tool-set.ts';

const SETS = 'consent/tools';
const PENDING = 'consent/pending';
/** Milliseconds within which a server that changes its list all the time is recorded once. */
const NOTE_MS = 60_000;

/** The approved tools of one state folder. Methods throw STATE_FAILED. */
export class ApprovedTools {
  readonly #state: State;
  readonly #sets = new Map<string, { readonly hash: string; readonly set: ToolSet }>();
  readonly #noted = new Map<string, number>();
  /** Server → what its process listed last, and when the process was started. */
  readonly #seen = new Map<string, { readonly now: readonly RawTool[]; readonly startedAt: number }>();
  /** The servers that listed unapproved definitions to this process. */
  readonly #witnessed = new Set<string>();

  constructor(state: State) {
    this.#state = state;
  }

  /** Stores a set, and returns its hash. */
  async put(server: string, set: ToolSet): Promise<string> {
    await this.#state.put(SETS, server, JSON.stringify(set));
    await this.settle(server);
    return toolSetHash(server, set);
  }

  /** Returns the set with this hash; undefined if the stored set has another hash. */
  get(server: string, hash: string): ToolSet | undefined {
    const known = this.#sets.get(server);
    if (known?.hash === hash) return known.set;
    const set = readSet(this.#state.get(SETS, server));
    if (set === undefined || toolSetHash(server, set) !== hash) return undefined;
    this.#sets.set(server, { hash, set });
    return set;
  }

  /** Returns the names in the stored set without a check of its hash, only to explain an error to a person. */
  names(server: string): readonly string[] | undefined {
    return readSet(this.#state.get(SETS, server))?.tools.map(({ name }) => name);
  }

  async remove(server: string): Promise<void> {
    await this.#state.remove(SETS, server);
    await this.settle(server);
  }

  /** Removes the pending tools of a server. */
  async settle(server: string): Promise<void> {
    await this.#state.remove(PENDING, server);
  }

  /**
   * Stores the tools that differ, for the commands that show servers and for every process that uses the server. A list
   * without differences removes them.
   * A process that was started before the stored change (`startedAt`, ms since 1970) counts only if it listed a
   * difference itself. Returns what is new, or undefined if there is nothing to report.
   */
  async note(
    server: string,
    {
      approved,
      now,
      at,
      startedAt,
    }: { approved: readonly RawTool[]; now: readonly RawTool[]; at: number; startedAt: number },
  ): Promise<PendingItem | undefined> {
    const last = this.#seen.get(server);
    // A list is not new only because another set was approved meanwhile.
    if (last?.startedAt === startedAt && isDeepStrictEqual(last.now, now)) return undefined;
    this.#seen.set(server, { now, startedAt });
    const drift = toolDriftOf(approved, now);
    const item = pendingItemOf(drift, new Date(at).toISOString());
    const before = this.pending(server);
    const isHeard = before === undefined || this.#witnessed.has(server) || startedAt > Date.parse(before.since);
    if (drift.pending.size === 0 && drift.removed.length === 0) {
      if (before !== undefined && isHeard) await this.settle(server);
      return undefined;
    }
    this.#witnessed.add(server);
    const kept = limitPendingItem(item);
    // Each write makes all processes read again. A list with another order, or one that is withheld completely already,
    // is not written.
    if (!isHeard || (before !== undefined && withholdsSameTools(before, kept))) return undefined;
    await this.#state.put(PENDING, server, JSON.stringify(kept));
    if (at - (this.#noted.get(server) ?? Number.NEGATIVE_INFINITY) < NOTE_MS) return undefined;
    this.#noted.set(server, at);
    return item;
  }

  /** Returns the pending tools of a server. */
  pending(server: string): PendingItem | undefined {
    const text = this.#state.get(PENDING, server);
    return text === undefined ? undefined : readPendingItem(text);
  }

  /** Returns the pending tools of all servers: the same object until something is written. */
  allPending(): PendingTools {
    return pendingToolsIn(this.#state.list(PENDING));
  }
}

/**
 * Returns why this tool may not be called. A tool may be called only if the server lists it now, and as it was
 * approved.
 */
export function refuseDrifted(
  tool: string,
  { server, approved, now }: { server: string; approved: readonly RawTool[]; now: readonly RawTool[] },
): TollgateError | undefined {
  const [agreed, listed] = [cachedPins(approved).get(tool), cachedPins(now).get(tool)];
  if (agreed !== undefined && agreed === listed) return undefined;
  return pendingRefusal(server, agreed === undefined ? 'new' : listed === undefined ? 'gone' : 'changed');
}

function readSet(text: string | undefined): ToolSet | undefined {
  try {
    return text === undefined ? undefined : (JSON.parse(text) as ToolSet);
  } catch {
    return undefined;
  }
}

/** Returns the tools of each approved server, or `any` if all its tools are approved. Throws STATE_FAILED. */
export async function approvedDefinitions(
  config: Pick<Config, 'state' | 'store' | 'secretSources' | 'workspace' | 'servers'>,
): Promise<ReadonlyMap<string, OfferedTools>> {
  const offered = new Map<string, OfferedTools>();
  if (!hasState(config)) return offered;
  const state = await openOwnerState(config);
  try {
    const key = findKeyFile(config.state, 'audit.key');
    if (key === undefined) return offered;
    const store = new ConsentStore(state, createDigest(key));
    const approved = new ApprovedTools(state);
    for (const server of config.servers.values()) {
      const { consent } = store.get(server.name);
      if (consent?.tools === undefined) continue;
      const set = consent.tools.set === undefined ? undefined : approved.get(server.name, consent.tools.set);
      if (consent.tools.set === undefined) offered.set(server.name, 'any');
      else if (set !== undefined) offered.set(server.name, toolsOf(server, set));
    }
  } finally {
    await state.close();
  }
  return offered;
}

function toolsOf(server: ServerConfig, { tools, hints }: ToolSet): OfferedTools {
  const semanticsOf = createSemantics(
    server,
    server.mapping === undefined ? new Map() : loadMapping(server.mapping).tools,
  );
  return tools.map(({ name, inputSchema, annotations }) => ({
    name,
    inputSchema,
    semantics: semanticsOf(name, hints ? annotations : undefined),
  }));
}
