/** Builds servers from included client files. An error makes one server unusable, and never prevents the start. */
import type { ClientEntry } from '../../clients/client-entry.ts';
import { type ClientFile, readClientFile } from '../../clients/client-file-reader.ts';
import { joinLimits } from '../../clients/tool-restrictions.ts';
import type { ServerConfig, ServerDefinition } from '../config.ts';
import { fileProblem, type Problem, quote } from '../config-problems.ts';
import { outsideValuesOf } from '../reading/outside-values.ts';
import { readText, realPath } from '../reading/text-files.ts';
import { substitute, type Variables } from '../reading/variable-substitution.ts';
import type { WrittenServer } from '../written-config.ts';
import { isOverlay, settingsOf } from './configured-servers.ts';
import type { ValidRegistration } from './registered-servers.ts';
import type { SandboxBase } from './sandbox-settings.ts';
import { isSecretName } from './secret-shapes.ts';
import { faultsOf, remarksOf } from './server-definition-rules.ts';
import { nameFault, SERVER_NAME } from './server-names.ts';
import { inlineCodeFlag, isConfigVariable, isTollgate } from './spawn-rules.ts';

/** What including needs. `servers`: those of tollgate.yaml, to which the included ones are added. */
export interface IncludeContext {
  readonly servers: Map<string, ServerConfig>;
  readonly written: Readonly<Record<string, WrittenServer>>;
  readonly variables: Variables;
  readonly resolve: (path: string) => string;
  /** Folder of tollgate.yaml. */
  readonly project: string;
  readonly secrets: Set<string>;
  /** The files of variables that entries name are added, absolute. */
  readonly envFiles: Set<string>;
  /** Where a file is read (see World in work-folders.ts). */
  readonly at: (file: string) => string;
  readonly base: SandboxBase;
  /** The most servers in total (HA-05). */
  readonly limit: number;
}

/** Adds the servers of the included files, and returns the warnings about them. Never throws. */
export function includeServers(
  files: readonly { readonly file: string; readonly shown: string }[],
  context: IncludeContext,
): Problem[] {
  const warnings: Problem[] = [];
  files.forEach(({ file, shown }) => {
    const client = readClientFile(file, { shown, project: context.project, at: context.at });
    // If no server could be read, the warnings say why, so they are shown at each start.
    warnings.push(
      ...client.warnings.map((warning) => (client.entries.length > 0 ? { ...warning, minor: true as const } : warning)),
    );
    // A client that is connected to Tollgate lists Tollgate too.
    for (const entry of client.entries)
      if (entry.original !== 'tollgate' || !isTollgate(entry)) addServer(entry, client, { ...context, warnings });
  });
  return warnings;
}

/** Adds the servers that hosts registered if their name is free, and returns the warnings about them. Never throws. */
export function includeRegistered(
  registered: readonly ValidRegistration[],
  context: IncludeContext,
): readonly Problem[] {
  const warnings: Problem[] = [];
  for (const { name, client } of registered) {
    const [entry] = client.entries;
    if (context.servers.has(name))
      warnings.push(
        fileProblem(
          client.file,
          `server ${quote(name)} is defined elsewhere, so the registered one is left out; ` +
            'unregister it, or rename the other',
        ),
      );
    else if (entry !== undefined) addServer(entry, client, { ...context, warnings });
  }
  return warnings;
}

type EntryContext = IncludeContext & { readonly warnings: Problem[] };

