/** Owns what looks like a secret, by its name or its shape, and how an argument that does is shown; refuses to hide what is a path, an address or code. */

/** Shapes of tokens of well-known services, and long texts of mixed letters and digits. */
const TOKEN = /^(?:gh[pousr]_|github_pat_|glpat-|sk-|xox[abpr]-|AKIA|eyJ|npm_|Bearer )|^(?=[^/]*\d)(?=[^/]*[A-Za-z])[A-Za-z0-9_+=]{24,}$|:\/\/[^/@\s]+:[^/@\s]+@/;

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
  if (name !== undefined && value !== undefined) return (isSecretName(name) && !isReference(value)) || isToken(value) || isToken(arg);
  if (arg.startsWith('-')) return false;
  const named = before !== undefined && /^--?[\w-]+$/.test(before) && isSecretName(before);
  return (named && !isReference(arg)) || isToken(arg);
}

/** Arguments as they may stand on a screen that a log keeps: what looks like a key is `***`, with a keyed digest, so that a change of it is seen. */
export function shownArguments(args: readonly string[], digest: (text: string) => string): readonly string[] {
  const star = (text: string): string => `*** (digest ${digest(`args\0${text}`).slice(0, 12)})`;
  return args.map((arg, index) => {
    if (!isSecretArgument(arg, args[index - 1])) return arg;
    const [, head = '', value = arg] = /^(-{0,2}[\w-]+=)(.+)$/s.exec(arg) ?? [];
    if (value.includes('://')) return head + value.replace(/(:\/\/)([^/@\s]+:[^/@\s]+)@/g, (_whole, slashes: string, login: string) => `${slashes}${star(login)}@`);
    return OPAQUE.test(value) ? head + star(value) : arg;
  });
}

function isReference(text: string): boolean {
  return /^\$\{[^{}]*\}$/.test(text);
}
