#!/usr/bin/env node
/** Owns the wiring: the only file that knows which implementations stand behind the ports, and the start of the process. */
import { randomUUID } from 'node:crypto';
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { createWorkspace } from '../adapters/internal/workspace.ts';
import { createMapped } from '../adapters/mapped/backend.ts';
import type { LaunchHost } from '../adapters/launch.ts';
import { ServerPool } from '../adapters/pool.ts';
import { asTollgateError, TollgateError } from '../catalogs/errors.ts';
import { loadMapping } from '../catalogs/primitives/mapping.ts';
import { loadPolicy } from '../policies/engine.ts';
import type { Assemble, Assembled, Checked } from './assembled.ts';
import { openAudit, type AuditEntry, type AuditLog } from './audit/log.ts';
import { createDigest, readAuditKey } from './audit/key.ts';
import { createBudgets, createGate, type Gate } from './budget.ts';
import type { Deps } from './call.ts';
import { Catalog, type Listed, type Served } from './catalog.ts';
import { runCli, type Wiring } from './cli/program.ts';
import { processIo } from './cli/process.ts';
import type { CapsConfig, Config } from './config/config.ts';
import { mergeProfiles } from './config/profiles.ts';
import { Exposures } from './exposure.ts';
import { Gateway } from './gateway.ts';
import { createLog } from './log.ts';
import { Metrics } from './metrics.ts';
import { Redactor } from './output/redact.ts';
import { Spills } from './output/spills.ts';
import { createPlans } from './plan.ts';
import { controlRule, policyParts } from './policy-parts.ts';
import { openRecorder } from './recording/writer.ts';
import { serveExternal, serveInternal } from './served.ts';
import { openState } from './state/sqlite.ts';
import type { Authoring } from '../policies/authoring.ts';
import type { Policy, Principal } from '../policies/port.ts';
import type { OpenSession } from './session.ts';

/** What authors use; loaded when it is asked for. */
export const authoring: Authoring = {
  test: async (request) => (await import('../policies/authoring/test.ts')).runTests(request),
};

/** What the commands are given. */
export const WIRING: Wiring = { assemble, check: checkPolicy, authoring, serveOffline };

/** Servers whose processes must not outlive this one, however it ends. */
const pools = new Set<ServerPool>();
process.once('exit', () => pools.forEach((pool) => pool.killNow()));

interface Closable {
  close(): unknown;
}

/** Wires a configuration (see Assemble in facade/assembled.ts). What was opened before something failed is closed again. */
export async function assemble(config: Config, options: Parameters<Assemble>[1]): Promise<Assembled> {
  const opened: Closable[] = [];
  const keep = <T extends Closable>(one: T): T => {
    opened.unshift(one);
    return one;
  };
  try {
    return await wire(config, options, keep);
  } catch (thrown) {
    await Promise.allSettled(opened.map(async (one) => one.close()));
    throw thrown;
  }
}

async function wire(config: Config, options: Parameters<Assemble>[1], keep: <T extends Closable>(one: T) => T): Promise<Assembled> {
  const redactor = new Redactor();
  for (const secret of config.secrets) redactor.register(secret);
  const log = createLog(redactor, options.onLog ?? (() => undefined), process.env['TOLLGATE_LOG']);
  const state = keep(openState(config.state));
  const audit = keep(openAudit({ folder: config.audit.folder, rotateBytes: config.audit.rotateBytes }));
  const policy = keep(await loadRecorded(config, { ...options, audit }));
  audit.append({ type: 'config', event: 'loaded', outcome: 'allow', revision: policy.revision });
  const workspace = createWorkspace({ root: config.workspace });
  const pool = new ServerPool(config.limits, { host: launchHost(config), onStderr: (server, line) => log.debug({ server }, line) });
  const catalog = new Catalog(serveAll(config, { pool, workspace: serveInternal(workspace) }), { onChange: () => gateway.noteChange(), onListed: (listed) => recordListing(audit, listed) });
  const serversOf = (principal: Principal): readonly string[] => serverNames(config, principal);
  const capsOf = perObject((principal: Principal): CapsConfig => ({ ...config.caps, ...mergeProfiles(config, principal.profiles).caps }));
  const spills = new Spills(config.state);
  const metrics = new Metrics();
  const exposures = new Exposures({ catalog, policy: () => policy, primitives: await workspace.listTools(), serversOf, maxArgBytes: (principal) => capsOf(principal).argBytes });
  const budgets = createBudgets(state);
  const recorder = openRecorder({ state: config.state, settings: config.recording, now: Date.now, onFault: (error) => {
    log.error({ err: error.cause }, error.message);
    appendQuietly(audit, { type: 'config', event: 'unrecorded', outcome: 'error', code: error.code });
  } });
  const deps: Deps = {
    workspace: config.workspace, exposures, policy: () => policy, budgets, plans: createPlans(config, state, Date.now), gateOf: perObject((session: OpenSession): Gate => createGate(capsOf(session.principal).concurrent)), audit, digest: createDigest(readAuditKey(config.state)),
    spills, redactor, capsOf, now: Date.now, newId: randomUUID, ...(recorder === undefined ? {} : { recorder }),
    onEnd: (trace, error) => {
      metrics.onEnd(trace, error);
      if (error?.code === 'INTERNAL' || error?.code === 'POLICY_FAILED') log.error({ decision: trace.id, err: error.cause ?? error }, error.code);
    },
  };
  pools.add(pool);
  const gateway: Gateway = new Gateway({ deps, catalog, metrics, state });
  return { config, gateway, catalog, deps, serversOf, notices: noticesOf(config), onFault: (thrown) => log.error({ err: thrown }, 'fault') };
}

