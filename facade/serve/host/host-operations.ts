/**
 * The operations of a host: grants, runs, lists and calls for origins. Only an owner decides, or speaks for another
 * origin.
 */

import { refusedState } from '../../../adapters/port.ts';
import { parseJsonDoc } from '../../../adapters/rpc/message-parser.ts';
import type { JsonDoc } from '../../../adapters/rpc/wire-message.ts';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Principal } from '../../../policies/port.ts';
import { CORRELATION_KEY } from '../../call/identify.ts';
import { type Registration, readRegistrations } from '../../config/servers/registered-servers.ts';
import { isSubject } from '../../config/settings/jwt-settings.ts';
import { type NewGrant, requireOrigin, requireScope } from '../../consent/grants/grant.ts';
import { checkGrants } from '../../consent/grants/grant-precondition.ts';
import { type RefreshResult, refreshServer } from '../../runtime/servers/server-refresh.ts';
import type { Reply, Session } from '../facade-port.ts';
import { asPrincipal } from '../http/token-authentication.ts';
import { describeHostApi, type HostOperations, type OperationInput } from './host-api-description.ts';
import { HostCalls } from './host-calls.ts';
import { type HostRun, runKey } from './host-runs.ts';
import type { HostCaller, HostSessions } from './host-sessions.ts';
import { ownerOperations, requireOwner } from './owner-operations.ts';
import { replyResult } from './reply-result.ts';
import { type HostParts, Registrar, type ServerToRegister } from './server-registration.ts';

interface Acting {
  readonly origin?: string;
  readonly profile?: string;
  readonly tab?: string;
}

/**
 * Returns the operations of the document, by id. `parts` is called at each request, so that a new configuration
 * applies. `reload` loads the configuration on the disk.
 */
export function createHostOperations(
  parts: HostParts,
  sessions: HostSessions,
  reload: () => Promise<void>,
): HostOperations {
  return {
    describe: async () => describeHostApi().text,
    ...grantOperations(parts, sessions),
    ...runOperations(parts),
    listTools: async ({ principal, input: asked }) => {
      const text = replyResult(
        await sessions.within(callerOf(parts, principal, asked), (session) =>
          parts.gateway.listToolsWithIds(session, session.closed),
        ),
      );
      return asked.id === undefined ? text : toolsOf(text, String(asked.id));
    },
    ...callOperations(parts, sessions),
    ...serverOperations(parts),
    ...ownerOperations(parts),
    ...registerOperations(new Registrar(parts, reload)),
    statistics: async ({ principal }) => {
      requireOwner(principal);
      const { metrics } = parts.deps;
      return {
        ...metrics.statistics(),
        servers: parts.gateway.health(principal),
        context: await metrics.context.report(),
      };
    },
  };
}

/** Returns the tools of a list with an id. Throws UNKNOWN_TOOL. */
function toolsOf(list: string, id: string): object {
  const tools = (JSON.parse(list) as { tools: readonly { readonly ids: readonly string[] }[] }).tools.filter(
    ({ ids }) => ids.includes(id),
  );
  if (tools.length === 0)
    throw new TollgateError('UNKNOWN_TOOL', {
      detail: 'No tool that this origin is shown has this id.',
      next: 'List the tools without `id`.',
    });
  return { tools };
}

