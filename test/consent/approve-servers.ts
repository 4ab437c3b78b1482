/**
 * Approves servers in a state folder, as `tollgate approve NAME --any-tools` would, or only the given tools. For tests
 * of what happens after the approval; starts nothing.
 */

import { inspectStart } from '../../adapters/stdio/start-inspection.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { createDigest, readAuditKey } from '../../facade/audit/key-files.ts';
import type { Config } from '../../facade/config/config.ts';
import { useProgramsOf } from '../../facade/config/servers/helper-program-settings.ts';
import { Consents } from '../../facade/consent/servers/server-consents.ts';
import { openOwnerState } from '../../facade/secrets/opened-state.ts';

/**
 * Approves all configured servers. Call it after the configuration is written, and before a facade or command uses it.
 */
export async function approveAll(
  config: Config,
  names: readonly string[] = [...config.servers.keys()],
  tools?: readonly RawTool[],
): Promise<void> {
  // Without servers nothing is created, because some tests check what a first start creates.
  if (names.length === 0) return;
  // Files that a start loads from where agents may write are part of the approval.
  useProgramsOf(config);
  const state = await openOwnerState(config);
  try {
    const consents = new Consents(state, {
      folder: config.folder,
      inspect: inspectStart,
      digest: createDigest(readAuditKey(config.state)),
    });
    const act = { by: 'test', at: new Date().toISOString() };
    for (const name of names) {
      const server = config.servers.get(name);
      if (server === undefined) throw new Error(`There is no server ${name} to approve.`);
      const start = await consents.approveStart({ facts: await consents.factsOf(server), ...act });
      if (tools === undefined) await consents.approveAnyTools(name, { start, hints: server.trustHints, ...act });
      else await consents.approveTools(name, { tools, prompts: [], hints: server.trustHints }, { start, ...act });
    }
  } finally {
    await state.close();
  }
}