/** What servers are started with. */
function launchHost(config: Config): LaunchHost {
  return { workspace: config.workspace, hidden: [config.state, config.audit.folder, ...config.controlFiles], secrets: () => Promise.reject(new TollgateError('SECRET_MISSING')) };
}

/** A policy that is refused stands in the audit too: somebody tried to start with it. */
async function loadRecorded(config: Config, options: { readonly opa?: string; readonly audit: AuditLog }): Promise<Policy> {
  try {
    return await loadPolicy(policyParts(config, options));
  } catch (thrown) {
    options.audit.append({ type: 'config', event: 'refused', outcome: 'error', code: asTollgateError(thrown).code });
    throw thrown;
  }
}

function recordListing(audit: AuditLog, { server, tools, code }: Listed): void {
  appendQuietly(audit, { type: 'server', server, event: code === undefined ? 'listed' : 'failed', outcome: code === undefined ? 'allow' : 'error', ...(tools === undefined ? {} : { tools }), ...(code === undefined ? {} : { code }) });
}

/** A record beside a call that cannot be written stops nothing: the next call is refused for the same reason. */
function appendQuietly(audit: AuditLog, entry: AuditEntry): void {
  try {
    audit.append(entry);
  } catch (thrown) {
    if (asTollgateError(thrown).code !== 'AUDIT_FAILED') throw thrown;
  }
}

/** Compiles the policy and keeps nothing (see Check in facade/assembled.ts). */
export async function checkPolicy(config: Config, options: { readonly opa?: string }): Promise<Checked> {
  const cache = mkdtempSync(path.join(tmpdir(), 'tollgate-check-'));
  try {
    const policy = await loadPolicy(policyParts(config, { ...options, cache }));
    policy.close();
    return { revision: policy.revision, rules: policy.rules - controlRule(config).value.rules.length };
  } finally {
    rmSync(cache, { recursive: true, force: true });
  }
}

function serveAll(config: Config, parts: { pool: ServerPool; workspace: Served }): ReadonlyMap<string, Served> {
  const external = [...config.servers.values()].map((server): Served => {
    const adapter = parts.pool.add(server);
    const mapping = server.mapping === undefined ? undefined : loadMapping(server.mapping);
    const backend = mapping === undefined ? {} : { backend: createMapped({ inner: adapter, mapping, root: config.workspace }) };
    return serveExternal(server, { adapter, ...backend, known: mapping?.tools ?? new Map() });
  });
  return new Map([parts.workspace, ...external].map((served) => [served.name, served]));
}

/** Adapters without processes (see ServeOffline in facade/assembled.ts). */
export function serveOffline(config: Config): ReadonlyMap<string, Served> {
  const pool = new ServerPool(config.limits, { host: launchHost(config), onStderr: () => undefined });
  return serveAll(config, { pool, workspace: serveInternal(createWorkspace({ root: config.workspace })) });
}

/** Servers of a principal's profiles, and those that serve its primitives. */
function serverNames(config: Config, principal: Principal): readonly string[] {
  const profiles = principal.profiles.flatMap((name) => config.profiles.get(name) ?? []);
  return [...new Set(profiles.flatMap((profile) => [...profile.servers, ...Object.values(profile.primitives)]))];
}

/** Makes something once for each object: principals and sessions live long, calls do not. */
function perObject<K extends object, V>(make: (key: K) => V): (key: K) => V {
  const known = new WeakMap<K, V>();
  return (key) => {
    const value = known.get(key) ?? make(key);
    known.set(key, value);
    return value;
  };
}

/** What a person should know at the start. */
function noticesOf(config: Config): readonly string[] {
  const direct = [...config.servers.values()].filter((server) => server.approved && server.isolation === 'direct' && server.transport === 'stdio').map(({ name }) => name);
  const rights = direct.length === 0 ? [] : [`Servers without isolation, which run with all of your rights: ${direct.join(', ')}.`];
  const kept = config.recording.mode === 'off' ? [] : [`Recording is ${config.recording.mode}: the arguments of calls are kept, encrypted, in the state folder.`];
  return [...config.warnings.map(({ file, line, column, message }) => `${file}:${line}:${column}: ${message}`), ...rights, ...kept];
}

if (process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const code = await runCli(process.argv.slice(2), processIo(process), WIRING);
  process.exitCode ??= code;
}
