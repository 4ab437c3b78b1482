/** Owns what the commands of consent work with: the owner who decides, the consents of the state folder, the record of each act; refuses whoever is no owner. */
import { randomUUID } from 'node:crypto';
import type { StartInspector } from '../../../adapters/port.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ServerConsentEntry } from '../../audit/audit-entry.ts';
import { type AuditLog, openAuditOnDemand } from '../../audit/audit-log.ts';
import { createDigest, readAuditKey } from '../../audit/key-files.ts';
import type { Config, ServerConfig } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import type { ConsentProbe } from '../../consent/servers/consent-probe.ts';
import { Consents } from '../../consent/servers/server-consents.ts';
import { dropRequests } from '../../internal-servers/enable-requests.ts';
import { Redactor } from '../../output/redactor.ts';
import { reviveServer } from '../../runtime/servers/revivals.ts';
import { registerSecrets } from '../../runtime/shared-services.ts';
import { openState } from '../../state/sqlite-state.ts';
import type { Awaitable, State } from '../../state/state-port.ts';
import { type CommonOptions, readForOwner, readPrincipal } from '../command-facade.ts';
import type { Io } from '../command-io.ts';
import { signed } from '../command-state.ts';

/** What facade/main.ts gives. */
export interface ConsentWiring {
  readonly inspect: StartInspector;
  readonly openLook: (
    config: Config,
    parts: { readonly redactor: Redactor; readonly audit: AuditLog; readonly state: State; readonly opa?: string },
  ) => Promise<ConsentProbe>;
}

/** What every command of consent takes. */
export interface ConsentOptions extends CommonOptions {
  readonly as?: string;
}

/** Where an owner decides. */
export interface OwnerContext {
  readonly config: Config;
  readonly consents: Consents;
  /** The owner. */
  readonly by: string;
  readonly now: () => string;
  readonly look: () => Promise<ConsentProbe>;
  /** Lets a server that was given up be started again, in every process. Throws STATE_FAILED. */
  readonly revive: (server: string) => Awaitable<void>;
  /** Awaited before an act holds: what cannot be recorded is not agreed to. Throws AUDIT_FAILED. */
  readonly record: (entry: Omit<ServerConsentEntry, 'type' | 'by' | 'user'>) => void;
}

/** The configuration that counts, and the id of the owner that `--as` names. Throws IDENTITY, CONFIG_INVALID. */
export function consentOwnerOf(options: ConsentOptions, io: Io): { readonly config: Config; readonly by: string } {
  const config = readForOwner(options, io);
  const { id: by, owner } = readPrincipal(config, options, io);
  if (owner !== true)
    throw new TollgateError('IDENTITY', {
      detail: `${by} is no owner, and only an owner decides on servers.`,
      next: 'Use --as with a principal that has `owner: true`.',
    });
  return { config, by };
}

/** Opens a desk for the owner that `--as` names, and closes it however `work` ends. Throws IDENTITY, CONFIG_INVALID, STATE_FAILED, AUDIT_FAILED. */
export async function withOwnerContext(
  options: ConsentOptions,
  { io, wiring }: { readonly io: Io; readonly wiring: ConsentWiring },
  work: (desk: OwnerContext) => Promise<number>,
): Promise<number> {
  const { config, by } = consentOwnerOf(options, io);
  const state = openState(config.state);
  try {
    const audit = openAuditOnDemand(config.audit);
    try {
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
        look: () =>
          wiring.openLook(config, { redactor, audit, state, ...(options.opa !== undefined && { opa: options.opa }) }),
        record: (entry) => {
          audit.append(signed({ type: 'consent', ...entry, by }, io));
          if (entry.event !== 'looked') decided.add(entry.server);
        },
      });
      // What agents have asked for is answered, whatever the answer was.
      for (const server of decided) await dropRequests(state, server);
      return code;
    } finally {
      await audit.close();
    }
  } finally {
    await state.close();
  }
}

/** The server of a name that a person typed. Throws USAGE. */
export function serverNamed({ servers }: Config, name: string): ServerConfig {
  const server = servers.get(name);
  if (server === undefined)
    throw new TollgateError('USAGE', {
      detail: `There is no server ${quote(name)}.`,
      next: `Name one of tollgate.yaml; ${didYouMean(name, servers.keys())}`,
    });
  return server;
}
