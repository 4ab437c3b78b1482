/** Finds the files that a configuration names, even if it cannot be loaded, so that their correction is noticed. */
import path from 'node:path';
import { readText } from './reading/text-files.ts';
import { readYaml } from './reading/yaml-document.ts';
import { resolver } from './work-folders.ts';

const MAX_BYTES = 1024 * 1024;

/**
 * Returns the configuration file, and the files and folders under `include` and `policies` whose names contain no
 * variable; absolute. Never throws.
 */
export function mentionedFiles(file: string, home: string): readonly string[] {
  const absolute = path.resolve(file);
  const read = readText(absolute, MAX_BYTES);
  const value: unknown = read.ok ? readYaml(path.basename(file), read.text).value : undefined;
  const named = [
    ...listIn(value, 'include'),
    ...listIn(value, 'policies').flatMap((entry) => [
      entry,
      field(entry, 'path'),
      ...listIn(field(entry, 'verify'), 'keys'),
    ]),
  ];
  const plain = named.filter((name): name is string => typeof name === 'string' && name !== '' && !name.includes('$'));
  return [absolute, ...plain.map(resolver(path.dirname(absolute), home))];
}

function field(value: unknown, key: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[key] : undefined;
}

function listIn(value: unknown, key: string): readonly unknown[] {
  const list = field(value, key);
  return Array.isArray(list) ? list : [];
}
