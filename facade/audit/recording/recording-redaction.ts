/**
 * Removes secrets from recorded facts before they are printed: registered secrets, values with the name of a secret,
 * and values in the form of one.
 */

import type { Config } from '../../config/config.ts';
import { isSecretArgument, isSecretName, isToken } from '../../config/servers/secret-shapes.ts';
import { Redactor } from '../../output/redactor.ts';
import { mapStrings } from '../../output/result-cleaning.ts';

/** Replaces a value that is not shown. */
const CONCEALED = '[redacted]';

/** Removes secrets from any JSON value. */
export type Conceal = <T>(value: T) => T;

/** By the secrets of a configuration, and by names: `password` is a secret by its name. */
export function createConceal(config: Pick<Config, 'secrets'>): Conceal {
  const redactor = new Redactor();
  for (const secret of config.secrets) redactor.register(secret);
  return <T>(value: T): T => mapStrings(withoutNamed(value), (text) => redactor.redact(text).value) as T;
}

/** `before` is the text before it in a list, because the value of an option is an item of its own there. */
function withoutNamed(value: unknown, before?: string): unknown {
  if (typeof value === 'string') return withoutShapes(value, before);
  if (Array.isArray(value))
    return value.map((item, at) =>
      withoutNamed(item, typeof value[at - 1] === 'string' ? (value[at - 1] as string) : undefined),
    );
  if (typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(value);
  const hides = fields.some(
    ([key, name]) =>
      (key === 'name' || key === 'fact' || key === 'field') &&
      typeof name === 'string' &&
      /^arg(ument)?s\./.test(name) &&
      isSecretName(name),
  );
  return Object.fromEntries(
    fields.map(([key, child]) => [
      key,
      isSecretName(key) || (hides && HOLDS_VALUE.has(key))
        ? hidden(child)
        : OURS.has(key)
          ? child
          : withoutNamed(child),
    ]),
  );
}

/** Names that Tollgate or a rule gave. A digest has the form of a key. */
const OURS: ReadonlySet<string> = new Set(['revision', 'id', 'rule', 'file']);

/** The separators of words in a shell, in JSON and in a URL. A reference such as `$TOKEN` is no value. */
const WORD = /[^\s"'`,;()<>[\]{}|&?\\]+/g;
const LOGIN = /:\/\/([^/@\s]+)@/g;
/** `token:abc` and `token=abc`, but not `secret://abc`. */
const NAMED = /^(-{0,2}[\w-]+[:=])(?!\/\/)(.+)$/s;
const SCHEME = /^(?:bearer|basic)$/i;
/** Shorter words after `Bearer` are prose. */
const MIN_BEARER = 8;

/** Judges a text word by word, as the arguments of a command: by the form of each word and by the name before it. */
function withoutShapes(text: string, before: string | undefined): string {
  let last = before;
  return text
    .replace(LOGIN, (whole, login: string) => (login.includes(':') || isToken(login) ? `://${CONCEALED}@` : whole))
    .replace(WORD, (word) => {
      const name = last;
      // In `Authorization: Bearer abc` and `"token" : "abc"`, the value is one word further.
      last = word === ':' || word === '=' ? `${name ?? ''}${word}` : SCHEME.test(word) && isHeader(name) ? name : word;
      if (word.startsWith('$') || last === name) return word;
      const [, head = '', value = ''] = NAMED.exec(word) ?? [];
      if (value.startsWith('$')) return word;
      if (head !== '' && (isSecretName(head) || isToken(value))) return head + CONCEALED;
      const follows = isHeader(name) || (SCHEME.test(name ?? '') && word.length >= MIN_BEARER);
      return (follows && /\w/.test(word)) || isSecretArgument(word, name) ? CONCEALED : word;
    });
}

function isHeader(word: string | undefined): boolean {
  return word !== undefined && /^[\w-]+[:=]$/.test(word) && isSecretName(word);
}

/** Of a fact, a change and a condition: the parts that contain a value of the argument, or of the rule about it. */
const HOLDS_VALUE: ReadonlySet<string> = new Set(['value', 'from', 'to', 'text', 'written']);

/** An absent value is no secret, and neither is a number that counts tokens. */
function hidden(value: unknown): unknown {
  return typeof value === 'string' || (typeof value === 'object' && value !== null) ? CONCEALED : value;
}
