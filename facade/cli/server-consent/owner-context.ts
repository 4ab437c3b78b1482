/** The objects that the consent commands work with: the owner, the consents in the state folder, and the audit log. */
import { randomUUID } from 'node:crypto';
import type { StartInspector } from '../../../adapters/port.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Awaitable } from '../../../catalogs/text/awaitable.ts';
import type { ServerConsentEntry } from '../../audit/audit-entry.ts';
import type { AuditLog } from '../../audit/audit-log.ts';
import { createDigest, readAuditKey } from '../../audit/key-files.ts';
import type { Config, ServerConfig } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import type { ConsentProbe } from '../../consent/servers/consent-probe.ts';
import { Consents } from '../../consent/servers/server-consents.ts';
import { dropRequests } from '../../internal-servers/enable-requests.ts';
import { Redactor } from '../../output/redactor.ts';
import { reviveServer } from '../../runtime/servers/revivals.ts';
import { registerSecrets } from '../../runtime/shared-services.ts';
import type { State } from '../../state/state-port.ts';
import { type CommonOptions, readForOwner, readOwner } from '../command-facade.ts';
import type { Io } from '../command-io.ts';
import { withDecisions } from '../command-state.ts';

/** The implementations that facade/main.ts passes in. */
export interface ConsentWiring {
  readonly inspect: StartInspector;
  readonly openProbe: (
    config: Config,
    parts: { readonly redactor: Redactor; readonly audit: AuditLog; readonly state: State; readonly opa?: string },
  ) => Promise<ConsentProbe>;
}

/** Options of every consent command. */
export interface ConsentOptions extends CommonOptions {
  readonly as?: string;
}

/** The objects with which an owner decides. */
export interface OwnerContext {
  readonly config: Config;
  readonly consents: Consents;
  /** The id of the owner. */
  readonly by: string;
  readonly now: () => string;
  readonly openProbe: () => Promise<ConsentProbe>;
  /** Lets every process start a server again that Tollgate has given up. Throws STATE_FAILED. */
  readonly revive: (server: string) => Awaitable<void>;
  /** Called before an approval takes effect, because what cannot be recorded is not approved. Throws AUDIT_FAILED. */
  readonly record: (entry: Omit<ServerConsentEntry, 'type' | 'by' | 'user'>) => void;
}

/** Returns the configuration in force, and the id of the owner that `--as` names. Throws IDENTITY, CONFIG_INVALID. */
export function consentOwnerOf(options: ConsentOptions, io: Io): { readonly config: Config; readonly by: string } {
  const config = readForOwner(options, io);
  const by = readOwner(config, { as: options.as, act: 'decides on servers' }, io);
  return { config, by };
}

/**
 * Opens the context of the owner that `--as` names, and always closes it. Throws IDENTITY, CONFIG_INVALID,
 * STATE_FAILED, AUDIT_FAILED.
 */
export async function withOwnerContext(
  options: ConsentOptions,
  { io, wiring }: { readonly io: Io; readonly wiring: ConsentWiring },
  work: (owner: OwnerContext) => Promise<number>,
): Promise<number> {
  const { config, by } = consentOwnerOf(options, io);
  return withDecisions(config, io, async ({ state, audit, append }) => {
    const redactor = new Redactor();
    registerSecrets(redactor, config);
    const consents = new Consents(state, {
      folder: config.folder,
      inspect: wiring.inspect,
      digest: createDigest(readAuditKey(config.state)),
    });
    const decided = new Set<string>();
    const code = await work({
      config,
      consents,
      by,
      now: () => new Date().toISOString(),
      revive: (server) => reviveServer(state, server, randomUUID()),
      openProbe: () =>
        wiring.openProbe(config, { redactor, audit, state, ...(options.opa !== undefined && { opa: options.opa }) }),
      record: (entry) => {
        append({ type: 'consent', ...entry, by });
        if (entry.event !== 'looked') decided.add(entry.server);
      },
    });
    // Every decision, yes or no, answers the requests of agents for this server.
    for (const server of decided) await dropRequests(state, server);
    return code;
  });
}

/** Returns the server with a name. Throws USAGE. */
export function serverNamed({ servers }: Config, name: string): ServerConfig {
  const server = servers.get(name);
  if (server === undefined) throw noServer(name, servers.keys());
  return server;
}

/** Returns the error for a name that no server has. */
export function noServer(name: string, known: Iterable<string>): TollgateError {
  const names = [...known];
  return new TollgateError('USAGE', {
    detail: `There is no server ${quote(name)}.`,
    next:
      names.length === 0
        ? 'tollgate.yaml has no servers. `tollgate connect` and `tollgate import` add some.'
        : `Name one of tollgate.yaml; ${didYouMean(name, names)}`,
  });
}
