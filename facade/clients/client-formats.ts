/** The table of other clients' files: places, containers, keys, variables. Every exception is in this table. */

/**
 * The folders in which a client's file can be. `settings`: of the platform's applications. `xdg`: as `settings` on
 * Windows, else ~/.config, also on macOS.
 */
export type Root = 'project' | 'home' | 'settings' | 'xdg' | 'codex';

/** How a client writes a variable of the environment in its file. `none`: it fills in nothing. */
export type Interpolation = 'none' | 'shell' | 'dollar' | 'vscode' | 'braces';

/** The name of a client on the command line. */
export type ClientId =
  | 'claude-desktop'
  | 'claude-code'
  | 'vscode'
  | 'cursor'
  | 'codex'
  | 'windsurf'
  | 'gemini'
  | 'zed'
  | 'opencode';

/** One client: how its files are found, read and written. */
export interface ClientFormat {
  readonly id: ClientId;
  readonly title: string;
  readonly syntax: 'json' | 'toml';
  /** The places of the file, each from a root. The first is written by default. */
  readonly places: readonly (readonly [Root, ...string[]])[];
  /** The key that holds the servers. */
  readonly container: string;
  /** Key of an address on Streamable HTTP. Absent: the file holds programs only. */
  readonly address?: string;
  /** The `type` that is written for a program and for an address, where the client wants one. */
  readonly types?: { readonly stdio: string; readonly http: string };
  /** The transport of an address under `url` if nothing else says so. */
  readonly plainUrl: 'http' | 'sse';
  readonly interpolation: Interpolation;
  /** How a header with a token is written, so that the token is stored elsewhere. */
  readonly token?: 'input' | 'variable' | 'named';
  /** The file has all settings of the client, so other keys give no remark. */
  readonly settings?: true;
  /** The client starts programs without the PATH of a shell. */
  readonly bare?: true;
  /** Program and arguments are one list. */
  readonly oneList?: true;
  /** Further keys of a program's entry. */
  readonly extra?: Readonly<Record<string, string>>;
}

/** Sources: the reference pages of each client. */
export const CLIENTS: readonly ClientFormat[] = [
  {
    id: 'claude-code',
    title: 'Claude Code',
    syntax: 'json',
    container: 'mcpServers',
    address: 'url',
    types: { stdio: 'stdio', http: 'http' },
    plainUrl: 'http',
    interpolation: 'shell',
    token: 'variable',
    places: [
      ['project', '.mcp.json'],
      ['home', '.claude.json'],
    ],
  },
  {
    id: 'vscode',
    title: 'VS Code',
    syntax: 'json',
    container: 'servers',
    address: 'url',
    types: { stdio: 'stdio', http: 'http' },
    plainUrl: 'http',
    interpolation: 'vscode',
    token: 'input',
    places: [
      ['project', '.vscode', 'mcp.json'],
      ['settings', 'Code', 'User', 'mcp.json'],
    ],
  },
  {
    id: 'cursor',
    title: 'Cursor',
    syntax: 'json',
    container: 'mcpServers',
    address: 'url',
    plainUrl: 'http',
    interpolation: 'vscode',
    token: 'variable',
    places: [
      ['project', '.cursor', 'mcp.json'],
      ['home', '.cursor', 'mcp.json'],
    ],
  },
  {
    id: 'gemini',
    title: 'Gemini CLI',
    syntax: 'json',
    settings: true,
    container: 'mcpServers',
    address: 'httpUrl',
    plainUrl: 'sse',
    interpolation: 'dollar',
    token: 'variable',
    places: [
      ['project', '.gemini', 'settings.json'],
      ['home', '.gemini', 'settings.json'],
    ],
  },
  {
    id: 'claude-desktop',
    title: 'Claude Desktop',
    syntax: 'json',
    container: 'mcpServers',
    plainUrl: 'http',
    interpolation: 'none',
    bare: true,
    places: [['settings', 'Claude', 'claude_desktop_config.json']],
  },
  {
    id: 'windsurf',
    title: 'Windsurf',
    syntax: 'json',
    container: 'mcpServers',
    address: 'serverUrl',
    plainUrl: 'http',
    interpolation: 'vscode',
    token: 'variable',
    places: [
      ['home', '.codeium', 'windsurf', 'mcp_config.json'],
      ['home', '.codeium', 'mcp_config.json'],
    ],
  },
  {
    id: 'zed',
    title: 'Zed',
    syntax: 'json',
    settings: true,
    container: 'context_servers',
    plainUrl: 'http',
    interpolation: 'none',
    bare: true,
    extra: { source: 'custom' },
    places: [
      ['xdg', 'zed', 'settings.json'],
      ['project', '.zed', 'settings.json'],
    ],
  },
  {
    id: 'codex',
    title: 'Codex',
    syntax: 'toml',
    settings: true,
    container: 'mcp_servers',
    address: 'url',
    plainUrl: 'http',
    interpolation: 'none',
    token: 'named',
    places: [
      ['codex', 'config.toml'],
      ['project', '.codex', 'config.toml'],
    ],
  },
  {
    id: 'opencode',
    title: 'OpenCode',
    syntax: 'json',
    settings: true,
    container: 'mcp',
    address: 'url',
    types: { stdio: 'local', http: 'remote' },
    plainUrl: 'http',
    interpolation: 'braces',
    token: 'variable',
    oneList: true,
    places: [
      ['project', 'opencode.json'],
      ['xdg', 'opencode', 'opencode.json'],
    ],
  },
];

