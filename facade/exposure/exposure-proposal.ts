/**
 * Proposes which tools of new servers an agent sees: a few of each, reads first, within a budget for the whole list. An
 * owner can add the others under `expose`. Pure: it reads no configuration, and allows nothing.
 */
import { exposedName } from '../../catalogs/tools/exposed-names.ts';
import type { RawTool, Semantics, Verb } from '../../catalogs/tools/tool-definition.ts';
import { splitToolId } from '../config/servers/server-names.ts';

/** A server with the tools that it offers, without those in quarantine. */
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
export const EXPOSURE_BUDGET: ExposureBudget = { bytes: 16_384, tools: 20, perServer: 8 };

/** Bytes of `{"tools":[]}`. */
const EMPTY_BYTES = 12;

/** The verbs that are proposed, in order. The last two only for servers that offer nothing else. */
const VERBS = ['read', 'write', 'destructive', 'execute'] as const satisfies readonly Verb[];

/** The words with which the names of reading tools begin. */
const READING = /^(?:get|list|search|read|find|fetch|query|describe|show|count|check|lookup|view)(?:[_.-]|[A-Z]|$)/;

interface Candidate {
  readonly id: string;
  readonly server: string;
  readonly verb: Verb;
  /** With the comma that follows it in the list. */
  readonly bytes: number;
}

/**
 * Returns the tools to show. First, every server gets its smallest tool of its most harmless verb; then, in each round,
 * the next one of a verb, so that many servers and many tools fit. Equal offers give equal proposals, in any order.
 */
export function proposeExposures(
  servers: readonly ServerOffer[],
  budget: ExposureBudget = EXPOSURE_BUDGET,
): ExposureProposal {
  const all = servers.flatMap(candidatesOf);
  const chosen: Candidate[] = [];
  // One tool of every server first, so that none is there for nothing.
  for (const verb of VERBS) {
    const queues = queuesOf(all, verb).filter(([one]) => !chosen.some(({ server }) => server === one?.server));
    takeRounds(queues, chosen, { ...budget, perServer: Math.min(1, budget.perServer) });
  }
  for (const verb of VERBS) takeRounds(queuesOf(all, verb), chosen, budget);
  return { expose: chosen.map(({ id }) => id).sort(), before: sizeOf(all), after: sizeOf(chosen) };
}

function candidatesOf({ name: server, tools }: ServerOffer): readonly Candidate[] {
  return tools.flatMap(({ tool, semantics }) => {
    const id = `${server}.${tool.name}`;
    // `expose` cannot name such a tool alone: * is a pattern there.
    if (splitToolId(id) === undefined || id.includes('*')) return [];
    const shown = { ...tool, name: exposedName(server, tool.name) };
    return [{ id, server, verb: semantics.verb, bytes: Buffer.byteLength(JSON.stringify(shown)) + 1 }];
  });
}

/** Returns the tools of a verb by server, the smallest first. */
function queuesOf(all: readonly Candidate[], verb: Verb): readonly Candidate[][] {
  const isLast = verb === 'destructive' || verb === 'execute';
  const harmless = new Set(
    all.filter((one) => one.verb === 'read' || one.verb === 'write').map(({ server }) => server),
  );
  const queues = new Map<string, Candidate[]>();
  for (const one of [...all].sort(bySize)) {
    if (one.verb !== verb || (isLast && harmless.has(one.server))) continue;
    queues.set(one.server, [...(queues.get(one.server) ?? []), one]);
  }
  return [...queues.values()];
}

/** Takes one tool of each queue in each round, the smallest first, until none fits. */
function takeRounds(queues: readonly Candidate[][], chosen: Candidate[], budget: ExposureBudget): void {
  for (let round = 0; round < budget.perServer; round += 1) {
    const next = queues.flatMap((queue) => queue[round] ?? []).sort(bySize);
    for (const one of next) {
      if (chosen.includes(one)) continue;
      const size = sizeOf([...chosen, one]);
      const ofServer = chosen.filter(({ server }) => server === one.server).length;
      if (size.bytes <= budget.bytes && size.tools <= budget.tools && ofServer < budget.perServer) chosen.push(one);
    }
  }
}

function sizeOf(tools: readonly Candidate[]): ToolListSize {
  // The last tool has no comma.
  const commas = tools.length === 0 ? 0 : -1;
  return { tools: tools.length, bytes: tools.reduce((sum, { bytes }) => sum + bytes, EMPTY_BYTES + commas) };
}

function bySize(one: Candidate, other: Candidate): number {
  return one.bytes - other.bytes || (one.id < other.id ? -1 : Number(one.id > other.id));
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