function grantOperations(parts: HostParts, sessions: HostSessions): HostOperations {
  return {
    listGrants: async ({ principal, input: asked }) => {
      const found = await parts.deps.grants.list(
        principal.owner === true ? asked : { origin: actingAs(parts, principal, asked).origin },
      );
      return {
        grants: principal.owner === true ? found : found.filter(({ profile }) => principal.profiles.includes(profile)),
      };
    },
    addGrant: async ({ principal, input: asked }) => {
      requireOwner(principal);
      const wanted = asked as unknown as NewGrant;
      requireProfile(parts, wanted.profile);
      const grant = await parts.deps.grants.add(wanted, principal.id);
      parts.gateway.noteChange();
      return { grant };
    },
    revokeGrant: async ({ principal, input: asked }) => {
      requireOwner(principal);
      const grant = await parts.deps.grants.revoke(String(asked.id), principal.id);
      parts.gateway.noteChange();
      return { grant };
    },
    checkGrant: async ({ principal, input: asked }) => {
      const { scope, tool, session, tab, profile } = asked as {
        scope: string;
        tool?: string;
        session?: string;
        tab?: string;
        profile?: string;
      };
      requireScope(scope);
      const { origin, profiles } = actingAs(parts, principal, asked);
      const from = { ...(session !== undefined && { id: session }), ...(tab !== undefined && { tab }) };
      return checkGrants(parts.deps.grants.of(origin), {
        profiles: profile === undefined ? profiles : [profile],
        scope,
        from,
        ...(tool !== undefined && { tool }),
      });
    },
    expireGrants: async ({ principal, input: asked }) => {
      requireOwner(principal);
      const what = asked as { tab: string; origin?: string } | { session: string };
      const expired = await parts.deps.grants.expire(what, principal.id);
      if ('tab' in what) await sessions.endTab(what.tab, what.origin);
      parts.gateway.noteChange();
      return { expired };
    },
  };
}

function runOperations(parts: HostParts): HostOperations {
  const withLeft = async (run: HostRun): Promise<object> => ({ run, left: await parts.deps.runs.left(run) });
  return {
    openRun: async ({ principal, input: asked }) => {
      const {
        origin: _origin,
        profile: _profile,
        ...rest
      } = asked as Acting & Pick<HostRun, 'conversation' | 'turn' | 'maxCalls'>;
      const { id, origin } = actingAs(parts, principal, asked);
      const owned = principal.owner === true && { owned: true as const };
      return { run: await parts.deps.runs.open({ ...rest, principal: id, origin, ...owned }) };
    },
    getRun: async ({ principal, input: asked }) => withLeft(await findRun(parts, principal, asked.name)),
    endRun: async ({ principal, input: asked }) => {
      const { deps } = parts;
      const run = await findRun(parts, principal, asked.name);
      const answer = await withLeft(run);
      await deps.runs.end(run);
      deps.spills.forget({ principal: run.principal, run: runKey(run) });
      return answer;
    },
  };
}

function serverOperations(parts: HostParts): HostOperations {
  const renew = (server: string, event: 'restart' | 'sync', { id }: Principal): Promise<RefreshResult> =>
    refreshServer(
      { catalog: parts.catalog, append: (entry) => parts.deps.audit.append(entry) },
      { server, event, by: id },
    );
  return {
    listServers: async ({ principal }) => {
      requireOwner(principal);
      const registered = new Map(readRegistrations(parts.config.state).map(({ name, by }) => [name, by]));
      const servers = [...parts.catalog.servers.values()].map(({ name, adapter }) => {
        // Before its first start a server does not know what refuses it.
        const refusal = parts.config.servers.has(name) ? parts.consents.refusalOf(name) : undefined;
        const health = adapter.health();
        const { state, reason } =
          health.state === 'idle' && refusal !== undefined
            ? { state: refusedState(refusal), reason: refusal.message }
            : health;
        const tools = parts.catalog.entries(name).length;
        return { name, state, reason, restarts: health.restarts, tools, registeredBy: registered.get(name) };
      });
      return { servers };
    },
    restartServer: async ({ principal, input: asked }) => {
      requireOwner(principal);
      return renew(String(asked.server), 'restart', principal);
    },
    syncServers: async ({ principal, input: asked }) => {
      requireOwner(principal);
      if (asked.server !== undefined)
        return { servers: [await renew(String(asked.server), 'sync', principal)], failed: [] };
      // A question about all servers starts none.
      const running = [...parts.catalog.servers.values()].filter(
        ({ adapter }) => adapter.renew !== undefined && RUNNING.has(adapter.health().state),
      );
      const done = await Promise.all(
        running.map(({ name }) =>
          renew(name, 'sync', principal).catch((thrown: unknown) => failed(name, asTollgateError(thrown))),
        ),
      );
      return { servers: done.filter((one) => !('code' in one)), failed: done.filter((one) => 'code' in one) };
    },
  };
}

