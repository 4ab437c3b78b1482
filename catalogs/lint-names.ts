/** Owns the lint of names: arguments that ask for secrets, tools that speak of or are called like those of other servers. */
import type { LintNote } from './lint.ts';
import type { RawTool } from './tool.ts';

/** The names that a note about other tools needs: of this server's tools, and of those of the others with their server. */
export interface KnownNames {
  readonly own: ReadonlySet<string>;
  /** Tool → server. */
  readonly others: ReadonlyMap<string, string>;
}

const FETCHED = /^(?:read|reading|content|contents|dump|file|from|text|value|data|of)$/;
const SECRETS = /^(?:ssh|rsa|passwd|password|passwords|shadow|credential|credentials|secret|secrets|privatekey|env|environ|keychain)$/;
const WHOLLY = /^(?:id_(?:rsa|dsa|ed25519)|etc_(?:passwd|shadow)|sidenote|side_note|chain_of_thought|system_prompt|(?:full_|entire_|prior_|previous_)(?:conversation|chat)|(?:conversation|chat)(?:_history|_log)|model_reasoning|(?:all_)?environment_variables)$/;

/** True for an argument's name that asks for a secret file or for what was said elsewhere: `content_of_ssh_id_rsa`, `readPrivateKey`. */
export function isTellingName(name: string): boolean {
  const words = name.replace(/([a-z\d])([A-Z])/g, '$1_$2').toLowerCase().replace(/[^a-z\d]+/g, '_').replace(/^_|_$/g, '');
  if (WHOLLY.test(words)) return true;
  const parts = words.replace('private_key', 'privatekey').replace('id_rsa', 'rsa').split('_');
  return parts.length > 1 && parts.some((part) => SECRETS.test(part)) && parts.some((part) => FETCHED.test(part)) && !/^(?:password|secret|env)_(?:file|value|data|text)$/.test(words);
}

/** Names that no sentence holds by chance: two words, a capital inside, a digit. */
const TELLING = /[_-]|[a-z][A-Z]|\d/;
const WORD = /[A-Za-z][\w-]{2,80}/g;

/** Tools of other servers that a text speaks of, with the place; and, where nothing is known of others, names in its calls that are none of its own. */
export function crossNotes(text: string, { own, others }: KnownNames): readonly { readonly name: string; readonly at: number }[] {
  if (others.size === 0) return [];
  const found: { readonly name: string; readonly at: number }[] = [];
  for (const match of text.matchAll(WORD)) {
    const [name] = match;
    if (own.has(name) || !others.has(name)) continue;
    const after = text.slice(match.index + name.length, match.index + name.length + 8);
    if (!TELLING.test(name) && !/^[`'"]? tool\b/.test(after)) continue;
    found.push({ name: `${others.get(name) ?? ''}.${name}`, at: match.index });
    if (found.length === 8) break;
  }
  return found;
}

/** The name of the tool beside those of others: the same, the same but for case or signs, or a forged `server__tool`. */
export function nameNotes(tool: RawTool, { others }: KnownNames): readonly LintNote[] {
  const notes: LintNote[] = [];
  const bare = bareName(tool.name);
  for (const [name, server] of others) {
    if (bareName(name) !== bare && bareName(`${server}${name}`) !== bare) continue;
    notes.push({ id: 'NAME_COLLISION', where: 'name', text: `${server}.${name}` });
  }
  const hints = tool.annotations as { readonly readOnlyHint?: unknown } | undefined;
  if (hints?.readOnlyHint === true && DESTROYS.test(tool.name)) notes.push({ id: 'ANNOTATION_LIE', where: 'annotations.readOnlyHint', text: tool.name.slice(0, 60) });
  return notes;
}

const DESTROYS = /^(?:[a-z]+[_-])?(?:delete|remove|drop|destroy|wipe|purge|erase|truncate|uninstall|kill|terminate)(?:$|[_-]|[A-Z])/;

/** Case, signs and digits that look like letters count for nothing. */
function bareName(name: string): string {
  return name.toLowerCase().replace(/[^a-z\d]/g, '').replace(/[1l]/g, 'i').replaceAll('0', 'o');
}
