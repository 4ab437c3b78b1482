/** Owns the answer to a name that nothing known has: unknown, or of a server that is not there to tell; refuses to speak of what nobody approved. */
import { unstarted } from '../adapters/port.ts';
import { TollgateError } from '../catalogs/errors.ts';
import type { Catalog } from './catalog.ts';

/** A server that has never listed has no tools that are unknown: its own trouble is the answer. `servers`: those that the caller may reach. */
export function absenceOf(name: string, { problems, entries }: { readonly problems: Catalog['problems']; readonly entries: (server: string) => readonly unknown[] }, servers: readonly string[]): TollgateError {
  const plain = (text: string): string => text.replaceAll('-', '_');
  const server = servers.find((one) => plain(name).startsWith(`${plain(one)}_`) && entries(one).length === 0);
  const problem = server === undefined ? undefined : problems.get(server);
  return problem === undefined || problem.data['consent'] !== undefined ? new TollgateError('UNKNOWN_TOOL') : unstarted(problem);
}
