/** The data and files that the configuration passes to the policy. */
import path from 'node:path';
import { startPlaces } from '../../adapters/port.ts';
import { loadMapping } from '../../catalogs/primitives/primitive-mapping.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import type { Config, PolicySource, ServerConfig } from '../config/config.ts';
import { readYaml } from '../config/reading/yaml-document.ts';

/** Returns the parts for `loadPolicy`. `cache` stores built Rego; the default is in the state folder. */
export function policyParts(config: Config, options: { readonly opa?: string; readonly cache?: string }) {
  const { servers, profiles, budgets, caps, schemaProfile } = config;
  return {
    settings: {
      servers: [...servers.values()].map(serverSettings),
      profiles: [...profiles.values()],
      budgets,
      caps,
      schemaProfile,
      principals: config.principals,
      origins: config.listen.origins,
    },
    workspace: config.workspace,
    folder: config.folder,
    cache: options.cache ?? path.join(config.state, 'policy'),
    rules: [
      controlRule(config),
      ...(config.rules.length === 0 ? [] : [{ ...config.ruleDocument, mode: 'enforce' as const }]),
    ],
    sources: config.policies.map((source) => readAt(source, config)),
    readYaml,
    ...(options.opa === undefined ? {} : { opa: options.opa }),
  };
}

/** A source as the load reads it, named as in the configuration. */
function readAt(source: PolicySource, { at, folder }: Config): PolicySource & { readonly shown?: string } {
  const { server, path: named } = source;
  if (server !== undefined)
    return server.keys === undefined ? source : { ...source, server: { ...server, keys: server.keys.map(at) } };
  return at(named) === named
    ? source
    : {
        ...source,
        path: at(named),
        shown: isPathWithin(named, folder) ? path.relative(folder, named) || '.' : path.basename(named),
      };
}

/** Adds the tools of high risk that its mapping knows. */
function serverSettings(server: ServerConfig) {
  return server.mapping === undefined
    ? server
    : { ...server, gated: Object.fromEntries(loadMapping(server.mapping).highRisk) };
}

/**
 * Folders with programs of servers, where agents may write, and the modules that these load while they run, as the
 * globs of a rule.
 */
function startFolders({ servers, workspace, folder }: Config): readonly string[] {
  const programs = [...servers.values()].filter(
    ({ transport, unusable }) => transport === 'stdio' && unusable === undefined,
  );
  const closed = new Set(
    programs.map((server) => startPlaces(server, folder)).flatMap(({ own, running }) => [...own, ...running]),
  );
  return [...closed].map((tree) =>
    (isPathWithin(tree, workspace) ? path.relative(workspace, tree) : tree).replace(/[?[\]{}!\\]/g, '*'),
  );
}

/**
 * Denies writing every control file, by its real path and by each link to it. In a sandbox, this applies to commands
 * and servers too.
 */
export function controlRule(config: Config) {
  // Agents read descriptions made from rules, so no path outside the workspace appears in them. Sandboxes cover those
  // paths.
  const inside = config.controlFiles
    .filter((file) => isPathWithin(file, config.workspace))
    .map((file) => path.relative(config.workspace, file));
  const paths = inside.map((name) => name.replace(/[?[\]{}!\\]/g, '*'));
  const message = 'This file decides what is allowed. Only a person changes it.';
  const rules =
    paths.length === 0
      ? []
      : [
          {
            id: 'control-files',
            outcome: 'deny',
            message,
            when: { verbs: ['write', 'destructive'], paths: paths.flatMap((name) => [name, `${name}/**`]) },
          },
        ];
  const started = startFolders(config);
  const start = {
    id: 'start-files',
    outcome: 'deny',
    message: 'An approved server runs this file. Only a person changes it.',
    when: { verbs: ['write', 'destructive'], paths: started.flatMap((name) => [name, `${name}/**`]) },
  };
  return {
    file: config.ruleDocument.file,
    mode: 'enforce' as const,
    value: { rules: started.length === 0 ? rules : [...rules, start] },
    placeOf: () => ({ line: 1, column: 1 }),
  };
}
