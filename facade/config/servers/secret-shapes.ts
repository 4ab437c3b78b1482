/** Owns what looks like a secret, by its name or its shape, and how an argument or an address that holds one is shown; refuses to hide what is a path, a host or code. */

/** Shapes of tokens of well-known services, and long texts of mixed letters and digits. */
const TOKEN =
  /^(?:gh[pousr]_|github_pat_|glpat-|sk-|xox[abpr]-|AKIA|eyJ|npm_|Bearer )|^(?=[^/]*\d)(?=[^/]*[A-Za-z])[A-Za-z0-9_+=]{24,}$|:\/\/[^/@\s]+:[^/@\s]+@/;

const SECRET_NAME = /token|secret|passw|passphrase|api[-_]?key|_key$|credential|authorization|cookie/i;

/** No path, and no blank or letter that a shell or a program would need: code that begins like a key is shown, or it would be agreed to unseen. */
const OPAQUE = /^(?!(?:~|\.{0,2})\/)[^\s"'`()<>;|&$\\{}[\]]{4,}$/;

/** True when the name of a variable or header says that it holds a secret. */
export function isSecretName(name: string): boolean {
  return SECRET_NAME.test(name);
}

/** True for the shape of a token that stands there itself. */
export function isToken(text: string): boolean {
  return TOKEN.test(text) && !isReference(text);
}

/** True when an argument looks like a secret: by its own name, by the flag before it, or by its shape. */
export function isSecretArgument(arg: string, before: string | undefined): boolean {
  const [, name, value] = /^-{0,2}([\w-]+)=(.+)$/s.exec(arg) ?? [];
  if (name !== undefined && value !== undefined)
    return (isSecretName(name) && !isReference(value)) || isToken(value) || isToken(arg);
  if (arg.startsWith('-')) return false;
  const named = before !== undefined && /^--?[\w-]+$/.test(before) && isSecretName(before);
  return (named && !isReference(arg)) || isToken(arg);
}

/** What stands for a key on a screen that a log keeps: a keyed digest, so that a change of it is seen. */
export function starOver(digest: (text: string) => string): (key: string) => string {
  return (key) => `*** (digest ${digest(`args\0${key}`).slice(0, 16)})`;
}

/** Arguments with something else for each that looks like a key, or the part of it that does. */
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

/** Parameters that carry keys, beside those whose names say so (isSecretName). */
const KEY_PARAMETER = /^(?:key|k|auth|sig|signature|pwd|pass|session|sid|jwt|bearer|code)$/i;
/** What nobody chose as a word: ids and keys of any alphabet, with dashes or without. */
const RANDOM = /^(?:[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}|(?=(?:.*\d){3})(?=.*[A-Za-z])[\w.~+=-]{20,})$/i;

/** An address with something else for its login, and for each value of its query and each step of its path that looks like a key. */
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

/** What `addressWithout` would hide of an address. */
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
