/** Tests that the schema and the loader agree: every key is read, and every setting and default is in both. */

import { readFileSync } from 'node:fs';
import { Ajv } from 'ajv';
import { describe, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import type { Config } from '../../facade/config/config.ts';
import { SCHEMA_FILE } from '../../facade/config/config-schema.ts';
import { createOwnPrompts } from '../../facade/internal-servers/prompts-server.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { FULL, FULL_ENV, writeFull } from './full.ts';
import { withProject } from './project.ts';

interface Schema {
  readonly [key: string]: unknown;
  readonly $ref?: string;
  readonly title?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly examples?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly additionalProperties?: Schema | boolean;
}

const root = JSON.parse(readFileSync(SCHEMA_FILE, 'utf8')) as Schema & {
  readonly definitions: Readonly<Record<string, Schema>>;
};

function resolve(schema: Schema): Schema {
  return schema.$ref === undefined ? schema : (root.definitions[schema.$ref.replace('#/definitions/', '')] as Schema);
}

/** Returns every key of the schema as a path; `*` is an entry of a map or list. */
function keysOf(schema: Schema, at: readonly string[] = []): { readonly path: string; readonly schema: Schema }[] {
  const node = resolve(schema);
  const free = typeof node.additionalProperties === 'object' ? node.additionalProperties : node.items;
  const below = free === undefined ? [] : keysOf(free, [...at, '*']);
  return [
    ...Object.entries(node.properties ?? {}).flatMap(([key, inner]) => [
      { path: [...at, key].join('.'), schema: resolve(inner) },
      ...keysOf(inner, [...at, key]),
    ]),
    ...below,
  ];
}

const keys = keysOf(root);

/** Returns a configuration as plain JSON, with objects instead of maps. */
function plain(config: Config): string {
  return JSON.stringify({
    ...config,
    ruleDocument: undefined,
    mentions: undefined,
    servers: Object.fromEntries(config.servers),
    secretSources: Object.fromEntries(config.secretSources),
    profiles: Object.fromEntries(config.profiles),
    prompts: Object.fromEntries(config.prompts),
    tenants: Object.fromEntries(config.tenants),
    code: { ...config.code, snippets: Object.fromEntries(config.code.snippets) },
  });
}

describe('the published schema', () => {
  it('is draft-07 with a stable id, and strict', () => {
    expect(root.$schema).toBe('http://json-schema.org/draft-07/schema#');
    expect(root.$id).toBe('https://tollgate.invalid/schemas/tollgate.json');
    expect(() => new Ajv({ strict: true, allowUnionTypes: true }).compile(root)).not.toThrow();
  });

  it('has a title, a description and a valid example for every key', () => {
    const ajv = new Ajv({ strict: true, allowUnionTypes: true }).addSchema(root, 'root');
    for (const { path, schema } of keys) {
      expect(schema.title, path).toBeTruthy();
      expect(schema.description, path).toMatch(/\.$/);
      expect(schema.examples?.length ?? 0, path).toBeGreaterThan(0);
    }
    for (const { path, schema } of partOf(keys, 50)) {
      const check = ajv.compile({ ...schema, definitions: root.definitions });
      for (const example of schema.examples ?? [])
        expect(check(example), `${path}: ${JSON.stringify(example)} ${JSON.stringify(check.errors)}`).toBe(true);
    }
  });

  // The other value of bash.isolation allows no other key, so it has its own test below.
  inFull(
    'has only keys that the loader reads: without one, or with another value, the result differs',
    () => {
      withProject((project) => {
        writeFull(project);
        const whole = plain(project.config(FULL, FULL_ENV));
        const full = parse(FULL) as unknown;
        const used = keys
          .filter(({ path }) => !['version', 'bash.isolation'].includes(path))
          .map(({ path }) => ({ path, places: placesOf(full, path.split('.')) }));
        expect(used.filter(({ places }) => places.length === 0)).toEqual([]);
        const unread = partOf(used, 12).filter(({ places }) =>
          places.every((at) => {
            const { config } = project.load(stringify(without(full, at)), FULL_ENV);
            return config !== undefined && plain(config) === whole;
          }),
        );
        expect(unread.map(({ path }) => path)).toEqual([]);
      });
    },
    180_000,
  );

  it('has every setting of the loaded configuration' + verifies('HE-02'), () => {
    withProject((project) => {
      writeFull(project);
      const config = JSON.parse(plain(project.config(FULL, FULL_ENV))) as Config;
      // Values that the loader derives, or that have another name in the schema.
      const derived = new Set([
        'file',
        'folder',
        'ruleDocument',
        'mentions',
        'controlFiles',
        'reads',
        'at',
        'acceptedFolder',
        'secrets',
        'warnings',
        'name',
        'source',
        'tokenHash',
        'kind',
        'environments',
        'pattern',
        'semantics',
        'unusable',
        'filled',
        'primitives',
        // Of a snippet: its name, and the schema of its arguments.
        'greet',
        'type',
        'expose',
        'keepMs',
        'ageMs',
        'withinMs',
        'pollMs',
        // Of the store of the state.
        'store',
        'url',
        'secretSources',
        'from',
        'variable',
        'service',
        'account',
      ]);
      const known = new Set(keys.map(({ path }) => path.split('.').at(-1)));
      const unknown = new Set<string>();
      const visit = (value: unknown, free: boolean): void => {
        if (Array.isArray(value)) value.forEach((item) => visit(item, false));
        else if (typeof value === 'object' && value !== null) {
          for (const [key, inner] of Object.entries(value)) {
            if (!free && !known.has(key) && !derived.has(key)) unknown.add(key);
            visit(
              inner,
              [
                'servers',
                'profiles',
                'secretSources',
                'env',
                'environments',
                'dev',
                'headers',
                'filled',
                'pins',
                'verbs',
                'values',
                'rules',
                'lifetimes',
                'starts',
                'prompts',
                'require',
                'tenants',
              ].includes(key),
            );
          }
        }
      };
      visit({ ...config, rules: [], mentions: [] }, false);
      expect([...unknown]).toEqual([]);
    });
  });

  it('has the defaults that the loader fills in', () => {
    withProject((project) => {
      const config = project.config(
        'servers: {plain: {command: x}}\npolicies: [{path: p.yaml}]\nprincipals: [{id: a}]'.replace(
          'p.yaml',
          project.write('p.yaml', 'rules: []'),
        ),
      );
      const [server, policy, principal] = [config.servers.get('plain'), config.policies[0], config.principals[0]];
      const [bundle] = project.config('policies: [{url: "https://policies.example/b"}]').policies;
      const template = { template: 'Hello.', arguments: [{ name: 'a' }] };
      const [prompt] = createOwnPrompts(() => ({ prompts: new Map([['prompts.hello', template]]) })).list();
      const filled: Readonly<Record<string, unknown>> = {
        ...prefixed('caps', config.caps),
        ...prefixed('listen', config.listen),
        ...prefixed('limits', config.limits),
        'audit.rotateBytes': config.audit.rotateBytes,
        'audit.facts': config.audit.facts,
        'audit.signing.every': config.audit.signing.every,
        'audit.signing.within': `${config.audit.signing.withinMs / 1000}s`,
        ...prefixed('audit.export', project.config('audit: {export: {to: ../a.jsonl}}').audit.export),
        ...prefixed('servers.*', server),
        ...prefixed('policies.*', policy),
        ...prefixed('principals.*', principal),
        'policies.*.poll': `${(bundle?.server?.pollMs ?? 0) / 1000}s`,
        'approvals.waitMs': config.approvals.waitMs,
        'approvals.expireMs': config.approvals.expireMs,
        'audit.recordings.keep': `${config.audit.recordings.keepMs / 86_400_000}d`,
        'audit.recordings.maxBytes': config.audit.recordings.maxBytes,
        'runs.keep': `${config.runs.keepMs / 86_400_000}d`,
        ...prefixed('code', config.code),
        'notices.desktop': config.notices.desktop,
        'knowledge.requests': config.knowledge.requests,
        'knowledge.bytes': config.knowledge.bytes,
        'knowledge.candidates': config.knowledge.candidates,
        'prompts.*.arguments.*.required': prompt?.arguments?.[0]?.required,
        version: 1,
        workspace: '.',
        schemaProfile: config.schemaProfile,
        'expose.primitives': config.profiles.get('default')?.primitives.read?.[0]?.server,
        'profiles.*.expose.primitives': 'workspace',
        'profiles.*.plan': config.profiles.get('default')?.plan,
        'profiles.*.grants': config.profiles.get('default')?.grants,
        'profiles.*.approvals': config.profiles.get('default')?.approvals,
        'profiles.*.host': config.profiles.get('default')?.host,
      };
      const named = keys.filter(({ schema }) => schema.default !== undefined);
      expect(named.length).toBeGreaterThan(25);
      for (const { path, schema } of named) expect(filled[path], path).toEqual(schema.default);
      // The loader fills in no number that the schema does not have.
      const numbers = Object.entries(filled)
        .filter(([, value]) => typeof value === 'number')
        .map(([path]) => path);
      expect(numbers.filter((path) => keys.find((key) => key.path === path)?.schema.default === undefined)).toEqual([]);
    });
  });
});

function prefixed(prefix: string, values: object | undefined): Record<string, unknown> {
  return Object.fromEntries(Object.entries(values ?? {}).map(([key, value]) => [`${prefix}.${key}`, value]));
}

type At = readonly (string | number)[];

function placesOf(value: unknown, pattern: readonly string[], at: At = []): At[] {
  const [first, ...rest] = pattern;
  if (first === undefined) return [at];
  if (typeof value !== 'object' || value === null) return [];
  const found = first === '*' ? Object.entries(value) : Object.entries(value).filter(([key]) => key === first);
  return found.flatMap(([key, inner]) => placesOf(inner, rest, [...at, Array.isArray(value) ? Number(key) : key]));
}

function without(root: unknown, at: At): unknown {
  const copy = structuredClone(root);
  const parent = at.slice(0, -1).reduce<unknown>((node, key) => (node as Record<string, unknown>)[key], copy);
  Reflect.deleteProperty(parent as object, at.at(-1) as string);
  return copy;
}
