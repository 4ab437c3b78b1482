/**
 * Finds where a path argument really leads, for policy and workspace alike. A path that two programs could read
 * differently is refused.
 */
import { lstatSync, readlinkSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { unlessUnreadable } from './missing-files.ts';

/** Where a path leads. Symlinks are resolved for existing parts; the rest stays as it is written. */
export interface PathLocation {
  /** Absolute and real. If there is a `problem`: where the path might lead, or the argument itself. */
  readonly absolute: string;
  /** Relative to `root`, `.` for the root itself; equals `absolute` when not inside. */
  readonly relative: string;
  readonly inside: boolean;
  /** The root that contains it, real. */
  readonly root?: string;
  /** One public line: why the path is refused although it might be inside. */
  readonly problem?: string;
}

const MAX_PATH_BYTES = 4096;
const MAX_NAME_BYTES = 255;
const MAX_LINKS = 40;
/** Limit of `..` in a path, because each costs an access to the disk. */
const MAX_UPS = 64;

/**
 * Locates `raw` among `roots`; relative paths start at the first usable root. Never throws. Roots that are empty,
 * relative or contain NUL are skipped. Components are compared, never prefixes of strings (CVE-2025-53110); symlinks
 * are resolved (CVE-2025-53109). The result is only valid at this moment: the opening of the file must be relative to
 * the root. `realOf` returns the real path of an absolute one, as `realPathOf` does.
 */
export function locate(
  roots: readonly string[],
  raw: string,
  realOf: (absolute: string) => string = realPathOf,
): PathLocation {
  const usable = roots
    .filter((root) => path.isAbsolute(root) && !root.includes('\0'))
    .map((root) => path.resolve(root));
  const base = usable[0];
  if (base === undefined) return refused(raw, 'there is no workspace');
  const literal = fromUri(raw);
  const problem = literal === undefined ? 'a URL is not a path here' : problemOf(literal);
  if (literal === undefined || problem !== undefined) return refused(raw, problem ?? '');
  try {
    const located = locateReal(usable, realOf(path.resolve(base, literal)));
    if (!located.inside) return located;
    if (literal.split('/').includes('..') && walk(base, literal) !== located.absolute) {
      return refused(raw, 'a `..` behind a symlink can mean two places');
    }
    return otherProblem(usable, literal, located.relative) ?? located;
  } catch {
    return refused(raw, 'the path cannot be resolved');
  }
}

function refused(absolute: string, problem: string): PathLocation {
  return { absolute, relative: absolute, inside: false, problem };
}

/** Returns the path of a file: URI, decoded as servers do. Undefined for another scheme. */
function fromUri(raw: string): string | undefined {
  if (!/^(?:file:|[a-z][a-z0-9+.-]*:\/\/)/i.test(raw)) return raw;
  try {
    return fileURLToPath(raw);
  } catch {
    return undefined;
  }
}

/** Returns why a path is refused whose meaning depends on a shell, a home folder or another system. */
function problemOf(text: string): string | undefined {
  if (text.trim() === '') return 'the path is empty';
  if (text.includes('\0')) return 'the path contains NUL';
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_PATH_BYTES) return `the path is longer than ${MAX_PATH_BYTES} bytes`;
  if (bytes > MAX_NAME_BYTES && text.split('/').some((name) => Buffer.byteLength(name) > MAX_NAME_BYTES))
    return `a name in the path is longer than ${MAX_NAME_BYTES} bytes`;
  if (text.split('/..').length > MAX_UPS + 1) return `the path contains more than ${MAX_UPS} \`..\``;
  if (text.startsWith('~')) return '`~` is not expanded; a file with that name is written `./~…`';
  if (/^[a-z]:(?:[\\/]|$)/i.test(text) || text.startsWith('\\\\')) return 'Windows paths are not supported';
  // `$id.tsx` and `routes/$id/` are names that web frameworks use. Capitals, braces and a leading `$name/` are
  // variables.
  if (/\$[{(]|`|\$[A-Z_][A-Z0-9_]*(?![\w.])|^\$(?:\w+(?:\/|$)|[A-Z]{2})|%[A-Z_][A-Z0-9_]{2,}%/.test(text))
    return 'shell variables are not expanded';
  return undefined;
}

/** A server that decodes, trims or replaces separators must not reach another place than the policy was told. */
function otherProblem(roots: readonly string[], literal: string, relative: string): PathLocation | undefined {
  const base = roots.find((root) => literal.startsWith(`${root}/`));
  const rest = base === undefined ? literal : literal.slice(base.length + 1);
  const start = base ?? roots[0] ?? '/';
  for (const reading of [...otherReadings(rest), ...(rest === relative ? [] : otherReadings(relative))]) {
    if (reading.trim() === '') continue;
    const problem = problemOf(reading);
    if (problem !== undefined) return refused(literal, problem);
    const target = path.resolve(start, reading);
    if (!roots.some((root) => isPathWithin(target, root)))
      return refused(target, 'the path leads outside after decoding');
  }
  return undefined;
}

function locateReal(roots: readonly string[], real: string): PathLocation {
  // A root on the way of a real path is real itself.
  const root = roots
    .map((given) => (isPathWithin(real, given) ? given : realPathOf(given)))
    .find((candidate) => isPathWithin(real, candidate));
  if (root === undefined) return { absolute: real, relative: real, inside: false };
  return { absolute: real, relative: path.relative(root, real) || '.', inside: true, root };
}

/**
 * Returns true if `file` is `folder` or is in it. Both are absolute; links are not resolved. It compares components:
 * `/work-old` is not in `/work` (CVE-2025-53110).
 */
export function isPathWithin(file: string, folder: string): boolean {
  const relative = path.relative(folder, file);
  return relative === '' || (!path.isAbsolute(relative) && relative.split(path.sep)[0] !== '..');
}

/** Returns the real path of a file; if it cannot be resolved, the absolute path. */
export function realOrAbsolute(file: string): string {
  return unlessUnreadable(() => realpathSync(file)) ?? path.resolve(file);
}

/**
 * Returns the real path of what exists, with the missing names after it; a dangling symlink counts as its target.
 * Throws errors of the system.
 */
export function realPathOf(absolute: string, links = 0): string {
  try {
    return realpathSync.native(absolute);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if ((code !== 'ENOENT' && code !== 'ENOTDIR') || links > MAX_LINKS) throw error;
  }
  const there = existingOf(absolute);
  if (there !== absolute) return path.join(realPathOf(there, links), absolute.slice(there.length));
  const parent = realPathOf(path.dirname(absolute), links);
  const entry = path.join(parent, path.basename(absolute));
  const target = linkTarget(entry);
  return target === undefined ? entry : realPathOf(path.resolve(parent, target), links + 1);
}

/**
 * Returns the longest existing part of an absolute path, including a link at its end. It halves the path, because each
 * missing name costs an exception, and a path may contain 2,000.
 */
export function existingOf(absolute: string): string {
  const names = absolute.split('/');
  const partOf = (count: number): string => names.slice(0, count).join('/') || '/';
  let [most, least] = [names.length, 1];
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (exists(partOf(middle))) least = middle;
    else most = middle - 1;
  }
  return partOf(least);
}

function exists(file: string): boolean {
  try {
    return lstatSync(file, { throwIfNoEntry: false }) !== undefined;
  } catch {
    return false; // A part of it is a file, or not readable.
  }
}

function linkTarget(entry: string): string | undefined {
  try {
    return readlinkSync(entry);
  } catch {
    return undefined; // It does not exist, or is no link: in both cases the name stays.
  }
}

/** Follows `raw` as the kernel does: `..` after a symlink is the parent of the link's target. */
function walk(base: string, raw: string): string {
  const absolute = path.isAbsolute(raw) ? raw : `${base}/${raw}`;
  const [first = '', ...others] = absolute.split(/\/\.\.(?=\/|$)/);
  return others.reduce(
    (current, names) => realPathOf(path.join(path.dirname(current), names)),
    realPathOf(path.join('/', first)),
  );
}

/** Rounds of rewriting: `%25252e` needs three. No known reader decodes more often. */
const ROUNDS = 4;
const MAX_READINGS = 32;
/** What every text contains that has another reading: a character to decode, to replace or to remove. */
const REWRITTEN = /[%\\]|\.{3}|^[\s"']|\s$/;

/**
 * Returns every text that another program might read in place of `text`, without `text` itself: percent-encoding
 * decoded (repeatedly, overlong UTF-8 and `%uXXXX` too), `\` as separator, outer quotes and spaces removed, `../`
 * removed once.
 */
export function otherReadings(text: string): readonly string[] {
  if (!REWRITTEN.test(text)) return [];
  const readings = new Set([text]);
  let fresh = [text];
  for (let round = 0; round < ROUNDS && fresh.length > 0; round += 1) {
    const next = fresh.flatMap((known) => [
      decodePercent(known),
      known.replaceAll('\\', '/'),
      unwrap(known),
      stripOnce(known),
    ]);
    fresh = [...new Set(next)].filter((reading) => !readings.has(reading));
    for (const reading of fresh) if (readings.size < MAX_READINGS) readings.add(reading);
  }
  readings.delete(text);
  return [...readings];
}

/** Decodes what can be decoded and keeps the rest, like the most lenient reader. */
function decodePercent(text: string): string {
  const wide = text.replace(/%u([0-9a-f]{4})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return wide.replace(/(?:%[0-9a-f]{2})+/gi, (run) => decodeBytes(Buffer.from(run.replaceAll('%', ''), 'hex')));
}

/** UTF-8 as an old decoder reads it: overlong forms such as C0 AE for `.` are accepted (the attack has this name). */
function decodeBytes(bytes: Buffer): string {
  let text = '';
  for (let at = 0; at < bytes.length; ) {
    const first = bytes[at] ?? 0;
    const length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    let point = length === 1 ? first : first & (0x7f >> length);
    for (let step = 1; step < length; step += 1) point = (point << 6) | ((bytes[at + step] ?? 0) & 0x3f);
    text += point <= 0x10ffff ? String.fromCodePoint(point) : '\ufffd';
    at += length;
  }
  return text;
}

function unwrap(text: string): string {
  return text.trim().replace(/^(["'])(.*)\1$/s, '$2');
}

/** `....//` and `..././` become `../` in a filter that removes `../` once. Other paths stay the same. */
function stripOnce(text: string): string {
  if (!text.split(/[\\/]/).some((name) => /^\.{3,}$/.test(name))) return text;
  return text.replaceAll(/\.\.[\\/]/g, '');
}
