/** Tests that a watch notices edits of editors, copies and mounts, and nothing else. */
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
import { FileWatch } from '../../facade/runtime/file-watch.ts';
import { mentionedFiles } from '../../facade/runtime/reloader.ts';

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

/** Starts a watch that uses only events, or only polling. */
async function begin(how: 'events' | 'polling', names: readonly string[], quietMs = 20): Promise<void> {
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
    'a file that is moved away and written again (backup copies)',
    () => {
      renameSync(at('rules.yaml'), at('rules.yaml~'));
      writeFileSync(at('rules.yaml'), 'four');
    },
  ],
  ['a file that is removed', () => unlinkSync(at('rules.yaml'))],
  ['a new file', () => writeFileSync(at('later.yaml'), 'x')],
  ['a file deep in a folder', () => writeFileSync(at('rego/deep/a.rego'), 'b')],
  ['a new file deep in a folder', () => writeFileSync(at('rego/deep/b.rego'), 'b')],
  ['a file that became empty', () => truncateSync(at('rules.yaml'))],
];

describe.each(['events', 'polling'] as const)('a watch by %s', (how) => {
  it.each(EDITS)('notices %s, once', async (_what, edit) => {
    await begin(how, ['rules.yaml', 'later.yaml', 'rego']);
    edit();
    await expect.poll(() => noticed, { timeout: 20_000 }).toBe(1);
    await sleep(150);
    expect(noticed).toBe(1);
  });
});

it('a watch notices replaced links, as in mounted configuration', async () => {
  mkdirSync(at('v1'));
  mkdirSync(at('v2'));
  writeFileSync(at('v1/rules.yaml'), '1');
  writeFileSync(at('v2/rules.yaml'), '2');
  symlinkSync(at('v1'), at('now'));
  await begin('polling', ['now/rules.yaml']);
  symlinkSync(at('v2'), at('next'));
  renameSync(at('next'), at('now'));
  await expect.poll(() => noticed, { timeout: 20_000 }).toBe(1);
});

it('a watch notices files in a folder that is made later', async () => {
  await begin('polling', ['more/rules.yaml']);
  mkdirSync(at('more'));
  writeFileSync(at('more/rules.yaml'), '1');
  await expect.poll(() => noticed, { timeout: 20_000 }).toBe(1);
});

it('a watch ignores writes that do not change the content, and other files', async () => {
  await begin('polling', ['rules.yaml', 'rego']);
  utimesSync(at('rules.yaml'), new Date(), new Date());
  writeFileSync(at('rules.yaml'), readFileSync(at('rules.yaml')));
  writeFileSync(at('other.yaml'), 'x');
  writeFileSync(at('rego/.hidden'), 'x');
  await sleep(300);
  expect(noticed).toBe(0);
});

it('a watch waits until writing ends, and reports once', async () => {
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

it('a watch misses no edit while its paths change', async () => {
  await begin('polling', ['rules.yaml']);
  writeFileSync(at('rules.yaml'), 'two');
  await watch.target([at('rules.yaml'), at('rego')]);
  await expect.poll(() => noticed, { timeout: 20_000 }).toBe(1);
  await watch.target([at('rego')]);
  writeFileSync(at('rules.yaml'), 'three');
  await sleep(200);
  expect(noticed).toBe(1);
});

it('a closed watch reports nothing', async () => {
  await begin('polling', ['rules.yaml']);
  writeFileSync(at('rules.yaml'), 'two');
  watch.close();
  await sleep(150);
  expect(noticed).toBe(0);
});

describe('mentionedFiles', () => {
  it('finds the files of a configuration that cannot be loaded', () => {
    writeFileSync(
      at('tollgate.yaml'),
      'include: [a.json, "${VAR}/b.json", 7]\n' +
        'policies: [p.yaml, {path: ~/q.yaml, verify: {keys: [k.pem]}}, {url: "https://x"}, 3]\n' +
        'nonsense: true\nworkspace: /\n',
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
    ['broken', 'policies: [p.yaml'],
    ['a list', '- 1'],
    ['empty', ''],
    ['with other types', 'include: 3\npolicies: {a: 1}\n'],
  ])('returns at least the file itself if it is %s', (_what, text) => {
    writeFileSync(at('tollgate.yaml'), text);
    expect(mentionedFiles(at('tollgate.yaml'), '/home/me')).toContain(at('tollgate.yaml'));
    expect(mentionedFiles(at('absent.yaml'), '/home/me')).toEqual([at('absent.yaml')]);
  });
});
