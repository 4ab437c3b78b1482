/**
 * Tests what an approval is bound to: every part of a start changes its hash, the order of keys does not, and files
 * count by their content.
 */
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { inspectStart } from '../../adapters/stdio/start-inspection.ts';
import { canonicalJson } from '../../catalogs/tools/definition-pin.ts';
import { createDigest } from '../../facade/audit/key-files.ts';
import {
  type StartFacts,
  type StartSettings,
  startDifferences,
  startFacts,
  startHash,
} from '../../facade/consent/servers/start-facts.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-hash-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const digest = createDigest(Buffer.alloc(32, 7));
const factsOf = (settings: Partial<StartSettings>): Promise<StartFacts> =>
  startFacts(
    { name: 'one', transport: 'stdio', command: 'node', args: [], env: {}, headers: {}, ...settings },
    { folder, inspect: inspectStart, digest },
  );
const hashOf = async (settings: Partial<StartSettings>): Promise<string> => startHash(await factsOf(settings));
const put = (name: string, text: string, mode = 0o644): string => {
  const file = path.join(folder, name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text, { mode });
  chmodSync(file, mode);
  return file;
};

const word = fc.string({ minLength: 1, maxLength: 8 });
const sandbox = fc.record({
  filesystem: fc.record({
    allowRead: fc.array(word, { maxLength: 2 }),
    allowWrite: fc.array(word, { maxLength: 2 }),
    denyRead: fc.array(word, { maxLength: 2 }),
    denyWrite: fc.array(word, { maxLength: 2 }),
  }),
  network: fc.record({
    allowedDomains: fc.array(word, { maxLength: 2 }),
    deniedDomains: fc.array(word, { maxLength: 2 }),
  }),
  limits: fc.record({ memoryMb: fc.nat(), processes: fc.nat(), fileMb: fc.nat() }),
  image: word,
});
const settings = fc.record({
  name: word,
  transport: fc.constantFrom('stdio' as const, 'http' as const),
  command: word,
  args: fc.array(word, { maxLength: 3 }),
  env: fc.dictionary(word, word, { maxKeys: 3 }),
  url: word,
  headers: fc.dictionary(word, word, { maxKeys: 2 }),
  isolation: fc.constantFrom('direct' as const, 'sandbox' as const, 'container' as const),
  sandbox,
  socket: word,
  pin: word,
  mapping: word,
  semantics: fc.array(
    fc.record({
      pattern: word,
      semantics: fc.record(
        {
          verb: fc.constantFrom('read' as const, 'write' as const),
          byArgument: fc.record({
            argument: word,
            verbs: fc.dictionary(word, fc.constantFrom('read' as const, 'execute' as const), { maxKeys: 2 }),
          }),
        },
        { requiredKeys: ['verb'] },
      ),
    }),
    { minLength: 1, maxLength: 2 },
  ),
  oauth: fc.record({ grant: fc.constant('client_credentials' as const), clientId: word, clientSecret: word }),
  secretSources: fc.dictionary(word, fc.record({ from: fc.constant('exec'), command: fc.array(word) }), { maxKeys: 2 }),
});

/** Returns the same value with the keys reversed at every depth. */
function reversed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reversed);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([key, inner]) => [key, reversed(inner)]),
  );
}

/** Yields every change of one leaf. */
function* mutations(value: unknown): Generator<unknown> {
  if (typeof value === 'string') yield `${value}x`;
  else if (typeof value === 'number') yield value + 1;
  else if (Array.isArray(value)) {
    const [first] = value as unknown[];
    yield [...(value as unknown[]), typeof first === 'object' ? first : 'more'];
    for (const [index, inner] of value.entries()) for (const other of mutations(inner)) yield value.with(index, other);
  } else if (typeof value === 'object' && value !== null) {
    for (const [key, inner] of Object.entries(value))
      for (const other of mutations(inner)) yield { ...value, [key]: other };
  }
}

/** Returns the facts of the written settings, without the files. */
const writtenFacts = (one: unknown): Promise<StartFacts> =>
  startFacts(one as StartSettings, { folder, inspect: () => Promise.resolve({ folder, scripts: [] }), digest });

