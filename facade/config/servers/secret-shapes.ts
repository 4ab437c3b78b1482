/**
 * Recognises secrets by their name or form, and shows arguments and addresses without them. Paths, hosts and code stay
 * visible.
 */

/** Forms of tokens of well-known services, and long texts of mixed letters and digits. */
const TOKEN =
  /^(?:gh[pousr]_|github_pat_|glpat-|sk-|xox[abpr]-|AKIA|eyJ|npm_|Bearer )|^(?=[^/]*\d)(?=[^/]*[A-Za-z])[A-Za-z0-9_+=]{24,}$|:\/\/[^/@\s]+:[^/@\s]+@/;

const SECRET_NAME = /token|secret|passw|passphrase|api[-_]?key|_key$|credential|authorization|cookie/i;

/**
 * Without paths, spaces and characters that a shell or a program needs: code that begins like a key must stay visible
 * to the person who approves it.
 */
const OPAQUE = /^(?!(?:~|\.{0,2})\/)[^\s"'`()<>;|&$\\{}[\]]{4,}$/;

/** Returns true if the name of a variable or header says that it contains a secret. */
export function isSecretName(name: string): boolean {
  return SECRET_NAME.test(name);
}

/** Returns true for a literal with the form of a token. */
export function isToken(text: string): boolean {
  return TOKEN.test(text) && !isReference(text);
}

/** Returns true if an argument looks like a secret: by its own name, by the flag before it, or by its form. */
export function isSecretArgument(arg: string, before: string | undefined): boolean {
  const [, name, value] = /^-{0,2}([\w-]+)=(.+)$/s.exec(arg) ?? [];
  if (name !== undefined && value !== undefined)
    return (isSecretName(name) && !isReference(value)) || isToken(value) || isToken(arg);
  if (arg.startsWith('-')) return false;
  const named = before !== undefined && /^--?[\w-]+$/.test(before) && isSecretName(before);
  return (named && !isReference(arg)) || isToken(arg);
}

/** Replaces a key on a screen that a log may keep: a keyed digest, so that a change of the key is visible. */
export function starOver(digest: (text: string) => string): (key: string) => string {
  return (key) => `*** (digest ${digest(`args\0${key}`).slice(0, 16)})`;
}

/** Returns arguments with a replacement for each one, or the part of one, that looks like a key. */
export function argumentsWithout(args: readonly string[], star: (key: string) => string): readonly string[] {
  return args.map((arg, index) => {
    if (!isSecretArgument(arg, args[index - 1])) return arg;
    const [, head = '', value = arg] = /^(-{0,2}[\w-]+=)(.+)$/s.exec(arg) ?? [];
    if (value.includes('://'))
      return (
        head +
        value.replace(
          /(:\/\/)([^/@\s]+:[^/@\s]+)@/g,
          (_whole, slashes: string, login: string) => `${slashes}${star(login)}@`,
        )
      );
    return OPAQUE.test(value) ? head + star(value) : arg;
  });
}

/** Parameters that carry keys, in addition to those whose names say so (isSecretName). */
const KEY_PARAMETER = /^(?:key|k|auth|sig|signature|pwd|pass|session|sid|jwt|bearer|code)$/i;
/** Texts that no one chose as a word: ids and keys of any alphabet, with dashes or without. */
const RANDOM = /^(?:[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}|(?=(?:.*\d){3})(?=.*[A-Za-z])[\w.~+=-]{20,})$/i;

/**
 * Returns an address with replacements for its login, and for each query value and path segment that looks like a key.
 */
export function addressWithout(address: string, star: (key: string) => string): string {
  const [, scheme = '', login, host = '', rest = ''] =
    /^([a-z][\w+.-]*:\/\/)(?:([^/?#]*)@)?([^/?#]*)(.*)$/is.exec(address) ?? [];
  if (scheme === '') return address;
  const shown = rest.replace(/[^/?&#;]+/g, (piece) => {
    const [, name = '', value = piece] = /^([^=]+)=(?!=*$)(.+)$/s.exec(piece) ?? [];
    const isKey =
      !isReference(value) &&
      (isSecretName(decoded(name)) ||
        KEY_PARAMETER.test(name) ||
        isToken(decoded(value)) ||
        RANDOM.test(decoded(value)));
    return isKey ? piece.slice(0, -value.length) + star(value) : piece;
  });
  return `${scheme}${login === undefined ? '' : `${star(login)}@`}${host}${shown}`;
}

/** Returns what `addressWithout` would hide of an address. */
export function keysInAddress(address: string): readonly string[] {
  const keys: string[] = [];
  addressWithout(address, (key) => {
    keys.push(key);
    return key;
  });
  return keys;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function isReference(text: string): boolean {
  return /^\$\{[^{}]*\}$/.test(text);
}
