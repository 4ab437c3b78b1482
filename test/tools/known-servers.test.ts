/**
 * Tests the catalog of known servers: each file fits its schema and becomes a valid configuration. `npm run
 * verify:servers` installs them and lists their tools.
 */

import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv } from 'ajv';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { parseDomain } from '../../catalogs/readers/domains.ts';
import { knownNames, loadAllKnown, loadKnown } from '../../catalogs/servers/known-server.ts';
import { draftKnown } from '../../facade/cli/connect/connection-draft.ts';
import { serverFileText } from '../../facade/cli/connect/connection-steps.ts';
import { mergeProfiles } from '../../facade/config/profiles.ts';
import { nameFault } from '../../facade/config/servers/server-names.ts';
import { withProject } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { toVerify, withResult } from '../verify/servers.ts';

const FOLDER = path.join(import.meta.dirname, '..', '..', 'catalogs', 'servers');
const validate = new Ajv({
  strict: true,
  allowUnionTypes: true,
  strictRequired: false,
  formats: { regex: true },
}).compile(JSON.parse(readFileSync(path.join(FOLDER, 'schema.json'), 'utf8')) as object);
const all = loadAllKnown();
const programs = all.filter(({ package: pkg }) => pkg !== undefined);

describe('the catalog of known servers', () => {
  it(
    'has at least 60 servers: programs that were installed, nearly all with their tools, and remote servers' +
      verifies('PF-10', 'FH-20'),
    () => {
      expect(all.length).toBeGreaterThanOrEqual(60);
      expect(programs.length).toBeGreaterThanOrEqual(40);
      expect(programs.filter(({ verified }) => verified?.tools === undefined).length).toBeLessThanOrEqual(5);
      expect(all.length).toBeGreaterThan(programs.length);
      expect(knownNames()).toEqual(
        expect.arrayContaining([
          'atlassian',
          'desktop-commander',
          'fetch',
          'google-drive',
          'mongodb',
          'playwright',
          'postgres',
          'sentry',
          'slack',
          'stripe',
        ]),
      );
    },
  );

  it('has one file for each name, each with the schema next to it', () => {
    expect(
      readdirSync(FOLDER)
        .filter((file) => file.endsWith('.yaml'))
        .map((file) => file.slice(0, -5))
        .sort(),
    ).toEqual(knownNames());
    for (const name of knownNames())
      expect(readFileSync(path.join(FOLDER, `${name}.yaml`), 'utf8')).toMatch(
        /^# yaml-language-server: \$schema=\.\/schema\.json\n/,
      );
    expect(() => loadKnown('no-such')).toThrow('There is no known server of this name.');
    expect(() => loadKnown('../primitives/server-filesystem')).toThrow('There is no known server of this name.');
  });

  it.each(knownNames())('%s fits the schema', (name) => {
    expect([validate(parse(readFileSync(path.join(FOLDER, `${name}.yaml`), 'utf8'))), validate.errors]).toEqual([
      true,
      null,
    ]);
  });

  it.each(all.map((known) => [known.name, known] as const))(
    '%s: has names, domains, choices and credentials that agree' + verifies('PF-10'),
    (name, known) => {
      expect(known.name).toBe(name);
      expect(nameFault(name)).toBeUndefined();
      const { choices = [], credentials = [], domains = [], args = [], env = {} } = known;
      for (const domain of domains) expect(parseDomain(domain.replace(/<\w+>/, 'x'))).not.toHaveProperty('fault');
      const used = [...args, ...Object.values(env), ...domains].flatMap((text) =>
        [...text.matchAll(/<(\w+)>/g)].map(([, one]) => one),
      );
      expect(
        choices
          .map((choice) => choice.name)
          .filter((one) => !used.includes(one) && choices.find((choice) => choice.name === one)?.kind === 'text'),
      ).toEqual([]);
      expect(used.filter((one) => !choices.some((choice) => choice.name === one))).toEqual([]);
      for (const { form, example, header } of credentials) {
        if (form !== undefined) expect(example).toMatch(new RegExp(form));
        expect(header === undefined).toBe(known.package !== undefined);
      }
      for (const choice of choices) expect(choice.default ?? choice.example, choice.name).toBeDefined();
    },
  );

  it.each(programs.map((known) => [known.name, known] as const))(
    '%s: names only tools that it listed, each pattern for three or more of them' + verifies('FH-20'),
    (_name, { semantics = {}, tools = [], verified }) => {
      const listed = verified?.tools ?? [];
      const matching = (pattern: string): number => {
        const form = new RegExp(`^${pattern.replaceAll('.', '\\.').replaceAll('*', '.*')}$`);
        return listed.filter((tool) => form.test(tool)).length;
      };
      const few = [...Object.keys(semantics), ...tools].filter(
        (pattern) => matching(pattern) < (pattern.includes('*') ? 3 : 1),
      );
      expect(verified?.needs === 'network' || verified?.needs === 'node' ? [] : few).toEqual([]);
      expect(listed.length > 0).toBe(verified?.needs !== 'network' && verified?.needs !== 'node');
    },
  );

  inFull.each(all.map((known) => [known.name, known] as const))(
    '%s: becomes a configuration that loads without a remark, shows its tools and contains no secret' +
      verifies('PF-10', 'PF-13'),
    (name, known) => {
      withProject((project) => {
        mkdirSync(path.join(project.folder, 'work'));
        mkdirSync(path.join(project.folder, 'keys'));
        const choices = new Map(
          (known.choices ?? []).map(({ name: choice, kind, default: preset, example = '' }) => [
            choice,
            preset ?? (kind === 'folder' ? path.join(project.folder, 'keys') : example),
          ]),
        );
        const draft = draftKnown(known, {
          name,
          profile: 'default',
          choices,
          given: new Set((known.credentials ?? []).map(({ env, header }) => env ?? header ?? '')),
        });
        project.write(`servers/${name}.yaml`, serverFileText(draft));
        const config = project.config('version: 1\nworkspace: work\n');
        const server = config.servers.get(name);
        expect(config.warnings).toEqual([]);
        expect(server?.unusable).toBeUndefined();
        expect(server?.labels).toEqual(known.labels);
        expect(mergeProfiles(config, []).expose).toEqual([{ tool: `${name}.*`, pins: {} }]);
        // Node runs an existing file, and no package is fetched at the start.
        if (known.package !== undefined)
          expect([server?.command, server?.args[0]]).toEqual([
            'node',
            path.join(
              config.state,
              'packages',
              name,
              known.package.version,
              'node_modules',
              known.package.name,
              known.package.bin,
            ),
          ]);
        for (const [at, value] of [...Object.entries(server?.env ?? {}), ...Object.entries(server?.headers ?? {})])
          if ((known.credentials ?? []).some(({ env, header }) => at === env || at === header))
            expect(value).toMatch(/\$\{secret:[\w.-]+\}$/);
      });
    },
  );

  it(
    'is verified server by server: a result replaces the former one, and a new run skips what is done' +
      verifies('FH-21'),
    () => {
      const text =
        'name: notes\nverified:\n  date: 2026-01-01\n  installs: true\n  tools: [a,\n    b]\nlabels: [public]\n';
      const tools = ['send', '2-way'].map((name) => ({ name, inputSchema: {} }));
      const found = { name: 'notes', installs: true, needs: 'credentials', tools } as const;
      expect(withResult(text, found, '2026-02-02')).toBe(
        'name: notes\nlabels: [public]\nverified:\n  date: 2026-02-02\n  installs: true\n  needs: credentials\n' +
          '  tools: [send, "2-way"]\n',
      );
      for (const known of programs) expect(toVerify(all, [], known.verified?.date ?? '')).not.toContain(known);
      expect(toVerify(all, [], '2000-01-01')).toEqual(programs);
      expect(toVerify(all, ['git', 'linear'], '2000-01-01').map(({ name }) => name)).toEqual(['git']);
    },
  );

  it('tells connect what a server needs to list its tools, and which Node.js it needs' + verifies('FH-25'), () => {
    const wish = { name: 'one', profile: 'default', choices: new Map(), given: new Set<string>() };
    const draft = (needs: 'credentials' | 'network' | 'node' | undefined, node = '1.0.0') =>
      draftKnown(
        {
          ...loadKnown('notion'),
          package: { name: 'a', version: '1.0.0', integrity: '', bin: 'a.js', node },
          verified: { date: '2026-01-01', installs: true, ...(needs !== undefined && { needs }) },
        },
        wish,
      );
    expect([draft(undefined).openness, draft('node').openness]).toEqual([undefined, undefined]);
    expect(draft('credentials').openness).toEqual({ withSecrets: true });
    expect(draft('network').openness).toEqual({ withSecrets: true, withNetwork: true });
    expect(draft(undefined).notes).toEqual([]);
    expect(draft(undefined, '9999.1.0').notes).toEqual([
      `It needs Node.js 9999.1.0 or later, and this is ${process.versions.node}.`,
    ]);
  });
});
