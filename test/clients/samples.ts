/** Sample files of each client, as users have them, with values that must never be shown. */
import type { ClientId } from '../../facade/clients/client-formats.ts';

/** Values of keys in the samples, in every spelling; none may reach a screen. */
export const VALUES = [
  'ghp_mN8xQ2rT5vW7yZ1aB3cD4eF6gH9jK0lM2nO4',
  'sk-proj-a81b72c63d54e45f36',
  'pg-pass-7731',
  'lin_oauth_55aa66bb77cc',
  'dbpassw0rd-9',
] as const;
const [GITHUB, OPENAI, PG, LINEAR, DB] = VALUES;

/** A sample: its path below the home (`project/` is the project), and its text. */
export interface Sample {
  readonly file: string;
  readonly text: string;
  /** Slugs of its servers that can be used. */
  readonly servers: readonly string[];
}

/** By client. */
export const SAMPLES: Readonly<Record<ClientId, Sample>> = {
  'claude-desktop': {
    file: '.config/Claude/claude_desktop_config.json',
    servers: ['filesystem', 'brave-search'],
    text: `{
  "globalShortcut": "",
  "mcpServers": {
    "filesystem": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "/Users/me/Desktop"] },
    "Brave Search": { "command": "npx", "args": ["-y", "@brave/brave-search-mcp-server@2.0.0"], "env": { "BRAVE_API_KEY": "${OPENAI}" } }
  }
}
`,
  },
  'claude-code': {
    file: 'project/.mcp.json',
    servers: ['github', 'sentry'],
    text: `{
  "mcpServers": {
    "github": { "type": "http", "url": "https://api.githubcopilot.com/mcp/", "headers": { "Authorization": "Bearer ${GITHUB}" } },
    "sentry": { "command": "\${RUNNER:-npx}", "args": ["-y", "@sentry/mcp-server@0.20.0"], "env": { "SENTRY_HOST": "\${SENTRY_HOST:-sentry.io}" } }
  }
}
`,
  },
  vscode: {
    file: 'project/.vscode/mcp.json',
    servers: ['postgres', 'playwright'],
    text: `{
\t// asked for once
\t"inputs": [{ "type": "promptString", "id": "pg-url", "description": "Postgres URL", "password": true, "default": "none" }],
\t"servers": {
\t\t"postgres": {
\t\t\t"type": "stdio",
\t\t\t"command": "npx",
\t\t\t"args": ["-y", "pg-mcp@1.4.2"],
\t\t\t"env": { "PG_URL": "\${input:pg-url}", "PG_PASSWORD": "${PG}" }, /* rotate */
\t\t},
\t\t"playwright": { "type": "stdio", "command": "npx", "args": ["-y", "@playwright/mcp@0.0.40"], "sandboxEnabled": true, "sandbox": { "filesystem": { "allowWrite": ["\${workspaceFolder}/shots"], "denyRead": [".env"], "denyWrite": ["shots/kept"] }, "network": { "allowedDomains": ["example.org"], "deniedDomains": ["private.example.org"], "allowLocalBinding": true }, "level": "high" }, "dev": { "watch": "*.ts" } },
\t},
}
`,
  },
  cursor: {
    file: '.cursor/mcp.json',
    servers: ['linear'],
    text: `{ "mcpServers": { "linear": { "url": "https://mcp.linear.app/mcp", "headers": { "Authorization": "Bearer ${LINEAR}", "X-Team": "\${env:TEAM_NAME}" } } } }`,
  },
  codex: {
    file: '.codex/config.toml',
    servers: ['context7', 'figma'],
    text: `model = "gpt-5-codex"
approval_policy = "on-request" # mine

[mcp_servers.context7]
command = "npx"
args = ["-y", "@upstash/context7-mcp@1.0.31"]
startup_timeout_sec = 20

[mcp_servers.context7.env]
CONTEXT7_API_KEY = "${OPENAI}"

[mcp_servers.figma]
url = "https://mcp.figma.com/mcp"
bearer_token_env_var = "FIGMA_TOKEN"
http_headers = { "X-Figma-Region" = "us-east-1" }

[projects."/work"]
trust_level = "trusted"
`,
  },
  windsurf: {
    file: '.codeium/windsurf/mcp_config.json',
    servers: ['remote', 'db'],
    text: `{
  "mcpServers": {
    "remote": { "serverUrl": "https://example.org/mcp" },
    "db": { "command": "uvx", "args": ["db-mcp==1.2.3"],
      "env": { "DATABASE_URL": "postgres://me:${DB}@localhost/app" }, "disabledTools": ["drop"] }
  }
}
`.replaceAll('\n', '\r\n'),
  },
  gemini: {
    file: '.gemini/settings.json',
    servers: ['http', 'events', 'local'],
    text: `{ "theme": "GitHub", "mcp": { "allowed": ["http"] }, "mcpServers": {
  "http": { "httpUrl": "https://example.org/mcp", "trust": true },
  "events": { "url": "https://example.org/sse" },
  "local": { "command": "python3", "args": ["server.py"], "env": { "TOKEN": "$GEMINI_TOKEN" }, "timeout": 5000 } } }`,
  },
  zed: {
    file: '.config/zed/settings.json',
    servers: ['postgres-zed', 'older'],
    text: `// Zed settings
{
  "theme": "One Dark",
  "context_servers": {
    "postgres-zed": { "source": "custom", "command": "pg-zed", "args": ["--stdio"],
      "env": { "DATABASE_URL": "postgres://me:${DB}@localhost/zed" } },
    "older": { "command": { "path": "older-mcp", "args": ["-v"], "env": { "API_TOKEN": "${LINEAR}" } } },
    "extension": { "source": "extension", "settings": {} },
  },
}
`,
  },
  opencode: {
    file: 'project/opencode.json',
    servers: ['oc'],
    text: `{ "$schema": "https://opencode.ai/config.json", "mcp": { "oc": { "type": "local", "command": ["npx", "-y", "oc-mcp@3.0.0"], "environment": { "OC_KEY": "{env:OC_KEY}" }, "enabled": true }, "off": { "type": "remote", "url": "https://x.example/mcp", "enabled": false } } }`,
  },
};

/** The environment for the variables in the samples. */
export const ENVIRONMENT = {
  TEAM_NAME: 'team-of-mine',
  FIGMA_TOKEN: 'figd-in-environment',
  GEMINI_TOKEN: 'gem-in-environment',
  OC_KEY: 'oc-in-environment',
  TOLLGATE_INPUT_PG_URL: 'pg-in-environment',
} as const;
