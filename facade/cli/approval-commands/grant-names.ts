/** Owns what a person types of grants: the id of one, the names of tools; refuses the beginning of several ids, and only warns of a tool that nobody knows. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { SHIPPED } from '../../../catalogs/servers/shipped-servers.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { WORKSPACE } from '../../config/servers/server-names.ts';
import type { Grant } from '../../consent/grants/grant.ts';
import { ApprovedTools } from '../../consent/servers/approved-tools.ts';
import { openState } from '../../state/sqlite-state.ts';
import { printable } from '../print.ts';

const PREFIX = 'grant_';

/** The grant of an id, or of the beginning of one that is no other's, with or without `grant_`. Throws USAGE. */
export function grantNamed(grants: readonly Grant[], id: string): Grant {
  const start = id.startsWith(PREFIX) ? id : `${PREFIX}${id}`;
  const found = start === PREFIX ? [] : grants.filter((grant) => grant.id.startsWith(start));
  const [one] = found;
  if (one !== undefined && found.length === 1) return one;
  throw new TollgateError('USAGE', {
    detail:
      found.length === 0 ? 'There is no such grant.' : `${printable(id)} is the beginning of ${found.length} grants.`,
    next: '`tollgate grants list` shows those that there are.',
  });
}

/** A line for each name that stands for no tool that is known: it may come to be, so it is granted all the same. Throws STATE_FAILED. */
export async function doubts(tools: readonly string[], config: Config): Promise<readonly string[]> {
  const state = openState(config.state);
  try {
    const approved = new ApprovedTools(state);
    const servers = [WORKSPACE, ...SHIPPED.keys(), ...config.servers.keys()];
    const lines: string[] = [];
    for (const written of tools.filter((tool) => tool.includes('.'))) {
      const dot = written.indexOf('.');
      const [server, tool] = [written.slice(0, dot), written.slice(dot + 1)];
      const names = await approved.names(server);
      if (names === undefined && !servers.includes(server))
        lines.push(`There is no server ${quote(server)} yet; ${didYouMean(server, servers)}`);
      else if (names !== undefined && tool !== '*' && !names.includes(tool))
        lines.push(`No approved tool of ${server} is called ${quote(tool)}; ${didYouMean(tool, names)}`);
    }
    return lines;
  } finally {
    await state.close();
  }
}
