/** Owns the wiring of a facade: which implementations stand behind its ports; loaded by facade/main.ts when a command needs servers. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { openEgress, sweepEgress } from '../adapters/egress/open.ts';
import { type Haltable, haltable } from '../adapters/haltable.ts';
import { inspectStart } from '../adapters/inspect.ts';
import { jailedShell } from '../adapters/internal/jailed-shell.ts';
import { directShell, type StartCommand } from '../adapters/internal/processes.ts';
import { createWorkspace } from '../adapters/internal/workspace.ts';
import type { Egress, LaunchHost } from '../adapters/launch.ts';
import { lookAt } from '../adapters/look.ts';
import { ServerPool } from '../adapters/pool.ts';
import type { ServerAdapter, ServerEvent } from '../adapters/port.ts';
import { reapLeft } from '../adapters/sandbox/contain.ts';
import { chooseIdentity } from '../adapters/sandbox/identity.ts';
import type { Withholding } from '../adapters/sandbox/repositories.ts';
import type { ServerSettings } from '../adapters/settings.ts';
import { killMarked } from '../adapters/strays.ts';
import type { Confinement } from '../catalogs/confinement.ts';
import { TollgateError } from '../catalogs/errors.ts';
import { KNOWLEDGE } from '../catalogs/shipped.ts';
import { loadApart } from '../policies/apart.ts';
import { loadPolicy } from '../policies/engine.ts';
import { createAssemble } from './assemble.ts';
import type { Assemble } from './assembled.ts';
import { type BackendMakers, isIsolated } from './backends.ts';
import type { Config } from './config/config.ts';
import { realPlaces } from './config/control-files.ts';
import { hiddenFrom } from './config/server-files.ts';
import type { Look } from './consent/discovery.ts';
import { consentSummary } from './consent/words.ts';
import { createKnowledge } from './knowledge/answer.ts';
import { openStore, type Store } from './knowledge/store.ts';
import { createManagement } from './manage/answer.ts';
import { makersOver, shippedServer } from './offline.ts';
import { policyParts } from './policy-parts.ts';
import { openPlaces, openSecrets } from './secrets/secrets.ts';
import { keepSignIns } from './secrets/sign-ins.ts';
import { KillSwitch } from './servers/kill-switch.ts';
import { ServerLogs } from './servers/logs.ts';
import { recordOf } from './servers/records.ts';
import { ownerOf, type Supervised, Supervision } from './servers/supervision.ts';
import { appendQuietly, type Shared } from './shared.ts';

/** Servers whose processes must not outlive this one, however it ends. */
const pools = new Set<ServerPool>();
process.once('exit', () => pools.forEach((pool) => pool.killNow()));

/** Wires a configuration (see Assemble in facade/assembled.ts). */
export const assemble: Assemble = createAssemble({
  loadPolicy: (config, { busy, ...options }) =>
    busy ? loadApart(policyParts(config, options), compileThread()) : loadPolicy(policyParts(config, options)),
  inspect: inspectStart,
  openBackends: (shared, current) => {
    const { state, limits } = current();
    const supervision = new Supervision(shared, { state, connections: limits.connections });
    // What a killed facade of this folder has left behind ends now.
    killMarked((mark) => supervision.isOrphan(mark));
    const pool = new ServerPool(limits, { host: launchHost(current, shared), ...supervision.options() });
    pools.add(pool);
    return supervised(pool, {
      supervision,
      sweep: () =>
        void sweepLeft(current(), supervision).catch((err: unknown) => shared.log.debug({ err }, 'left behind')),
      shell: shellFor(current, { ...shared, owner: supervision.owner }),
      answers: answersFor(current, shared),
    });
  },
});

/** Looks at servers that nobody has agreed to use yet (see facade/consent/discovery.ts). */
export function openLook(
  config: Config,
  parts: Pick<Shared, 'redactor' | 'audit' | 'state'> & { readonly opa?: string },
): Look {
  const { credentials, ...host } = launchHost(() => config, parts);
  const logs = new ServerLogs({ state: config.state, redactor: parts.redactor, onFault: () => undefined });
  const refuse = (): Promise<never> =>
    Promise.reject(new TollgateError('SECRET_MISSING', { detail: 'A look is given no secrets.' }));
  const killSwitch = new KillSwitch(parts.state);
  const onEvent = (event: ServerEvent): void => {
    appendQuietly(parts.audit, recordOf(event));
  };
  return async (settings, { signal, withSecrets, consent }) => {
    const refusal = killSwitch.refusalOf(settings.name);
    if (refusal !== undefined) throw refusal;
    // It may write what the server may: rules on paths hold for the first start too.
    const closed = isIsolated(settings)
      ? { ...settings, confinement: await confinementOf(config, settings.name, parts.opa) }
      : settings;
    return lookAt(closed, {
      host: { ...host, ...(withSecrets ? { ...(credentials !== undefined && { credentials }) } : { secrets: refuse }) },
      signal,
      onEvent,
      onStderr: (name, line) => logs.write(name, line),
      ...(consent !== undefined && { consent }),
    });
  };
}

