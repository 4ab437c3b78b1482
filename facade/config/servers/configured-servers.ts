/** Builds the settings of a server from its entry under `servers`, and refuses settings that have no useful effect. */
import { MAPPINGS } from '../../../catalogs/primitives/primitive-mapping.ts';
import { SHIPPED } from '../../../catalogs/servers/shipped-servers.ts';
import type { Semantics, Verb } from '../../../catalogs/tools/tool-definition.ts';
import type { ServerConfig, ServerDefinition } from '../config.ts';
import { didYouMean, type Path, type ProblemReport, quote } from '../config-problems.ts';
import { outsideValuesOf } from '../reading/outside-values.ts';
import { realPath } from '../reading/text-files.ts';
import { DEFAULTS, type WrittenConfig, type WrittenServer } from '../written-config.ts';
import { checkInternal } from './internal-server.ts';
import { buildOAuth } from './oauth-client-settings.ts';
import { type SandboxBase, sandboxOf } from './sandbox-settings.ts';
import { isSecretName } from './secret-shapes.ts';
import { type DefinitionFinding, envFaults, faultsOf, remarksOf } from './server-definition-rules.ts';
import { nameFault } from './server-names.ts';

/** Defaults of servers that are not processes; the schema describes them. */
const REMOTE_RETRIES = 10;
const HEALTH_CHECK_MS = 30_000;

/** What the building of servers needs besides the entry. */
export interface ServerContext {
  readonly report: ProblemReport;
  /** The file before variables were filled in: it tells a literal from a variable. */
  readonly raw: unknown;
  readonly file: string;
  /** Makes a path of the file absolute. */
  readonly resolve: (path: string) => string;
  readonly secrets: Set<string>;
  readonly base: SandboxBase;
}

/** Keys that define a server. An entry with neither `command` nor `url` may have none of them. */
const DEFINING = ['transport', 'command', 'args', 'env', 'cwd', 'url', 'headers', 'oauth'] as const;

/** Returns true if the entry only adds settings to a server of an included file. */
export function isOverlay(written: WrittenServer): boolean {
  return written.command === undefined && written.url === undefined && written.socket === undefined;
}

/** Checks every entry, and returns the servers that tollgate.yaml defines itself. */
export function buildServers(
  written: Readonly<Record<string, WrittenServer>>,
  context: ServerContext,
): Map<string, ServerConfig> {
  const servers = new Map<string, ServerConfig>();
  for (const [name, entry] of Object.entries(written)) {
    const path = ['servers', name];
    const fault = nameFault(name);
    if (fault !== undefined) context.report.refuseKey(path, `server ${quote(name)}: ${fault}`);
    checkSettings(entry, path, context.report);
    checkInternal(entry, path, context);
    if (isOverlay(entry)) checkOverlay(entry, path, context.report);
    else servers.set(name, defineServer(name, entry, context));
  }
  return servers;
}

