/**
 * Lets a host register its own servers, and unregister them, in the profiles that an owner has opened to it. Consent
 * remains with owners.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Principal } from '../../../policies/port.ts';
import type { Config } from '../../config/config.ts';
import {
  type RegisteredServer,
  type Registration,
  readRegistration,
  removeRegistration,
  writeRegistration,
} from '../../config/servers/registered-servers.ts';
import { nameFault } from '../../config/servers/server-names.ts';
import type { AssembledFacade } from '../../runtime/assembled-facade.ts';

/** What a host asks for. */
export interface ServerToRegister extends RegisteredServer {
  readonly name: string;
  readonly profiles: readonly string[];
}

/** What is recorded of it. */
interface Act {
  readonly event: 'registered' | 'unregistered';
  readonly server: string;
  readonly by: string;
}

/**
 * The registrations of one process, one after the other. `reload` loads the configuration on the disk, and does not
 * throw if it refuses it.
 */
export class Registrar {
  readonly #parts: HostParts;
  readonly #reload: () => Promise<void>;
  #last: Promise<unknown> = Promise.resolve();

  constructor(parts: HostParts, reload: () => Promise<void>) {
    this.#parts = parts;
    this.#reload = reload;
  }

  /**
   * Registers a server. Throws IDENTITY if the principal may not, USAGE for an unusable server, AUDIT_FAILED,
   * STATE_FAILED; then it is not registered.
   */
  register(principal: Principal, wanted: ServerToRegister): Promise<Registration> {
    return this.#inTurn(() => this.#register(principal, wanted));
  }

  /** Unregisters a server. Throws IDENTITY, USAGE, AUDIT_FAILED, STATE_FAILED; then it is still registered. */
  unregister(principal: Principal, name: string): Promise<Registration> {
    return this.#inTurn(() => this.#unregister(principal, name));
  }

  async #register({ id, owner }: Principal, { name, profiles, ...server }: ServerToRegister): Promise<Registration> {
    const { config, consents } = this.#parts;
    requireRight(config, { id, owner: owner === true, profiles });
    refuseUnfit(config, name, server);
    const registration: Registration = { name, by: id, at: new Date().toISOString(), profiles, server };
    this.#note({ event: 'registered', server: name, by: id });
    // Consent to another server that had this name is not consent to this one.
    await consents.revoke(name);
    if (!onDisk(() => writeRegistration(config.state, registration))) throw taken(name);
    await this.#reload();
    const made = this.#parts.config.servers.get(name);
    if (made !== undefined && made.unusable === undefined) return registration;
    this.#note({ event: 'unregistered', server: name, by: id });
    onDisk(() => removeRegistration(config.state, name));
    await this.#reload();
    throw new TollgateError('USAGE', {
      detail: `Server "${name}" cannot be used: ${made?.unusable ?? 'the configuration could not be loaded with it'}.`,
      next: 'Correct what is named, and register it again.',
    });
  }

  async #unregister({ id, owner }: Principal, name: string): Promise<Registration> {
    const { config, consents } = this.#parts;
    const registration = readRegistration(config.state, name);
    // A host need not know of a server that it may not unregister.
    if (registration === undefined || (owner !== true && registration.by !== id))
      throw new TollgateError('USAGE', {
        detail: 'No server of this name was registered with this token.',
        next: 'An owner removes a server of tollgate.yaml there.',
      });
    this.#note({ event: 'unregistered', server: name, by: id });
    // First, so that it cannot start any more.
    await consents.revoke(name);
    onDisk(() => removeRegistration(config.state, name));
    await this.#reload();
    return registration;
  }

  #note({ event, server, by }: Act): void {
    this.#parts.deps.audit.append({ type: 'server', event, server, outcome: 'allow', by });
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => undefined);
    return done;
  }
}

/** Does file work. Throws STATE_FAILED for errors of the system. */
function onDisk<T>(work: () => T): T {
  try {
    return work();
  } catch (cause) {
    throw new TollgateError('STATE_FAILED', { detail: 'The folder of registered servers cannot be written.', cause });
  }
}

/**
 * Checks the profiles. Throws IDENTITY. With `auth: none` everyone who reaches the port is the principal, so its right
 * is not granted.
 */
function requireRight(
  { principals, listen }: Config,
  { id, owner, profiles }: { readonly id: string; readonly owner: boolean; readonly profiles: readonly string[] },
): void {
  const may = principals.find((principal) => principal.id === id)?.registers ?? [];
  const refused = listen.auth === 'none' && !owner ? profiles : profiles.filter((profile) => !may.includes(profile));
  if (refused.length === 0) return;
  throw new TollgateError('IDENTITY', {
    detail: `${id} may not register servers in ${refused.join(', ')}.`,
    next: 'An owner names the profiles under principals.*.registers in tollgate.yaml.',
  });
}

/** Checks the name and the server. Throws USAGE. */
function refuseUnfit({ servers, limits }: Config, name: string, server: RegisteredServer): void {
  const fault = nameFault(name);
  if (fault !== undefined)
    throw new TollgateError('USAGE', {
      detail: `Server "${name}": ${fault}.`,
      next: 'Register it under another name.',
    });
  if (servers.has(name)) throw taken(name);
  if (servers.size >= limits.servers)
    throw new TollgateError('USAGE', {
      detail: `There are ${servers.size} servers already, as many as limits.servers allows.`,
      next: 'Unregister one, or ask an owner to raise limits.servers.',
    });
  // Variables would read the environment of this process.
  if (JSON.stringify(server).includes('${'))
    throw new TollgateError('USAGE', {
      detail: 'A registered server may contain no variables (${…}).',
      next: 'Omit it. An owner gives it secrets under servers in tollgate.yaml.',
    });
}

function taken(name: string): TollgateError {
  return new TollgateError('USAGE', {
    detail: `There is a server "${name}" already.`,
    next: 'Register it under another name, or unregister the other first.',
  });
}
/** What a host works with: the facade that answers now. */
export type HostParts = Pick<
  AssembledFacade,
  'gateway' | 'deps' | 'config' | 'catalog' | 'state' | 'attention' | 'consents' | 'suspensions' | 'feed'
>;
