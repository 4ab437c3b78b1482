/** Tests the question that every boundary asks: does this path lie in that folder? */
import { describe, expect, it } from 'vitest';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';

const CASES: readonly (readonly [file: string, folder: string, isWithin: boolean, why: string])[] = [
  ['/work', '/work', true, 'a folder lies in itself'],
  ['/work/a', '/work', true, 'an entry lies in its folder'],
  ['/work/a/b/c', '/work', true, 'so does an entry of a sub-folder'],
  ['/', '/', true, 'the root lies in itself'],
  ['/work', '/', true, 'everything lies in the root'],
  ['/work/a', '/', true, 'entries of sub-folders lie in the root too'],
  ['/', '/work', false, 'the root lies in no folder'],
  ['/work', '/work/a', false, 'a folder does not lie in its entry'],
  ['/work-old', '/work', false, 'a common beginning of a name is not a folder (CVE-2025-53110)'],
  ['/work.txt', '/work', false, 'nor is a name with an extension'],
  ['/Work/a', '/work', false, 'capitals count'],
  ['/other/work/a', '/work', false, 'the same name in another folder is another folder'],
  ['/work/..', '/work', false, '.. leads to the folder above'],
  ['/work/../etc', '/work', false, '.. leads out'],
  ['/work/a/../b', '/work', true, '.. that stays inside is inside'],
  ['/work/..a', '/work', true, 'a name may begin with two dots'],
  ['/work/...', '/work', true, 'a name may be three dots'],
  ['/work/..a/b', '/work', true, 'so may the name of a folder'],
  ['/work/', '/work', true, 'a slash at the end of the file changes nothing'],
  ['/work/a', '/work/', true, 'nor at the end of the folder'],
  ['/work//a', '/work', true, 'nor do two slashes'],
  ['/work/\u00e9', '/work', true, 'names may have any letters'],
  ['/work/a b', '/work', true, 'and spaces'],
  ['/work\\a', '/work', false, 'a backslash separates nothing'],
];

describe('whether a path lies in a folder', () => {
  it.each(CASES)('%j in %j: %j, because %s', (file, folder, isWithin) => {
    expect(isPathWithin(file, folder)).toBe(isWithin);
  });
});
