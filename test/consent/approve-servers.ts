/** Approves servers in a state folder as `tollgate approve NAME --any-tools` would, or to these tools alone, for tests of what comes after consent; starts nothing. */
import { inspectStart } from '../../adapters/stdio/start-inspection.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { createDigest, readAuditKey } from '../../facade/audit/key-files.ts';
import type { Config } from '../../facade/config/config.ts';
import { useProgramsOf } from '../../facade/config/servers/helper-program-settings.ts';
import { Consents } from '../../facade/consent/servers/server-consents.ts';
import { openState } from '../../facade/state/sqlite-state.ts';

/** Call it after the configuration is written and before the facade, or a command in a process of its own, is asked for anything. */
export async function approveAll(
  config: Config,
  names: readonly string[] = [...config.servers.keys()],
  tools?: readonly RawTool[],
): Promise<void> {
  // Where there is nothing to approve, nothing is made: what a first start creates is a subject of tests.
  if (names.length === 0) return;
  // What a start loads where agents may write is part of what is approved.
  useProgramsOf(config);
  const state = openState(config.state);
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
