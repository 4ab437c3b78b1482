/** Tests how files of a project are put in their place: owner, rights, folders, and nothing left of what failed. */
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { missingFolders, removeIfEmpty, replaceFile } from '../../facade/config/reading/file-replacement.ts';

const USER = 12_345;
let folder: string;

beforeEach(() => {
  folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-replace-')));
});
afterEach(() => rmSync(folder, { recursive: true }));

const at = (...names: string[]): string => path.join(folder, ...names);
const facts = (file: string): readonly number[] => {
  const { uid, mode } = statSync(file);
  return [uid, mode & 0o777];
};

describe('a file that is put in its place', () => {
  it("is its owner's alone when it is new, with its folders, and belongs to whoever owns the project", () => {
    chownSync(folder, USER, USER);
    replaceFile(at('a', 'b', 'file'), 'new');
    expect([facts(at('a')), facts(at('a', 'b')), facts(at('a', 'b', 'file'))]).toEqual([
      [USER, 0o700],
      [USER, 0o700],
      [USER, 0o600],
    ]);
  });

  it('keeps its owner and its rights, unless others are given', () => {
    writeFileSync(at('file'), 'old');
    chmodSync(at('file'), 0o640);
    chownSync(at('file'), USER, USER);
    replaceFile(at('file'), 'new');
    expect([readFileSync(at('file'), 'utf8'), facts(at('file'))]).toEqual(['new', [USER, 0o640]]);
    replaceFile(at('file'), 'again', 0o600);
    expect(facts(at('file'))).toEqual([USER, 0o600]);
  });

  it('replaces a link, and never what it leads to', () => {
    writeFileSync(at('target'), 'kept');
    symlinkSync(at('target'), at('link'));
    replaceFile(at('link'), 'new', 0o600);
    expect([readFileSync(at('target'), 'utf8'), readFileSync(at('link'), 'utf8')]).toEqual(['kept', 'new']);
  });

  it('leaves nothing when it cannot be placed', () => {
    mkdirSync(at('file'));
    expect(() => replaceFile(at('file'), 'new')).toThrow();
    expect(readdirSync(folder)).toEqual(['file']);
  });
});

describe('folders', () => {
  it('that are missing are named, the deepest first; those that are empty are removed', () => {
    expect(missingFolders(at('a', 'b', 'file'))).toEqual([at('a', 'b'), at('a')]);
    mkdirSync(at('a', 'b'), { recursive: true });
    for (const one of [at('a'), at('a', 'b'), at('a'), at('none')]) removeIfEmpty(one);
    expect(readdirSync(folder)).toEqual([]);
  });
});
