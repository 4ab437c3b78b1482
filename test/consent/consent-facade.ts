/**
 * Facades with servers whose approval a test gives and withdraws as another process would, for tests of what an
 * approval is bound to.
 */
import { inspectStart } from '../../adapters/stdio/start-inspection.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { createDigest, readAuditKey } from '../../facade/audit/key-files.ts';
import type { Config } from '../../facade/config/config.ts';
import { Consents } from '../../facade/consent/servers/server-consents.ts';
import type { ToolSet } from '../../facade/consent/servers/tool-set.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { State } from '../../facade/state/state-port.ts';

/** The owner who decides in these tests, and the time. */
export const ACT_OF_BOSS = { by: 'boss', at: '2026-11-22T00:00:00.000Z' };

/** Opens the consents of a state folder as a second process does. */
export async function withConsents<T>(
  config: Config,
  work: (consents: Consents, state: State) => Promise<T>,
): Promise<T> {
  const state = openState(config.state);
  try {
    return await work(
      new Consents(state, {
        folder: config.folder,
        inspect: inspectStart,
        digest: createDigest(readAuditKey(config.state)),
      }),
      state,
    );
  } finally {
    await state.close();
  }
}

/** Approves one set of tools of a server in its present configuration. */
export async function approveSet(
  config: Config,
  name: string,
  tools: readonly RawTool[],
  more: Partial<ToolSet> = {},
): Promise<void> {
  await withConsents(config, async (consents) => {
    const start = await consents.approveStart({
      facts: await consents.factsOf(config.servers.get(name)!),
      ...ACT_OF_BOSS,
    });
    await consents.approveTools(name, { tools, prompts: [], hints: false, ...more }, { start, ...ACT_OF_BOSS });
  });
}
