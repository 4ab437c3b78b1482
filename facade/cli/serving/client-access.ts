/** Prints where `serve` listens, with which token, and how each client connects. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type ClientId, clientOf } from '../../clients/client-formats.ts';
import { ownEntry } from '../../clients/own-entry.ts';
import type { Config, ListenConfig } from '../../config/config.ts';
import { ensureToken } from '../../serve/http/access-token.ts';
import { type Authenticate, createAuthenticator } from '../../serve/http/token-authentication.ts';
import { commandLine } from '../print.ts';

/** Who may connect, and the file that holds the access token (absent with `auth: none`). */
export interface Access {
  readonly authenticate: Authenticate;
  /** Id of the principal that the generated token belongs to. */
  readonly principal: string;
  readonly token?: string;
  readonly tokenFile?: string;
}

/**
 * Returns the authenticator of a configuration. The generated access token belongs to the first principal without its
 * own token, or else to the first principal. Throws IDENTITY if there is none, STATE_FAILED.
 */
export function openAccess(config: Config, listen: ListenConfig): Access {
  const fallback = config.principals.find((principal) => principal.tokenHash === undefined) ?? config.principals[0];
  if (fallback === undefined)
    throw new TollgateError('IDENTITY', {
      detail: 'tollgate.yaml lists no principal.',
      next: 'Add one under principals.',
    });
  const sources = { auth: listen.auth, principals: config.principals, fallback };
  if (listen.auth === 'none') return { authenticate: createAuthenticator(sources), principal: fallback.id };
  const token = ensureToken(config.state);
  return {
    authenticate: createAuthenticator({ ...sources, accessToken: token }),
    principal: fallback.id,
    token,
    tokenFile: path.join(config.state, 'token'),
  };
}

/**
 * Returns the authenticator of `openAccess`, by the principals of the configuration that is in force at each request.
 */
export function createAccess(current: () => Config, listen: ListenConfig): Authenticate {
  let known: { readonly config: Config; readonly access: Access } | undefined;
  return (token) => {
    const config = current();
    if (known?.config !== config) known = { config, access: openAccess(config, listen) };
    return known.access.authenticate(token);
  };
}

/**
 * Returns how the common clients connect. `config`: the absolute path of tollgate.yaml; `command`: what starts this
 * program (Io.self); `as`: the principal over stdio.
 */
export function connectHelp(at: {
  url?: string;
  token?: string;
  config: string;
  command: readonly string[];
  as?: string;
}): string {
  const words = [...at.command, 'run', '--config', at.config, ...(at.as === undefined ? [] : ['--as', at.as])];
  const lines = [
    `This command writes it for you: ${commandLine([...at.command, 'export', '--config', at.config, '--client', 'NAME'])}. By hand:`,
    'Claude Desktop, Cursor (claude_desktop_config.json, .cursor/mcp.json):',
    `  ${snippet('cursor', words)}`,
    'Claude Code:',
    `  claude mcp add tollgate -- ${commandLine(words)}`,
    'VS Code (.vscode/mcp.json):',
    `  ${snippet('vscode', words)}`,
  ];
  if (at.url !== undefined) {
    const header = at.token === undefined ? '' : ` --header "Authorization: Bearer ${at.token}"`;
    lines.push('Over HTTP, Claude Code:', `  claude mcp add --transport http tollgate ${at.url}${header}`);
  }
  return lines.join('\n');
}

function snippet(id: ClientId, words: readonly string[]): string {
  const client = clientOf(id);
  const { add } = client === undefined ? {} : ownEntry(client, { words });
  return client === undefined || add === undefined
    ? ''
    : JSON.stringify({ [client.container]: { [add.name]: add.value } });
}
