/** Collects the data and files that the configuration passes to the policy. */
import path from 'node:path';
import { startPlaces } from '../../adapters/port.ts';
import { loadMapping } from '../../catalogs/primitives/primitive-mapping.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import { CODE, NO_ARGUMENTS } from '../../catalogs/servers/shipped-servers.ts';
import type { Config, PolicySource, ServerConfig, SnippetConfig } from '../config/config.ts';
import { readYaml } from '../config/reading/yaml-document.ts';
import { subjectSettings } from '../config/settings/jwt-settings.ts';

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
      ...(config.listen.jwt !== undefined && { subjects: subjectSettings(config.listen.jwt) }),
      origins: config.listen.origins,
    },
    workspace: config.workspace,
    folder: config.folder,
    cache: options.cache ?? path.join(config.state, 'policy'),
    rules: [
      controlRule(config),
      codeRule(config),
      ...(config.rules.length === 0 ? [] : [{ ...config.ruleDocument, mode: 'enforce' as const }]),
    ],
    sources: config.policies.map((source) => readAt(source, config)),
    offered: new Map([[CODE, [...config.code.snippets].map(([name, { input }]) => offeredSnippet(name, input))]]),
    readYaml,
    ...(options.opa === undefined ? {} : { opa: options.opa }),
  };
}

function offeredSnippet(name: string, input: SnippetConfig['input'] = NO_ARGUMENTS) {
  return { name, inputSchema: input, semantics: { verb: 'read' as const } };
}

/** Returns a source with the path at which it is read (maybe the accepted copy). `shown`: its name for messages. */
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

/** Returns a server with the high-risk tools of its mapping. */
function serverSettings(server: ServerConfig) {
  return server.mapping === undefined
    ? server
    : { ...server, gated: Object.fromEntries(loadMapping(server.mapping).highRisk) };
}

/** Returns globs for the programs of servers in folders that agents may write, and for the modules that they load. */
function startFolders({ servers, workspace, folder }: Config): readonly string[] {
  const programs = [...servers.values()].filter(
    ({ transport, unusable }) => transport === 'stdio' && unusable === undefined,
  );
  const programFolders = new Set(
    programs.map((server) => startPlaces(server, folder)).flatMap(({ own, running }) => [...own, ...running]),
  );
  return [...programFolders].map((tree) =>
    (isPathWithin(tree, workspace) ? path.relative(workspace, tree) : tree).replace(/[?[\]{}!\\]/g, '*'),
  );
}

/**
 * Returns the rules that allow Tollgate's own tools of search and code, which have no effect of their own: each tool
 * that they call is decided by itself. Rules of the owner can still deny them, or ask.
 */
function codeRule({ profiles, ruleDocument }: Config) {
  const shown = [...profiles.values()].flatMap(({ expose }) => expose.map(({ tool }) => tool));
  const tools = [...new Set(shown)].filter((tool) => tool.startsWith(`${CODE}.`));
  return {
    file: ruleDocument.file,
    mode: 'enforce' as const,
    value: { rules: tools.length === 0 ? [] : [{ id: 'expose-code', outcome: 'allow', when: { tools } }] },
    placeOf: () => ({ line: 1, column: 1 }),
  };
}

/** Returns the rules that deny writing control files and programs of servers. Sandboxes apply them to commands too. */
export function controlRule(config: Config) {
  // Agents read descriptions made from rules, so rules name no path outside the workspace. Sandboxes close those paths.
  const names = config.controlFiles
    .filter((file) => isPathWithin(file, config.workspace))
    .map((file) => path.relative(config.workspace, file));
  const paths = names.map((name) => name.replace(/[?[\]{}!\\]/g, '*'));
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
  const programGlobs = startFolders(config);
  const start = {
    id: 'start-files',
    outcome: 'deny',
    message: 'An approved server runs this file. Only a person changes it.',
    when: { verbs: ['write', 'destructive'], paths: programGlobs.flatMap((name) => [name, `${name}/**`]) },
  };
  return {
    file: config.ruleDocument.file,
    mode: 'enforce' as const,
    value: { rules: programGlobs.length === 0 ? rules : [...rules, start] },
    placeOf: () => ({ line: 1, column: 1 }),
  };
}
