/** Owns the reading of other clients' server files (JSON with comments); refuses nothing as a whole: what is wrong is a remark on one server. */
import type { Node } from 'jsonc-parser';
import type { Problem } from './config.ts';
import { readText } from './files.ts';
import { fieldsOf, parseJson, placeAt } from './jsonc.ts';
import { toSlug } from './names.ts';
import { listNames, quote } from './problems.ts';
import type { Place } from './problems.ts';
import type { InputVariable } from './substitute.ts';

/** ~/.claude.json holds histories too; a server file above this size is none. */
const MAX_BYTES = 32 * 1024 * 1024;

/** A client's file: VS Code's `servers` and `inputs`, or the `mcpServers` map of the others (HA-01). */
export interface ClientFile {
  readonly file: string;
  readonly entries: readonly ClientEntry[];
  readonly inputs: ReadonlyMap<string, InputVariable>;
  readonly warnings: readonly Problem[];
}

/** One server as the client wrote it, variables not filled in. */
export interface ClientEntry {
  /** The client's name, and the legal one that is used here. */
  readonly original: string;
  readonly name: string;
  readonly place: Place;
  readonly transport: 'stdio' | 'http' | 'sse';
  readonly command?: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly envFile?: string;
  readonly cwd?: string;
  readonly url?: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Why it cannot be used, when it cannot. */
  readonly unusable?: string;
}

const TRUST_KEYS: ReadonlySet<string> = new Set(['alwaysAllow', 'autoApprove', 'trust']);
const SERVER_KEYS: ReadonlySet<string> = new Set(['type', 'command', 'args', 'env', 'envFile', 'cwd', 'url', 'serverUrl', 'httpUrl', 'headers', 'disabled']);
const ROOT_KEYS: ReadonlySet<string> = new Set(['servers', 'mcpServers', 'mcp', 'inputs', 'projects', '$schema']);

const TRANSPORTS: ReadonlyMap<unknown, 'stdio' | 'http' | 'sse'> = new Map([
  ['stdio', 'stdio'],
  ['local', 'stdio'],
  ['http', 'http'],
  ['streamable-http', 'http'],
  ['streamableHttp', 'http'],
  ['sse', 'sse'],
]);

/** Reads a client's file; `shown` is how messages call it, `project` the folder whose entry of ~/.claude.json counts. Never throws. */
export function readClientFile(absolute: string, shown: string, project: string): ClientFile {
  const read = readText(absolute, MAX_BYTES);
  const empty = { file: shown, entries: [], inputs: new Map<string, InputVariable>() };
  const alone = (place: Place, message: string): ClientFile => ({ ...empty, warnings: [{ file: shown, ...place, message }] });
  if (!read.ok) return alone({ line: 1, column: 1 }, `the included file gives no servers: ${read.reason}; correct include, or restore the file`);
  const parsed = parseJson(read.text);
  if (!('root' in parsed)) return alone(parsed.place, `the included file is not JSON (${parsed.fault}), so none of its servers exists; correct the line`);
  return new ClientReader(shown, read.text, absolute).run(parsed.root, project);
}

/** Walks one file and collects its servers and remarks. */
class ClientReader {
  readonly #file: string;
  readonly #text: string;
  readonly #isGemini: boolean;
  readonly #warnings: Problem[] = [];

  constructor(file: string, text: string, absolute: string) {
    this.#file = file;
    this.#text = text;
    this.#isGemini = /[/\\]\.gemini[/\\]/.test(absolute);
  }