describe('the hash of a start', () => {
  it('does not depend on the order of keys' + verifies('HA-15'), async () => {
    await fc.assert(
      fc.asyncProperty(settings, async (one) => {
        expect(startHash(await writtenFacts(reversed(one)))).toBe(startHash(await writtenFacts(one)));
      }),
      { numRuns: roundsOf(100, 40) },
    );
  });

  it('changes with any field, and the field is named' + verifies('HA-15'), async () => {
    await fc.assert(
      fc.asyncProperty(settings, async (one) => {
        const before = await writtenFacts(one);
        for (const { transport, isolation, sandbox: box, ...other } of [...mutations(one)] as (typeof one)[]) {
          const changed = {
            ...other,
            transport: transport.startsWith('stdio') ? 'stdio' : transport,
            isolation,
            sandbox: box,
          };
          // A remote server has no facts of programs.
          if (one.transport !== 'stdio' && isEqual({ ...changed, isolation: one.isolation, sandbox: one.sandbox }, one))
            continue;
          if (isEqual(changed, one)) continue;
          const after = await writtenFacts(changed);
          expect(startHash(after)).not.toBe(startHash(before));
          expect(startDifferences(before, after)).not.toEqual([]);
        }
      }),
      { numRuns: roundsOf(40, 12) },
    );
  });

  it('changes when text moves from one field to the next', async () => {
    const hashes = await Promise.all(
      [
        { args: ['a b'] },
        { args: ['a', 'b'] },
        { args: ['a', 'b', ''] },
        { args: ['', 'a', 'b'] },
        { args: [], env: { a: 'b' } },
        { args: [], headers: { a: 'b' } },
      ].map((one) => hashOf(one)),
    );
    expect(new Set(hashes).size).toBe(hashes.length);
  });

  it(
    'contains no value of env and headers, and keeps a reference to a secret as written' + verifies('HA-24'),
    async () => {
      const secret = 'hunter22-hunter22';
      const facts = await factsOf({
        env: { KEY: secret },
        headers: { Authorization: secret },
        oauth: { grant: 'client_credentials', clientSecret: secret },
      });
      expect(JSON.stringify(facts)).not.toContain(secret);
      expect(await hashOf({ env: { KEY: '${secret:A}' } })).not.toBe(await hashOf({ env: { KEY: '${secret:B}' } }));
    },
  );

  it(
    'contains the class of its tools, in the order of the patterns, and the changed rule is named' + verifies('TR-36'),
    async () => {
      const rules = (
        ...list: readonly (readonly [string, 'read' | 'write' | 'destructive'])[]
      ): Partial<StartSettings> => ({ semantics: list.map(([pattern, verb]) => ({ pattern, semantics: { verb } })) });
      const before = await factsOf(rules(['wipe', 'destructive']));
      expect(before.semantics).toEqual(['wipe: destructive']);
      expect(startDifferences(before, await factsOf(rules(['wipe', 'read'])))).toEqual(['semantics[0]']);
      // The first pattern that matches counts.
      expect(await hashOf(rules(['w*', 'read'], ['wipe', 'write']))).not.toBe(
        await hashOf(rules(['wipe', 'write'], ['w*', 'read'])),
      );
      expect(startDifferences(await factsOf({}), await factsOf({ mapping: 'desktop-commander' }))).toEqual(['mapping']);
      // An approval from before semantics were bound is invalid for a server with semantics, and the refusal says so.
      expect(startDifferences(await factsOf({}), before)).toEqual(['semantics']);
    },
  );

  it('changes with the program that prints a secret', async () => {
    const source = (command: string): Partial<StartSettings> => ({
      env: { KEY: '${secret:A}' },
      secretSources: { A: { from: 'exec', command: [command] } },
    });
    expect(await hashOf(source('pass'))).not.toBe(await hashOf(source('evil')));
    expect(startDifferences(await factsOf(source('pass')), await factsOf(source('evil')))).toEqual([
      'secretSources.A.command[0]',
    ]);
  });
});

