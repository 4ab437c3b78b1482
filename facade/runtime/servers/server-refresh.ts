/** Restarts a running server, or lists its tools again, for the host of an owner. */
import { startFailure } from '../../../adapters/port.ts';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { AuditEntry } from '../../audit/audit-entry.ts';
import type { Catalog } from '../../exposure/catalog.ts';

/** A request of an owner. `by`: the id of the principal. */
export interface RefreshRequest {
  readonly server: string;
  readonly event: 'restart' | 'sync';
  readonly by: string;
}

/** The state of a server afterwards, and which of its tools differ from before, by name. */
export interface RefreshResult {
  readonly server: string;
  readonly state: string;
  readonly tools: number;
  readonly added: readonly string[];
  readonly removed: readonly string[];
  readonly changed: readonly string[];
}

/**
 * Refreshes a server. Throws USAGE for a server that does not exist or has no process or connection, AUDIT_FAILED, and
 * the error of the start or the list.
 */
export async function refreshServer(
  { catalog, append }: { readonly catalog: Catalog; readonly append: (entry: AuditEntry) => void },
  { server, event, by }: RefreshRequest,
): Promise<RefreshResult> {
  const served = catalog.servers.get(server);
  if (served === undefined)
    throw new TollgateError('USAGE', {
      detail: 'There is no server with this name.',
      next: 'GET /host/v1/servers lists all servers.',
    });
  if (served.adapter.renew === undefined)
    throw new TollgateError('USAGE', {
      detail: `Server "${server}" is a part of Tollgate: it has no process, and its tools do not change.`,
      next: 'Restart Tollgate instead.',
    });
  const before = pinsOf(catalog, server);
  append({ type: 'server', event, server, outcome: 'allow', by });
  await served.adapter.renew(event === 'restart' ? 'process' : 'list').catch((thrown: unknown) => {
    throw asReportable(asTollgateError(thrown));
  });
  await catalog.refresh([server], 'wake');
  const problem = catalog.problems.get(server);
  if (problem !== undefined) throw asReportable(problem);
  const after = pinsOf(catalog, server);
  return {
    server,
    state: served.adapter.health().state,
    tools: after.size,
    added: [...after.keys()].filter((name) => !before.has(name)),
    removed: [...before.keys()].filter((name) => !after.has(name)),
    changed: [...after].filter(([name, pin]) => before.has(name) && before.get(name) !== pin).map(([name]) => name),
  };
}

/** Returns the error for the caller: INIT_FAILED in more detail, every other error unchanged. */
function asReportable(error: TollgateError): TollgateError {
  return error.code === 'INIT_FAILED' ? startFailure(error) : error;
}

function pinsOf(catalog: Catalog, server: string): ReadonlyMap<string, string> {
  return new Map(catalog.entries(server).map(({ tool, pin }) => [tool.name, pin]));
}
