/**
 * Templates of prompts: the marks in them, the messages that one gives, and whether messages of a server match one. A
 * value that is filled in is never read for marks.
 */
import { isObject } from '../../adapters/rpc/wire-message.ts';
import type { WrittenPrompt } from '../config/written-config.ts';

/** The arguments of a prompt. MCP allows texts only. */
export type PromptArguments = Readonly<Record<string, unknown>>;

/** One message of a prompt (MCP 2025-11-25, server/prompts). */
export interface PromptMessage {
  readonly role: string;
  readonly content: Readonly<Record<string, unknown>>;
}

/** `{{name}}`, `{{*}}` for any text, and `{{*media}}` for any image, audio or blob. */
const MARK = /\{\{(\*media|\*|[A-Za-z_][\w-]*)\}\}/g;
const ANY_TEXT = '{{*}}';
const ANY_MEDIA = '{{*media}}';
/** The largest base64 text that `{{*media}}` accepts. The cap on media applies afterwards. */
const BASE64 = /^[A-Za-z0-9+/\r\n]*={0,2}$/;

/** Returns the names of arguments in a template or a text, each once. */
export function marksOf(template: WrittenPrompt['template']): readonly string[] {
  const text = typeof template === 'string' ? template : JSON.stringify(template);
  return [...new Set([...text.matchAll(MARK)].map(([, name = '']) => name).filter((name) => !name.startsWith('*')))];
}

/** Returns a text with the values of arguments. A missing argument is empty. */
export function fillText(text: string, args: PromptArguments): string {
  return text.replace(MARK, (mark, name: string) => (name.startsWith('*') ? mark : String(args[name] ?? '')));
}

/** Returns the messages of a template, with the values of arguments. */
export function fillTemplate(template: WrittenPrompt['template'], args: PromptArguments): readonly PromptMessage[] {
  return messagesOf(template).map(({ role, content }) => ({
    role,
    content: mapTexts(content, (text) => fillText(text, args)) as PromptMessage['content'],
  }));
}

/** Returns true if messages of a server are what the template gives for these arguments (CY-20). Takes linear time. */
export function matchesTemplate(template: WrittenPrompt['template'], args: PromptArguments, given: unknown): boolean {
  const wanted = messagesOf(template);
  return (
    Array.isArray(given) && given.length === wanted.length && wanted.every((one, at) => fits(one, given[at], args))
  );
}

/** A message or a part of one fits if it has the same members, and each text is what the template gives. */
function fits(wanted: unknown, given: unknown, args: PromptArguments): boolean {
  if (typeof wanted === 'string') return typeof given === 'string' && fitsText(wanted, given, args);
  if (Array.isArray(wanted))
    return (
      Array.isArray(given) && given.length === wanted.length && wanted.every((one, at) => fits(one, given[at], args))
    );
  if (!isObject(wanted)) return Object.is(wanted, given);
  if (!isObject(given)) return false;
  const keys = Object.keys(wanted);
  return (
    Object.keys(given).length === keys.length &&
    keys.every((key) => Object.hasOwn(given, key) && fits(wanted[key], given[key], args))
  );
}

function fitsText(wanted: string, given: string, args: PromptArguments): boolean {
  if (wanted === ANY_MEDIA) return BASE64.test(given);
  // Values are filled into each part alone, so a value that looks like a mark stays a value.
  const [first = '', ...rest] = wanted.split(ANY_TEXT).map((part) => fillText(part, args));
  const last = rest.pop();
  if (last === undefined) return given === first;
  if (!given.startsWith(first)) return false;
  let from = first.length;
  for (const part of rest) {
    const at = given.indexOf(part, from);
    if (at < 0) return false;
    from = at + part.length;
  }
  return given.length - last.length >= from && given.endsWith(last);
}

function messagesOf(template: WrittenPrompt['template']): readonly PromptMessage[] {
  if (typeof template === 'string') return [textMessage(template)];
  return template.map(({ role, content }) =>
    typeof content === 'string' ? { ...textMessage(content), role } : { role, content },
  );
}

/** Returns a message of the user. */
export function textMessage(text: string): PromptMessage {
  return { role: 'user', content: { type: 'text', text } };
}

function mapTexts(value: unknown, map: (text: string) => string): unknown {
  if (typeof value === 'string') return map(value);
  if (Array.isArray(value)) return value.map((item) => mapTexts(item, map));
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, mapTexts(item, map)]));
}
