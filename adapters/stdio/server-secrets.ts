/** Fills in `${secret:NAME}` when a server is started or connected. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';

/** A reference in the configuration. */
const REFERENCE = /\$\{secret:([A-Za-z_][\w.-]*)\}/g;

/** Returns the names of the secrets in texts, each once, in order. */
export function secretNames(texts: Readonly<Record<string, string>>): readonly string[] {
  const names = Object.values(texts).flatMap((text) => [...text.matchAll(REFERENCE)].map(([, name = '']) => name));
  return [...new Set(names)];
}

/**
 * Fills the secrets into environment variables or headers, in one pass: a value that looks like a reference stays as it
 * is. Throws the errors of `secrets`, and SECRET_MISSING for a value that its place cannot carry: in a variable a NUL
 * character, in a header a line break or another control character.
 */
export async function fillSecrets(
  texts: Readonly<Record<string, string>>,
  secrets: (name: string) => Promise<string>,
  place: 'env' | 'headers',
): Promise<Readonly<Record<string, string>>> {
  const names = secretNames(texts);
  if (names.length === 0) return texts;
  const values = new Map(
    await Promise.all(names.map(async (name) => [name, checkValue(name, await secrets(name), place)] as const)),
  );
  const fill = (text: string): string => text.replaceAll(REFERENCE, (whole, name: string) => values.get(name) ?? whole);
  return Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, fill(text)]));
}

function checkValue(name: string, value: string, place: 'env' | 'headers'): string {
  const [invalid, problem] =
    place === 'env'
      ? [/\0/, 'a NUL character, which an environment variable cannot carry']
      : [/[^\t\x20-\x7e\x80-\xff]/, 'a line break or another character that a header cannot carry'];
  if (!invalid.test(value)) return value;
  throw new TollgateError('SECRET_MISSING', {
    detail: `Secret "${name}" contains ${problem}.`,
    next: `Set it again: \`tollgate secret set ${name}\`.`,
  });
}
