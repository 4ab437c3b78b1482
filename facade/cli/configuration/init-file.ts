/** Writes the text of a new tollgate.yaml. It approves no server and shows none to agents; the reader does that. */
import { stringify } from 'yaml';
import type { ClientEntry } from '../../clients/client-entry.ts';

const EXAMPLE = 'tracker';

/** For a user who has no client file to include. It loads when it is uncommented. */
const EXAMPLE_SERVER = `
# A server of your own. It starts in a sandbox. Uncomment this, and \`tools\` under \`expose\`.
# Then run: tollgate approve ${EXAMPLE}
# servers:
#   ${EXAMPLE}:
#     command: node
#     args: [path/to/server.js]
#     semantics: {"get_*": read, create_issue: write}
# profiles:
#   default: {servers: [${EXAMPLE}]}
`;

/** What a new tollgate.yaml is made from. Without `schema`, the editor gets none. `policies` are relative to it. */
export interface ProjectParts {
  readonly schema?: string;
  readonly found?: readonly InitClientFile[];
  readonly policies?: readonly string[];
  /** The folder in which agents work, absolute. Default: the folder of the file. */
  readonly workspace?: string;
}

/**
 * Returns the file. It includes the files that were found, and has a commented-out profile that reaches their servers.
 */
export function projectFile({
  schema,
  found = [],
  policies = ['policies/rules.yaml'],
  workspace = '.',
}: ProjectParts): string {
  const included = found.filter(({ servers }) => servers.length > 0);
  const names = [
    ...new Set(
      included.flatMap(({ servers }) =>
        servers.filter(({ unusable }) => unusable === undefined).map(({ name }) => name),
      ),
    ),
  ];
  return [
    schema === undefined ? '' : `# yaml-language-server: $schema=${schema}\n`,
    '# The servers behind Tollgate, who may use them, and within which limits. `tollgate check` checks this file.\n',
    'version: 1\n',
    '\n# The folder in which read, write, edit and bash work.\n',
    `workspace: ${stringify(workspace.replaceAll('$', '$$$$')).trim()}\n`,
    includes(included),
    names.length === 0 ? EXAMPLE_SERVER : profiles(names),
    `\npolicies:\n${policies.map((source) => `  - ${stringify(source).trim()}\n`).join('')}`,
    '\nexpose:\n  primitives: workspace\n',
    names.length === 0 ? `  # tools: [${EXAMPLE}.*]\n` : '',
    '\n# budgets:\n#   - {id: calls-per-run, scope: run, calls: 200}\n',
  ].join('');
}

function includes(included: readonly InitClientFile[]): string {
  if (included.length === 0) return '';
  const lines = included.map(
    ({ client, path }) => `  - ${stringify(path.replaceAll('$', '$$$$')).trim()} # ${client}\n`,
  );
  const about = '# Servers of other clients. Their files stay unchanged, and grant nothing here.';
  return `\n${about}\ninclude:\n${lines.join('')}`;
}

/** A profile reaches a server in one step; an owner approves it in another. */
function profiles(names: readonly string[]): string {
  if (names.length === 0) return '';
  return [
    '\n# A server starts when it is approved (tollgate approve NAME). It starts in a sandbox (docs/sandbox.md),\n',
    '# without a network unless it lists domains. Uncomment those that you want, or run: tollgate import --all\n',
    '# servers:\n',
    ...names.map((name) => `#   ${name}: {profiles: [default]}\n`),
  ].join('');
}
/** A client's file that was found, as the new configuration names it. */
export interface InitClientFile {
  readonly id: string;
  readonly client: string;
  /** Whether `export` writes this file if no other is named. */
  readonly isDefault: boolean;
  /** Relative to the project, or with `~/`. */
  readonly path: string;
  readonly servers: readonly ClientEntry[];
  readonly unread?: string;
}
