/**
 * A server with several processes, or connections: one for each session, or one for each environment that profiles give
 * it. So a request of the server to the client belongs to one session, what one session tells the server stays there,
 * and no process serves callers with different variables. One more process, with the server's own variables, lists the
 * tools.
 */
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { Health, LogLevel, ServerLists, UpstreamCall } from '../port.ts';
import type { Connection } from '../rpc/connection.ts';
import type { JsonDoc } from '../rpc/wire-message.ts';
import type { ServerLifetime, ServerSettings } from './server-settings.ts';
import type { AdapterOptions } from './supervisor.ts';
import { type ServerParts, UpstreamServer } from './upstream-server.ts';

/** The dependencies of such a server. `connectTo` creates a connection and does not open it. */
export interface SeparateParts extends Pick<ServerParts, 'settings' | 'slots' | 'options'> {
  readonly connectTo: (settings: ServerSettings, options: AdapterOptions) => Connection;
}

type SessionOf = Pick<UpstreamCall, 'scope' | 'profiles'>;

/** One process. `session`: the only session that it serves. */
interface SeparateProcess {
  readonly server: UpstreamServer;
  readonly session: string | undefined;
}

/** All processes, as one server. */
export class SeparateProcesses extends UpstreamServer {
  private readonly parts: SeparateParts;
  private readonly processes = new Map<string, SeparateProcess>();
  /** Why no process may run. */
  private refusal: TollgateError | undefined;
  private isRetiring = false;

  constructor(parts: SeparateParts) {
    const { settings, options, connectTo } = parts;
    const isOwn = (profiles: readonly string[]): boolean => changingProfiles(settings, profiles).length === 0;
    super({
      ...parts,
      connect: () => connectTo(settings, options),
      ...(settings.environments !== undefined && { users: { serves: isOwn } }),
    });
    this.parts = parts;
  }

  override call(call: UpstreamCall): Promise<JsonDoc<ToolResult>> {
    const server = this.processFor(call);
    return server === undefined ? super.call(call) : server.call(call);
  }

  /** Lists differ by environment, not by session. */
  override list<Kind extends keyof ServerLists>(
    kind: Kind,
    asking: Partial<Pick<UpstreamCall, 'profiles' | 'signal'>> = {},
  ): Promise<ServerLists[Kind]> {
    const profiles = changingProfiles(this.settings, asking.profiles);
    return profiles.length === 0 ? super.list(kind, asking) : this.processOf(profiles).list(kind, asking);
  }

  override setLogLevel(level: LogLevel, session: SessionOf): void {
    const server = this.processFor(session);
    return server === undefined ? super.setLogLevel(level, session) : server.setLogLevel(level, session);
  }

  override demand(session: SessionOf, lifetime?: ServerLifetime): void {
    const isOwn = changingProfiles(this.settings, session.profiles).length === 0;
    const server = isOwn ? undefined : this.processFor(session);
    return server === undefined ? super.demand(session, lifetime) : server.demand(session, lifetime);
  }

  override async endScope(scope: string): Promise<void> {
    const ends = [...this.processes].map(([key, { server, session }]) => {
      if (session === undefined) return server.endScope(scope);
      if (session !== scope) return undefined;
      this.processes.delete(key);
      return server.stop();
    });
    await Promise.all([...ends, super.endScope(scope)]);
  }

  /** The worst that can be said of a process that runs or was lost; the processes of sessions come and go. */
  override health(): Health {
    const own = super.health();
    const others = own.state === 'idle' ? this.servers().map((server) => server.health()) : [];
    return others.find(({ state }) => state !== 'idle' && state !== 'healthy') ?? others[0] ?? own;
  }

  override async stop(): Promise<void> {
    await Promise.all([super.stop(), ...this.servers().map((server) => server.stop())]);
  }

  override async retire(graceMs: number): Promise<void> {
    this.isRetiring = true;
    await Promise.all(this.servers().map((server) => server.retire(graceMs)));
    await super.retire(graceMs);
  }

  override killNow(): void {
    super.killNow();
    for (const server of this.servers()) server.killNow();
  }

  override halt(refusal: TollgateError): void {
    this.refusal = refusal;
    super.halt(refusal);
    for (const server of this.servers()) server.halt(refusal);
  }

  override lift(): void {
    this.refusal = undefined;
    super.lift();
    for (const server of this.servers()) server.lift();
  }

  override revive(): void {
    super.revive();
    for (const server of this.servers()) server.revive();
  }

  override async renew(how: 'list' | 'process'): Promise<void> {
    await super.renew(how);
    if (how === 'list') return void (await Promise.all(this.servers().map((server) => server.renew(how))));
    const servers = this.servers();
    this.processes.clear();
    await Promise.all(servers.map((server) => server.stop()));
  }

  private servers(): readonly UpstreamServer[] {
    return [...this.processes.values()].map(({ server }) => server);
  }

  /** Returns the process of a session; undefined if it is the one with the server's own variables. */
  private processFor({ scope, profiles }: SessionOf): UpstreamServer | undefined {
    const changing = changingProfiles(this.settings, profiles);
    if (this.settings.process === 'session') return this.processOf(changing, scope);
    return changing.length === 0 ? undefined : this.processOf(changing);
  }

  /** Made when it is needed first. */
  private processOf(profiles: readonly string[], session?: string): UpstreamServer {
    const key = JSON.stringify([profiles, session]);
    const known = this.processes.get(key);
    if (known !== undefined) return known.server;
    const server = this.createProcess(profiles, session);
    this.processes.set(key, { server, session });
    return server;
  }

  private createProcess(profiles: readonly string[], session?: string): UpstreamServer {
    const { settings: own, slots, options: given, connectTo } = this.parts;
    const changes = profiles.map((profile) => own.environments?.[profile]);
    const settings: ServerSettings = { ...own, env: Object.assign({}, own.env, ...changes) as Record<string, string> };
    // The owner's consent covers all environments of the server together.
    const consent = given.consent;
    const options = { ...given, ...(consent !== undefined && { consent: () => consent(own) }) };
    const serves = (of: readonly string[]): boolean =>
      JSON.stringify(changingProfiles(own, of)) === JSON.stringify(profiles);
    const users = { session, serves };
    const server = new UpstreamServer({ settings, slots, options, users, connect: () => connectTo(settings, options) });
    if (this.refusal !== undefined) server.halt(this.refusal);
    if (this.isRetiring) void server.retire(0);
    return server;
  }
}

/** Returns those of a caller's profiles that give the server other variables. Of two values, the later one counts. */
function changingProfiles({ environments = {} }: ServerSettings, profiles: readonly string[] = []): readonly string[] {
  return profiles.filter((profile) => Object.hasOwn(environments, profile));
}
