/**
 * Tests that each member of a loaded configuration is used by code outside of facade/config. test/config/schema.test.ts
 * tests that each setting changes the loaded configuration.
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
  'environments',
  'headers',
  'filled',
  'pins',
  'verbs',
  'lifetimes',
  'starts',
  'primitives',
  'programs',
  'prompts',
  'values',
  'require',
  'tenants',
]);
/** Members of the loader itself, and descriptions. For rules see test/rules/used-settings.test.ts. */
const APART = new Set(['rules', 'value']);

/** Returns code without comments and strings, so that only names count. */
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

/** Returns whether a member is read: after a dot, by destructuring, by its name in brackets, or by the Rego library. */
function isRead(member: string): boolean {
  const taken = new RegExp(`[{,]\\s*${member}\\s*(?:[,:=][^;{}]*)?\\}\\s*(?:[=:),]|of )`);
  return (
    new RegExp(`\\.${member}\\b(?!\\s*=[^=])`).test(code) ||
    taken.test(code) ||
    code.includes(`['${member}']`) ||
    new RegExp(`\\.${member}\\b`).test(rego)
  );
}

/** Returns every member of a value by name, with one of its paths. */
function membersOf(value: unknown, at: string, found: Map<string, string>): Map<string, string> {
  if (typeof value !== 'object' || value === null) return found;
  for (const [key, inner] of value instanceof Map ? value.entries() : Object.entries(value)) {
    const name = String(key);
    // Under environments, people choose the keys of two levels: profiles and variables.
    const parent = at.endsWith('.environments.*') ? 'environments' : (at.split('.').at(-1) ?? '');
    const isName = Array.isArray(value) || value instanceof Map || NAMED.has(parent);
    if (!isName && !found.has(name)) found.set(name, `${at}.${name}`);
    if (isName || !APART.has(name)) membersOf(inner, isName ? `${at}.*` : `${at}.${name}`, found);
  }
  return found;
}

describe('every setting of tollgate.yaml' + verifies('TR-79'), () => {
  it('becomes a member that code outside of the loader reads', () => {
    withProject((project) => {
      writeFull(project);
      const config = project.config(FULL, FULL_ENV);
      const plain = {
        ...config,
        servers: Object.fromEntries(config.servers),
        secretSources: Object.fromEntries(config.secretSources),
        prompts: Object.fromEntries(config.prompts),
        profiles: Object.fromEntries(config.profiles),
      };
      const members = membersOf(plain, 'config', new Map());
      expect(members.size).toBeGreaterThan(120);
      expect([...members].filter(([name]) => !isRead(name)).map(([, at]) => at)).toEqual([]);
    });
  });

  it('would be reported if nothing read it', () => {
    expect([isRead('noSuchSetting'), isRead('hardTimeoutMs'), isRead('reconnectBackoffMs')]).toEqual([
      false,
      true,
      true,
    ]);
  });
});
