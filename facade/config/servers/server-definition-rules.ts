/** Checks that a server can be started or reached, and that its definition shows which code would run. */
import { urlFault } from '../../../catalogs/readers/urls.ts';
import type { ServerDefinition } from '../config.ts';
import { type Path, quote, showPath } from '../config-problems.ts';
import { isSecretArgument, keysInAddress } from './secret-shapes.ts';
import {
  hasLookAlike,
  hostReachFlag,
  inlineCodeFlag,
  isLoaderVariable,
  isTollgate,
  runsMovingPackage,
} from './spawn-rules.ts';

/** An error or warning with its path inside the definition. Messages never contain values. */
export interface DefinitionFinding {
  readonly path: Path;
  readonly message: string;
}

/** Returns one finding as a list. */
function finding(path: Path, message: string): readonly DefinitionFinding[] {
  return [{ path, message }];
}

/** Headers that Tollgate sets itself; a configured one would split or redirect the session. */
const WIRE_HEADERS: ReadonlySet<string> = new Set([
  'host',
  'content-length',
  'content-type',
  'connection',
  'transfer-encoding',
  'mcp-session-id',
  'mcp-protocol-version',
]);

/** Returns every reason why the server must not be used. */
export function faultsOf(definition: ServerDefinition): readonly DefinitionFinding[] {
  return [
    ...reachFaults(definition),
    ...spawnFaults(definition),
    ...envFaults(definition.env),
    ...headerFaults(definition.headers),
  ];
}

/** Returns warnings for the owner: inline code, packages without an exact version, arguments that look like secrets. */
export function remarksOf(definition: ServerDefinition): readonly DefinitionFinding[] {
  const found: DefinitionFinding[] = [];
  const add = (path: Path, message: string): void => void found.push({ path, message });
  const flag = inlineCodeFlag(definition);
  if (flag !== undefined)
    add(['args'], `${flag} runs code from the arguments, which no one can review as a file; put it into a file`);
  const hostFlag = hostReachFlag(definition);
  if (hostFlag !== undefined)
    add(
      ['args'],
      `${hostFlag} gives the container a part of this machine, which no isolation of Tollgate limits; use ` +
        'isolation: container with sandbox.image instead',
    );
  if (runsMovingPackage(definition))
    add(['args'], 'the package has no exact version, so another may run tomorrow; write name@1.2.3');
  for (const at of Object.keys(definition.filled ?? {}).filter((key) => key === 'url' || key.startsWith('args.'))) {
    const path = at.split('.').map((key) => (/^\d+$/.test(key) ? Number(key) : key));
    add(
      path,
      `${showPath(path)} contains a variable: process lists and logs show its value; ` +
        'pass secrets in env or headers',
    );
  }
  if (definition.filled?.url === undefined && keysInAddress(definition.url ?? '').length > 0)
    add(
      ['url'],
      'url looks as if it contained a secret, which proxies and logs would show; ' +
        'pass it in headers, as ${secret:NAME}',
    );
  definition.args.forEach((arg, index) => {
    if (definition.filled?.[`args.${index}`] === undefined && isSecretArgument(arg, definition.args[index - 1]))
      add(
        ['args', index],
        `args[${index}] looks like a secret, which process lists would show; ` + 'pass it in env, as ${secret:NAME}',
      );
  });
  return found;
}

function reachFaults({
  transport,
  command,
  url,
  socket,
  env,
  args,
  headers,
}: ServerDefinition): readonly DefinitionFinding[] {
  if (socket !== undefined)
    return socketFaults([
      ['command', command],
      ['url', url],
      ['env', env],
      ['args', args],
      ['headers', headers],
    ]);
  if (command !== undefined && url !== undefined)
    return finding(['url'], 'both command and url: a server is either started or reached; remove one');
  if (url === undefined) {
    if (transport !== 'stdio')
      return finding(['transport'], `transport ${transport} needs a url; add url, or remove transport`);
    return Object.keys(headers).length === 0
      ? []
      : finding(['headers'], 'headers are only for a url: a started program gets no HTTP headers; use env');
  }
  if (transport === 'stdio')
    return finding(['transport'], 'transport stdio needs a command; write http or sse, or remove transport');
  if (Object.keys(env).length > 0)
    return finding(['env'], 'env is only for a command: a remote server gets no environment; use headers');
  if (args.length > 0) return finding(['args'], 'args are only for a command; remove them');
  return urlFaults(url);
}

/** The program behind a socket runs already, so nothing is started and no headers are sent. */
function socketFaults(
  settings: readonly (readonly [string, object | string | undefined])[],
): readonly DefinitionFinding[] {
  const [conflicting] = settings.find(([, value]) => value !== undefined && Object.keys(value).length > 0) ?? [];
  return conflicting === undefined
    ? []
    : finding([conflicting], `socket and ${conflicting}: a server on a socket runs already; remove one of them`);
}

function urlFaults(text: string): readonly DefinitionFinding[] {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const message =
    url === undefined || !/^https?:$/.test(url.protocol)
      ? 'the address is not http or https, and no other protocol is safe here; write for example ' +
        'https://mcp.example.org/mcp'
      : url.username !== '' || url.password !== ''
        ? 'the address contains a user or password, which proxies and logs would see; send it in headers'
        : urlFault(text);
  return message === undefined ? [] : finding(['url'], message);
}

function spawnFaults(definition: ServerDefinition): readonly DefinitionFinding[] {
  const { command, args } = definition;
  if (command === undefined) return [];
  const found: DefinitionFinding[] = [];
  const add = (path: Path, message: string): void => void found.push({ path, message });
  if (/^[^\s/\\]+\s+\S/.test(command))
    add(
      ['command'],
      'command is a complete command line, but no shell reads it; write the program as command and the rest as args',
    );
  if (hasLookAlike(definition))
    add(['command'], 'letters outside ASCII in the command or package can imitate a known name; write it in ASCII');
  if (isTollgate(definition)) add(['command'], 'this would start Tollgate inside itself; remove the server');
  if ([command, ...args].some((text) => text.includes('\0')))
    add(['args'], 'a NUL character: programs would see only half of the text; remove it');
  return found;
}

/** Returns why variables must not be given to a program. */
export function envFaults(env: Readonly<Record<string, string>>): readonly DefinitionFinding[] {
  return Object.entries(env).flatMap(([name, value]) => {
    const path = ['env', name];
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
      return finding(path, `variable ${quote(name)} has an illegal name; use letters, digits and _`);
    if (isLoaderVariable(name))
      return finding(
        path,
        `variable ${name} loads foreign code into the program, whatever its command says; remove it`,
      );
    if (/^path$/i.test(name))
      return finding(
        path,
        'variable PATH decides which program a name means, without the check of the program; write the ' +
          'program as an absolute path in command, and remove PATH',
      );
    return value.includes('\0') ? finding(path, `variable ${name} contains a NUL character; remove it`) : [];
  });
}

function headerFaults(headers: Readonly<Record<string, string>>): readonly DefinitionFinding[] {
  return Object.entries(headers).flatMap(([name, value]) => {
    const path = ['headers', name];
    if (!/^[!#$%&'*+.^`|~\w-]+$/.test(name))
      return finding(path, `header ${quote(name)} has an illegal name; write it as in HTTP, for example X-Api-Key`);
    if (WIRE_HEADERS.has(name.toLowerCase())) return finding(path, `Tollgate sets header ${name} itself; remove it`);
    return /[^\t\x20-\x7e\x80-\xff]/.test(value)
      ? finding(
          path,
          `header ${name} contains a line break or another character that HTTP does not allow; ` + 'check the variable',
        )
      : [];
  });
}