  run(root: Node, project: string): ClientFile {
    const { fields } = fieldsOf(root);
    const local = fieldsOf(fieldsOf(fields.get('projects')).fields.get(project)).fields.get('mcpServers');
    const containers = [local, fields.get('servers'), fields.get('mcpServers'), fieldsOf(fields.get('mcp')).fields.get('servers')].filter((node) => node !== undefined);
    if (containers.length === 0) this.#warn(root, 'the included file has neither servers nor mcpServers; correct include, or take the file out');
    const unread = [...fields.keys()].filter((key) => !ROOT_KEYS.has(key));
    if (unread.length > 0) this.#warn(root, `keys that are not read here: ${listNames(unread.map(quote))}`);
    const entries = containers.flatMap((container) => this.#entries(container));
    return { file: this.#file, entries, inputs: this.#inputs(fields.get('inputs')), warnings: this.#warnings };
  }

  #entries(container: Node): readonly ClientEntry[] {
    const { fields, twice } = fieldsOf(container);
    if (container.type !== 'object') this.#warn(container, 'the servers are not an object; write "name": { … } for each');
    return [...fields].map(([original, node]) => {
      const name = toSlug(original);
      if (name !== original) this.#warn(node, `server ${quote(original)} is called ${name} here: names are lower-case letters, digits and hyphens`);
      const entry = this.#entry(original, node);
      return { ...entry, ...(twice.includes(original) && { unusable: 'two servers of this file have this name' }) };
    });
  }

  #entry(original: string, node: Node): ClientEntry {
    const { fields, twice } = fieldsOf(node);
    for (const [key, value] of fields) this.#remarkKey(original, key, value);
    const faults = twice.map((key) => `key ${quote(key)} stands twice`);
    const text = (key: string): string | undefined => {
      const value = fields.get(key);
      if (value === undefined || value.type === 'string') return value?.value as string | undefined;
      faults.push(`${key} is not a text`);
      return undefined;
    };
    const address = text('httpUrl') ?? text('serverUrl') ?? text('url');
    const [command, cwd, envFile] = [text('command'), text('cwd'), text('envFile')];
    const lists = { args: this.#texts(fields.get('args'), faults), env: this.#map(fields.get('env'), faults), headers: this.#map(fields.get('headers'), faults) };
    if (fields.get('disabled')?.value === true) faults.push('the file disables it');
    if (command === undefined && address === undefined) faults.push('it has neither command nor url');
    const transport = this.#transport(fields, faults);
    return {
      original,
      name: toSlug(original),
      place: placeAt(this.#text, node.offset),
      transport,
      ...(command !== undefined && { command }),
      ...(address !== undefined && { url: address }),
      ...(cwd !== undefined && { cwd }),
      ...(envFile !== undefined && { envFile }),
      ...lists,
      ...(faults[0] !== undefined && { unusable: faults[0] }),
    };
  }

  #transport(fields: ReadonlyMap<string, Node>, faults: string[]): 'stdio' | 'http' | 'sse' {
    const type: unknown = fields.get('type')?.value;
    const known = TRANSPORTS.get(type);
    if (type !== undefined && known === undefined) faults.push('its type is none of stdio, http and sse');
    if (known !== undefined) return known;
    if (fields.has('command')) return 'stdio';
    // Gemini CLI writes SSE endpoints as `url` and the others as `httpUrl`.
    return this.#isGemini && fields.has('url') && !fields.has('httpUrl') ? 'sse' : 'http';
  }

  #remarkKey(original: string, key: string, node: Node): void {
    if (TRUST_KEYS.has(key)) this.#warn(node, `server ${quote(original)}: ${key} grants trust, which a client's file cannot; approve the server in tollgate.yaml`);
    else if (!SERVER_KEYS.has(key)) this.#warn(node, `server ${quote(original)}: key ${quote(key)} is not read here`);
  }

  #texts(node: Node | undefined, faults: string[]): readonly string[] {
    const items = node?.children ?? [];
    if (node !== undefined && (node.type !== 'array' || items.some((item) => item.type !== 'string'))) faults.push('args are not a list of texts');
    return items.filter((item) => item.type === 'string').map((item) => String(item.value));
  }

  #map(node: Node | undefined, faults: string[]): Readonly<Record<string, string>> {
    const { fields } = fieldsOf(node);
    if (node !== undefined && node.type !== 'object') faults.push('env or headers are not an object');
    // Numbers and booleans are what clients accept here too; null and nested values are not.
    const plain = [...fields].filter(([, value]) => ['string', 'number', 'boolean'].includes(value.type));
    if (plain.length < fields.size) faults.push('env or headers hold a value that is no text');
    return Object.fromEntries(plain.map(([key, value]) => [key, String(value.value)]));
  }

  #inputs(node: Node | undefined): ReadonlyMap<string, InputVariable> {
    const inputs = new Map<string, InputVariable>();
    for (const item of node?.children ?? []) {
      const { fields } = fieldsOf(item);
      const preset: unknown = fields.get('default')?.value;
      const id: unknown = fields.get('id')?.value;
      if (typeof id === 'string') inputs.set(id, typeof preset === 'string' ? { default: preset } : {});
    }
    return inputs;
  }

  #warn(node: Node, message: string): void {
    this.#warnings.push({ file: this.#file, ...placeAt(this.#text, node.offset), message });
  }
}