describe('the hash of a start and the files', () => {
  const changes = async (one: Partial<StartSettings>, act: () => void): Promise<readonly string[]> => {
    const before = await factsOf(one);
    act();
    return startDifferences(before, await factsOf(one));
  };

  it('changes with another program in the same place' + verifies('HA-15'), async () => {
    const command = put('bin/tool', '#!/bin/sh\necho one\n', 0o755);
    expect(await changes({ command }, () => put('bin/tool', '#!/bin/sh\necho two\n', 0o755))).toEqual([
      'program.sha256',
    ]);
  });

  it('changes with a link that leads elsewhere, even to the same bytes' + verifies('HA-15'), async () => {
    const [one, two, link] = [
      put('a/tool', '#!/bin/sh\n', 0o755),
      put('b/tool', '#!/bin/sh\n', 0o755),
      path.join(folder, 'link'),
    ];
    symlinkSync(one, link);
    expect(
      await changes({ command: link }, () => {
        unlinkSync(link);
        symlinkSync(two, link);
      }),
    ).toEqual(['program.path']);
  });

  it('changes with another program of this name earlier on the PATH' + verifies('HA-15'), async () => {
    const [first, second] = [path.join(folder, 'first'), path.join(folder, 'second')];
    mkdirSync(first);
    put('second/unusual-tool', '#!/bin/sh\n', 0o755);
    const before = process.env.PATH;
    process.env.PATH = `${first}:${second}:${before ?? ''}`;
    try {
      expect(await changes({ command: 'unusual-tool' }, () => put('first/unusual-tool', '#!/bin/sh\n', 0o755))).toEqual(
        ['program.path'],
      );
    } finally {
      process.env.PATH = before;
    }
  });

  it.each([
    ['by its relative path', ['lib/s.mjs'], 'lib/s.mjs'],
    ['after a flag', ['--import=lib/hook.mjs', 'lib/s.mjs'], 'lib/hook.mjs'],
    ['without its ending', ['lib/s'], 'lib/s.js'],
    ['as a folder', ['lib'], 'lib/index.js'],
    ['that is marked by its first line', ['lib/s.mjs', 'plugin'], 'plugin'],
  ])('changes with a script %s' + verifies('HA-15'), async (_how, args, file) => {
    for (const name of ['lib/s.mjs', 'lib/hook.mjs', 'lib/s.js', 'lib/index.js', 'plugin'])
      put(name, '#!/usr/bin/env node\n');
    const found = await changes({ args }, () => put(file, '#!/usr/bin/env node\nevil()\n'));
    expect(found).toEqual([expect.stringMatching(/^scripts\[\d\]\.sha256$/)]);
  });

  it('changes with a script given as an address, and with a module of Python', async () => {
    const file = put('s.mjs', '1\n');
    expect(await changes({ args: [`file://${file}`] }, () => put('s.mjs', '2\n'))).toEqual(['scripts[0].sha256']);
    put('pkg/server.py', '1\n');
    expect(
      await changes({ command: 'python3', args: ['-m', 'pkg.server'] }, () => put('pkg/server.py', '2\n')),
    ).toContain('scripts[0].sha256');
  });

  it('changes with the program that npm start would run', async () => {
    put('package.json', '{"scripts":{"start":"node a"}}');
    expect(
      await changes({ command: 'npm', args: ['start'], cwd: folder }, () =>
        put('package.json', '{"scripts":{"start":"evil"}}'),
      ),
    ).toEqual(['scripts[0].sha256']);
  });

  it('does not change with data, so that a server with a changing data file stays approved', async () => {
    const [script, file] = [put('s.mjs', '1\n'), put('notes.db', 'one')];
    expect(await changes({ args: [script, '--db', file] }, () => put('notes.db', 'two'))).toEqual([]);
  });

  it('changes with the folder in which it starts', async () => {
    expect(await hashOf({ cwd: folder })).not.toBe(await hashOf({ cwd: tmpdir() }));
  });

  it('changes when a missing program appears', async () => {
    const command = path.join(folder, 'later');
    expect(await changes({ command }, () => put('later', '#!/bin/sh\n', 0o755))).toEqual(['program']);
  });
});

function isEqual(one: unknown, other: unknown): boolean {
  return canonicalJson(one) === canonicalJson(other);
}
