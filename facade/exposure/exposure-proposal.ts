/**
 * Proposes which tools of several servers an agent sees: those that read first, then those that write, within a budget
 * for all servers together. A long list of tools costs context in every request and makes models choose worse.
 */
import type { RawTool, Verb } from '../../catalogs/tools/tool-definition.ts';

/** A tool that could be shown. */
export interface ShowableTool {
  readonly server: string;
  readonly tool: RawTool;
  readonly verb: Verb;
}

/** A tool with the size of its definition in a list, bytes. */
export interface ProposedTool extends ShowableTool {
  readonly bytes: number;
}

/** The most that is proposed. */
export interface ExposureBudget {
  readonly tools: number;
  readonly bytes: number;
}

/** Decision 96. */
export const EXPOSURE_BUDGET: ExposureBudget = { tools: 20, bytes: 16_000 };

const RANKS: readonly Verb[] = ['read', 'write'];
/** The most tools of a server that neither reads nor writes. Without any, it would be there for nothing. */
const MOST_OTHERS = 3;
/** The words with which the names of reading tools begin. */
const READING = /^(?:get|list|search|read|find|fetch|query|describe|show|count|check|lookup|view)(?:[_.-]|[A-Z]|$)/;

/**
 * Returns the tools to show, in the order of the servers and their lists. Servers take turns, so that each one gets a
 * tool while the budget allows. The same tools always give the same proposal.
 */
export function proposeExposures(
  tools: readonly ShowableTool[],
  budget: ExposureBudget = EXPOSURE_BUDGET,
): readonly ProposedTool[] {
  const chosen = new Set<ProposedTool>();
  const all = tools.map((one): ProposedTool => ({ ...one, bytes: Buffer.byteLength(JSON.stringify(one.tool)) }));
  let left = budget.bytes;
  for (const one of inTurns(all)) {
    if (chosen.size === budget.tools) break;
    if (one.bytes > left) continue;
    chosen.add(one);
    left -= one.bytes;
  }
  return all.filter((one) => chosen.has(one));
}

/**
 * The best tool of each server; then the second reading tool of each, the third, and so on; then the writing tools, and
 * more tools of servers that have neither.
 */
function inTurns(tools: readonly ProposedTool[]): readonly ProposedTool[] {
  const places = new Map<string, number>();
  const ranked = tools.filter(({ verb }) => RANKS.includes(verb));
  const served = new Set(ranked.map(({ server }) => server));
  const others = tools.filter(({ server }) => !served.has(server));
  return [...RANKS.map((verb) => ranked.filter((one) => one.verb === verb)), others]
    .flatMap((group, rank) =>
      group.map((one) => {
        const place = places.get(one.server) ?? 0;
        places.set(one.server, place + 1);
        return { one, place, rank: place === 0 ? -1 : rank };
      }),
    )
    .filter(({ rank, place }) => rank < RANKS.length || place < MOST_OTHERS)
    .sort((a, b) => a.rank - b.rank || a.place - b.place)
    .map(({ one }) => one);
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
