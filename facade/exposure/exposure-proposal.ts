/**
 * Proposes which tools of new servers an agent sees: the first few of each, within a budget for the whole list. An
 * owner can add the others under `expose`. Pure: it reads no configuration, and allows nothing.
 */
import { exposedName } from '../../catalogs/tools/exposed-names.ts';
import type { RawTool, Semantics, Verb } from '../../catalogs/tools/tool-definition.ts';
import { splitToolId } from '../config/servers/server-names.ts';

/** A server with the tools that it offers, in its own order, without those in quarantine. */
export interface ServerOffer {
  readonly name: string;
  readonly tools: readonly { readonly tool: RawTool; readonly semantics: Semantics }[];
}

/** What a list of tools may have: bytes of its JSON, tools in all, and tools of one server. */
export interface ExposureBudget {
  readonly bytes: number;
  readonly tools: number;
  readonly perServer: number;
}

/** The size of a list of tools. Bytes of the definitions; conditions of the policy can add some to a description. */
export interface ToolListSize {
  readonly tools: number;
  readonly bytes: number;
}

/** What is proposed. */
export interface ExposureProposal {
  /** Entries of `expose.tools`, as `server.tool`, sorted. */
  readonly expose: readonly string[];
  /** The list with every tool, and the list with the proposed ones. */
  readonly before: ToolListSize;
  readonly after: ToolListSize;
}

/** See docs/decisions/0089-a-small-list-of-tools.md. */
export const EXPOSURE_BUDGET: ExposureBudget = { bytes: 20_000, tools: 20, perServer: 8 };

/** Bytes of `{"tools":[]}`. */
const EMPTY_BYTES = 12;

/** The words with which the names of reading tools begin. */
const READING = /^(?:get|list|search|read|find|fetch|query|describe|show|count|check|lookup|view)(?:[_.-]|[A-Z]|$)/;

interface Candidate {
  readonly id: string;
  readonly verb: Verb;
  /** With the comma that follows it in the list. */
  readonly bytes: number;
}

/**
 * Returns the tools to show. In each round every server gets its next tool, so each has its share before one gets more.
 * The order of the servers does not count; the order of their tools does.
 */
export function proposeExposures(
  servers: readonly ServerOffer[],
  budget: ExposureBudget = EXPOSURE_BUDGET,
): ExposureProposal {
  const all = servers.map(candidatesOf);
  const chosen: Candidate[] = [];
  const fits = (one: Candidate): boolean => {
    const { bytes, tools } = sizeOf([...chosen, one]);
    return bytes <= budget.bytes && tools <= budget.tools;
  };
  let queues = all.map(mainFirst);
  for (let round = 0; round < budget.perServer; round += 1) {
    // The list only grows, so what does not fit now never will.
    queues = queues.map((queue) => queue.filter(fits)).sort(byFirst);
    for (const queue of queues) {
      const at = queue.findIndex(fits);
      if (at >= 0) chosen.push(...queue.splice(at, 1));
    }
  }
  return { expose: chosen.map(({ id }) => id).sort(), before: sizeOf(all.flat()), after: sizeOf(chosen) };
}

function candidatesOf({ name: server, tools }: ServerOffer): readonly Candidate[] {
  return tools.flatMap(({ tool, semantics }) => {
    const id = `${server}.${tool.name}`;
    // `expose` cannot name such a tool alone: * is a pattern there.
    if (splitToolId(id) === undefined || id.includes('*')) return [];
    const shown = { ...tool, name: exposedName(server, tool.name) };
    return [{ id, verb: semantics.verb, bytes: Buffer.byteLength(JSON.stringify(shown)) + 1 }];
  });
}

/**
 * Returns the tools of a server in the order in which they are shown: in turn one that reads and one that does not,
 * because few servers are of use without both. Each kind keeps the server's order, because servers list their main
 * tools first; those that can destroy or execute come after those that write.
 */
function mainFirst(tools: readonly Candidate[]): Candidate[] {
  const reads = tools.filter(({ verb }) => verb === 'read');
  const writes = tools.filter(({ verb }) => verb === 'write');
  const others = [...writes, ...tools.filter((one) => !reads.includes(one) && !writes.includes(one))];
  const kinds = tools[0]?.verb === 'read' ? [reads, others] : [others, reads];
  return tools.flatMap((_, turn) => kinds.flatMap((kind) => kind[turn] ?? []));
}

function sizeOf(tools: readonly Candidate[]): ToolListSize {
  // The last tool has no comma.
  const commas = tools.length === 0 ? 0 : -1;
  return { tools: tools.length, bytes: tools.reduce((sum, { bytes }) => sum + bytes, EMPTY_BYTES + commas) };
}

/** Orders the servers of a round by their next tool: one that reads is first, then the smallest. */
function byFirst([one]: readonly Candidate[], [other]: readonly Candidate[]): number {
  if (one === undefined || other === undefined) return Number(one === undefined) - Number(other === undefined);
  const reads = Number(other.verb === 'read') - Number(one.verb === 'read');
  return reads || one.bytes - other.bytes || (one.id < other.id ? -1 : 1);
}

/**
 * Returns the tools that an unknown server says are read-only and whose names say so too. An owner who agrees makes
 * them `read`; all other tools of such a server count as destructive.
 */
export function claimedReads(tools: readonly RawTool[]): readonly string[] {
  return tools
    .filter(({ name, annotations }) => annotations?.readOnlyHint === true && READING.test(name))
    .map(({ name }) => name);
}
