/** Tests the noticing of edits, as editors, copies and mounts make them; and that nothing is noticed that is none. */
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { mentionedFiles } from '../../facade/config/named-files.ts';
import { FileWatch } from '../../facade/runtime/file-watch.ts';

let folder: string;
let watch: FileWatch;
let noticed: number;
const at = (name: string): string => path.join(folder, name);

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-watch-'));
  mkdirSync(at('rego/deep'), { recursive: true });
  writeFileSync(at('rules.yaml'), 'one');
  writeFileSync(at('rego/deep/a.rego'), 'a');
  noticed = 0;
});
afterEach(() => {
  watch.close();
  rmSync(folder, { recursive: true, force: true });
});

/** By events alone, or by looking alone. */
async function begin(how: 'events' | 'looking', names: readonly string[], quietMs = 20): Promise<void> {
  watch = new FileWatch({ onChange: () => void (noticed += 1), quietMs, pollMs: how === 'events' ? 60_000 : 50 });
  await watch.target(names.map(at));
}

const EDITS: readonly (readonly [string, () => void])[] = [
  ['a file that is written', () => writeFileSync(at('rules.yaml'), 'two')],
  ['a file that is written with the same length', () => writeFileSync(at('rules.yaml'), 'eno')],
  ['a file that is appended to', () => appendFileSync(at('rules.yaml'), ' more')],
  [
    'a file that is replaced by another (vim, VS Code)',
    () => {
      writeFileSync(at('.rules.yaml.swp'), 'three');
      renameSync(at('.rules.yaml.swp'), at('rules.yaml'));
    },
  ],
  [
    'a file that is moved away and written anew (backup copies)',
    () => {
      renameSync(at('rules.yaml'), at('rules.yaml~'));
      writeFileSync(at('rules.yaml'), 'four');
    },
  ],
  ['a file that is removed', () => unlinkSync(at('rules.yaml'))],
  ['a file that comes', () => writeFileSync(at('later.yaml'), 'x')],
  ['a file deep in a folder', () => writeFileSync(at('rego/deep/a.rego'), 'b')],
  ['a new file deep in a folder', () => writeFileSync(at('rego/deep/b.rego'), 'b')],
  ['a file that became empty', () => truncateSync(at('rules.yaml'))],
];

describe.each(['events', 'looking'] as const)('by %s', (how) => {
  it.each(EDITS)('notices %s, once', async (_what, edit) => {
    await begin(how, ['rules.yaml', 'later.yaml', 'rego']);
    edit();
    await expect.poll(() => noticed, { timeout: 20_000 }).toBe(1);
    await sleep(150);
    expect(noticed).toBe(1);
  });
});

it('notices links that are swapped, as mounted configuration has them', async () => {
  mkdirSync(at('v1'));
  mkdirSync(at('v2'));
  writeFileSync(at('v1/rules.yaml'), '1');
  writeFileSync(at('v2/rules.yaml'), '2');
  symlinkSync(at('v1'), at('now'));
  await begin('looking', ['now/rules.yaml']);
  symlinkSync(at('v2'), at('next'));
  renameSync(at('next'), at('now'));
  await expect.poll(() => noticed, { timeout: 20_000 }).toBe(1);
});

it('notices files in a folder that is made later', async () => {
  await begin('looking', ['more/rules.yaml']);
  mkdirSync(at('more'));
  writeFileSync(at('more/rules.yaml'), '1');
  await expect.poll(() => noticed, { timeout: 20_000 }).toBe(1);
});

it('is silent about what does not change content, and about other files', async () => {
  await begin('looking', ['rules.yaml', 'rego']);
  utimesSync(at('rules.yaml'), new Date(), new Date());
  writeFileSync(at('rules.yaml'), readFileSync(at('rules.yaml')));
  writeFileSync(at('other.yaml'), 'x');
  writeFileSync(at('rego/.hidden'), 'x');
  await sleep(300);
  expect(noticed).toBe(0);
});

it('waits until a file is no longer being written, and speaks once', async () => {
  // Longer than a busy machine takes between two parts.
  await begin('events', ['rules.yaml'], 1000);
  for (let part = 0; part < 12; part += 1) {
    appendFileSync(at('rules.yaml'), 'part');
    await sleep(5);
  }
  await expect.poll(() => noticed, { timeout: 20_000 }).toBe(1);
  await sleep(1500);
  expect(noticed).toBe(1);
});

it('keeps what it knew of a path when it is given other paths, so that no edit in between is lost', async () => {
  await begin('looking', ['rules.yaml']);
  writeFileSync(at('rules.yaml'), 'two');
  await watch.target([at('rules.yaml'), at('rego')]);
  await expect.poll(() => noticed, { timeout: 20_000 }).toBe(1);
  await watch.target([at('rego')]);
  writeFileSync(at('rules.yaml'), 'three');
  await sleep(200);
  expect(noticed).toBe(1);
});

it('says nothing after it is closed', async () => {
  await begin('looking', ['rules.yaml']);
  writeFileSync(at('rules.yaml'), 'two');
  watch.close();
  await sleep(150);
  expect(noticed).toBe(0);
});

describe('the files that a configuration mentions', () => {
  it('are found in one that cannot be loaded', () => {
    writeFileSync(
      at('tollgate.yaml'),
      'include: [a.json, "${VAR}/b.json", 7]\npolicies: [p.yaml, {path: ~/q.yaml, verify: {keys: [k.pem]}}, {url: "https://x"}, 3]\nnonsense: true\nworkspace: /\n',
    );
    expect(mentionedFiles(at('tollgate.yaml'), '/home/me')).toEqual([
      at('tollgate.yaml'),
      at('a.json'),
      at('p.yaml'),
      '/home/me/q.yaml',
      at('k.pem'),
    ]);
  });

  it.each([
    ['torn', 'policies: [p.yaml'],
    ['a list', '- 1'],
    ['empty', ''],
    ['with other kinds', 'include: 3\npolicies: {a: 1}\n'],
  ])('are the file itself at least: %s', (_what, text) => {
    writeFileSync(at('tollgate.yaml'), text);
    expect(mentionedFiles(at('tollgate.yaml'), '/home/me')).toContain(at('tollgate.yaml'));
    expect(mentionedFiles(at('absent.yaml'), '/home/me')).toEqual([at('absent.yaml')]);
  });
});
