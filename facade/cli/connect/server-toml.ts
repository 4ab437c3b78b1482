/**
 * Reads a server from a TOML file of another agent. It refuses keys that have no meaning here, and credentials in clear
 * text.
 */
import { createRequire } from 'node:module';
import type { Verb } from '../../../catalogs/tools/tool-definition.ts';
import { listNames, nearest, quote } from '../../config/config-problems.ts';
import type { WrittenSemantics, WrittenServer } from '../../config/written-config.ts';

const require = createRequire(import.meta.url);

/** The server as an entry of tollgate.yaml, or one line for each problem. No line contains a value of `[auth]`. */
export type ServerToml =
  | {
      readonly ok: true;
      readonly name?: string;
      readonly entry: WrittenServer;
      /** Names of the secrets that it refers to. */
      readonly secrets: readonly string[];
      readonly remarks: readonly string[];
    }
  | { readonly ok: false; readonly problems: readonly string[] };

type Table = Readonly<Record<string, unknown>>;

const ROOT = ['name', 'description', 'label', 'allowed_domains', 'server', 'auth', 'sandbox', 'semantics'] as const;
const SERVER = ['command', 'args'] as const;
const VERBS: readonly Verb[] = ['read', 'write', 'destructive', 'execute'];
const SEMANTICS = ['verb', 'paths', 'urls', 'command'] as const;
const SANDBOX = ['memory_limit', 'read_only_fs', 'allow_tmp'] as const;
const MEGABYTES: Readonly<Record<string, number>> = { k: 1 / 1024, m: 1, g: 1024 };

/**
 * Reads `name`, `description`, `label`, `allowed_domains`, `[server]`, `[auth]`, `[sandbox]` and `[semantics]`, where
 * each tool has a verb or a table. `vault:NAME` becomes `${secret:NAME}`. Never throws.
 */
export function readServerToml(text: string): ServerToml {
  const { parse } = require('smol-toml') as typeof import('smol-toml');
  try {
    return new Reader(parse(text)).run();
  } catch (thrown) {
    // The parser's message quotes the file, which may contain secrets.
    const { line = 1, column = 1 } = thrown as { line?: number; column?: number };
    return { ok: false, problems: [`${line}:${column}: the line is not valid TOML; correct it`] };
  }
}

class Reader {
  readonly #root: Table;
  readonly #problems: string[] = [];
  readonly #remarks: string[] = [];
  readonly #secrets: string[] = [];

  constructor(root: Table) {
    this.#root = root;
  }

