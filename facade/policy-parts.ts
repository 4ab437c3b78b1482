/** Owns what the configuration hands to the policy: plain data and files; decides nothing itself. */
import path from 'node:path';
import type { Config } from './config/config.ts';
import { readYaml } from './config/document.ts';

/** Parts for `loadPolicy`. `cache` keeps built Rego; the default is in the state folder. */
export function policyParts(config: Config, options: { readonly opa?: string; readonly cache?: string }) {
  const { servers, profiles, budgets, caps, schemaProfile } = config;
  return {
    settings: { servers: [...servers.values()], profiles: [...profiles.values()], budgets, caps, schemaProfile },
    workspace: config.workspace,
    folder: config.folder,
    cache: options.cache ?? path.join(config.state, 'policy'),
    rules: config.rules.length === 0 ? [] : [{ ...config.ruleDocument, mode: 'enforce' as const }],
    sources: config.policies,
    readYaml,
    ...(options.opa === undefined ? {} : { opa: options.opa }),
  };
}
