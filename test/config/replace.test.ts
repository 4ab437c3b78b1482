/** Tests how files of a project are replaced: owner, mode, folders, and that a failure leaves nothing. */
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

describe('replaceFile', () => {
  it('makes a new file and its folders private, with the owner of the project', () => {
    chownSync(folder, USER, USER);
    replaceFile(at('a', 'b', 'file'), 'new');
    expect([facts(at('a')), facts(at('a', 'b')), facts(at('a', 'b', 'file'))]).toEqual([
      [USER, 0o700],
      [USER, 0o700],
      [USER, 0o600],
    ]);
  });

  it('keeps owner and mode of a file, unless a mode is given', () => {
    writeFileSync(at('file'), 'old');
    chmodSync(at('file'), 0o640);
    chownSync(at('file'), USER, USER);
    replaceFile(at('file'), 'new');
    expect([readFileSync(at('file'), 'utf8'), facts(at('file'))]).toEqual(['new', [USER, 0o640]]);
    replaceFile(at('file'), 'again', 0o600);
    expect(facts(at('file'))).toEqual([USER, 0o600]);
  });

  it('replaces a link, and not its target', () => {
    writeFileSync(at('target'), 'kept');
    symlinkSync(at('target'), at('link'));
    replaceFile(at('link'), 'new', 0o600);
    expect([readFileSync(at('target'), 'utf8'), readFileSync(at('link'), 'utf8')]).toEqual(['kept', 'new']);
  });

  it('leaves nothing if it fails', () => {
    mkdirSync(at('file'));
    expect(() => replaceFile(at('file'), 'new')).toThrow();
    expect(readdirSync(folder)).toEqual(['file']);
  });
});

describe('missing folders', () => {
  it('are listed, the deepest first, and removed if they are empty', () => {
    expect(missingFolders(at('a', 'b', 'file'))).toEqual([at('a', 'b'), at('a')]);
    mkdirSync(at('a', 'b'), { recursive: true });
    for (const one of [at('a'), at('a', 'b'), at('a'), at('none')]) removeIfEmpty(one);
    expect(readdirSync(folder)).toEqual([]);
  });
});
