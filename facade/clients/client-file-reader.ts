/**
 * Reads other clients' server files by the table of formats. A fault is a warning about one server, never a refusal of
 * the file.
 */
import type { Node } from 'jsonc-parser';
import { type ConfigPath, listNames, type Problem, quote } from '../config/config-problems.ts';
import { fieldsOf, parseJson } from '../config/reading/jsonc.ts';
import { readText } from '../config/reading/text-files.ts';
import type { InputVariable } from '../config/reading/variable-substitution.ts';
import { type ClientEntry, readEntry } from './client-entry.ts';
import { ADDRESS_KEYS, type ClientFormat, CONTAINERS, formatOf } from './client-formats.ts';
import { parseToml } from './toml-tree.ts';

/** ~/.claude.json contains histories too; no server file is larger. */
const MAX_BYTES = 32 * 1024 * 1024;
/** The most servers of a file, so that a hostile file costs no more than this. */
const MAX_ENTRIES = 1000;

/** What a client's file holds (HA-01). */
export interface ClientFile {
  readonly file: string;
  /** Absent for a file at no client's place. */
  readonly format?: ClientFormat;
  readonly entries: readonly ClientEntry[];
  readonly inputs: ReadonlyMap<string, InputVariable>;
  readonly warnings: readonly Problem[];
}

/** How a file is read. `shown`: its name in messages. `project`: the folder whose entry in ~/.claude.json counts. */
export interface Reading {
  readonly shown: string;
  readonly project: string;
  /** The client of the file. Default: the client that owns its place. */
  readonly format?: ClientFormat;
  /** Where the file is read (see World in facade/config/work-folders.ts). Default: at its place. */
  readonly at?: (file: string) => string;
}

const ROOT_KEYS: ReadonlySet<string> = new Set([...CONTAINERS, 'inputs', 'projects', '$schema']);

/** Reads a client's file. Never throws. */
export function readClientFile(absolute: string, reading: Reading): ClientFile {
  const read = readText(reading.at?.(absolute) ?? absolute, MAX_BYTES);
  if (read.ok) return readClientText(read.text, { ...reading, file: absolute });
  return unreadFile(
    reading.shown,
    { line: 1, column: 1 },
    `the included file defines no servers: ${read.reason}; correct include, or restore the file`,
  );
}

/** Reads the text of a client's file; `file` is its place. Never throws. */
export function readClientText(
  text: string,
  { shown, project, file, format = formatOf(file) }: Reading & { readonly file: string },
): ClientFile {
  const isToml = format?.syntax === 'toml' || file.endsWith('.toml');
  const parsed = isToml ? parseToml(text) : parseJson(text);
  if (!('root' in parsed))
    return unreadFile(
      shown,
      parsed.place,
      `the included file is not ${isToml ? 'TOML' : 'JSON'} (${parsed.fault}), ` +
        'so none of its servers exists; correct the line',
    );
  return new ClientReader({ shown, text, format }).run(parsed.root, project);
}

function unreadFile(file: string, place: ConfigPath, message: string): ClientFile {
  return { file, entries: [], inputs: new Map(), warnings: [{ file, ...place, message }] };
}

/** Walks one file and collects its servers and remarks. */
class ClientReader {
  readonly #file: string;
  readonly #format: ClientFormat | undefined;
  readonly #lineStarts: readonly number[];
  readonly #warnings: Problem[] = [];

  constructor({
    shown,
    text,
    format,
  }: { readonly shown: string; readonly text: string; readonly format: ClientFormat | undefined }) {
    this.#file = shown;
    this.#format = format;
    this.#lineStarts = [0, ...[...text.matchAll(/\n/g)].map(({ index }) => index + 1)];
  }