  run(): ServerToml {
    this.#checkKeys(this.#root, ROOT, 'the file');
    const server = this.#table('server');
    this.#checkKeys(server, SERVER, '[server]');
    const name = this.#text(this.#root, 'name');
    const [description, label, command] = [
      this.#text(this.#root, 'description'),
      this.#text(this.#root, 'label'),
      this.#text(server, 'command'),
    ];
    const [domains, args] = [this.#texts(this.#root, 'allowed_domains'), this.#texts(server, 'args')];
    if (command === undefined) this.#problems.push('[server] has no command, so the server cannot start; add it');
    const [env, limits, semantics] = [this.#env(), this.#limits(), this.#semantics()];
    const sandbox = {
      ...(domains !== undefined && { network: { allowedDomains: domains } }),
      ...(limits !== undefined && { limits }),
    };
    if (this.#problems.length > 0) return { ok: false, problems: this.#problems };
    const entry: WrittenServer = {
      ...(description !== undefined && { description }),
      ...(command !== undefined && { command: escaped(command) }),
      ...(args !== undefined && { args: args.map(escaped) }),
      ...(Object.keys(env).length > 0 && { env }),
      ...(label !== undefined && { labels: [label] }),
      ...(Object.keys(sandbox).length > 0 && { sandbox }),
      ...(Object.keys(semantics).length > 0 && { semantics }),
    };
    return { ok: true, ...(name !== undefined && { name }), entry, secrets: this.#secrets, remarks: this.#remarks };
  }

  /** Accepts references only, because a value would be in every copy of the file. */
  #env(): Record<string, string> {
    const entries = Object.entries(this.#table('auth')).flatMap(([variable, value]) => {
      const [, secret] = /^vault:([A-Za-z_][\w.-]*)$/.exec(typeof value === 'string' ? value : '') ?? [];
      if (secret !== undefined) this.#secrets.push(secret);
      else
        this.#problems.push(
          `[auth] ${quote(variable)} is not a reference; ` +
            'store the value with `tollgate secret set NAME`, and write "vault:NAME"',
        );
      return secret === undefined ? [] : [[variable, `\${secret:${secret}}`] as const];
    });
    return Object.fromEntries(entries);
  }

  /** The verbs and the form of a table are those of tollgate.yaml. */
  #semantics(): Record<string, WrittenSemantics> {
    const tools = Object.entries(this.#table('semantics')).flatMap(([tool, value]) => {
      const one = typeof value === 'string' ? this.#verb(tool, value) : this.#toolTable(tool, value);
      return one === undefined ? [] : [[tool, one] as const];
    });
    return Object.fromEntries(tools);
  }

  #toolTable(tool: string, value: unknown): WrittenSemantics | undefined {
    const where = `[semantics.${quote(tool)}]`;
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      this.#problems.push(`[semantics] ${quote(tool)} is neither a verb nor a table; write for example "read"`);
      return undefined;
    }
    const table = value as Table;
    this.#checkKeys(table, SEMANTICS, where);
    const verb = this.#verb(tool, this.#text(table, 'verb'));
    const [paths, urls] = [this.#texts(table, 'paths'), this.#texts(table, 'urls')];
    const command = this.#text(table, 'command');
    if (verb === undefined) return undefined;
    return {
      verb,
      ...(paths !== undefined && { paths }),
      ...(urls !== undefined && { urls }),
      ...(command !== undefined && { command }),
    };
  }

  #verb(tool: string, value: string | undefined): Verb | undefined {
    const verb = VERBS.find((one) => one === value);
    if (verb === undefined)
      this.#problems.push(
        `[semantics] ${quote(tool)} has ${value === undefined ? 'no verb' : `the unknown verb ${quote(value)}`}; ` +
          `write one of ${VERBS.join(', ')}`,
      );
    return verb;
  }

  #limits(): { readonly memoryMb: number } | undefined {
    const sandbox = this.#table('sandbox');
    this.#checkKeys(sandbox, SANDBOX, '[sandbox]');
    if (sandbox.read_only_fs === false)
      this.#problems.push(
        '[sandbox] read_only_fs = false would let the server write everywhere; ' +
          'remove it, and name folders in sandbox.filesystem.allowWrite of the new file',
      );
    if (sandbox.allow_tmp === false)
      this.#remarks.push(
        '[sandbox] allow_tmp = false: here every server has its own /tmp, which is deleted when it ends',
      );
    const limit = sandbox.memory_limit;
    if (limit === undefined) return undefined;
    const [, digits, unit = ''] = /^(\d{1,7})([kmg])b?$/i.exec(String(limit)) ?? [];
    if (digits === undefined) this.#problems.push('[sandbox] memory_limit is not a size; write for example "256m"');
    return digits === undefined
      ? undefined
      : { memoryMb: Math.ceil(Number(digits) * (MEGABYTES[unit.toLowerCase()] ?? 1)) };
  }

  #table(key: string): Table {
    const value = this.#root[key];
    if (value === undefined) return {};
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Table;
    this.#problems.push(`${key} is not a table; write [${key}] and its keys below it`);
    return {};
  }

  #text(table: Table, key: string): string | undefined {
    const value = table[key];
    if (value === undefined || typeof value === 'string') return value;
    this.#problems.push(`${key} is not a string; put it into quotes`);
    return undefined;
  }

  #texts(table: Table, key: string): readonly string[] | undefined {
    const value = table[key];
    if (value === undefined || (Array.isArray(value) && value.every((item) => typeof item === 'string'))) return value;
    this.#problems.push(`${key} is not a list of strings; write for example ["one"]`);
    return undefined;
  }

  #checkKeys(table: Table, known: readonly string[], where: string): void {
    for (const key of Object.keys(table).filter((one) => !known.includes(one))) {
      const similar = nearest(key, known);
      const hint = similar === undefined ? `the keys are ${listNames(known)}` : `did you mean ${quote(similar)}?`;
      this.#problems.push(`unknown key ${quote(key)} in ${where}, which would have no effect; ${hint}`);
    }
  }
}

/** In tollgate.yaml, `$` begins a variable. */
function escaped(text: string): string {
  return text.replaceAll('$', '$$$$');
}
