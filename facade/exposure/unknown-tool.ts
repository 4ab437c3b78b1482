/**
 * The error for a name that no known tool has: either unknown, or its server cannot be reached. It reveals nothing
 * about tools that are not approved.
 */
import { startFailure } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Reason } from '../../policies/port.ts';
import type { Catalog } from './catalog.ts';
import { HiddenBy } from './exposed-tool.ts';

/** Returns true if a name starts with the name of a server. Then no other server has the tool. */
export function isNamedAfterServer(name: string, server: string): boolean {
  const plain = (text: string): string => text.replaceAll('-', '_');
  return plain(name).startsWith(`${plain(server)}_`) || name.startsWith(`${server}.`);
}

/**
 * Returns the error for an unknown name. If the name belongs to a server that has never listed its tools, it says why
 * that server cannot be reached. `hidden`: the policy's reasons, if it hides a tool of this name. `servers`: the
 * servers that the caller may reach.
 */
export function unknownToolError(
  name: string,
  {
    problems,
    entries,
    hidden,
  }: {
    readonly problems: Catalog['problems'];
    readonly entries: (server: string) => readonly unknown[];
    readonly hidden?: readonly Reason[] | undefined;
  },
  servers: readonly string[],
): TollgateError {
  const server = servers.find((one) => isNamedAfterServer(name, one) && entries(one).length === 0);
  const problem = server === undefined ? undefined : problems.get(server);
  return problem === undefined || problem.data.consent !== undefined
    ? new TollgateError('UNKNOWN_TOOL', hidden === undefined ? {} : { cause: new HiddenBy(hidden) })
    : startFailure(problem);
}
