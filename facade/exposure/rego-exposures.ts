/**
 * Compares what Rego exposes with the definitions of the servers. An unknown tool or argument is reported to the owner
 * and exposes nothing.
 */
import type { OfferedTools } from '../../policies/authoring/authoring-port.ts';
import type { ListTool, Policy, RequestedExposure } from '../../policies/port.ts';
import type { Config } from '../config/config.ts';
import { didYouMean, quote } from '../config/config-problems.ts';
import { splitToolId } from '../config/servers/server-names.ts';
import { asPrincipal } from '../serve/http/token-authentication.ts';
import { toolMatcher } from './served-server.ts';
import { argumentFault, type DefinitionNames } from './tool-name-check.ts';

/** The result for one principal's members of `expose` in Rego. */
export interface RegoExposureCheck {
  /** Members that expose nothing, or less than they name. */
  readonly refused: readonly UnshownExposure[];
  /** Returns true for a tool that would be shown without a pin of Rego, because the argument has another name. */
  readonly isUnbound: (tool: Pick<ListTool, 'server' | 'tool'>) => boolean;
}

/** A member that exposes nothing: its place, the tool that it names, and the reason in one line. */
export interface UnshownExposure {
  readonly place: string;
  readonly tool: string;
  readonly line: string;
}

/** Checks the members. `toolsOf` returns the list of a server; undefined if the server has not listed yet. */
export function checkRegoExposures(
  wanted: readonly RequestedExposure[],
  toolsOf: (server: string) => readonly DefinitionNames[],
): RegoExposureCheck {
  const refused = new Map<string, UnshownExposure>();
  const unbound = new Set<string>();
  for (const { tool: id, pins, place, refused: why } of wanted) {
    const refuse = (words: string): void =>
      void refused.set(`${place}: ${words}`, { place, tool: id, line: `${place}: ${words}` });
    const { server, tool } = splitToolId(id) ?? { server: id, tool: '*' };
    const tools = toolsOf(server);
    const meant = tools.filter(({ name }) => toolMatcher(tool)(name));
    const faults = meant.length === 0 ? [] : pins.flatMap((name) => argumentFault(name, meant) ?? []);
    const isUnknown = tools.length > 0 && meant.length === 0;
    if (isUnknown) refuse(unknownToolFault(server, tool, tools));
    else if (why !== undefined) refuse(`Rego shows ${quote(id)}, but nothing is shown: ${why}`);
    for (const fault of faults) refuse(`${fault} The tool is not shown until it is corrected.`);
    if (faults.length > 0) for (const { name } of meant) unbound.add(`${server}.${name}`);
  }
  return { refused: [...refused.values()], isUnbound: ({ server, tool }) => unbound.has(`${server}.${tool}`) };
}

function unknownToolFault(server: string, tool: string, tools: readonly DefinitionNames[]): string {
  const names = tools.map(({ name }) => name);
  return `server ${quote(server)} has no tool ${quote(tool)}: nothing is shown; ${didYouMean(tool, names)}`;
}

/** Checks the exposures of every principal of a configuration against the approved tool definitions. */
export async function findUnshownExposures(
  config: Config,
  policy: Policy,
  offered: ReadonlyMap<string, OfferedTools>,
): Promise<readonly string[]> {
  const toolsOf = (server: string): readonly DefinitionNames[] => {
    const tools = offered.get(server) ?? 'any';
    return tools === 'any' ? [] : tools;
  };
  const all = await Promise.all(
    config.principals.map(async (one) =>
      checkRegoExposures((await policy.requestedExposures?.(asPrincipal(one))) ?? [], toolsOf).refused.map(
        ({ line }) => line,
      ),
    ),
  );
  return [...new Set(all.flat())];
}