  run(root: Node, project: string): ClientFile {
    const { fields } = fieldsOf(root);
    const containers = this.#containers(root, fields, project);
    if (containers.length === 0)
      this.#warn(
        root,
        'the included file has neither servers nor mcpServers; correct include, or remove the file from it',
      );
    const unread = [...fields.keys()].filter((key) => !ROOT_KEYS.has(key));
    if (unread.length > 0 && this.#format?.settings !== true && containers.every(({ path }) => path.length > 0))
      this.#warn(root, `keys that Tollgate does not use: ${listNames(unread.map(quote))}`);
    const entries = containers.flatMap((container) => this.#entries(container));
    return {
      file: this.#file,
      ...(this.#format !== undefined && { format: this.#format }),
      entries,
      inputs: inputsOf(fields.get('inputs')),
      warnings: this.#warnings,
    };
  }

  #containers(root: Node, fields: ReadonlyMap<string, Node>, project: string): readonly Container[] {
    const local = at(root, ['projects', project, 'mcpServers']);
    // A client's settings may have a key of another client's name that means something else.
    const own = this.#format === undefined ? undefined : at(root, [this.#format.container]);
    const known = own === undefined ? [...CONTAINERS].map((key) => at(root, [key])) : [own];
    const found = [local, ...known].filter((container) => container !== undefined).map(innerServers);
    if (found.length > 0 || fields.size === 0) return found;
    return [...fields.values()].every(looksLikeServer) ? [{ node: root, path: [] }] : [];
  }

  #entries({ node: container, path }: Container): readonly ClientEntry[] {
    const { fields, twice } = fieldsOf(container);
    if (container.type !== 'object')
      this.#warn(container, 'the servers are not an object; write "name": { … } for each');
    if (fields.size > MAX_ENTRIES)
      this.#warn(container, `${fields.size} servers, of which the first ${MAX_ENTRIES} are read`);
    const doubles = new Set(twice);
    return [...fields].slice(0, MAX_ENTRIES).map(([original, node]) => {
      const entry = readEntry({
        original,
        node,
        path: [...path, original],
        format: this.#format,
        place: this.#place(node),
        remark: (at, message) => this.#warn(at, message),
      });
      if (entry.name !== original)
        this.#warn(
          node,
          `server ${quote(original)} is called ${entry.name} here: names are lower-case letters, digits and hyphens`,
        );
      return { ...entry, ...(doubles.has(original) && { unusable: 'two servers of this file have this name' }) };
    });
  }

  #warn(node: Node, message: string): void {
    this.#warnings.push({ file: this.#file, ...this.#place(node), message });
  }

  /** Searches by halves, because a hostile file may have many lines and many remarks. */
  #place({ offset }: Node): ConfigPath {
    let [low, high] = [0, this.#lineStarts.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if ((this.#lineStarts[middle] ?? 0) <= offset) low = middle;
      else high = middle;
    }
    return { line: low + 1, column: offset - (this.#lineStarts[low] ?? 0) + 1 };
  }
}

/** A map of servers, and the keys that lead to it. */
interface Container {
  readonly node: Node;
  readonly path: readonly string[];
}

function at(root: Node, path: readonly string[]): Container | undefined {
  const node = path.reduce<Node | undefined>((parent, key) => fieldsOf(parent).fields.get(key), root);
  return node === undefined ? undefined : { node, path };
}

/** VS Code's settings, for example, have the servers one level further down, under `mcp`. */
function innerServers(container: Container): Container {
  const inner = fieldsOf(container.node).fields.get('servers');
  return inner?.type === 'object' && !looksLikeServer(inner)
    ? { node: inner, path: [...container.path, 'servers'] }
    : container;
}

function looksLikeServer(node: Node): boolean {
  const { fields } = fieldsOf(node);
  return ['command', ...ADDRESS_KEYS].some((key) => fields.has(key));
}

function inputsOf(node: Node | undefined): ReadonlyMap<string, InputVariable> {
  const inputs = new Map<string, InputVariable>();
  for (const item of node?.children ?? []) {
    const { fields } = fieldsOf(item);
    const preset: unknown = fields.get('default')?.value;
    const id: unknown = fields.get('id')?.value;
    if (typeof id === 'string') inputs.set(id, typeof preset === 'string' ? { default: preset } : {});
  }
  return inputs;
}
