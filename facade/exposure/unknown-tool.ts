/** Owns the answer to a name that nothing known has: unknown, or of a server that is not there to tell; refuses to speak of what nobody approved. */
import { startFailure } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Reason } from '../../policies/port.ts';
import type { Catalog } from './catalog.ts';

/** Why policy hides a tool: for the audit alone, so it travels as a cause, which is never shown. */
export class HiddenBy extends Error {
  readonly reasons: readonly Reason[];

  constructor(reasons: readonly Reason[]) {
    super('Policy hides this tool.');
    this.reasons = reasons;
  }
}

/** Whether a name is made from that of a server, so that no other server has the tool. */
export function isNamedAfterServer(name: string, server: string): boolean {
  const plain = (text: string): string => text.replaceAll('-', '_');
  return plain(name).startsWith(`${plain(server)}_`) || name.startsWith(`${server}.`);
}

/** `hidden`: the reasons of the policy, if it hides a tool of this name. A server that has never listed has no tools that are unknown: its own trouble is the answer. `servers`: those that the caller may reach. */
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
