/**
 * Connects the ports of the facade to their implementations. facade/main.ts loads this file when a command needs
 * servers.
 */
import path from 'node:path';
import { openEgress, sweepEgress } from '../adapters/egress/open-egress.ts';
import type { ServerAdapter, ServerEvent } from '../adapters/port.ts';
import { sandboxedShell } from '../adapters/primitives/shell/sandboxed-shell.ts';
import { directShell, type StartCommand } from '../adapters/primitives/shell/shell-process.ts';
import { type HaltableServer, withKillSwitch } from '../adapters/primitives/workspace/in-process-server.ts';
import { createWorkspace } from '../adapters/primitives/workspace/workspace-server.ts';
import type { WithheldSettings } from '../adapters/sandbox/closed-paths/git-repositories.ts';
import { findContainerEngine } from '../adapters/sandbox/container/container-engine.ts';
import { chooseSandboxUser, type Egress } from '../adapters/sandbox/sandbox-spec.ts';
import type { LaunchHost } from '../adapters/stdio/launch.ts';
import { killMarked } from '../adapters/stdio/orphans.ts';
import { fillSecrets } from '../adapters/stdio/server-secrets.ts';
import { inspectStart } from '../adapters/stdio/start-inspection.ts';
import { probeServer, ServerPool } from '../adapters/supervisor/server-pool.ts';
import type { ServerSettings } from '../adapters/supervisor/server-settings.ts';
import { TollgateError } from '../catalogs/errors/error-table.ts';
import { threadFile } from '../catalogs/programs/own-code.ts';
import type { Confinement } from '../catalogs/readers/confinement.ts';
import { CODE, KNOWLEDGE, PROMPTS } from '../catalogs/servers/shipped-servers.ts';
import { loadPolicyInThread } from '../policies/engine/compilation-thread.ts';
import { loadPolicy } from '../policies/engine/policy-loader.ts';
import { listAttention } from './attention/attention-list.ts';
import { attentionSources } from './attention/attention-sources.ts';
import { appendQuietly } from './audit/audit-log.ts';
import type { OpenSession } from './call/identify.ts';
import { CodeRuns } from './code/code-runs.ts';
import { createCodeServer, type InnerFacade } from './code/code-server.ts';
import { findTools } from './code/find-tools.ts';
import { listModules, moduleInfo } from './code/module-info.ts';
import { createRunCode } from './code/run-code.ts';
import { CodeSandbox } from './code/sandbox/code-sandbox.ts';
import type { CodeConfig, Config, ServerConfig } from './config/config.ts';
import { mergeProfiles } from './config/profiles.ts';
import { realPlaces } from './config/reading/control-files.ts';
import { hiddenFrom } from './config/servers/server-files.ts';
import { ownPlaces } from './config/work-folders.ts';
import type { ConsentProbe } from './consent/servers/consent-probe.ts';
import { consentSummary } from './consent/servers/consent-summary.ts';
import { KillSwitch } from './consent/switch/kill-switch.ts';
import { createKnowledge } from './internal-servers/knowledge-server.ts';
import { type KnowledgeStore, openKnowledgeStore } from './internal-servers/knowledge-store.ts';
import { createManagement } from './internal-servers/management-server.ts';
import { createOwnPrompts } from './internal-servers/prompts-server.ts';
import type { AssembleFacade } from './runtime/assembled-facade.ts';
import { createFacadeAssembly } from './runtime/facade-assembly.ts';
import { policyParts } from './runtime/policy-parts.ts';
import { type BackendMakers, isIsolated } from './runtime/servers/backends.ts';
import { poolBackendMakers, shippedServer } from './runtime/servers/offline-servers.ts';
import { ServerLogs } from './runtime/servers/server-logs.ts';
import { serverRecordOf } from './runtime/servers/server-records.ts';
import { type Supervised, Supervision, supervisionOwner } from './runtime/servers/supervision.ts';
import type { SharedServices } from './runtime/shared-services.ts';
import { openPlaces, openSecrets } from './secrets/secrets.ts';
import { keepSignIns } from './secrets/sign-ins.ts';