/** What rules close to a server. Throws as the load of the policy. */
async function confinementOf(config: Config, server: string, opa?: string): Promise<Confinement> {
  const policy = await loadPolicy(policyParts(config, opa === undefined ? {} : { opa }));
  try {
    return policy.confinement(server);
  } finally {
    policy.close();
  }
}

/** Node 20 cannot run TypeScript in a thread: the sources use the built file, as a package does. */
function compileThread(): string {
  const beside = path.join(import.meta.dirname, 'compile-thread.js');
  return existsSync(beside) ? beside : path.join(import.meta.dirname, '..', 'dist', 'facade', 'compile-thread.js');
}

type Answers = BackendMakers['shipped'];

/** The servers of catalogs/shipped.ts with their answers. */
function answersFor(
  current: () => Config,
  { state, audit, consents }: Pick<Shared, 'state' | 'audit' | 'consents'>,
): Answers {
  let store: Store | undefined;
  const knowledge = createKnowledge({
    store: () => (store ??= openStore(current().state)),
    caps: () => current().knowledge,
    now: Date.now,
  });
  const management = createManagement({
    state,
    audit,
    consentOf: (server) => consentSummary(server, consents),
    now: Date.now,
  });
  const close = (): void => {
    store?.close();
    store = undefined;
  };
  return (name) => (name === KNOWLEDGE ? shippedServer(name, knowledge, close) : shippedServer(name, management));
}

/** The kill switch reaches the servers too that are no processes of the pool. */
function supervised(
  pool: ServerPool,
  {
    supervision,
    sweep,
    shell,
    answers,
  }: {
    readonly supervision: Supervision;
    readonly sweep: () => void;
    readonly shell: StartCommand;
    readonly answers: Answers;
  },
): BackendMakers {
  const inProcess = new Set<Haltable>();
  const held = (server: ServerAdapter): Haltable => {
    const made = haltable(server, (name) => supervision.killSwitch.refusalOf(name));
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
    yieldOne: () => pool.yieldOne(),
    healths: () => pool.healths(),
  });
  return {
    ...makersOver(pool),
    warmUp: () => {
      supervision.tellOthers();
      sweep();
    },
    workspace: (root) => {
      const inner = createWorkspace({ root, shell });
      return { ...held(inner), serves: () => inner.serves(), lower: (primitive, args) => inner.lower(primitive, args) };
    },
    shipped: (name) => held(answers(name)),
    stop: () => {
      supervision.close();
      return pool.stopAll().finally(() => pools.delete(pool));
    },
  };
}

/** What killed facades left that does not end with them; nobody waits for it. */
async function sweepLeft({ servers }: Config, supervision: Supervision): Promise<void> {
  await sweepEgress((mark) => supervision.isOrphan(mark));
  if ([...servers.values()].some(({ isolation }) => isolation === 'container')) await reapLeft();
}

/** What servers are started with. */
function launchHost(
  current: () => Config,
  { redactor, audit, state }: Pick<Shared, 'redactor' | 'audit' | 'state'>,
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
      return [
        current().state,
        current().acceptedFolder,
        current().audit.folder,
        ...hiddenFrom(current().controlFiles),
        ...socketFolders(current()),
      ];
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

/** Where internal servers listen: nothing that is isolated may speak to them past the policy. */
function socketFolders({ servers }: Config): readonly string[] {
  return [...servers.values()].flatMap(({ socket }) => (socket === undefined ? [] : [path.dirname(socket)]));
}

function egressFor(
  current: () => Config,
  { audit }: Pick<Shared, 'audit'>,
): (settings: Pick<ServerSettings, 'name' | 'isolation' | 'sandbox' | 'confinement'>) => Promise<Egress> {
  return async ({ name, isolation, sandbox, confinement }) =>
    openEgress(
      {
        server: name,
        mark: ownerOf(current().state),
        allowedDomains: sandbox?.network.allowedDomains ?? [],
        deniedDomains: sandbox?.network.deniedDomains,
        closedHosts: confinement?.closedHosts ?? [],
        ...(isolation !== 'container' && { owner: chooseIdentity(current().workspace).uid }),
      },
      {
        onBlocked: (blocked) =>
          appendQuietly(audit, { type: 'server', event: 'egress-blocked', outcome: 'deny', ...blocked }),
      },
    );
}

const MAX_FILES = 50;

function recordWithheld(current: () => Config, audit: Shared['audit']): (server: string, look: Withholding) => void {
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

/** How commands of the workspace start. The settings are asked for at each, for they may change while we run. */
function shellFor(current: () => Config, shared: Pick<Shared, 'audit'> & { readonly owner: string }): StartCommand {
  const direct = directShell(shared.owner);
  const jailed = jailedShell(() => {
    const {
      workspace,
      bash: { sandbox },
      state,
      acceptedFolder,
      audit,
      controlFiles,
    } = current();
    return {
      workspace,
      sandbox,
      hidden: [state, acceptedFolder, audit.folder, ...socketFolders(current())],
      fixed: realPlaces(controlFiles),
      openEgress: (confinement) =>
        egressFor(current, shared)({ name: 'workspace', sandbox, ...(confinement !== undefined && { confinement }) }),
      onWithheld: (look) => recordWithheld(current, shared.audit)('workspace', look),
    };
  });
  return (command) => (current().bash.isolation === 'direct' ? direct(command) : jailed(command));
}