/** Returns the settings of an entry with defaults filled in, without the definition. */
export function settingsOf(
  written: WrittenServer,
  base: SandboxBase,
  transport: ServerDefinition['transport'],
): Omit<ServerConfig, keyof ServerDefinition | 'oauth' | 'name' | 'source' | 'unusable'> {
  const { uri, trace, process } = { ...DEFAULTS.server, ...written };
  const { isolation, mapping, trust, pin, validateOutput = trust === 'internal' ? 'strict' : undefined } = written;
  return {
    ...(trust !== undefined && { trust }),
    ...(pin !== undefined && { pin }),
    ...(written.description !== undefined && { description: written.description }),
    ...(isolation !== undefined && { isolation }),
    sandbox: sandboxOf(written.sandbox, base, mapping !== undefined),
    ...(mapping !== undefined && { mapping }),
    ...(validateOutput !== undefined && { validateOutput }),
    trustHints: written.trustHints ?? false,
    start: written.start ?? DEFAULTS.server.start,
    lifetime: written.lifetime ?? DEFAULTS.server.lifetime,
    tools: written.tools ?? {},
    semantics: Object.entries(written.semantics ?? {}).map(([pattern, meaning]) => ({
      pattern,
      semantics: toSemantics(meaning as Verb | Semantics),
    })),
    connectTimeoutMs: written.connectTimeoutMs ?? DEFAULTS.server.connectTimeoutMs,
    timeoutMs: written.timeoutMs ?? DEFAULTS.server.timeoutMs,
    hardTimeoutMs: written.hardTimeoutMs ?? Math.max(DEFAULTS.server.hardTimeoutMs, written.timeoutMs ?? 0),
    maxRetries: written.maxRetries ?? (transport === 'stdio' ? DEFAULTS.server.maxRetries : REMOTE_RETRIES),
    reconnectBackoffMs: written.reconnectBackoffMs ?? DEFAULTS.server.reconnectBackoffMs,
    ...(transport !== 'stdio' && { healthCheckMs: written.healthCheckMs ?? HEALTH_CHECK_MS }),
    labels: written.labels ?? [],
    uri,
    trace,
    asks: written.asks ?? [],
    process,
  };
}

function toSemantics(written: Verb | Semantics): Semantics {
  return typeof written === 'string' ? { verb: written } : written;
}

function defineServer(name: string, written: WrittenServer, context: ServerContext): ServerConfig {
  const { command, url, socket, cwd } = written;
  const filled = outsideValuesOf(
    (context.raw as { servers?: Record<string, WrittenServer> } | null)?.servers?.[name] ?? {},
  );
  const definition: ServerDefinition = {
    transport: socket !== undefined ? 'unix' : (written.transport ?? (url === undefined ? 'stdio' : 'http')),
    ...(command !== undefined && { command }),
    ...(url !== undefined && { url }),
    ...(socket !== undefined && { socket: realPath(context.resolve(socket)) }),
    ...(cwd !== undefined && { cwd: realPath(context.resolve(cwd)) }),
    args: written.args ?? [],
    env: written.env ?? {},
    headers: written.headers ?? {},
    ...(filled !== undefined && { filled }),
  };
  const at = (finding: DefinitionFinding): Path => ['servers', name, ...finding.path];
  for (const fault of faultsOf(definition)) context.report.refuse(at(fault), `server ${quote(name)}: ${fault.message}`);
  for (const remark of remarksOf(definition))
    context.report.warn(at(remark), `server ${quote(name)}: ${remark.message}`);
  for (const part of ['env', 'headers'] as const) registerLiterals(['servers', name, part], definition[part], context);
  const oauth = buildOAuth(name, written, { ...context, definition });
  return {
    name,
    ...definition,
    ...(oauth !== undefined && { oauth }),
    ...settingsOf(written, context.base, definition.transport),
    source: context.report.fileOf(['servers', name]),
  };
}

/**
 * Gives servers the variables that profiles change for them. Refuses variables of a server that is not a program, and
 * those that `env` of a server may not have either.
 */
export function addEnvironments(
  servers: Map<string, ServerConfig>,
  profiles: NonNullable<WrittenConfig['profiles']>,
  context: Pick<ServerContext, 'raw' | 'report' | 'secrets'>,
): void {
  for (const [profile, { env = {} }] of Object.entries(profiles)) {
    for (const [name, variables] of Object.entries(env)) {
      const path = ['profiles', profile, 'env', name];
      const server = servers.get(name);
      // A name that does not exist is reported with the other names.
      if (server === undefined && !SHIPPED.has(name)) continue;
      if (server?.command === undefined) {
        context.report.refuse(
          path,
          `server ${quote(name)} is not a program that Tollgate starts; remove its variables`,
        );
        continue;
      }
      for (const { path: at, message } of envFaults(variables))
        context.report.refuse([...path, ...at.slice(1)], `server ${quote(name)}: ${message}`);
      registerLiterals(path, variables, context);
      if (Object.keys(variables).length === 0) continue;
      const written = outsideValuesOf({ env: valueAt(context.raw, path) as Record<string, string> }) ?? {};
      const filled = Object.entries(written).map(([at, text]) => [at.replace('env', `environments.${profile}`), text]);
      servers.set(name, {
        ...server,
        environments: { ...server.environments, [profile]: variables },
        ...(filled.length > 0 && { filled: { ...server.filled, ...Object.fromEntries(filled) } }),
      });
    }
  }
}