/** The pools whose server processes must end with this process, even if it crashes. */
const pools = new Set<ServerPool>();
process.once('exit', () => pools.forEach((pool) => pool.killNow()));

/** Assembles a facade from a configuration (see AssembleFacade in facade/runtime/assembled-facade.ts). */
export const assembleFacade: AssembleFacade = createFacadeAssembly({
  loadPolicy: (config, { busy, ...options }) =>
    busy
      ? loadPolicyInThread(policyParts(config, options), threadFile('compile-thread'))
      : loadPolicy(policyParts(config, options)),
  inspect: inspectStart,
  openBackends: (shared, current, facade) => {
    const { state, limits } = current();
    const { telemetry } = shared;
    const serverOf = (name: string): ServerConfig | undefined => current().servers.get(name);
    const supervision = new Supervision(shared, { state, connections: limits.connections, serverOf });
    // Kills the servers that a crashed facade of the same state folder left running.
    killMarked((mark) => supervision.isOrphan(mark));
    const pool = new ServerPool(limits, {
      host: launchHost(current, shared),
      ...supervision.options(),
      capabilities: (server, users) => shared.clients.capabilities(server, users),
      prefersSession: (server, users) => !shared.clients.areStateless(server, users),
      onNotice: (server, notice, users) => shared.clients.note(server, notice, users),
      onExchange:
        telemetry && ((server, exchange) => telemetry.followExchange({ ...exchange, server }, serverOf(server))),
    });
    pools.add(pool);
    return supervised(pool, {
      supervision,
      exportAudit: () => {
        const { audit, state } = current();
        const parts = { places: openPlaces({ state, env: process.env }), redactor: shared.redactor };
        const headers = audit.export?.headers ?? {};
        shared.exportAudit.start(() => fillSecrets(headers, openSecrets(current, parts), 'headers'));
      },
      sweep: () =>
        void removeLeftovers(current(), supervision).catch((err: unknown) =>
          shared.log.debug({ err }, 'leftovers not removed'),
        ),
      shell: shellFor(current, { ...shared, owner: supervision.owner }),
      answers: answersFor({ ...shared, current, facade }),
    });
  },
});

/** Probes servers that are not approved yet (see facade/consent/servers/consent-probe.ts). */
export function openConsentProbe(
  config: Config,
  parts: Pick<SharedServices, 'redactor' | 'audit' | 'state'> & { readonly opa?: string },
): ConsentProbe {
  const { credentials, ...host } = launchHost(() => config, parts);
  const logs = new ServerLogs({ state: config.state, redactor: parts.redactor, onFault: () => undefined });
  const refuse = (): Promise<never> =>
    Promise.reject(new TollgateError('SECRET_MISSING', { detail: 'A probe gets no secrets.' }));
  const killSwitch = new KillSwitch(parts.state);
  const onEvent = (event: ServerEvent): void => {
    appendQuietly(parts.audit, serverRecordOf(event));
  };
  return async (settings, { signal, withSecrets, consent }) => {
    const refusal = killSwitch.refusalOf(settings.name);
    if (refusal !== undefined) throw refusal;
    // Rules on paths also apply to the first start, so a probe may write only what the server may.
    const closed = isIsolated(settings)
      ? { ...settings, confinement: await confinementOf(config, settings.name, parts.opa) }
      : settings;
    return probeServer(closed, {
      host: { ...host, ...(withSecrets ? { ...(credentials !== undefined && { credentials }) } : { secrets: refuse }) },
      signal,
      onEvent,
      onStderr: (name, line) => logs.write(name, line),
      ...(consent !== undefined && { consent }),
    });
  };
}

/** Returns what the rules close to the processes of a server. Throws the errors of `loadPolicy`. */
async function confinementOf(config: Config, server: string, opa?: string): Promise<Confinement> {
  const policy = await loadPolicy(policyParts(config, opa === undefined ? {} : { opa }));
  try {
    return policy.confinement(server);
  } finally {
    policy.close();
  }
}

type Answers = BackendMakers['shipped'];

function noTool(): never {
  throw new TollgateError('UNKNOWN_TOOL');
}

