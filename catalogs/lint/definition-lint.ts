/**
 * Makes notes on every text of a server that a model would read, for the person who approves. A note never blocks a
 * tool, because wording proves nothing.
 */

import type { RawTool } from '../tools/tool-definition.ts';
import { decodedBlobs, fold, hiddenMessage, isConfusable, unleet } from './lint-fold.ts';
import { crossNotes, isTellingName, type KnownNames, type LintNote, nameNotes } from './lint-names.ts';
import { LINT_RULES } from './lint-rules.ts';

/** Limit of notes on one definition. */
const MAX_NOTES = 40;
const MAX_TEXT = 65_536;
const NO_NAMES: KnownNames = { own: new Set(), others: new Map() };
/** Places where a schema contains values and names, not sentences. */
const NO_PROSE = /^(?:enum|const|default|pattern|required|\$comment|x-.*|_meta)$/;
const SENTENCE = /(?:[A-Za-z'~/.]{2,40}[ ,:;]{1,3}){6}/;

/**
 * Returns notes on a definition, with all its strings and names. `names`: tools of this server and of the others, for
 * notes about several tools.
 */
export function lintTool(tool: RawTool, names: KnownNames = NO_NAMES): readonly LintNote[] {
  const notes = new Notes();
  if (typeof tool.name === 'string') for (const note of nameNotes(tool, names)) notes.add(note);
  lintInto(notes, { root: tool, where: '' }, names);
  return notes.list;
}

/**
 * Returns notes on instructions, a prompt or a resource: any JSON value that a server says of itself. `where` begins
 * the paths.
 */
export function lintValue(value: unknown, where: string, names: KnownNames = NO_NAMES): readonly LintNote[] {
  const notes = new Notes();
  lintInto(notes, { root: value, where }, names);
  return notes.list;
}

/** Collects notes: each id once per place, at most 40. */
class Notes {
  readonly #known = new Map<string, LintNote>();

  add(note: LintNote): void {
    const key = `${note.id} ${note.where}`;
    if (this.#known.size < MAX_NOTES && !this.#known.has(key)) this.#known.set(key, note);
  }

  get list(): readonly LintNote[] {
    return [...this.#known.values()];
  }
}

function lintInto(notes: Notes, { root, where }: { root: unknown; where: string }, names: KnownNames): void {
  for (const place of textsOf(root, where)) {
    if (place.isName && isTellingName(place.text))
      notes.add({ id: 'PARAM_NAME', where: place.path, text: excerpt(place.text, 0) });
    if (isConfusable(place.text))
      notes.add({
        id: 'CONFUSABLE',
        where: place.path,
        text: excerpt(place.text, Math.max(0, place.text.search(/[^\0-\u007f]/))),
      });
    // Short texts are types, formats and words.
    if (place.text.length >= 8) lintText(notes, place, names);
  }
}

function lintText(notes: Notes, { path, text, isBare }: Place, names: KnownNames): void {
  const hidden = hiddenMessage(text);
  if (hidden !== undefined) notes.add({ id: 'HIDDEN_MESSAGE', where: path, text: excerpt(hidden, 0) });
  const decoded = decodedBlobs(text);
  for (const { plain } of decoded) notes.add({ id: 'ENCODED', where: path, text: excerpt(plain, 0) });
  const plain = fold(text);
  if (isBare && SENTENCE.test(plain)) notes.add({ id: 'TOOL_LINT_SCHEMA', where: path, text: excerpt(plain, 0) });
  for (const one of [plain, ...decoded.map((blob) => blob.plain), ...(hidden === undefined ? [] : [hidden])])
    applyRules(notes, path, one);
  if (path === 'name') return;
  for (const { name, at } of crossNotes(plain, names))
    notes.add({ id: 'CROSS_SERVER', where: path, text: `${excerpt(name, 0)}: ${excerpt(plain, at)}` });
}

function applyRules(notes: Notes, path: string, text: string): void {
  const other = unleet(text);
  for (const reading of other === text ? [text] : [text, other]) {
    const small = reading.toLowerCase();
    for (const { id, pattern } of LINT_RULES) {
      const at = small.search(pattern);
      if (at >= 0) notes.add({ id, where: path, text: excerpt(reading, at) });
    }
  }
}

interface Place {
  readonly path: string;
  readonly text: string;
  /** The name of an argument. */
  readonly isName: boolean;
  /** A value or a name, where no sentence belongs. */
  readonly isBare: boolean;
}

/** Yields every string and every key of the value, because attacks hide in titles, defaults, enums and metadata too. */
function* textsOf(root: unknown, where: string): Generator<Place> {
  const stack = [{ path: escaped(where), value: root, isNamed: false, isBare: false }];
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    const { path, value, isNamed, isBare } = next;
    if (typeof value === 'string') yield { path, text: value.slice(0, MAX_TEXT), isName: false, isBare };
    if (typeof value !== 'object' || value === null) continue;
    for (const [key, child] of Object.entries(value).reverse()) {
      const inner = path === '' ? escaped(key) : `${path.slice(0, 200)}.${escaped(key)}`;
      if (!Array.isArray(value) && (isNamed || key.length > 24))
        yield { path: inner, text: key.slice(0, MAX_TEXT), isName: isNamed, isBare: true };
      stack.push({
        path: inner,
        value: child,
        isNamed: !isNamed && (key === 'properties' || key === 'patternProperties'),
        isBare: isBare || (!isNamed && NO_PROSE.test(key)),
      });
    }
  }
}

function escaped(key: string): string {
  return key.slice(0, 60).replace(/[^ -~]/gu, '?');
}

/**
 * Returns an excerpt that is safe on a screen: a few words around the place, without characters that hide, reorder or
 * control a terminal.
 */
export function excerpt(text: string, at: number): string {
  const from = at < 24 ? 0 : at;
  const part = [...text.slice(from, from + 240)]
    .slice(0, 110)
    .join('')
    .replace(/\s+/g, ' ')
    .replace(/[^ -~]/gu, (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`);
  return `${from > 0 ? '…' : ''}${part.slice(0, 110)}${part.length > 110 || text.length > from + 240 ? '…' : ''}`;
}