function addServer(entry: ClientEntry, client: ClientFile, context: EntryContext): void {
  const warn = (message: string, minor = false): void => {
    context.warnings.push({
      file: client.file,
      ...entry.place,
      message: `server ${quote(entry.original)}: ${message}`,
      ...(minor && { minor }),
    });
  };
  const restrictTools = (known: ServerConfig): void => {
    if (entry.tools === undefined) return;
    context.servers.set(known.name, { ...known, tools: joinLimits(known.tools, entry.tools) });
    warn(`it removes tools from ${known.name}, which is the same program; to have them, change this file`, true);
  };
  const existing = context.servers.get(entry.name);
  const isOwn = existing !== undefined && !isIncluded(existing, context);
  const server = buildIncluded(entry, client, context);
  if (isOwn) {
    // The file of the client may still define a server that was copied into tollgate.yaml.
    if (sameProgram(existing, server)) return restrictTools(existing);
    return warn(`tollgate.yaml defines ${entry.name} itself, so this one is left out; rename one of them to have both`);
  }
  if (existing !== undefined && sameDefinition(existing, server)) return restrictTools(existing);
  const collisionFault =
    existing === undefined
      ? undefined
      : `${existing.source} and ${client.file} define it differently, so it is not clear which one was meant; ` +
        'rename one';
  const limitFault =
    existing === undefined && context.servers.size >= context.limit
      ? `limits.servers (${context.limit}) is reached; raise it, or include fewer`
      : undefined;
  const unusable = collisionFault ?? server.unusable ?? limitFault;
  if (unusable !== undefined) warn(`cannot be used: ${unusable}`);
  else if (Object.hasOwn(context.written, entry.name)) for (const { message } of remarksOf(server)) warn(message);
  if (
    unusable === undefined &&
    (entry.sandbox !== undefined || entry.unread.length > 0) &&
    writtenFor(entry.name, context)?.sandbox === undefined
  )
    warn(
      `its sandbox has no effect in an included file; write it under servers.${entry.name}.sandbox in ` +
        `tollgate.yaml, or copy it: tollgate import --copy --only ${entry.name}`,
      true,
    );
  // Above the limit not even unusable entries are kept: a file with a million servers must cost nothing.
  if (limitFault === undefined)
    context.servers.set(entry.name, { ...server, ...(unusable !== undefined && { unusable }) });
}

/** Returns the entry of a server in tollgate.yaml. */
function writtenFor(name: string, { written }: IncludeContext): WrittenServer | undefined {
  return Object.hasOwn(written, name) ? written[name] : undefined;
}

/** Returns whether a server comes from an included file, because tollgate.yaml does not define it. */
function isIncluded(server: ServerConfig, context: IncludeContext): boolean {
  const written = writtenFor(server.name, context);
  return written === undefined || isOverlay(written);
}

/** Returns whether two definitions start the same program with the same access, so that they count as one server. */
function sameDefinition(one: ServerConfig, other: ServerConfig): boolean {
  const identity = ({ transport, command, args, env, cwd, url, headers, unusable }: ServerConfig): string =>
    JSON.stringify([
      transport,
      command,
      args,
      Object.entries(env).sort(),
      cwd,
      url,
      Object.entries(headers).sort(),
      unusable,
    ]);
  return identity(one) === identity(other);
}

/** Returns whether two definitions start or reach the same program, whatever their access. */
function sameProgram(one: ServerConfig, other: ServerConfig): boolean {
  const program = ({ transport, command, args, url }: ServerConfig): string =>
    JSON.stringify([transport, command, args, url]);
  return program(one) === program(other);
}

function buildIncluded(entry: ClientEntry, client: ClientFile, context: IncludeContext): ServerConfig {
  const faults = entry.unusable === undefined ? [] : [entry.unusable];
  const nameRule = nameFault(entry.name);
  if (nameRule !== undefined) faults.push(nameRule);
  const definition = fillVariables(entry, { client, context, faults });
  faults.push(...faultsOf(definition).map(({ message }) => message));
  const flag = inlineCodeFlag(definition);
  const configVariable = Object.keys(definition.env).find(isConfigVariable);
  if (configVariable !== undefined)
    faults.push(
      `variable ${configVariable} makes the program use other settings or programs; define the server in ` +
        'tollgate.yaml if you trust it',
    );
  if (flag !== undefined)
    faults.push(`${flag} runs code from the arguments; define the server in tollgate.yaml if you trust it`);
  const overlay = writtenFor(entry.name, context);
  const [unusable] = faults;
  const settings = settingsOf(overlay ?? {}, context.base, definition.transport);
  return {
    name: entry.name,
    ...definition,
    ...settings,
    tools: joinLimits(settings.tools, entry.tools ?? {}),
    source: client.file,
    ...(unusable !== undefined && { unusable }),
  };
}

