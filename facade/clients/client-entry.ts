/** Reads one server of a client's file, in the spellings of all clients. Keys that would grant it trust are ignored. */
import type { Node } from 'jsonc-parser';
import type { ServerDefinition } from '../config/config.ts';
import { type ConfigPath, quote } from '../config/config-problems.ts';
import { fieldsOf } from '../config/reading/jsonc.ts';
import { toSlug } from '../config/servers/server-names.ts';
import { ADDRESS_KEYS, asOurs, type ClientFormat, TRANSPORTS, TRUST_KEYS } from './client-formats.ts';
import { type ClientSandbox, readSandbox } from './client-sandbox.ts';
import { isRestriction, meantRestriction, readRestrictions, type ToolLimits } from './tool-restrictions.ts';

/** One server as the client wrote it, without its variables filled in. */
export interface ClientEntry extends Pick<ServerDefinition, 'command' | 'args' | 'env' | 'cwd' | 'url' | 'headers'> {
  /** The client's name, and the legal name that is used here. */
  readonly original: string;
  readonly name: string;
  readonly place: ConfigPath;
  /** The keys that lead to it in its file. */
  readonly path: readonly string[];
  readonly transport: 'stdio' | 'http' | 'sse';
  readonly envFile?: string;
  /** Tools that the file excludes. A file may restrict, so this applies. */
  readonly tools?: ToolLimits;
  /** What VS Code's own sandbox gives it and denies it. */
  readonly sandbox?: ClientSandbox;
  /** Keys of that sandbox that Tollgate does not know. */
  readonly unread: readonly string[];
  /** Keys that grant trust; they are ignored. */
  readonly dropped: readonly string[];
  /** Why the server cannot be used. Absent: it can. */
  readonly unusable?: string;
}

/** A server's node, and where its warnings go. */
export interface EntrySource {
  readonly original: string;
  readonly node: Node;
  readonly path: readonly string[];
  readonly format: ClientFormat | undefined;
  readonly place: ConfigPath;
  readonly remark: (at: Node, message: string) => void;
}

const SERVER_KEYS: ReadonlySet<string> = new Set([
  ...[
    'type',
    'transport',
    'command',
    'args',
    'env',
    'environment',
    'envFile',
    'cwd',
    ...ADDRESS_KEYS,
    'headers',
    'disabled',
    'enabled',
    'source',
  ],
  ...['http_headers', 'env_http_headers', 'bearer_token_env_var', 'env_vars', 'sandbox', 'sandboxEnabled'],
]);

/** Reads a server. Never throws. */
export function readEntry(source: EntrySource): ClientEntry {
  const { original, node, place, path } = source;
  const { fields, twice } = fieldsOf(node);
  for (const [key, value] of fields) remarkKey(source, key, value);
  const reader = new EntryReader(
    fields,
    source.format,
    twice.map((key) => `key ${quote(key)} appears twice`),
  );
  const found = reader.run();
  const dropped = [...fields.keys()].filter((key) => TRUST_KEYS.has(key));
  for (const [key] of [...fields].filter((field) => !isKnown(...field))) {
    const meant = meantRestriction(key);
    if (meant !== undefined)
      reader.faults.push(
        `unknown key ${quote(key)}: did you mean ${quote(meant)}? ` +
          'Until it is corrected, it is not known which tools it excludes',
      );
  }
  const [fault] = reader.faults;
  return {
    original,
    name: toSlug(original),
    place,
    path,
    ...found,
    dropped,
    ...(fault !== undefined && { unusable: fault }),
  };
}

function remarkKey({ original, remark }: EntrySource, key: string, node: Node): void {
  if (TRUST_KEYS.has(key))
    remark(
      node,
      `server ${quote(original)}: ${key} grants trust, which a client's file cannot do; tollgate approve asks a person`,
    );
  else if (!isKnown(key, node)) remark(node, `server ${quote(original)}: Tollgate does not use key ${quote(key)}`);
}

function isKnown(key: string, node: Node): boolean {
  return SERVER_KEYS.has(key) || TRUST_KEYS.has(key) || isRestriction(key, node);
}

type Found = Omit<ClientEntry, 'original' | 'name' | 'place' | 'path' | 'dropped' | 'unusable'>;

class EntryReader {
  readonly faults: string[];
  readonly #fields: ReadonlyMap<string, Node>;
  readonly #format: ClientFormat | undefined;

  constructor(fields: ReadonlyMap<string, Node>, format: ClientFormat | undefined, faults: string[]) {
    this.#fields = fields;
    this.#format = format;
    this.faults = faults;
  }