function registerOperations(registrar: Registrar): HostOperations {
  return {
    registerServer: async ({ principal, input: asked }) => ({
      server: shownOf(await registrar.register(principal, asked as unknown as ServerToRegister)),
    }),
    unregisterServer: async ({ principal, input: asked }) => ({
      server: shownOf(await registrar.unregister(principal, String(asked.name))),
    }),
  };
}

/** Without the definition, because its values may be secrets. */
function shownOf({ name, by, at, profiles }: Registration): object {
  return { name, by, at, profiles };
}

/** States in which a server can be asked. */
const RUNNING: ReadonlySet<string> = new Set(['healthy', 'degraded']);

function failed(server: string, { code, message, next, retryable }: TollgateError): object {
  return { server, code, message, next, retryable };
}

function callOperations(parts: HostParts, sessions: HostSessions): HostOperations {
  const calls = new HostCalls();
  return {
    callTool: async ({ principal, input: asked, argsText, gone, onProgress }) => {
      const { name, run, correlation, timeoutMs } = asked as {
        name: string;
        run?: string;
        correlation?: string;
        timeoutMs?: number;
      };
      const args: JsonDoc<unknown> = parseJsonDoc(argsText ?? '{}');
      const meta = {
        ...(run !== undefined && { 'tollgate/run': run }),
        ...(correlation !== undefined && { [CORRELATION_KEY]: correlation }),
      };
      const call = (session: Session): Promise<Reply> =>
        calls.within({ by: principal, gone, correlation, timeoutMs }, session.closed, (signal) =>
          parts.gateway.perform(session, {
            name,
            args,
            signal,
            ...(Object.keys(meta).length > 0 && { meta }),
            ...(onProgress !== undefined && { onProgress }),
          }),
        );
      return `{"result":${replyResult(await sessions.within(callerOf(parts, principal, asked), call))}}`;
    },
    cancelCalls: async ({ principal, input: asked }) => ({
      cancelled: calls.cancel(principal, String(asked.correlation)),
    }),
  };
}

/**
 * Returns the principal that a request is decided for: that of the token, or for an owner the one with the origin and
 * the profile. Throws IDENTITY, USAGE.
 */
function actingAs({ config }: HostParts, principal: Principal, asked: OperationInput): Principal {
  const { origin, profile } = asked as Acting;
  if (origin === undefined && profile === undefined) return principal;
  requireOwner(principal);
  if (origin !== undefined) requireOrigin(origin);
  const isOwn = profile === undefined || principal.profiles.includes(profile);
  const holders =
    isOwn && isSubject(principal)
      ? [principal]
      : config.principals
          .filter(({ id, profiles }) => (isOwn ? id === principal.id : profiles.includes(profile)))
          .map(asPrincipal);
  const [holder] = holders;
  if (holder === undefined || holders.length > 1) {
    const who = holder === undefined ? 'No principal has' : 'Several principals have';
    throw new TollgateError('IDENTITY', {
      detail: `${who} the profile ${String(profile)}.`,
      next: 'Give it to the principal of this token, or to one other, in tollgate.yaml.',
    });
  }
  return Object.freeze({ ...holder, owner: false, ...(origin !== undefined && { origin }) });
}

/** Returns the session of a request. Throws as `actingAs`. */
function callerOf(parts: HostParts, principal: Principal, asked: OperationInput): HostCaller {
  const { tab } = asked as Acting;
  const acting = actingAs(parts, principal, asked);
  return { principal: acting, onBehalf: acting !== principal, ...(tab !== undefined && { tab }) };
}

async function findRun({ deps }: HostParts, principal: Principal, name: unknown): Promise<HostRun> {
  const run = deps.runs.find(String(name));
  const isTheirs =
    run !== undefined &&
    (principal.owner === true || (run.principal === principal.id && run.origin === principal.origin));
  if (!isTheirs)
    throw new TollgateError('IDENTITY', {
      detail: 'There is no such run: it has ended, or it is not yours.',
      next: 'Open a new run.',
    });
  return run;
}

function requireProfile({ config }: HostParts, profile: string): void {
  if (!config.profiles.has(profile))
    throw new TollgateError('USAGE', {
      detail: `There is no profile ${profile}.`,
      next: `The profiles are ${[...config.profiles.keys()].join(', ')}.`,
    });
}
