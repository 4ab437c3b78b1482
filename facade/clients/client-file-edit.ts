/**
 * Changes the servers in the text of a client's file, and keeps every other key, comment and byte. A text in an unusual
 * form is refused.
 */
import { isDeepStrictEqual } from 'node:util';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { jsonEditor, type Plain } from './changes/edit-json.ts';
import { tomlEditor } from './changes/edit-toml.ts';
import type { ClientFormat } from './client-formats.ts';

/** The changes of the servers of a file. */
export interface ServerChange {
  /** Replaces a server with the same name. */
  readonly add?: { readonly name: string; readonly value: Plain };
  /** Paths of keys from the root. */
  readonly remove: readonly (readonly string[])[];
  /** VS Code asks for such a value once and stores it. */
  readonly input?: { readonly id: string; readonly description: string };
}

/**
 * Returns the text of the file after the change. An empty text counts as an empty file. Throws USAGE if only a person
 * can change it.
 */
export function changeServers(text: string, format: ClientFormat, change: ServerChange): string {
  const bom = text.startsWith('\uFEFF') ? '\uFEFF' : '';
  const editor = format.syntax === 'toml' ? tomlEditor : jsonEditor;
  const before = editor.read(text.slice(bom.length));
  if (before === undefined)
    throw refusal(
      `The file of ${format.title} is not valid ${format.syntax === 'toml' ? 'TOML' : 'JSON, or has a key twice'}.`,
    );
  const target = changedValue(before, format.container, change);
  const sets = [[format.container, change.add?.name ?? ''], ['inputs']]
    .map((path) => ({ path, value: valueAt(target, path) }))
    .filter(({ path, value }) => value !== undefined && !isDeepStrictEqual(value, valueAt(before, path)));
  const removed = change.remove.reduce<string | undefined>(
    (body, path) => (body === undefined ? undefined : editor.remove(body, path)),
    text.slice(bom.length),
  );
  const changed = sets.reduce(
    (body, { path, value }) => (body === undefined ? undefined : editor.set(body, path, value)),
    removed,
  );
  const after = changed === undefined ? undefined : editor.read(changed);
  if (after !== undefined && isDeepStrictEqual(withoutEmpty(after, format), withoutEmpty(target, format)))
    return `${bom}${changed}`;
  throw refusal(`The servers in the file of ${format.title} are written in a form that a program cannot change.`);
}

function valueAt(root: Plain, path: readonly string[]): unknown {
  return path.reduce<unknown>(
    (value, key) => (typeof value === 'object' && value !== null ? (value as Plain)[key] : undefined),
    root,
  );
}

function changedValue(before: Plain, container: string, { add, remove, input }: ServerChange): Plain {
  const after = structuredClone(before) as Record<string, unknown>;
  for (const path of remove) {
    const parent = path.slice(0, -1).reduce<unknown>((value, key) => (value as Plain)[key], after) as Record<
      string,
      unknown
    >;
    delete parent[path.at(-1) ?? ''];
  }
  if (add !== undefined)
    after[container] = Object.fromEntries([
      ...Object.entries(after[container] ?? {}).filter(([name]) => name !== add.name),
      [add.name, add.value],
    ]);
  return input === undefined ? after : { ...after, inputs: withInput(before.inputs, input) };
}

/** TOML has no table left when its last entry is gone. */
function withoutEmpty(value: Plain, { container }: ClientFormat): Plain {
  const servers = value[container];
  return typeof servers === 'object' && servers !== null && Object.keys(servers).length === 0
    ? Object.fromEntries(Object.entries(value).filter(([key]) => key !== container))
    : value;
}

function withInput(existing: unknown, { id, description }: NonNullable<ServerChange['input']>): readonly unknown[] {
  const inputs = Array.isArray(existing) ? (existing as Plain[]) : [];
  return inputs.some((input) => input.id === id)
    ? inputs
    : [...inputs, { type: 'promptString', id, description, password: true }];
}

function refusal(detail: string): TollgateError {
  return new TollgateError('USAGE', {
    detail,
    next: 'Correct the file, or make the change by hand: nothing was written.',
  });
}
