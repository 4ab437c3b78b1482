/** Checks the settings of a tenant, whose configuration is served in one process with others (decision 109). */
import type { ListenConfig, ServerConfig } from './config.ts';
import { type ProblemReport, quote } from './config-problems.ts';
import type { WrittenConfig } from './written-config.ts';

/** Returns the path of the MCP endpoint of a tenant. */
export function tenantPath(name: string): string {
  return `/t/${name}/mcp`;
}

/** Reports settings that the configuration of a tenant cannot have. `tenant`: its name, or '' if there is none. */
export function checkTenantSettings(
  tenant: string,
  {
    written,
    servers,
    listen,
  }: { readonly written: WrittenConfig; readonly servers: Map<string, ServerConfig>; readonly listen: ListenConfig },
  report: ProblemReport,
): void {
  if (tenant === '') return;
  const direct =
    'it would run with all rights of Tollgate, so it could read the files of every tenant; write isolation: sandbox';
  for (const [name, server] of servers)
    if (server.isolation === 'direct' && server.transport === 'stdio') {
      if (written.servers?.[name] === undefined) servers.set(name, { ...server, unusable: direct });
      else report.refuse(['servers', name, 'isolation'], `server ${quote(name)}: ${direct}`);
    }
  if (written.bash?.isolation === 'direct') report.refuse(['bash', 'isolation'], `commands: ${direct}`);
  for (const key of ['programs', 'tenants'] as const)
    if (written[key] !== undefined)
      report.refuse([key], `a tenant cannot set ${key}; write it in the configuration that names the tenant`);
  if (listen.auth === 'none')
    report.refuse(['listen', 'auth'], 'without a token, nothing proves that a caller is of this tenant; remove it');
  const { resource } = listen.jwt ?? {};
  // An address that cannot be read was reported.
  if (resource !== undefined && URL.canParse(resource) && !new URL(resource).pathname.endsWith(tenantPath(tenant)))
    report.refuse(
      ['listen', 'jwt', 'resource'],
      `it is the address of another endpoint, so clients would send the tokens of this tenant there; write the ` +
        `address that ends in ${tenantPath(tenant)}`,
    );
}