/** Returns the code that answers for the internal servers of catalogs/servers/shipped-servers.ts. */
function answersFor({
  current,
  facade,
  state,
  audit,
  consents,
  redactor,
}: Pick<SharedServices, 'state' | 'audit' | 'consents' | 'redactor'> & {
  readonly current: () => Config;
  readonly facade: () => InnerFacade;
}): Answers {
  let store: KnowledgeStore | undefined;
  let codeRuns: CodeRuns | undefined;
  let sandbox: CodeSandbox | undefined;
  const knowledge = createKnowledge({
    store: () => (store ??= openKnowledgeStore(current().state)),
    caps: () => current().knowledge,
    now: Date.now,
  });
  const management = createManagement({
    state,
    audit,
    consentOf: (server) => consentSummary(server, consents),
    now: Date.now,
    attention: () => listAttention(attentionSources({ config: current(), state, consents, now: Date.now }), redactor),
    config: current,
  });
  const runs = (): CodeRuns =>
    (codeRuns ??= new CodeRuns({
      state,
      folder: current().state,
      redactor,
      keepMs: () => current().runs.keepMs,
      expireMs: () => current().approvals.expireMs,
      now: Date.now,
    }));
  const limitsOf = ({ principal }: OpenSession): CodeConfig => ({
    ...current().code,
    ...mergeProfiles(current(), principal.profiles).code,
  });
  const { runCode, snippet } = createRunCode({
    runs,
    sandbox: () => (sandbox ??= new CodeSandbox()),
    limitsOf,
    snippets: () => current().code.snippets,
  });
  const own = new Map([
    ['find_tools', findTools],
    ['list_modules', listModules],
    ['module_info', moduleInfo],
    ['run_code', runCode],
  ]);
  const code = createCodeServer(facade, own, snippet);
  const close = (): void => {
    store?.close();
    store = undefined;
  };
  const closeCode = (): void => {
    codeRuns?.close();
    sandbox?.close();
    sandbox = undefined;
  };
  return (name, tools) => {
    if (name === KNOWLEDGE) return shippedServer(name, tools, { answer: knowledge, close });
    if (name === CODE) return shippedServer(name, tools, { answer: code, close: closeCode });
    if (name === PROMPTS) return shippedServer(name, tools, { answer: noTool, prompts: createOwnPrompts(current) });
    return shippedServer(name, tools, { answer: management });
  };
}

/** Connects the kill switch to the pool, and to the internal servers, which run in this process and not in the pool. */
function supervised(
  pool: ServerPool,
  {
    supervision,
    sweep,
    exportAudit,
    shell,
    answers,
  }: {
    readonly supervision: Supervision;
    readonly sweep: () => void;
    readonly exportAudit: () => void;
    readonly shell: StartCommand;
    readonly answers: Answers;
  },
): BackendMakers {
  const inProcess = new Set<HaltableServer>();
  const withSwitch = (server: ServerAdapter): HaltableServer => {
    const made = withKillSwitch(server, (name) => supervision.killSwitch.refusalOf(name));
    inProcess.add(made);
    return made;
  };
  const halt: Supervised['halt'] = ({ any, killed, changed }) => {
    pool.halt(any);
    pool.relist(changed);
    for (const server of inProcess) server.halt(killed(server.name));
  };
  supervision.watch({
    halt,
    revive: (servers) => pool.revive(servers),
    restart: (servers) => pool.restart(servers),
    yieldOne: () => pool.yieldOne(),
    healths: () => pool.healths(),
  });
  return {
    ...poolBackendMakers(pool),
    warmUp: () => {
      supervision.startReporting();
      sweep();
      exportAudit();
    },
    workspace: (root) => {
      const inner = createWorkspace({ root, shell });
      return {
        ...withSwitch(inner),
        serves: () => inner.serves(),
        lower: (primitive, args) => inner.lower(primitive, args),
      };
    },
    shipped: (name, tools) => withSwitch(answers(name, tools)),
    stop: () => {
      supervision.close();
      return pool.stopAll().finally(() => pools.delete(pool));
    },
  };
}

