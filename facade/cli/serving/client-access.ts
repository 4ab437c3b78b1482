/** Prints where `serve` listens, with which token, and how each client connects. */
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { OpenIssuerKeys } from '../../../adapters/port.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Principal } from '../../../policies/port.ts';
import { type ClientId, clientOf } from '../../clients/client-formats.ts';
import { ownEntry } from '../../clients/own-entry.ts';
import type { Config, ListenConfig } from '../../config/config.ts';
import { isSubject, type JwtConfig } from '../../config/settings/jwt-settings.ts';
import { ensureToken } from '../../serve/http/access-token.ts';
import { createJwtAuthentication, type JwtAuthentication } from '../../serve/http/jwt-authentication.ts';
import { type Authenticate, createAuthenticator } from '../../serve/http/token-authentication.ts';
import { commandLine } from '../print.ts';

/** Who may connect, and the access token with its file (absent with `auth: none`). */
export interface Access {
  readonly authenticate: ReturnType<typeof createAuthenticator>;
  /** Id of the principal that the generated token identifies. */
  readonly principal: string;
  readonly token?: string;
  readonly tokenFile?: string;
}

/**
 * Returns the authenticator of a configuration. The generated access token identifies the first principal without its
 * own token, or else the first principal. Throws IDENTITY if there is no principal, STATE_FAILED.
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

/** Who may connect, by the configuration in force at each request. */
export interface CurrentAccess {
  readonly authenticate: Authenticate;
  readonly issuer: () => JwtConfig | undefined;
  readonly isCurrent: (principal: Principal) => boolean;
}

/**
 * Returns an authenticator that uses the configuration in force at each request. A token that no principal has may be
 * one of the issuer in `listen.jwt`.
 */
export function createAccess(
  current: () => Config,
  listen: ListenConfig,
  openKeys: OpenIssuerKeys = NO_KEYS,
): CurrentAccess {
  let cached: { readonly config: Config; readonly access: Access } | undefined;
  let subjects: { readonly jwt: JwtConfig; readonly find: JwtAuthentication } | undefined;
  const subjectsNow = (): JwtAuthentication | undefined => {
    const { jwt } = current().listen;
    if (jwt === undefined) return undefined;
    // A reload that changes nothing here keeps the keys and the checked tokens.
    if (!isDeepStrictEqual(subjects?.jwt, jwt))
      subjects = { jwt, find: createJwtAuthentication({ jwt, keys: openKeys(jwt) }) };
    return subjects?.find;
  };
  return {
    authenticate: (token) => {
      const config = current();
      if (cached?.config !== config) cached = { config, access: openAccess(config, listen) };
      const known = cached.access.authenticate(token);
      return known !== undefined || token === undefined ? known : subjectsNow()?.identify(token);
    },
    issuer: () => current().listen.jwt,
    isCurrent: (principal) => !isSubject(principal) || subjectsNow()?.isCurrent(principal) === true,
  };
}

/** For callers that accept no tokens of an issuer. */
const NO_KEYS: OpenIssuerKeys = () => () => {
  throw new TollgateError('ISSUER_UNAVAILABLE');
};

/**
 * Returns the text that tells how the common clients connect. `config`: the absolute path of tollgate.yaml. `command`:
 * the arguments that start this program (Io.self). `as`: the principal over stdio.
 */
export function connectHelp({
  command,
  config,
  as,
  url,
  token,
}: {
  url?: string;
  token?: string;
  config: string;
  command: readonly string[];
  as?: string;
}): string {
  const words = [...command, 'run', '--config', config, ...(as === undefined ? [] : ['--as', as])];
  const lines = [
    'This command writes the entry of a client:',
    `  ${commandLine([...command, 'export', '--config', config, '--client', 'NAME'])}`,
    '',
    'To write it by hand:',
    'Claude Desktop, Cursor (claude_desktop_config.json, .cursor/mcp.json):',
    `  ${snippet('cursor', words)}`,
    'Claude Code:',
    `  claude mcp add tollgate -- ${commandLine(words)}`,
    'VS Code (.vscode/mcp.json):',
    `  ${snippet('vscode', words)}`,
  ];
  if (url !== undefined) {
    const header = token === undefined ? '' : ` --header "Authorization: Bearer ${token}"`;
    lines.push('Over HTTP, Claude Code:', `  claude mcp add --transport http tollgate ${url}${header}`);
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
