/** Stores the tool lists of servers, so that tools/list needs to start no server that an earlier process has listed. */
import { createHash, randomUUID } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { toolFault } from '../../../catalogs/tools/definition-schema.ts';
import type { RawTool } from '../../../catalogs/tools/tool-definition.ts';
import type { Config, ServerConfig } from '../../config/config.ts';
import type { KnownToolLists } from '../../exposure/catalog.ts';
import type { Redactor } from '../../output/redactor.ts';

/** How the lists are read and stored. */
export interface KnownToolListsParts {
  readonly config: Pick<Config, 'state' | 'servers'>;
  /** Keyed, because a definition may contain secrets that could be guessed. */
  readonly digest: (text: string) => string;
  /** A list that contains a secret is not stored, because the next start would not know yet what to redact in it. */
  readonly redactor: Pick<Redactor, 'redact'>;
  /** Called when a list cannot be stored; the next start then asks the server. */
  readonly onFault: (thrown: unknown) => void;
}

/**
 * Returns the stored lists: one file per definition of a server, in the state folder. A list is only a hint for
 * tools/list. Before a call, the server is asked again.
 */
export function openKnownToolLists({ config, digest, redactor, onFault }: KnownToolListsParts): KnownToolLists {
  const folder = path.join(config.state, 'catalog');
  const fileOf = (name: string): string | undefined => {
    const server = config.servers.get(name);
    return server === undefined ? undefined : path.join(folder, `${name}-${short(digest(definitionOf(server)))}.json`);
  };
  return {
    load: (name) => {
      const file = fileOf(name);
      return file === undefined ? undefined : readList(file);
    },
    save: (name, tools) => {
      const file = fileOf(name);
      const text = JSON.stringify(tools);
      if (file === undefined || redactor.redact(text).count > 0) return;
      try {
        mkdirSync(folder, { recursive: true, mode: 0o700 });
        const draft = `${file}.${randomUUID()}`;
        writeFileSync(draft, text, { mode: 0o600 });
        renameSync(draft, file);
      } catch (thrown) {
        onFault(thrown);
      }
    },
  };
}

/** Returns all settings that decide which program runs. */
function definitionOf({
  transport,
  command,
  args,
  env,
  cwd,
  url,
  socket,
  pin,
  headers,
  isolation,
  sandbox,
}: ServerConfig): string {
  return JSON.stringify([transport, command, args, env, cwd, url, headers, isolation, sandbox, socket, pin]);
}

function short(digest: string): string {
  return createHash('sha256').update(digest).digest('hex').slice(0, 16);
}

function readList(file: string): readonly RawTool[] | undefined {
  try {
    const tools: unknown = JSON.parse(readFileSync(file, 'utf8'));
    return Array.isArray(tools) && tools.every((tool) => toolFault(tool) === undefined)
      ? (tools as RawTool[])
      : undefined;
  } catch {
    // No complete list was stored, so the server is asked.
    return undefined;
  }
}
