/** Recognizes secrets by their name or form, and masks them in arguments and addresses. */
/** Tokens of well-known services, long texts of mixed letters and digits, and addresses with a password. */
const TOKEN = new RegExp(
  [
    '^(?:gh[pousr]_|github_pat_|glpat-|sk-|xox[abpr]-|AKIA|eyJ|npm_|Bearer )',
    '^(?=[^/]*\\d)(?=[^/]*[A-Za-z])[A-Za-z0-9_+=]{24,}$',
    '://[^/@\\s]+:[^/@\\s]+@',
  ].join('|'),
);

const SECRET_NAME = /token|secret|passw|passphrase|api[-_]?key|_key$|credential|authorization|cookie/i;

/**
 * A text without path, spaces and characters of shells and programs. Only such a text is masked as a whole, because
 * code that begins like a key must stay visible to the person who approves it.
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

/** Returns a function that replaces a key by a keyed digest, so that a reader sees when the key changes. */
export function keyMask(digest: (text: string) => string): (key: string) => string {
  return (key) => `*** (digest ${digest(`args\0${key}`).slice(0, 16)})`;
}

/** Returns the arguments, where `mask` replaces each one, or part of one, that looks like a key. */
export function maskArguments(args: readonly string[], mask: (key: string) => string): readonly string[] {
  return args.map((arg, index) => {
    if (!isSecretArgument(arg, args[index - 1])) return arg;
    const [, head = '', value = arg] = /^(-{0,2}[\w-]+=)(.+)$/s.exec(arg) ?? [];
    if (value.includes('://'))
      return (
        head +
        value.replace(
          /(:\/\/)([^/@\s]+:[^/@\s]+)@/g,
          (_whole, slashes: string, login: string) => `${slashes}${mask(login)}@`,
        )
      );
    return OPAQUE.test(value) ? head + mask(value) : arg;
  });
}

/** Parameters that carry keys, in addition to those whose names say so (isSecretName). */
const KEY_PARAMETER = /^(?:key|k|auth|sig|signature|pwd|pass|session|sid|jwt|bearer|code)$/i;
/** UUIDs, and texts of at least 20 characters with letters and three digits. */
const RANDOM = /^(?:[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}|(?=(?:.*\d){3})(?=.*[A-Za-z])[\w.~+=-]{20,})$/i;

/** Returns an address, where `mask` replaces its login, and each query value and path segment that looks like a key. */
export function maskAddress(address: string, mask: (key: string) => string): string {
  const [, scheme = '', login, host = '', rest = ''] =
    /^([a-z][\w+.-]*:\/\/)(?:([^/?#]*)@)?([^/?#]*)(.*)$/is.exec(address) ?? [];
  if (scheme === '') return address;
  const shown = rest.replace(/[^/?&#;]+/g, (part) => {
    const [, name = '', value = part] = /^([^=]+)=(?!=*$)(.+)$/s.exec(part) ?? [];
    const isKey =
      !isReference(value) &&
      (isSecretName(decoded(name)) ||
        KEY_PARAMETER.test(name) ||
        isToken(decoded(value)) ||
        RANDOM.test(decoded(value)));
    return isKey ? part.slice(0, -value.length) + mask(value) : part;
  });
  return `${scheme}${login === undefined ? '' : `${mask(login)}@`}${host}${shown}`;
}

/** Returns the parts of an address that `maskAddress` replaces. */
export function keysInAddress(address: string): readonly string[] {
  const keys: string[] = [];
  maskAddress(address, (key) => {
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
