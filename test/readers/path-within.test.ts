/** Tests whether a path is in a folder, which every boundary checks. */
import { describe, expect, it } from 'vitest';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';

const CASES: readonly (readonly [file: string, folder: string, isWithin: boolean, why: string])[] = [
  ['/work', '/work', true, 'a folder is within itself'],
  ['/work/a', '/work', true, 'an entry is within its folder'],
  ['/work/a/b/c', '/work', true, 'an entry of a sub-folder is within the folder'],
  ['/', '/', true, 'the root is within itself'],
  ['/work', '/', true, 'everything is within the root'],
  ['/work/a', '/', true, 'entries of sub-folders are within the root'],
  ['/', '/work', false, 'the root is within no other folder'],
  ['/work', '/work/a', false, 'a folder is not within its entry'],
  ['/work-old', '/work', false, 'a common beginning of a name is not a folder (CVE-2025-53110)'],
  ['/work.txt', '/work', false, 'a name with an extension is not the folder'],
  ['/Work/a', '/work', false, 'capitals count'],
  ['/other/work/a', '/work', false, 'the same name in another folder is another folder'],
  ['/work/..', '/work', false, '.. leads to the folder above'],
  ['/work/../etc', '/work', false, '.. leads out'],
  ['/work/a/../b', '/work', true, '.. that stays inside is inside'],
  ['/work/..a', '/work', true, 'a name may begin with two dots'],
  ['/work/...', '/work', true, 'a name may be three dots'],
  ['/work/..a/b', '/work', true, 'the name of a folder may begin with two dots'],
  ['/work/', '/work', true, 'a slash at the end of the file changes nothing'],
  ['/work/a', '/work/', true, 'a slash at the end of the folder changes nothing'],
  ['/work//a', '/work', true, 'two slashes change nothing'],
  ['/work/\u00e9', '/work', true, 'names may have any letters'],
  ['/work/a b', '/work', true, 'names may have spaces'],
  ['/work\\a', '/work', false, 'a backslash separates nothing'],
];

describe('isPathWithin', () => {
  it.each(CASES)('says for %j in %j: %j, because %s', (file, folder, isWithin) => {
    expect(isPathWithin(file, folder)).toBe(isWithin);
  });
});
