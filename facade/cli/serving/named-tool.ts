/** Finds the tool that a person names, and explains to the person at the terminal why a name has no tool. */
import { startFailure } from '../../../adapters/port.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { exposedName } from '../../../catalogs/tools/exposed-names.ts';
import { isNamed, TOOL_CAPABILITIES } from '../../../catalogs/tools/tool-capabilities.ts';
import type { Principal, Reason } from '../../../policies/port.ts';
import { didYouMean, listNames, quote } from '../../config/config-problems.ts';
import { mergeProfiles } from '../../config/profiles.ts';
import { type ExposedTool, HiddenBy, toolIdsOf } from '../../exposure/exposed-tool.ts';
import { findTool, type NameTable } from '../../exposure/name-table.ts';
import { isNamedAfterServer } from '../../exposure/name-tables.ts';
import type { AssembledFacade } from '../../runtime/assembled-facade.ts';

/** A name as a person typed it, and whose tools it is searched in. */
export interface TypedName {
  readonly name: string;
  readonly principal: Principal;
  readonly assembled: AssembledFacade;
}

/**
 * Returns the tool of a name that the principal sees: an exposed name, or an id (`server.tool`) that exactly one name
 * shows. Undefined if there is none.
 */
export function findListed(table: NameTable, name: string): ExposedTool | undefined {
  const found = findTool(table, name);
  return found !== undefined && visibleTools(table).includes(found) ? found : undefined;
}

function visibleTools({ visible, byName, reader }: NameTable): readonly ExposedTool[] {
  const spills = reader === undefined ? undefined : byName.get(reader);
  return spills === undefined || visible.includes(spills) ? visible : [...visible, spills];
}

/**
 * Returns the error that a person gets in place of UNKNOWN_TOOL; any other error as it is. It names the reason of this
 * tool only: the fault of another server does not explain a mistyped name. An agent does not learn any of it. Throws as
 * `NameTables.tableFor`.
 */
export async function explainUnknown(thrown: unknown, typed: TypedName): Promise<unknown> {
  if (!(thrown instanceof TollgateError) || thrown.code !== 'UNKNOWN_TOOL') return thrown;
  const { name, principal, assembled } = typed;
  const table = await assembled.deps.nameTables.tableFor(principal);
  const failed = failedServerOf(typed);
  if (failed !== undefined) return failed;
  const shown = visibleTools(table);
  const names = shown.filter((one) => toolIdsOf(one).includes(name)).map((one) => one.name);
  const hidden = table.hidden(name)?.reasons ?? (thrown.cause instanceof HiddenBy ? thrown.cause.reasons : []);
  const why =
    names.length > 1
      ? { is: `it is shown as ${listNames(names)}`, next: 'Use one of these names.' }
      : (hiddenOffer(typed, hidden) ?? unknownName(typed, shown));
  return new TollgateError('UNKNOWN_TOOL', {
    detail: `The agent ${principal.id} does not see a tool ${quote(name)}: ${why.is}`,
    next: why.next,
  });
}

/** Why a name has no tool, and what to do. */
interface Explanation {
  readonly is: string;
  readonly next: string;
}

/** Returns the name that was probably meant. Servers whose tools are missing are named, but not blamed. */
function unknownName({ name, principal, assembled }: TypedName, shown: readonly ExposedTool[]): Explanation {
  const known = [...shown.map((one) => one.name), ...(name.includes('.') ? shown.flatMap(toolIdsOf) : [])];
  const missing = assembled.serversOf(principal).filter((server) => assembled.catalog.problems.has(server));
  return {
    is: didYouMean(name, known),
    next:
      'Use a name that `tollgate tools` shows. A tool that this principal may never call is not shown.' +
      (missing.length === 0 ? '' : ` Tools of ${listNames(missing)} are missing, see: tollgate servers`),
  };
}

/** Returns why the server of a name cannot be reached, if an alias or the name itself names it. */
function failedServerOf({ name, principal, assembled }: TypedName): TollgateError | undefined {
  const { config, catalog, serversOf } = assembled;
  const alias = mergeProfiles(config, principal.profiles).expose.find((one) => one.name === name);
  const server =
    alias?.tool.split('.', 1)[0] ??
    serversOf(principal).find((one) => isNamedAfterServer(name, one) && catalog.entries(one).length === 0);
  const problem = server === undefined ? undefined : catalog.problems.get(server);
  return problem === undefined ? undefined : startFailure(problem);
}

/** Returns why a tool that a server of the principal offers is not shown; undefined if no server offers it. */
function hiddenOffer({ name, principal, assembled }: TypedName, hidden: readonly Reason[]): Explanation | undefined {
  const { catalog, deps, serversOf } = assembled;
  const offers = serversOf(principal).flatMap((server) => catalog.entries(server).map((entry) => ({ server, entry })));
  const offer = offers.find(
    ({ server, entry: { tool } }) =>
      name === `${server}.${tool.name}` ||
      name.replaceAll('-', '_') === exposedName(server, tool.name).replaceAll('-', '_'),
  );
  if (offer === undefined && hidden.length === 0) return undefined;
  const id = offer === undefined ? name : `${offer.server}.${offer.entry.tool.name}`;
  if (
    offer !== undefined &&
    deps.preconditions.view(principal).hides({ server: offer.server, tool: offer.entry.tool.name })
  ) {
    const capability = [...TOOL_CAPABILITIES.values()].find((one) => isNamed(one, offer.entry.tool.name));
    return {
      is: capability === undefined ? 'no owner has allowed it' : `${capability.title} is off`,
      next: capability === undefined ? '' : `An owner adds it with: tollgate upgrades enable ${capability.name}`,
    };
  }
  if (offer?.entry.quarantine !== undefined)
    return { is: `it is in quarantine: ${offer.entry.quarantine}`, next: 'Its server must correct the definition.' };
  if (hidden.length > 0)
    return {
      is: `policy never allows it (${hidden.map(reasonText).join('; ')})`,
      next: `See which rules decide: tollgate policy why ${id} --as ${principal.id}`,
    };
  return {
    is: 'its server offers it, but no entry of `expose` shows it',
    next: `Write ${JSON.stringify(id)} under expose.tools, in the file or in a profile of ${principal.id}.`,
  };
}

/** Returns a rule with its message and place. */
export function reasonText({ id, message, file, line }: Pick<Reason, 'id' | 'message' | 'file' | 'line'>): string {
  return `${id}: ${message}${file === undefined ? '' : `  (${file}${line === undefined ? '' : `:${line}`})`}`;
}
