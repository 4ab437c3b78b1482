/** Judges what Rego wants shown by the definitions of the servers: a tool or an argument that nobody has is told to the owner, and opens nothing. */
import type { Offered } from '../policies/authoring.ts';
import type { ListTool, Policy, WantedExposure } from '../policies/port.ts';
import type { Config } from './config/config.ts';
import { splitToolId } from './config/names.ts';
import { didYouMean, quote } from './config/problems.ts';
import { matcher } from './served.ts';
import { argumentFault, type NamedTool } from './tool-names.ts';
import { asPrincipal } from './wire/auth.ts';

/** What became of the members of `expose` in Rego for one principal. */
export interface Wanted {
  /** Those that show nothing, or less than they say. */
  readonly refused: readonly Unshown[];
  /** True for a tool that would be shown without a pin that Rego gives it, because the argument has another name. */
  readonly isUnbound: (tool: Pick<ListTool, 'server' | 'tool'>) => boolean;
}

/** A member that shows nothing: where it stands, the tool that it names, and why, in one line. */
export interface Unshown {
  readonly place: string;
  readonly tool: string;
  readonly line: string;
}

/** `toolsOf` gives what a server lists; none for a server that has not listed yet. */
export function judgeWanted(
  wanted: readonly WantedExposure[],
  toolsOf: (server: string) => readonly NamedTool[],
): Wanted {
  const refused = new Map<string, Unshown>();
  const unbound = new Set<string>();
  for (const { tool: id, pins, place, refused: why } of wanted) {
    const refuse = (words: string): void =>
      void refused.set(`${place}: ${words}`, { place, tool: id, line: `${place}: ${words}` });
    const { server, tool } = splitToolId(id) ?? { server: id, tool: '*' };
    const tools = toolsOf(server);
    const meant = tools.filter(({ name }) => matcher(tool)(name));
    const faults = meant.length === 0 ? [] : pins.flatMap((name) => argumentFault(name, meant) ?? []);
    if (why !== undefined && (meant.length > 0 || tools.length === 0))
      refuse(`Rego shows ${quote(id)}, but nothing is shown: ${why}`);
    else if (tools.length > 0 && meant.length === 0)
      refuse(
        `server ${quote(server)} has no tool ${quote(tool)}: nothing is shown; ${didYouMean(
          tool,
          tools.map(({ name }) => name),
        )}`,
      );
    for (const fault of faults) refuse(`${fault} The tool is not shown until it is corrected.`);
    if (faults.length > 0) for (const { name } of meant) unbound.add(`${server}.${name}`);
  }
  return { refused: [...refused.values()], isUnbound: ({ server, tool }) => unbound.has(`${server}.${tool}`) };
}

/** The same for every principal of a configuration, by the definitions that were approved. */
export async function findUnshown(
  config: Config,
  policy: Policy,
  offered: ReadonlyMap<string, Offered>,
): Promise<readonly string[]> {
  const toolsOf = (server: string): readonly NamedTool[] => {
    const tools = offered.get(server) ?? 'any';
    return tools === 'any' ? [] : tools;
  };
  const all = await Promise.all(
    config.principals.map(async (one) =>
      judgeWanted((await policy.wanted?.(asPrincipal(one))) ?? [], toolsOf).refused.map(({ line }) => line),
    ),
  );
  return [...new Set(all.flat())];
}