  run(): Found {
    const words = this.#words();
    const url = ADDRESS_KEYS.map((key) => this.#text(this.#fields.get(key), key)).find(
      (address) => address !== undefined,
    );
    const [cwd, envFile] = ['cwd', 'envFile'].map((key) => this.#text(this.#fields.get(key), key));
    const box = readSandbox(this.#fields, (node, key) => this.#list(node, key));
    const tools = readRestrictions(this.#fields, this.faults);
    if (this.#fields.get('disabled')?.value === true || this.#fields.get('enabled')?.value === false)
      this.faults.push('the file disables it');
    if (words.command === undefined && url === undefined) this.faults.push('it has neither command nor url');
    return {
      transport: this.#transport(),
      ...words,
      ...(url !== undefined && { url }),
      ...(cwd !== undefined && { cwd }),
      ...(envFile !== undefined && { envFile }),
      ...box,
      ...(tools !== undefined && { tools }),
      env: { ...this.#passed(), ...this.#map('environment'), ...words.env, ...this.#map('env') },
      headers: {
        ...this.#token(),
        ...this.#named('env_http_headers'),
        ...this.#map('http_headers'),
        ...this.#map('headers'),
      },
    };
  }

  /** A text, one list of all words (OpenCode), or an object with path and args (Zed, older). */
  #words(): {
    readonly command?: string;
    readonly args: readonly string[];
    readonly env?: Readonly<Record<string, string>>;
  } {
    const node = this.#fields.get('command');
    if (node?.type === 'array') {
      const [command, ...args] = this.#list(node, 'command');
      return { ...(command !== undefined && { command }), args };
    }
    if (node?.type === 'object') {
      const { fields } = fieldsOf(node);
      const command = this.#text(fields.get('path'), 'command.path');
      return {
        ...(command !== undefined && { command }),
        args: this.#list(fields.get('args'), 'args'),
        env: this.#plain(fields.get('env')),
      };
    }
    const command = this.#text(node, 'command');
    return { ...(command !== undefined && { command }), args: this.#list(this.#fields.get('args'), 'args') };
  }

  #transport(): 'stdio' | 'http' | 'sse' {
    const type: unknown = (this.#fields.get('type') ?? this.#fields.get('transport'))?.value;
    const known = TRANSPORTS.get(type);
    if (type !== undefined && known === undefined) this.faults.push('its type is none of stdio, http and sse');
    if (known !== undefined) return known;
    if (this.#fields.has('command')) return 'stdio';
    return this.#fields.has('url') && !this.#fields.has('httpUrl') ? (this.#format?.plainUrl ?? 'http') : 'http';
  }

  #text(node: Node | undefined, key: string): string | undefined {
    if (node !== undefined && node.type !== 'string') this.faults.push(`${key} is not a text`);
    return node?.type === 'string' ? this.#ours(String(node.value)) : undefined;
  }

  #ours(text: string): string {
    return asOurs(text, this.#format?.interpolation);
  }

  #list(node: Node | undefined, key: string): readonly string[] {
    const items = node?.children ?? [];
    if (node !== undefined && (node.type !== 'array' || items.some((item) => item.type !== 'string')))
      this.faults.push(`${key} are not a list of texts`);
    return items.filter((item) => item.type === 'string').map((item) => this.#ours(String(item.value)));
  }

  #map(key: string): Readonly<Record<string, string>> {
    return this.#plain(this.#fields.get(key));
  }

  #plain(node: Node | undefined): Readonly<Record<string, string>> {
    const { fields } = fieldsOf(node);
    if (node !== undefined && node.type !== 'object') this.faults.push('env or headers are not an object');
    // Numbers and booleans are accepted, as clients do; null and nested values are not.
    const plain = [...fields].filter(([, value]) => ['string', 'number', 'boolean'].includes(value.type));
    if (plain.length < fields.size) this.faults.push('env or headers contain a value that is not text');
    return Object.fromEntries(plain.map(([name, value]) => [name, this.#ours(String(value.value))]));
  }

  /** Codex writes names of variables instead of values. */
  #named(key: string): Readonly<Record<string, string>> {
    return Object.fromEntries(Object.entries(this.#map(key)).map(([name, variable]) => [name, `\${env:${variable}}`]));
  }

  #passed(): Readonly<Record<string, string>> {
    const node = this.#fields.get('env_vars');
    return node === undefined
      ? {}
      : Object.fromEntries(this.#list(node, 'env_vars').map((name) => [name, `\${env:${name}}`]));
  }

  #token(): Readonly<Record<string, string>> {
    const variable = this.#text(this.#fields.get('bearer_token_env_var'), 'bearer_token_env_var');
    return variable === undefined ? {} : { Authorization: `Bearer \${env:${variable}}` };
  }
}
