/** Owns which servers use which secrets, by the references of the configuration; refuses to know any value. */
import type { Config } from '../config/config.ts';

const REFERENCE = /\$\{secret:([\w.-]+)\}/g;

/** Names of servers by the secret that they use; secrets in order of their names. */
export function secretUses(config: Pick<Config, 'servers'>): ReadonlyMap<string, readonly string[]> {
  const uses = new Map<string, string[]>();
  for (const { name, env, headers, oauth } of config.servers.values()) {
    const texts = [...Object.values(env), ...Object.values(headers), oauth?.clientSecret ?? ''];
    const secrets = new Set(texts.flatMap((text) => [...text.matchAll(REFERENCE)].map(([, secret = '']) => secret)));
    for (const secret of secrets) uses.set(secret, [...(uses.get(secret) ?? []), name]);
  }
  return new Map([...uses].sort(([a], [b]) => (a < b ? -1 : 1)));
}
