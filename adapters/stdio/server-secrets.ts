/**
 * Owns the filling in of `${secret:NAME}` when a server is started or reached; refuses values that its place cannot
 * carry.
 */
import { TollgateError } from '../../catalogs/errors/error-table.ts';

/** A reference, as the configuration holds it. */
const REFERENCE = /\$\{secret:([A-Za-z_][\w.-]*)\}/g;

/** The names of secrets in texts, each once, in order. */
export function secretNames(texts: Readonly<Record<string, string>>): readonly string[] {
  return [
    ...new Set(Object.values(texts).flatMap((text) => [...text.matchAll(REFERENCE)].map(([, name = '']) => name))),
  ];
}

/**
 * Environment or headers with their secrets filled in, in one pass: a value that looks like a reference stays as it is.
 * Throws what `secrets` throws, and SECRET_MISSING for a value with a NUL, or, in headers, a line break or another
 * control character.
 */
export async function fillSecrets(
  texts: Readonly<Record<string, string>>,
  secrets: (name: string) => Promise<string>,
  place: 'env' | 'headers',
): Promise<Readonly<Record<string, string>>> {
  const names = secretNames(texts);
  if (names.length === 0) return texts;
  const values = new Map(
    await Promise.all(names.map(async (name) => [name, checked(name, await secrets(name), place)] as const)),
  );
  const fill = (text: string): string => text.replaceAll(REFERENCE, (whole, name: string) => values.get(name) ?? whole);
  return Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, fill(text)]));
}

function checked(name: string, value: string, place: 'env' | 'headers'): string {
  const fault = place === 'env' ? /\0/ : /[^\t\x20-\x7e\x80-\xff]/;
  if (!fault.test(value)) return value;
  throw new TollgateError('SECRET_MISSING', {
    detail: `Secret "${name}" holds a ${place === 'env' ? 'NUL' : 'line break or another character'} that ${place === 'env' ? 'no variable' : 'no header'} can carry.`,
    next: `Set it again: \`tollgate secret set ${name}\`.`,
  });
}
