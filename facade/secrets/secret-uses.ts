/** Finds which servers use which secrets, from the references in the configuration. It reads no values. */
import { signInSecrets } from '../../adapters/port.ts';
import type { Config, SecretSource, ServerConfig } from '../config/config.ts';

const REFERENCE = /\$\{secret:([\w.-]+)\}/g;

/** Returns the names of servers, and `audit.export`, by the secret that they use, sorted by secret. */
export function secretUses({
  servers,
  audit,
}: Pick<Config, 'servers' | 'audit'>): ReadonlyMap<string, readonly string[]> {
  const uses = new Map<string, string[]>();
  const note = (secret: string, name: string): void => void uses.set(secret, [...(uses.get(secret) ?? []), name]);
  for (const server of servers.values()) for (const secret of secretsOf(server)) note(secret, server.name);
  const headers = Object.values(audit.export?.headers ?? {}).join('\n');
  for (const secret of secretsIn(headers)) note(secret, 'audit.export');
  return new Map([...uses].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Returns the names of the secrets that one server uses. */
function secretsOf({
  env,
  environments = {},
  headers,
  oauth,
}: Pick<ServerConfig, 'env' | 'environments' | 'headers' | 'oauth'>): ReadonlySet<string> {
  const values = [env, ...Object.values(environments), headers, signInSecrets(oauth)];
  const texts = values.flatMap((one) => Object.values(one));
  return new Set(texts.flatMap((text) => [...secretsIn(text)]));
}

/** Returns the names of the secrets that a text refers to, alone or in other text. */
export function secretsIn(text: string): ReadonlySet<string> {
  return new Set([...text.matchAll(REFERENCE)].map(([, secret = '']) => secret));
}

/**
 * Returns a server with the sources of its secrets other than the vault. A program among them would run with its start,
 * so the approval covers it.
 */
export function withSources(server: ServerConfig, sources: ReadonlyMap<string, SecretSource>): ServerConfig {
  const own = [...secretsOf(server)]
    .sort()
    .flatMap((name) => (sources.has(name) ? [[name, sources.get(name)] as const] : []));
  return own.length === 0
    ? server
    : { ...server, secretSources: Object.fromEntries(own) as Record<string, SecretSource> };
}
