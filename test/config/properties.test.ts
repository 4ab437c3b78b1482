/** Tests properties with random files: only TollgateErrors, no value of a variable in a message, real places. */

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { formatProblems } from '../../facade/config/config-problems.ts';
import { substitute } from '../../facade/config/reading/variable-substitution.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { FULL, FULL_ENV, writeFull } from './full.ts';
import { Project } from './project.ts';

const project = new Project();
writeFull(project);
afterAll(() => project.remove());

const WHOLE: unknown = parse(FULL);
const folder = path.join(import.meta.dirname, 'cases');
const seeds = [
  FULL,
  ...readdirSync(folder).flatMap((name) =>
    (parse(readFileSync(path.join(folder, name), 'utf8')) as { yaml: string }[]).map(({ yaml }) => yaml),
  ),
];

/** A text with parts cut out, doubled, or replaced by difficult YAML and `${}`. */
const mutated = fc
  .tuple(
    fc.constantFrom(...seeds),
    fc.array(
      fc.tuple(
        fc.nat(2000),
        fc.nat(12),
        fc.constantFrom(
          '',
          '\t',
          '*a',
          '&a ',
          '!!map ',
          '- ',
          ': ',
          '{',
          ']',
          '"',
          '\n',
          '${',
          '${A:-',
          '%',
          '\0',
          '\ud800',
          '~',
          '0x7f',
          '.inf',
          '? ',
          '<<: ',
          '|',
          '__proto__',
        ),
      ),
      { minLength: 1, maxLength: 6 },
    ),
  )
  .map(([seed, edits]) =>
    edits.reduce(
      (text, [at, length, piece]) => text.slice(0, at % text.length) + piece + text.slice((at % text.length) + length),
      seed,
    ),
  );

describe('a random file', () => {
  it('is loaded, or refused with places that exist', () => {
    fc.assert(
      fc.property(mutated, (yaml) => {
        // Project.load throws every error that is not a TollgateError.
        const { config, problems, error } = project.load(yaml, FULL_ENV);
        if (config !== undefined) return;
        expect(error?.code).toBe('CONFIG_INVALID');
        expect(problems.length).toBeGreaterThan(0);
        const lines = yaml.split('\n');
        for (const { line, column, message } of problems) {
          expect(line).toBeLessThanOrEqual(lines.length);
          expect(column).toBeGreaterThan(0);
          expect(message).not.toContain('\n');
        }
      }),
      { numRuns: roundsOf(250, 40) },
    );
  });

  inFull('is loaded or refused, with any JSON value in any place', () => {
    fc.assert(
      fc.property(fc.constantFrom(...leaves(WHOLE)), fc.jsonValue({ maxDepth: 3 }), (at, value) => {
        project.load(stringify(replaced(WHOLE, at, value)), FULL_ENV);
      }),
      { numRuns: roundsOf(200, 30) },
    );
  });

  inFull('of a client is included, at most with warnings', () => {
    const text = JSON.stringify({
      inputs: [{ id: 'a' }],
      mcpServers: {
        a: { command: 'x', args: ['${A}'], env: { B: '${input:a}' } },
        b: { type: 'http', url: 'http://x' },
      },
    });
    fc.assert(
      fc.property(fc.nat(text.length), fc.nat(8), fc.string({ maxLength: 6, unit: 'binary' }), (at, length, piece) => {
        project.write('mutated.json', text.slice(0, at) + piece + text.slice(at + length));
        expect(project.load('include: [mutated.json]').problems).toEqual([]);
      }),
      { numRuns: roundsOf(200, 30) },
    );
  });
});

describe('values of variables', () => {
  const secret = fc.stringMatching(/^[a-zA-Z0-9:/@ "'{}$*-]{12,40}$/).map((text) => `Zq9!${text}`);

  inFull('are in no problem, warning or error, wherever a variable is used' + verifies('HA-02'), () => {
    const texts = leaves(WHOLE);
    fc.assert(
      fc.property(
        secret,
        fc.subarray(texts, { minLength: 1, maxLength: 8 }),
        fc.constantFrom('${SECRET}', 'x${env:SECRET}', '${SECRET}/x', '${SECRET:?no}'),
        (value, places, form) => {
          const yaml = stringify(places.reduce<unknown>((root, at) => replaced(root, at, form), WHOLE));
          const { config, problems, error } = project.load(yaml, { ...FULL_ENV, SECRET: value });
          const shown = [
            formatProblems(problems),
            formatProblems(config?.warnings ?? []),
            error?.message,
            error?.next,
            JSON.stringify(error?.data ?? {}),
          ].join('\n');
          expect(shown).not.toContain('Zq9!');
        },
      ),
      { numRuns: roundsOf(200, 30) },
    );
  });

  it('of included files are in no warning, and are all registered for redaction' + verifies('HA-02'), () => {
    fc.assert(
      fc.property(
        secret,
        fc.constantFrom('command', 'url', 'cwd', 'envFile', 'type', 'name', 'nothing'),
        (value, spoiled) => {
          const server = {
            command: 'x',
            env: { A_TOKEN: '${SECRET}', B: 'pre ${env:SECRET}', PASSWORD: value },
            headers: {},
            ...(spoiled === 'nothing' ? {} : { [spoiled]: '${SECRET}' }),
          };
          project.write('secret.json', JSON.stringify({ mcpServers: { a: server } }));
          const config = project.config('include: [secret.json]\nservers: {a: {isolation: direct}}', { SECRET: value });
          expect(formatProblems(config.warnings)).not.toContain('Zq9!');
          expect(config.servers.get('a')?.unusable ?? '').not.toContain('Zq9!');
          expect(config.secrets).toEqual(expect.arrayContaining([value]));
        },
      ),
      { numRuns: roundsOf(100, 30) },
    );
  });

  it('are registered for redaction if they go to env or headers of a server', () => {
    fc.assert(
      fc.property(secret, (value) => {
        const config = project.config(
          "servers: {a: {command: x, env: {A: 'a ${SECRET} b'}}, " +
            "b: {url: 'http://x', headers: {X-B: '${env:SECRET}'}}}\nprincipals: [{id: a, token: '${env:SECRET}'}]",
          { SECRET: value.padEnd(16, 'x') },
        );
        expect(config.secrets).toEqual([value.padEnd(16, 'x')]);
        expect(JSON.stringify(config.principals)).not.toContain('Zq9!');
      }),
      { numRuns: roundsOf(50, 20) },
    );
  });
});

describe('substitute', () => {
  it('makes one pass: it does not read values again, and does not change texts without $', () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), (value, plain) => {
        const variables = { env: { A: value }, folders: new Map<string, string>() };
        expect(substitute('${A}', variables)).toEqual({ ok: true, text: value, fromOutside: [value] });
        const still = plain.replaceAll('$', '');
        expect(substitute(still, variables)).toEqual({ ok: true, text: still, fromOutside: [] });
      }),
    );
  });
});

type At = readonly (string | number)[];

function leaves(value: unknown, at: At = []): At[] {
  if (typeof value !== 'object' || value === null) return [at];
  return Object.entries(value).flatMap(([key, item]) =>
    leaves(item, [...at, Array.isArray(value) ? Number(key) : key]),
  );
}

function replaced(root: unknown, at: At, value: unknown): unknown {
  const [key, ...rest] = at;
  if (key === undefined) return value;
  if (Array.isArray(root))
    return root.map((item: unknown, index) => (index === key ? replaced(item, rest, value) : item));
  const map = (root ?? {}) as Record<string, unknown>;
  return { ...map, [key]: replaced(map[key], rest, value) };
}
