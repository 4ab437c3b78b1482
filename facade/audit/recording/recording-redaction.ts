/**
 * Owns what of recorded facts may be printed: no registered secret, nothing that stands under the name of one, and
 * nothing of the shape of one; changes no other value.
 */

import type { Config } from '../../config/config.ts';
import { isSecretArgument, isSecretName, isToken } from '../../config/servers/secret-shapes.ts';
import { Redactor } from '../../output/redactor.ts';
import { mapStrings } from '../../output/result-cleaning.ts';

/** Stands for what is not shown. */
const CONCEALED = '[redacted]';

/** Takes secrets out of anything that is JSON. */
export type Conceal = <T>(value: T) => T;

/** By the secrets of a configuration. Not the rules alone know what a secret is: `password` is one by its name. */
export function createConceal(config: Pick<Config, 'secrets'>): Conceal {
  const redactor = new Redactor();
  for (const secret of config.secrets) redactor.register(secret);
  return <T>(value: T): T => mapStrings(withoutNamed(value), (text) => redactor.redact(text).value) as T;
}

/** `before` is the text in front of it in a list: the value of an option stands alone there. */
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

/** Names that Tollgate or a rule gave: a digest has the shape of a key. */
const OURS: ReadonlySet<string> = new Set(['revision', 'id', 'rule', 'file']);

/** What a shell, JSON and a URL put between words. A reference such as `$TOKEN` is no value. */
const WORD = /[^\s"'`,;()<>[\]{}|&?\\]+/g;
const LOGIN = /:\/\/([^/@\s]+)@/g;
/** `token:abc` and `token=abc`, but no `secret://abc`. */
const NAMED = /^(-{0,2}[\w-]+[:=])(?!\/\/)(.+)$/s;
const SCHEME = /^(?:bearer|basic)$/i;
/** Shorter words behind `Bearer` are prose. */
const MIN_BEARER = 8;

/** A text word by word, each judged as an argument of a command is, by its own shape and by the name in front of it. */
function withoutShapes(text: string, before: string | undefined): string {
  let last = before;
  return text
    .replace(LOGIN, (whole, login: string) => (login.includes(':') || isToken(login) ? `://${CONCEALED}@` : whole))
    .replace(WORD, (word) => {
      const name = last;
      // `Authorization: Bearer abc` and `"token" : "abc"`: the value is one word further on.
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

/** Of a fact, a change and a condition: the parts that hold a value of the argument, or of the rule about it. */
const HOLDS_VALUE: ReadonlySet<string> = new Set(['value', 'from', 'to', 'text', 'written']);

/** Absence is no secret, and a number that counts tokens neither. */
function hidden(value: unknown): unknown {
  return typeof value === 'string' || (typeof value === 'object' && value !== null) ? CONCEALED : value;
}
