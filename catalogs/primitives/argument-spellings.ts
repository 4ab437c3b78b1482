/**
 * The other spellings that models use for the primitives' arguments. Two spellings with different values are refused.
 */
import { isDeepStrictEqual } from 'node:util';
import { TollgateError } from '../errors/error-table.ts';
import { misnamedHint } from '../validation/validation-faults.ts';
import { ARGUMENT_SCHEMAS } from './primitive-schemas.ts';

/** Arguments with their own names, and a note for each change: no value is changed silently (CY-15). */
export interface NormalizedArguments {
  readonly args: Readonly<Record<string, unknown>>;
  readonly notes: readonly string[];
}

const FILE: readonly (readonly [string, string])[] = [
  ['file_path', 'path'],
  ['filePath', 'path'],
  ['filename', 'path'],
];
const FOLDER = ['workdir', 'dir_path', 'directory'] as const;
const EDIT: readonly (readonly [string, string])[] = [
  ['oldText', 'old_string'],
  ['oldString', 'old_string'],
  ['old_str', 'old_string'],
  ['old_text', 'old_string'],
  ['before', 'old_string'],
  ['search', 'old_string'],
  ['newText', 'new_string'],
  ['newString', 'new_string'],
  ['new_str', 'new_string'],
  ['new_text', 'new_string'],
  ['after', 'new_string'],
  ['replace', 'new_string'],
  ['replaceAll', 'replace_all'],
  ['allow_multiple', 'replace_all'],
];

/** Other name → name, by primitive: how coding agents call these arguments. */
const ALIASES: ReadonlyMap<string, ReadonlyMap<string, string>> = new Map([
  ['read', new Map([...FILE, ['dir_path', 'path'], ['directory', 'path']])],
  ['write', new Map([...FILE, ['text', 'content'], ['file_text', 'content']])],
  ['edit', new Map([...FILE, ...EDIT])],
  [
    'bash',
    new Map([
      ['cmd', 'command'],
      ...FOLDER.map((name) => [name, 'cwd'] as const),
      ['session_id', 'session'],
      ['sessionId', 'session'],
      ['pid', 'session'],
      ['chars', 'input'],
      ['data', 'input'],
    ]),
  ],
]);

/**
 * Gives arguments their own names. `null` counts as left out (strict hosts send every argument). Idempotent, pure.
 * Throws ARGS_INVALID if two spellings of one argument differ. Unknown names stay, for the schema to refuse.
 */
export function normalizeArguments(primitive: string, args: Readonly<Record<string, unknown>>): NormalizedArguments {
  const draft = new Draft(args);
  for (const [alias, name] of ALIASES.get(primitive) ?? []) draft.move(alias, name);
  if (primitive === 'read') lineRange(draft);
  if (primitive === 'bash') bashForms(draft);
  if (primitive === 'edit') editForms(draft);
  const normal = draft.done();
  requireParts(primitive, normal.args);
  return normal;
}

/** What an action requires. The schemas of the primitives are flat and cannot say it. */
const PARTS: ReadonlyMap<string, string> = new Map([
  ['bash.run', 'command'],
  ['bash.start', 'command'],
  ['bash.send', 'session'],
  ['bash.poll', 'session'],
  ['bash.kill', 'session'],
  ['read.search', 'pattern'],
  ['read.find', 'pattern'],
]);

function requireParts(primitive: string, args: Readonly<Record<string, unknown>>): void {
  const action = String(args.action ?? (primitive === 'bash' ? 'run' : 'file'));
  const part = PARTS.get(`${primitive}.${action}`);
  if (part === undefined || (args[part] !== undefined && args[part] !== '')) return;
  const schema = { ...ARGUMENT_SCHEMAS.get(primitive), required: [part] };
  throw new TollgateError('ARGS_INVALID', {
    detail: `${part}: is required for action "${action}"${misnamedHint(part, schema, args)}`,
    data: { paths: [part] },
  });
}

class Draft {
  readonly #args: Map<string, unknown>;
  readonly #notes: string[] = [];

  constructor(args: Readonly<Record<string, unknown>>) {
    this.#args = new Map(Object.entries(args).filter(([, value]) => value !== null));
  }

  /** Removes and returns the value of `name`. */
  take(name: string): unknown {
    const value = this.#args.get(name);
    this.#args.delete(name);
    return value;
  }

  get(name: string): unknown {
    return this.#args.get(name);
  }

  /** Sets `name` from the value of `source`. */
  put(source: string, name: string, value: unknown): void {
    const known = this.#args.get(name);
    if (known !== undefined && !isDeepStrictEqual(known, value)) {
      throw new TollgateError('ARGS_INVALID', {
        detail: `${source} and ${name} have different values.`,
        next: `Give only ${name}.`,
      });
    }
    this.#args.set(name, value);
    this.#notes.push(`${source} was taken as ${name}`);
  }

  move(alias: string, name: string): void {
    if (this.#args.has(alias)) this.put(alias, name, this.take(alias));
  }

  /** Keeps an argument under its own name, without a note. */
  set(name: string, value: unknown): void {
    this.#args.set(name, value);
  }

  done(): NormalizedArguments {
    return { args: Object.fromEntries(this.#args), notes: this.#notes };
  }
}

function lineRange(draft: Draft): void {
  const end = draft.get('end_line');
  draft.move('start_line', 'offset');
  if (typeof end !== 'number') return;
  draft.take('end_line');
  const first = draft.get('offset') ?? 1;
  if (typeof first === 'number') draft.put('end_line', 'limit', end - first + 1);
}

function bashForms(draft: Draft): void {
  const session = draft.get('session');
  if (typeof session === 'number') draft.set('session', String(session));
  const timeout = draft.get('timeout');
  if (typeof timeout !== 'number') return;
  draft.take('timeout');
  // Agents give timeouts in seconds or in milliseconds with the same name. No one waits less than a second.
  if (timeout < 1000) draft.put(`timeout (${timeout} s)`, 'timeout_ms', timeout * 1000);
  else draft.put(`timeout (${timeout} ms)`, 'timeout_ms', timeout);
}

function editForms(draft: Draft): void {
  const expected = draft.get('expected_replacements');
  if (typeof expected === 'number') {
    draft.take('expected_replacements');
    draft.put('expected_replacements (the number is not checked)', 'replace_all', expected > 1);
  }
  const edits = draft.get('edits');
  if (!Array.isArray(edits)) return;
  const steps = edits.map((step: unknown) => (isObject(step) ? normalizeArguments('edit', step).args : step));
  if (draft.get('old_string') !== undefined) return draft.set('edits', steps);
  const [first, ...rest] = steps;
  draft.take('edits');
  if (!isObject(first)) return draft.set('edits', steps);
  for (const [name, value] of Object.entries(first)) draft.put(`${name} of edits[0]`, name, value);
  if (rest.length > 0) draft.set('edits', rest);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
