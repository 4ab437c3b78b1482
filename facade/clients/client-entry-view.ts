/** Shows a client's server without any value that could be a secret: of variables, headers, arguments and addresses. */
import { programOf } from '../config/servers/spawn-rules.ts';
import type { ClientEntry } from './client-entry.ts';

/** Runners, whose first plain argument is the package. */
const RUNNERS: ReadonlySet<string> = new Set(['npx', 'bunx', 'pnpx', 'uvx']);
/** Interpreters, whose first argument is the script. */
const INTERPRETERS: ReadonlySet<string> = new Set(['node', 'python', 'python3', 'deno', 'bun']);

/** What may be shown of a server, for tables and JSON. */
export interface ShownEntry {
  readonly name: string;
  readonly original: string;
  /** The program and what it runs; the host of an address. */
  readonly runs: string;
  readonly variables: readonly string[];
  readonly headers: readonly string[];
  readonly unusable?: string;
}

/** Names, the program, and the package or script. Arguments are only counted, because tokens are passed in them too. */
export function showEntry(entry: ClientEntry): ShownEntry {
  const { name, original, env, headers, unusable } = entry;
  return {
    name,
    original,
    runs: runs(entry),
    variables: Object.keys(env),
    headers: Object.keys(headers),
    ...(unusable !== undefined && { unusable }),
  };
}

function runs({ command, args, url }: Pick<ClientEntry, 'command' | 'args' | 'url'>): string {
  if (command === undefined) return url === undefined ? '' : hostOf(url);
  const program = command.split(/\s/)[0] ?? '';
  const shown = [program, ...shownArgument(program, args)];
  const rest = args.length - (shown.length - 1);
  return rest === 0 ? shown.join(' ') : `${shown.join(' ')} … (${rest} more)`;
}

/**
 * Returns the package that a runner would download at each start, without its version; undefined for an installed
 * program.
 */
export function fetchedPackage({ command, args }: Pick<ClientEntry, 'command' | 'args'>): string | undefined {
  if (command === undefined || !RUNNERS.has(programOf(command))) return undefined;
  const [name] = shownArgument(command, args);
  return name?.replace(/(?<=.)@[^/]*$/, '');
}

/** A path and query may contain a key. */
export function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : 'an address';
}

function shownArgument(command: string, args: readonly string[]): readonly string[] {
  const program = programOf(command);
  if (RUNNERS.has(program)) {
    const name = args.find((arg) => !arg.startsWith('-'));
    return name !== undefined &&
      /^(@[\w.-]+\/)?[\w.-]+(@[\w.^~-]+)?$/.test(name) &&
      args.slice(0, args.indexOf(name)).every((arg) => /^-(y|-yes|q|-quiet)$/.test(arg))
      ? [name]
      : [];
  }
  const [first = ''] = args;
  return INTERPRETERS.has(program) && /^[\w./~ -]+\.([cm]?[jt]s|py)$/.test(first) && !first.startsWith('-')
    ? [first]
    : [];
}