/** Removes the egress proxies and containers that crashed facades left. No caller waits for it. */
async function removeLeftovers({ servers }: Config, supervision: Supervision): Promise<void> {
  await sweepEgress((mark) => supervision.isOrphan(mark));
  if ([...servers.values()].some(({ isolation }) => isolation === 'container')) await findContainerEngine();
}

/** Returns what every start of a server needs. */
function launchHost(
  current: () => Config,
  { redactor, audit, state }: Pick<SharedServices, 'redactor' | 'audit' | 'state'>,
): LaunchHost {
  const places = openPlaces({ state: current().state, env: process.env });
  return {
    get workspace() {
      return current().workspace;
    },
    get folder() {
      return current().folder;
    },
    get hidden() {
      return [...ownPlaces(current()), ...hiddenFrom(current().controlFiles), ...socketFolders(current())];
    },
    get fixed() {
      return realPlaces(current().controlFiles);
    },
    secrets: openSecrets(current, { places, redactor }),
    credentials: keepSignIns({ vault: places.vault, redactor, state }),
    openEgress: egressFor(current, { audit }),
    onWithheld: recordWithheld(current, audit),
  };
}

/**
 * The folders of the sockets of servers. A sandboxed process must not reach a socket, because it would bypass the
 * policy.
 */
function socketFolders({ servers }: Config): readonly string[] {
  return [...servers.values()].flatMap(({ socket }) => (socket === undefined ? [] : [path.dirname(socket)]));
}

function egressFor(
  current: () => Config,
  { audit }: Pick<SharedServices, 'audit'>,
): (settings: Pick<ServerSettings, 'name' | 'isolation' | 'sandbox' | 'confinement'>) => Promise<Egress> {
  return async ({ name, isolation, sandbox, confinement }) =>
    openEgress(
      {
        server: name,
        mark: supervisionOwner(current().state),
        allowedDomains: sandbox?.network.allowedDomains ?? [],
        deniedDomains: sandbox?.network.deniedDomains,
        closedHosts: confinement?.closedHosts ?? [],
        ...(isolation !== 'container' && { owner: chooseSandboxUser(current().workspace).uid }),
      },
      {
        onBlocked: (blocked) =>
          appendQuietly(audit, { type: 'server', event: 'egress-blocked', outcome: 'deny', ...blocked }),
      },
    );
}

const MAX_FILES = 50;

function recordWithheld(
  current: () => Config,
  audit: SharedServices['audit'],
): (server: string, report: WithheldSettings) => void {
  const named = (files: readonly string[]): { files: readonly string[]; count: number } => ({
    files: files.slice(0, MAX_FILES).map((file) => path.relative(current().workspace, file)),
    count: files.length,
  });
  return (server, { withheld, failed, lost }) => {
    if (lost !== undefined)
      return appendQuietly(audit, { type: 'server', event: 'cover-lost', server, outcome: 'error', ...named(lost) });
    appendQuietly(audit, {
      type: 'server',
      event: 'settings-withheld',
      server,
      outcome: failed === undefined ? 'deny' : 'error',
      ...named(withheld),
      ...(failed !== undefined && { reason: failed }),
    });
  };
}

/** Starts the commands of `bash`. The settings are read at each start, because they may change. */
function shellFor(
  current: () => Config,
  shared: Pick<SharedServices, 'audit'> & { readonly owner: string },
): StartCommand {
  const direct = directShell(shared.owner);
  const jailed = sandboxedShell(() => {
    const {
      workspace,
      bash: { sandbox },
      controlFiles,
    } = current();
    return {
      workspace,
      sandbox,
      hidden: [...ownPlaces(current()), ...socketFolders(current())],
      fixed: realPlaces(controlFiles),
      openEgress: (confinement) =>
        egressFor(current, shared)({ name: 'workspace', sandbox, ...(confinement !== undefined && { confinement }) }),
      onWithheld: (report) => recordWithheld(current, shared.audit)('workspace', report),
    };
  });
  return (command) => (current().bash.isolation === 'direct' ? direct(command) : jailed(command));
}