interface FillContext {
  readonly client: ClientFile;
  readonly context: IncludeContext;
  readonly faults: string[];
}

/** Returns the definition with its variables filled in; errors go to `faults`. */
function fillVariables(entry: ClientEntry, { client, context, faults }: FillContext): ServerDefinition {
  const variables = { ...context.variables, inputs: client.inputs };
  const fill = (text: string, secret = false): string => {
    const result = substitute(text, variables);
    if (!result.ok) faults.push(result.reason);
    if (result.ok && secret) result.fromOutside.forEach((value) => context.secrets.add(value));
    return result.ok ? result.text : '';
  };
  const fillMap = (map: Readonly<Record<string, string>>): Record<string, string> =>
    Object.fromEntries(
      Object.entries(map).map(([name, value]) => {
        const filled = fill(value, true);
        if (isSecretName(name)) context.secrets.add(filled);
        return [name, filled];
      }),
    );
  const fromFile =
    entry.envFile === undefined ? {} : readEnvFile(context.resolve(fill(entry.envFile)), { context, faults });
  const filled = outsideValuesOf({
    ...entry,
    env: { ...Object.fromEntries(Object.keys(fromFile).map((key) => [key, '${env:ENV_FILE}'])), ...entry.env },
  });
  return {
    transport: entry.transport,
    ...(entry.command !== undefined && { command: fill(entry.command) }),
    ...(entry.url !== undefined && { url: fill(entry.url) }),
    ...(entry.cwd !== undefined && { cwd: realPath(context.resolve(fill(entry.cwd))) }),
    args: entry.args.map((argument) => fill(argument)),
    env: { ...fromFile, ...fillMap(entry.env) },
    headers: fillMap(entry.headers),
    ...(filled !== undefined && { filled }),
  };
}

const MAX_ENV_FILE = 64 * 1024;

/** Reads an envFile. Every value counts as a secret, because such files are for secrets. */
function readEnvFile(
  file: string,
  { context, faults }: Pick<FillContext, 'context' | 'faults'>,
): Record<string, string> {
  context.envFiles.add(file);
  const read = readText(context.at(file), MAX_ENV_FILE);
  if (!read.ok) {
    faults.push(`its envFile cannot be used: ${read.reason}`);
    return {};
  }
  const variables = parseEnvFile(read.text);
  for (const value of Object.values(variables)) context.secrets.add(value);
  return variables;
}

/** Parses `NAME=value` lines with `#` comments, optional `export` and quotes. */
export function parseEnvFile(text: string): Record<string, string> {
  const pairs = text.split(/\r?\n/).flatMap((line): [string, string][] => {
    const [, name, value = ''] = /^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    return name === undefined ? [] : [[name, /^(["']).*\1$/.test(value) ? value.slice(1, -1) : value]];
  });
  return Object.fromEntries(pairs);
}

/** Adds entries that nothing defines as unusable servers, so that their names are known. Returns these names. */
export function addUndefined(
  context: Pick<IncludeContext, 'servers' | 'written' | 'base'>,
  source: string,
): readonly string[] {
  const undefinedServers = Object.entries(context.written).filter(
    ([name, entry]) => SERVER_NAME.test(name) && isOverlay(entry) && !context.servers.has(name),
  );
  for (const [name, entry] of undefinedServers) {
    const unusable = 'it has neither command nor url, and no included file defines it';
    context.servers.set(name, {
      name,
      transport: 'stdio',
      args: [],
      env: {},
      headers: {},
      ...settingsOf(entry, context.base, 'stdio'),
      source,
      unusable,
    });
  }
  return undefinedServers.map(([name]) => name);
}