/** Registers literal secrets among the values at a place of the file for redaction, and warns about them. */
function registerLiterals(
  path: Path,
  values: Readonly<Record<string, string>>,
  { raw, secrets, report }: Pick<ServerContext, 'raw' | 'report' | 'secrets'>,
): void {
  for (const [key, value] of Object.entries(values)) {
    if (!isSecretName(key) || value === '' || value.includes('${secret:')) continue;
    const at = [...path, key];
    secrets.add(value);
    if (value.length < 6)
      report.warn(
        at,
        `${key} is shorter than 6 characters: it cannot be told from other text, so results are not searched ` +
          'for it; use a longer one',
      );
    if (valueAt(raw, at) === value)
      report.warn(
        at,
        `${key} is in the file in clear: anyone who reads the file has it; write ` +
          `\${env:${key.replace(/\W/g, '_').toUpperCase()}}`,
      );
  }
}

function valueAt(raw: unknown, path: Path): unknown {
  return path.reduce<unknown>(
    (value, key) => (value as Record<string | number, unknown> | null | undefined)?.[key],
    raw,
  );
}

function checkSettings(written: WrittenServer, path: Path, report: ProblemReport): void {
  const { mapping, timeoutMs = DEFAULTS.server.timeoutMs, hardTimeoutMs } = written;
  if (written.command !== undefined && written.reconnectBackoffMs !== undefined) {
    report.refuseKey(
      [...path, 'reconnectBackoffMs'],
      'reconnectBackoffMs is the pause before a remote server is connected to again, and a command starts this ' +
        'server, so it would have no effect; remove it',
    );
  }
  if (written.command !== undefined && written.healthCheckMs !== undefined) {
    report.refuseKey(
      [...path, 'healthCheckMs'],
      'healthCheckMs is for servers that Tollgate does not start, and a command starts this one, so it would ' +
        'have no effect; remove it',
    );
  }
  if (mapping !== undefined && !(MAPPINGS as readonly string[]).includes(mapping)) {
    report.refuse([...path, 'mapping'], `mapping ${quote(mapping)} does not exist; ${didYouMean(mapping, MAPPINGS)}`);
  }
  if (hardTimeoutMs !== undefined && hardTimeoutMs < timeoutMs) {
    report.refuse(
      [...path, 'hardTimeoutMs'],
      `hardTimeoutMs ${hardTimeoutMs} is below timeoutMs ${timeoutMs}: the call would end before its timeout; ` +
        `write at least ${timeoutMs}`,
    );
  }
  written.tools?.allow?.forEach((pattern, index) => {
    if (/^\*+$/.test(pattern))
      report.refuse(
        [...path, 'tools', 'allow', index],
        'allow "*" allows every tool, also future ones; omit allow, or name the tools',
      );
  });
  for (const pattern of Object.keys(written.semantics ?? {})) {
    if (/^\*+$/.test(pattern))
      report.refuseKey(
        [...path, 'semantics', pattern],
        'semantics for "*" would classify tools that no one has seen; name them, or a prefix like get_*',
      );
  }
}

function checkOverlay(written: WrittenServer, path: Path, report: ProblemReport): void {
  const name = String(path.at(-1));
  const extra = DEFINING.find((key) => written[key] !== undefined);
  if (extra === undefined) return;
  report.refuseKey(
    [...path, extra],
    `server ${quote(name)} has ${extra} but neither command nor url: a server of an included file cannot be ` +
      `redefined in part; add command or url, or remove ${extra}`,
  );
}
