/** Tests that a text which was parsed in an earlier process reads the same, and that no other file is believed. */

import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { stringify } from 'yaml';
import type { Path } from '../../facade/config/config-problems.ts';
import { keepParsedFiles, WRITE_AFTER_MS } from '../../facade/config/reading/parsed-files.ts';
import { readYaml, type YamlFile } from '../../facade/config/reading/yaml-document.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { FULL } from './full.ts';

let accepted: string;
const kept = (): readonly string[] =>
  existsSync(path.join(accepted, 'parsed'))
    ? readdirSync(path.join(accepted, 'parsed')).map((name) => path.join(accepted, 'parsed', name))
    : [];

beforeEach(() => {
  vi.useFakeTimers();
  accepted = mkdtempSync(path.join(tmpdir(), 'tollgate-parsed-'));
});

afterEach(() => {
  vi.useRealTimers();
  rmSync(accepted, { recursive: true, force: true });
});

function pathsIn(value: unknown, at: Path = []): readonly Path[] {
  if (typeof value !== 'object' || value === null) return [at];
  const keys = Array.isArray(value) ? [...value.keys()] : Object.keys(value);
  return [at, ...keys.flatMap((key) => pathsIn((value as Record<string, unknown>)[key], [...at, key]))];
}

/** Everything that a reader can see of a file. */
function seen({ value, problems, placeOf }: YamlFile): unknown {
  return { value, problems, places: pathsIn(value).map((at) => [placeOf(at, 'key'), placeOf(at, 'value')]) };
}

const reading = (text: string, servedMs = WRITE_AFTER_MS): Promise<unknown> =>
  keepParsedFiles(accepted, async () => {
    const read = seen(readYaml('tollgate.yaml', text));
    vi.advanceTimersByTime(servedMs);
    return read;
  });

describe('a parsed file', () => {
  const texts = fc.oneof(
    fc.constantFrom(
      FULL,
      '',
      '{a: .inf, b: -0, c: .nan}',
      '__proto__: {x: 1}',
      'a: &x [1]\nb: *x',
      'a: [',
      '%YAML 1.1',
    ),
    fc.jsonValue({ maxDepth: 4 }).map((value) => stringify(value)),
    fc.string({ unit: 'binary' }),
  );

  inFull('reads the same, with its places, whether it is parsed or was kept' + verifies('FP-07'), async () => {
    await fc.assert(
      fc.asyncProperty(texts, async (text) => {
        const parsed = seen(readYaml('tollgate.yaml', text));
        for (let time = 0; time < 3; time += 1) expect(await reading(text)).toEqual(parsed);
        expect(kept().length).toBeLessThanOrEqual(1);
      }),
    );
  });

  it('is kept by the hash of its text, privately, in one file for each name' + verifies('FP-07'), async () => {
    await reading('a: 1');
    const [file = ''] = kept();
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const { ino } = statSync(file);
    await reading('a: 1');
    expect(statSync(file).ino).toBe(ino);
    expect(await reading('a: 2')).toMatchObject({ value: { a: 2 } });
    expect(kept()).toEqual([file]);
    expect(statSync(file).ino).not.toBe(ino);
  });

  it.each<readonly [string, (file: string) => void]>([
    ['is damaged', (file) => writeFileSync(file, readFileSync(file, 'utf8').replace('"a":1', '"a":2'))],
    ['is cut off', (file) => writeFileSync(file, readFileSync(file, 'utf8').slice(0, -3))],
    ['is empty', (file) => writeFileSync(file, '')],
    ['others can write', (file) => chmodSync(file, 0o666)],
  ])('is parsed again if what was kept %s' + verifies('FP-07'), async (_how, change) => {
    await reading('a: 1');
    const [file = ''] = kept();
    change(file);
    expect(await reading('a: 1')).toMatchObject({ value: { a: 1 } });
    expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  it('is kept by processes that serve for some time alone, and not if it has problems', async () => {
    readYaml('tollgate.yaml', 'a: 1');
    await reading('a: 1', WRITE_AFTER_MS - 1);
    vi.advanceTimersByTime(WRITE_AFTER_MS);
    await reading('a: [');
    expect(kept()).toEqual([]);
  });
});
