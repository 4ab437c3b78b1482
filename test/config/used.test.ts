/**
 * Walks every setting of tollgate.yaml and proves that it is used outside of the loader. test/config/schema.test.ts shows that each key
 * changes the loaded configuration; here each member of that configuration is read by code that is no part of facade/config.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { FULL, FULL_ENV, writeFull } from './full.ts';
import { withProject } from './project.ts';

const root = path.join(import.meta.dirname, '..', '..');

/** Maps whose keys people choose. */
const NAMED = new Set([
  'servers',
  'profiles',
  'secretSources',
  'env',
  'headers',
  'filled',
  'pins',
  'verbs',
  'lifetimes',
  'starts',
  'primitives',
  'programs',
]);
/** Of the loader itself, and texts that only describe: rules have a walk of their own in test/rules/used-settings.test.ts. */
const APART = new Set(['rules', 'value']);

/** Code without comments and texts, so that a name counts only where it is a name. */
const code = ['facade', 'policies', 'adapters', 'catalogs']
  .flatMap((folder) =>
    readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' }).map((name) => `${folder}/${name}`),
  )
  .filter((name) => name.endsWith('.ts') && !name.startsWith('facade/config/'))
  .map((name) =>
    readFileSync(path.join(root, name), 'utf8')
      .replace(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, '')
      .replace(/^(?:export )?interface [\s\S]*?^\}/gm, ''),
  )
  .join('\n');
const rego = readdirSync(path.join(root, 'policies', 'lib'))
  .filter((name) => name.endsWith('.rego') && !name.endsWith('_test.rego'))
  .map((name) => readFileSync(path.join(root, 'policies', 'lib', name), 'utf8'))
  .join('\n');

/** True if the member is read: after a dot, taken apart, by its name in brackets, or by the library. */
function isRead(member: string): boolean {
  const taken = new RegExp(`[{,]\\s*${member}\\s*(?:[,:=][^;{}]*)?\\}\\s*(?:[=:),]|of )`);
  return (
    new RegExp(`\\.${member}\\b(?!\\s*=[^=])`).test(code) ||
    taken.test(code) ||
    code.includes(`['${member}']`) ||
    new RegExp(`\\.${member}\\b`).test(rego)
  );
}

/** Every member of a value, by its name, with one path that leads to it. */
function membersOf(value: unknown, at: string, found: Map<string, string>): Map<string, string> {
  if (typeof value !== 'object' || value === null) return found;
  for (const [key, inner] of value instanceof Map ? value.entries() : Object.entries(value)) {
    const name = String(key);
    const isName = Array.isArray(value) || value instanceof Map || NAMED.has(at.split('.').at(-1) ?? '');
    if (!isName && !found.has(name)) found.set(name, `${at}.${name}`);
    if (isName || !APART.has(name)) membersOf(inner, isName ? `${at}.*` : `${at}.${name}`, found);
  }
  return found;
}

describe('every setting of tollgate.yaml' + verifies('TR-79'), () => {
  it('becomes a member of the configuration that code outside of the loader reads', () => {
    withProject((project) => {
      writeFull(project);
      const config = project.config(FULL, FULL_ENV);
      const plain = {
        ...config,
        servers: Object.fromEntries(config.servers),
        secretSources: Object.fromEntries(config.secretSources),
        profiles: Object.fromEntries(config.profiles),
      };
      const members = membersOf(plain, 'config', new Map());
      expect(members.size).toBeGreaterThan(120);
      expect([...members].filter(([name]) => !isRead(name)).map(([, at]) => at)).toEqual([]);
    });
  });

  it('would be missed if nothing read it', () => {
    expect([isRead('noSuchSetting'), isRead('hardTimeoutMs'), isRead('reconnectBackoffMs')]).toEqual([
      false,
      true,
      true,
    ]);
  });
});
