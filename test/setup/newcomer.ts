/** The home of someone with seven servers in three clients, before Tollgate. */
import { chownSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { MAIN } from '../process/child.ts';
import { type AnsweredQuestion, runAtTerminal, type TerminalEnd } from './terminal-process.ts';

/** Where each client keeps its servers, below the home. */
export const FILES = {
  cursor: '.cursor/mcp.json',
  'claude-desktop': '.config/Claude/claude_desktop_config.json',
  vscode: '.config/Code/User/mcp.json',
} as const;

/** The values that no file and no screen may show afterwards. */
export const KEYS = { tavily: 'tvly-dev-4kPq02LmVt77Zx81', bearer: 'sk-live-Zx81kPq02LmVt77' } as const;

/** A fake home with a project, a folder of notes and three clients. */
export class Newcomer {
  readonly home = realpathSync(mkdtempSync(path.join(tmpdir(), 'tgn-')));
  readonly project = path.join(this.home, 'shop');
  readonly notes = path.join(this.home, 'notes');
  /** No client gave it to a server. */
  readonly neighbour = path.join(this.home, 'notes-2025');
  readonly before: Readonly<Record<keyof typeof FILES, string>>;
  readonly env: Readonly<Record<string, string>>;

  constructor(url: string) {
    mkdirSync(this.project);
    mkdirSync(this.notes);
    mkdirSync(this.neighbour);
    writeFileSync(path.join(this.notes, 'todo.txt'), 'buy milk\n');
    writeFileSync(path.join(this.neighbour, 'diary.txt'), 'private\n');
    // As root, the sandbox needs a folder of another user.
    if (process.getuid?.() === 0) for (const folder of [this.project, this.notes]) chownSync(folder, 65_534, 65_534);
    const npx = (name: string, ...args: string[]) => ({ command: 'npx', args: ['-y', name, ...args] });
    const memory = {
      ...npx('@modelcontextprotocol/server-memory'),
      env: { MEMORY_FILE_PATH: path.join(this.notes, 'memory.json') },
    };
    const cursor = {
      mcpServers: {
        memory,
        files: npx('@modelcontextprotocol/server-filesystem', this.notes, path.join(this.home, '.cursor')),
        remote: { url, headers: { Authorization: `Bearer ${KEYS.bearer}` } },
      },
    };
    const desktop = {
      mcpServers: {
        memory,
        search: { ...npx('tavily-mcp'), env: { TAVILY_API_KEY: KEYS.tavily, DEFAULT_PARAMETERS: '{}' } },
        broken: { args: ['nothing'] },
      },
    };
    const vscode = `{
\t// mine
\t"servers": {
\t\t"everything": {"type": "stdio", "command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"]},
\t\t"thinking": {"type": "stdio", "command": "npx", "args": ["-y", "@modelcontextprotocol/server-sequential-thinking"]},
\t},
\t"inputs": []
}
`;
    this.before = {
      cursor: `${JSON.stringify(cursor, null, 2)}\n`,
      'claude-desktop': JSON.stringify(desktop),
      vscode: vscode.replaceAll('\n', '\r\n'),
    };
    for (const [client, text] of Object.entries(this.before)) {
      const file = this.file(client as keyof typeof FILES);
      mkdirSync(path.dirname(file), { recursive: true });
      writeFileSync(file, text);
    }
    const { PATH = '', npm_config_registry, npm_config_cache } = process.env;
    this.env = {
      PATH,
      HOME: this.home,
      npm_config_cache: npm_config_cache ?? path.join(process.env.HOME ?? this.home, '.npm'),
      ...(npm_config_registry !== undefined && { npm_config_registry }),
    };
  }

  file(client: keyof typeof FILES): string {
    return path.join(this.home, FILES[client]);
  }

  read(client: keyof typeof FILES): string {
    return readFileSync(this.file(client), 'utf8');
  }

  /** Runs `tollgate` at a terminal. */
  run(words: readonly string[], answers: readonly AnsweredQuestion[] = [], columns = 100): Promise<TerminalEnd> {
    const world = { cwd: this.project, env: this.env, columns };
    return runAtTerminal([process.execPath, MAIN, ...words], answers, world);
  }

  remove(): void {
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5 });
  }
}
