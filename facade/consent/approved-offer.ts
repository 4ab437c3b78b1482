/** Owns what is known of the tools of servers without asking them: the definitions that a person approved; refuses to take a set that is not the approved one. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { loadMapping } from '../../catalogs/primitives/mapping.ts';
import type { Offered } from '../../policies/authoring.ts';
import { createDigest, findKey } from '../audit/key.ts';
import type { Config, ServerConfig } from '../config/config.ts';
import { createSemantics } from '../served.ts';
import { DATABASE, openState } from '../state/sqlite.ts';
import { ApprovedTools } from './approved-tools.ts';
import { ConsentStore } from './store.ts';
import type { ToolSet } from './tool-set.ts';

/** For each server that somebody approved: its tools, or `any` where whatever it lists is agreed to. Others are absent. Throws STATE_FAILED. */
export async function approvedOffer(config: Pick<Config, 'state' | 'servers'>): Promise<ReadonlyMap<string, Offered>> {
  const offered = new Map<string, Offered>();
  const key = existsSync(path.join(config.state, DATABASE)) ? findKey(config.state, 'audit.key') : undefined;
  if (key === undefined) return offered;
  const state = openState(config.state);
  try {
    const store = new ConsentStore(state, createDigest(key));
    const approved = new ApprovedTools(state);
    for (const server of config.servers.values()) {
      const { consent } = store.get(server.name);
      if (consent?.tools === undefined) continue;
      const set = consent.tools.set === undefined ? undefined : approved.get(server.name, consent.tools.set);
      if (consent.tools.set === undefined) offered.set(server.name, 'any');
      else if (set !== undefined) offered.set(server.name, toolsOf(server, set));
    }
  } finally {
    await state.close();
  }
  return offered;
}

function toolsOf(server: ServerConfig, { tools, hints }: ToolSet): Offered {
  const semanticsOf = createSemantics(
    server,
    server.mapping === undefined ? new Map() : loadMapping(server.mapping).tools,
  );
  return tools.map(({ name, inputSchema, annotations }) => ({
    name,
    inputSchema,
    semantics: semanticsOf(name, hints ? annotations : undefined),
  }));
}
