/** Owns which tools of an internal server exist: the named ones, defined as they were pinned; refuses the whole server when they are not. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { pinOf } from '../../catalogs/tools/definition-pin.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import type { ServerSettings } from './server-settings.ts';

/**
 * What a server offers of what it lists. All of it, unless it is internal: then the tools of its allowlist, and only while every
 * one of them is there and defined as its pin says. Throws PIN_MISMATCH, which names the pin of what was listed.
 */
export function pinnedTools(
  { name, trust, tools, pin }: ServerSettings,
  listed: readonly RawTool[],
): readonly RawTool[] {
  if (trust !== 'internal') return listed;
  const allowed = tools?.allow ?? [];
  const missing = allowed.find((tool) => listed.filter((one) => one.name === tool).length !== 1);
  if (missing !== undefined)
    throw new TollgateError('PIN_MISMATCH', {
      detail: `Internal server "${name}" does not list its tool "${missing}" exactly once.`,
      next: `Mend the server, or take the tool out of servers.${name}.tools.allow.`,
    });
  const offered = listed.filter((tool) => allowed.includes(tool.name));
  const seen = pinOf(offered);
  if (seen === pin) return offered;
  const what =
    pin === undefined
      ? 'has no pin: nobody has said how its tools are defined'
      : 'defines its tools otherwise than its pin says';
  throw new TollgateError('PIN_MISMATCH', {
    detail: `Internal server "${name}" ${what}; if they are meant so, write \`pin: ${seen}\`.`,
    next: `An owner writes the pin under servers.${name} in tollgate.yaml.`,
  });
}

/** Refuses a call of what `offeredOf` has not let through. Throws UNKNOWN_TOOL. */
export function refuseUnpinnedTool(tool: string, offered: readonly RawTool[]): void {
  if (!offered.some(({ name }) => name === tool)) throw new TollgateError('UNKNOWN_TOOL');
}
