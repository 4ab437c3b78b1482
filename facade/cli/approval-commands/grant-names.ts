/**
 * Resolves the ids and tool names that a person types for a grant. A tool that is not known yet only gets a warning.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { SHIPPED } from '../../../catalogs/servers/shipped-servers.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { WORKSPACE } from '../../config/servers/server-names.ts';
import type { Grant } from '../../consent/grants/grant.ts';
import { ApprovedTools } from '../../consent/servers/approved-tools.ts';
import { withState } from '../command-state.ts';
import { printable } from '../print.ts';

const PREFIX = 'grant_';
const SHORT_DIGITS = 12;

/** Returns the first digits of an id, without `grant_`. `grants revoke` accepts them. */
export function shortId({ id }: Pick<Grant, 'id'>): string {
  return id.slice(PREFIX.length, PREFIX.length + SHORT_DIGITS);
}

/**
 * Returns the grant with an id, or with the beginning of an id that fits no other, with or without `grant_`. Throws
 * USAGE.
 */
export function grantNamed(grants: readonly Grant[], id: string): Grant {
  const start = id.startsWith(PREFIX) ? id : `${PREFIX}${id}`;
  const found = start === PREFIX ? [] : grants.filter((grant) => grant.id.startsWith(start));
  const [one] = found;
  if (one !== undefined && found.length === 1) return one;
  throw new TollgateError('USAGE', {
    detail:
      found.length === 0 ? 'There is no such grant.' : `${printable(id)} is the beginning of ${found.length} grants.`,
    next: '`tollgate grants list` shows all of them.',
  });
}

/**
 * Returns a line for each name that fits no known tool. The tool may exist later, so it is granted nevertheless. Throws
 * STATE_FAILED.
 */
export async function unknownToolWarnings(tools: readonly string[], config: Config): Promise<readonly string[]> {
  return withState(config.state, async (state) => {
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
  });
}
