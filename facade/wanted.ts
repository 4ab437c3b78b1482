/** Judges what Rego wants shown by the definitions of the servers: a tool or an argument that nobody has is told to the owner, and opens nothing. */
import type { Offered } from '../policies/authoring.ts';
import type { ListTool, Policy, WantedExposure } from '../policies/port.ts';
import type { Config } from './config/config.ts';
import { splitToolId } from './config/names.ts';
import { didYouMean, quote } from './config/problems.ts';
import { matcher } from './served.ts';
import { asPrincipal } from './wire/auth.ts';
import { argumentFault, type NamedTool } from './tool-names.ts';

/** What became of the members of `expose` in Rego for one principal. */
export interface Wanted {
  /** Those that show nothing, and why: a line each. */
  readonly lines: readonly string[];
  /** True for a tool that would be shown without a pin that Rego gives it, because the argument has another name. */
  readonly isUnbound: (tool: Pick<ListTool, 'server' | 'tool'>) => boolean;
}

/** `toolsOf` gives what a server lists; none for a server that has not listed yet. */
export function judgeWanted(wanted: readonly WantedExposure[], toolsOf: (server: string) => readonly NamedTool[]): Wanted {
  const lines: string[] = [];
  const unbound = new Set<string>();
  for (const { tool: id, pins, place, refused } of wanted) {
    const { server, tool } = splitToolId(id) ?? { server: id, tool: '*' };
    const tools = toolsOf(server);
    const meant = tools.filter(({ name }) => matcher(tool)(name));
    const faults = meant.length === 0 ? [] : pins.flatMap((name) => argumentFault(name, meant) ?? []);
    if (refused !== undefined && (meant.length > 0 || tools.length === 0)) lines.push(`${place}: Rego shows ${quote(id)}, but nothing is shown: ${refused}`);
    else if (tools.length > 0 && meant.length === 0) lines.push(`${place}: server ${quote(server)} has no tool ${quote(tool)}: nothing is shown; ${didYouMean(tool, tools.map(({ name }) => name))}`);
    for (const fault of faults) lines.push(`${place}: ${fault} The tool is not shown until it is corrected.`);
    if (faults.length > 0) for (const { name } of meant) unbound.add(`${server}.${name}`);
  }
  return { lines: [...new Set(lines)], isUnbound: ({ server, tool }) => unbound.has(`${server}.${tool}`) };
}

/** The same for every principal of a configuration, by the definitions that were approved. */
export async function findUnshown(config: Config, policy: Policy, offered: ReadonlyMap<string, Offered>): Promise<readonly string[]> {
  const toolsOf = (server: string): readonly NamedTool[] => {
    const tools = offered.get(server) ?? 'any';
    return tools === 'any' ? [] : tools;
  };
  const all = await Promise.all(config.principals.map(async (one) => judgeWanted((await policy.wanted?.(asPrincipal(one))) ?? [], toolsOf).lines));
  return [...new Set(all.flat())];
}
