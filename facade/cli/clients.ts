/** Owns where other clients keep their server files; refuses formats that Tollgate cannot include. */
import path from 'node:path';

/** A place where a client keeps its servers. */
export interface ClientPlace {
  readonly client: string;
  readonly file: string;
  /** Set when the file's format cannot be included: why. */
  readonly unread?: string;
}

/** Where to look. */
export interface ClientRoots {
  readonly cwd: string;
  readonly home: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly platform: NodeJS.Platform;
}

/** Every known place, those of the project first. They need not exist. */
export function clientPlaces({ cwd, home, env, platform }: ClientRoots): readonly ClientPlace[] {
  const settings = settingsFolder({ home, env, platform });
  const place = (client: string, root: string, ...parts: readonly string[]): ClientPlace => ({ client, file: path.join(root, ...parts) });
  return [
    place('Claude Code', cwd, '.mcp.json'),
    place('VS Code', cwd, '.vscode', 'mcp.json'),
    place('Cursor', cwd, '.cursor', 'mcp.json'),
    place('Gemini CLI', cwd, '.gemini', 'settings.json'),
    place('Claude Desktop', settings, 'Claude', 'claude_desktop_config.json'),
    place('Claude Code', home, '.claude.json'),
    place('VS Code', settings, 'Code', 'User', 'mcp.json'),
    place('Cursor', home, '.cursor', 'mcp.json'),
    place('Windsurf', home, '.codeium', 'windsurf', 'mcp_config.json'),
    place('Gemini CLI', home, '.gemini', 'settings.json'),
    { ...place('Codex', home, '.codex', 'config.toml'), unread: 'its format (TOML) cannot be included; copy its servers by hand' },
  ];
}

/** The folder of the applications' settings of this platform. */
function settingsFolder({ home, env, platform }: Omit<ClientRoots, 'cwd'>): string {
  if (platform === 'darwin') return path.join(home, 'Library', 'Application Support');
  if (platform === 'win32') return env['APPDATA'] ?? path.join(home, 'AppData', 'Roaming');
  const wanted = env['XDG_CONFIG_HOME'] ?? '';
  return path.isAbsolute(wanted) ? wanted : path.join(home, '.config');
}
