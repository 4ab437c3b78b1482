/** Tests that YAML parsed in a thread of its own is what it would have been without, faults and places included. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseAhead, readAhead } from '../../facade/config/ahead.ts';
import { readYaml } from '../../facade/config/document.ts';

let folder: string;
beforeAll(() => void (folder = mkdtempSync(path.join(tmpdir(), 'tollgate-ahead-'))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const MANY = Array.from({ length: 400 }, (_, number) => `  - id: r${number} # ä ✓\n    when: {tools: ["a.b", 'c.*'], args: {n: {min: ${number}}}}\n`).join('');
const PATHS: readonly (readonly (string | number)[])[] = [[], ['rules'], ['rules', 0], ['rules', 7, 'id'], ['rules', 399, 'when', 'tools', 1], ['rules', 399, 'when', 'nothing'], ['else']];

describe('a large file that was parsed ahead', () => {
  it.each([
    ['rules', `rules:\n${MANY}`],
    ['with a name of a prototype, aliases and folded text', `__proto__: {a: 1}\nx: &x [1, 2.5, null, true]\ny: *x\nz: >\n  folded\n  text\nrules:\n${MANY}`],
    ['with a torn end', `rules:\n${MANY}  - {id: `],
    ['with a tag', `rules:\n${MANY}  - !secret x\n`],
    ['with a key twice', `rules:\n${MANY}rules: []\n`],
    ['nested too deep', `${'['.repeat(200)}\n${'# long\n'.repeat(4000)}`],
    ['with Windows line ends', `rules:\n${MANY}`.replaceAll('\n', '\r\n')],
  ])('is what it is: %s', async (_what, text) => {
    const file = path.join(folder, 'rules.yaml');
    writeFileSync(file, text);
    await parseAhead([file, path.join(folder, 'nowhere.yaml')]);
    const [ahead, plain] = [readAhead('rules.yaml', text), readYaml('rules.yaml', text)];
    expect(ahead.value).toEqual(plain.value);
    expect(Object.keys((ahead.value as object | undefined) ?? {})).toEqual(Object.keys((plain.value as object | undefined) ?? {}));
    expect(ahead.problems).toEqual(plain.problems);
    for (const at of PATHS) for (const part of ['key', 'value'] as const) expect([at, ahead.placeOf(at, part)]).toEqual([at, plain.placeOf(at, part)]);
  });

  it('is parsed once, and forgotten when no file has the text any more', async () => {
    const [file, text] = [path.join(folder, 'rules.yaml'), `rules:\n${MANY}`];
    writeFileSync(file, text);
    await parseAhead([file]);
    const { value } = readAhead('a.yaml', text);
    await parseAhead([file, file]);
    expect(readAhead('b.yaml', text).value).toBe(value);
    writeFileSync(file, 'rules: []\n');
    await parseAhead([file]);
    expect(readAhead('a.yaml', text).value).not.toBe(value);
    expect(readAhead('a.yaml', text).value).toEqual(value);
  });
});
