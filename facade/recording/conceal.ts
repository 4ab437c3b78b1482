/** Owns what of recorded facts may be printed: no registered secret, and nothing that stands under the name of one; changes no other value. */
import { isSecretName } from '../config/secret-shapes.ts';
import type { Config } from '../config/config.ts';
import { mapStrings } from '../output/clean.ts';
import { Redactor } from '../output/redact.ts';

/** Stands for what is not shown. */
export const CONCEALED = '[redacted]';

/** Takes secrets out of anything that is JSON. */
export type Conceal = <T>(value: T) => T;

/** By the secrets of a configuration. Not the rules alone know what a secret is: `password` is one by its name. */
export function concealer(config: Pick<Config, 'secrets'>): Conceal {
  const redactor = new Redactor();
  for (const secret of config.secrets) redactor.register(secret);
  return <T>(value: T): T => mapStrings(withoutNamed(value), (text) => redactor.redact(text).value) as T;
}

function withoutNamed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNamed);
  if (typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(value);
  const hides = fields.some(([key, name]) => (key === 'name' || key === 'fact' || key === 'field') && typeof name === 'string' && /^arg(ument)?s\./.test(name) && isSecretName(name));
  return Object.fromEntries(fields.map(([key, child]) => [key, isSecretName(key) || (hides && HOLDS_VALUE.has(key)) ? hidden(child) : withoutNamed(child)]));
}

/** Of a fact, a change and a condition: the parts that hold a value of the argument, or of the rule about it. */
const HOLDS_VALUE: ReadonlySet<string> = new Set(['value', 'from', 'to', 'text', 'written']);

/** Absence is no secret, and a number that counts tokens neither. */
function hidden(value: unknown): unknown {
  return typeof value === 'string' || (typeof value === 'object' && value !== null) ? CONCEALED : value;
}