/** Keys that name a server map in some client's file. */
export const CONTAINERS: ReadonlySet<string> = new Set(CLIENTS.map(({ container }) => container));

/** Keys under which clients write an address, the most common first. */
export const ADDRESS_KEYS = ['httpUrl', 'serverUrl', 'url'] as const;

/** Every spelling of a transport. */
export const TRANSPORTS: ReadonlyMap<unknown, 'stdio' | 'http' | 'sse'> = new Map([
  ['stdio', 'stdio'],
  ['local', 'stdio'],
  ['http', 'http'],
  ['remote', 'http'],
  ['streamable-http', 'http'],
  ['streamableHttp', 'http'],
  ['streamable_http', 'http'],
  ['sse', 'sse'],
]);

/** Keys that would let a server act without asking. A file that others write cannot grant that here. */
export const TRUST_KEYS: ReadonlySet<string> = new Set([
  'alwaysAllow',
  'autoApprove',
  'autoAllow',
  'trust',
  'approved',
  'default_tools_approval_mode',
]);

/**
 * Returns the client that owns the place of a file; undefined for any other file, which is read in all clients' forms.
 */
export function formatOf(file: string): ClientFormat | undefined {
  const parts = file.split(/[/\\]/);
  const ends = ([root, ...place]: readonly string[]): boolean => {
    const wanted = root === 'codex' ? ['.codex', ...place] : place;
    return wanted.every((part, index) => part === parts[parts.length - wanted.length + index]);
  };
  return CLIENTS.find(({ places }) => places.some(ends));
}

/** Returns the client with this id. */
export function clientOf(id: string): ClientFormat | undefined {
  return CLIENTS.find((client) => client.id === id);
}

/** Returns the text with the client's variables written as in tollgate.yaml. Other text stays. */
export function asOurs(text: string, interpolation: Interpolation | undefined): string {
  if (interpolation === 'dollar') return text.replace(/\$([A-Za-z_]\w*)/g, '${$1}');
  if (interpolation === 'braces') return text.replace(/\{env:([A-Za-z_]\w*)\}/g, '${env:$1}');
  return text;
}

/** Returns a variable in the form that the client fills in; undefined if the client fills in nothing. */
export function asTheirs(variable: string, interpolation: Interpolation): string | undefined {
  const written: Readonly<Record<Interpolation, string | undefined>> = {
    none: undefined,
    shell: `\${${variable}}`,
    dollar: `\${${variable}}`,
    vscode: `\${env:${variable}}`,
    braces: `{env:${variable}}`,
  };
  return written[interpolation];
}
