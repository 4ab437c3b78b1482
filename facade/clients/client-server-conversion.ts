/**
 * Converts a client's server to one of tollgate.yaml, with its secrets separate. A server whose secrets could not be
 * protected is refused, and nothing grants it trust.
 */
import { isSecretArgument, isSecretName, isToken } from '../config/servers/secret-shapes.ts';
import type { WrittenServer } from '../config/written-config.ts';
import type { ClientEntry } from './client-entry.ts';
import type { ClientSandbox } from './client-sandbox.ts';

/** A value that is moved out of the file. */
export interface MovedSecret {
  /** As in `${secret:NAME}`. */
  readonly name: string;
  /** The variable or header that had the value. */
  readonly key: string;
  readonly value: string;
}

/** A server as tollgate.yaml writes it. */
export interface Converted {
  readonly server: WrittenServer;
  readonly secrets: readonly MovedSecret[];
  /** Secrets that the client would have asked for, and that are not set yet. */
  readonly wanted: readonly string[];
}

/** Shorter texts cannot be removed from results (facade/secrets/secrets.ts). */
const MIN_SECRET = 6;

/**
 * Values that are clearly no secrets: switches, numbers, levels, folders, addresses without user, query and fragment.
 */
const PLAIN = new RegExp(
  `^(?:${[
    'true|false|yes|no|on|off|auto|none',
    'debug|info|warn|warning|error|trace|production|development|test',
    String.raw`stdio|http|sse|utf-?8|\d{1,6}`,
    String.raw`(?:\$\{(?:userHome|workspaceFolder)\}|~|\.{1,2})?(?:/[\w .-]{1,24})+/?`,
    String.raw`https?://[\w.-]+(?::\d+)?/?`,
  ].join('|')})$`,
  'i',
);

const SCHEME = /^(Bearer|Basic|Token|ApiKey) +(?=\S)/i;

/** Returns the server with its profile, or why it stays where it is. `extra`: variables of its envFile. */
export function convert(
  entry: ClientEntry,
  extra: Readonly<Record<string, string>> = {},
): Converted | { readonly refused: string } {
  const { name, command, args, cwd, url, transport, sandbox, tools } = entry;
  const fault = refusal(entry, extra);
  if (fault !== undefined) return { refused: fault };
  const secrets: MovedSecret[] = [];
  const wanted: string[] = [];
  const move = (values: Readonly<Record<string, string>>, all: boolean): Record<string, string> =>
    Object.fromEntries(
      Object.entries(values).map(([key, value]) => [key, moveOne({ server: name, key, value, all }, secrets, wanted)]),
    );
  const env = { ...move(extra, true), ...move(entry.env, false) };
  const headers = move(entry.headers, false);
  const server: WrittenServer = {
    ...(command !== undefined && { command: ours(command) }),
    ...(args.length > 0 && { args: args.map(ours) }),
    ...(url !== undefined && { url: ours(url) }),
    ...(transport === 'sse' && { transport }),
    ...(cwd !== undefined && { cwd: ours(cwd) }),
    ...(Object.keys(env).length > 0 && { env }),
    ...(Object.keys(headers).length > 0 && { headers }),
    ...(sandbox !== undefined && { sandbox: sandboxOf(sandbox) }),
    ...(tools !== undefined && { tools }),
    profiles: ['default'],
  };
  return { server, secrets, wanted };
}

function refusal(
  { unusable, args, url = '', env, headers }: ClientEntry,
  extra: Readonly<Record<string, string>>,
): string | undefined {
  if (unusable !== undefined) return unusable;
  if ([...args, url, ...Object.values(env), ...Object.values(headers)].some((text) => text.includes('${secret:')))
    return 'it names a secret of Tollgate, which a file that others write must not use';
  const flag = args.find((arg, index) => isSecretArgument(arg, args[index - 1]));
  if (flag !== undefined)
    return (
      'an argument looks like a secret, and process lists show arguments; ' +
      'pass it in a variable of its environment, then import it'
    );
  const address = URL.canParse(url) ? new URL(url) : undefined;
  if (
    address !== undefined &&
    ([...address.searchParams].some(([key, value]) => isSecretName(key) || isToken(value)) ||
      address.pathname.split('/').some(isToken))
  )
    return 'its address contains what looks like a secret, which logs would show; pass it in a header, then import it';
  const mixed = [...Object.entries(env), ...Object.entries(headers), ...Object.entries(extra)].find(([key, value]) =>
    isMixed(key, value),
  );
  return mixed === undefined
    ? undefined
    : `the value of ${mixed[0]} mixes variables with what looks like a secret; split them, then import it`;
}

function isMixed(key: string, value: string): boolean {
  if (!value.includes('${')) return false;
  const rest = value
    .replace(SCHEME, '')
    .replace(/\$\{[^{}]*\}/g, '')
    .trim();
  return (isSecretName(key) && rest.length >= MIN_SECRET && !PLAIN.test(rest)) || isToken(rest);
}

interface Value {
  readonly server: string;
  readonly key: string;
  readonly value: string;
  /** Always a secret, because files of variables are for secrets. */
  readonly all: boolean;
}

function moveOne({ server, key, value, all }: Value, secrets: MovedSecret[], wanted: string[]): string {
  const name = `${server}.${key.replace(/[^\w.-]/g, '-')}`;
  if (value.includes('${')) {
    return ours(value).replace(/\$\{input:([^{}]*)\}/g, (_whole, id: string) => {
      const asked = `${server}.${id.replace(/[^\w.-]/g, '-')}`;
      wanted.push(asked);
      return `\${secret:${asked}}`;
    });
  }
  const scheme = SCHEME.exec(value)?.[0] ?? '';
  const bare = value.slice(scheme.length);
  if (bare.length < MIN_SECRET || (!all && !isSecretName(key) && PLAIN.test(bare))) return ours(value);
  secrets.push({ name, key, value: bare });
  return `${scheme}\${secret:${name}}`;
}

function sandboxOf(sandbox: ClientSandbox): ClientSandbox {
  return Object.fromEntries(
    Object.entries(sandbox).map(([part, lists]) => [
      part,
      Object.fromEntries(Object.entries(lists).map(([key, list]) => [key, list.map(ours)])),
    ]),
  );
}

/** `$$` is a plain `$` in tollgate.yaml, and two of them in a client's file. */
function ours(text: string): string {
  return text.replaceAll('$$', '$$$$$$$$');
}
