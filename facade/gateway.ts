/** Owns the running facade behind its face: sessions, and the end of them; everything else is a stage's. */
import { callTool, type Deps } from './call.ts';
import type { Catalog } from './catalog.ts';
import type { CallRequest, Facade, Reply, Session } from './facade.ts';
import { listTools } from './list.ts';
import type { Metrics } from './metrics.ts';
import type { State } from './state/state.ts';
import { openSession, type OpenSession } from './session.ts';
import type { Principal } from '../policies/port.ts';

/** Milliseconds in which several changes of lists become one notification. */
const CHANGES_MS = 100;

/** The one implementation of Facade. Sessions are looked up by identity: an object of somebody else's is refused. */
export class Gateway implements Facade {
  readonly #deps: Deps;
  readonly #catalog: Catalog;
  readonly #metrics: Metrics;
  readonly #state: State;
  readonly #sessions = new Set<Session>();
  #listener: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: { deps: Deps; catalog: Catalog; metrics: Metrics; state: State }) {
    this.#state = parts.state;
    this.#deps = parts.deps;
    this.#catalog = parts.catalog;
    this.#metrics = parts.metrics;
  }

  openSession(principal: Principal, transport: 'stdio' | 'http'): Session {
    const session = openSession(principal, transport);
    this.#deps.audit.append({ type: 'session', event: 'opened', outcome: 'allow', session: session.id, transport, principal: shown(principal) });
    this.#sessions.add(session);
    return session;
  }

  async closeSession(session: Session): Promise<void> {
    if (!this.#sessions.delete(session)) return;
    const open = session as OpenSession;
    open.end.abort();
    this.#deps.spills.forget({ principal: open.principal.id, run: open.id });
    // A server that cannot be asked any more has nothing left of the session either.
    await Promise.allSettled([...this.#catalog.servers.values()].map(async ({ adapter, backend }) => (backend ?? adapter).endScope?.(open.id)));
    const { budgets, plans, audit } = this.#deps;
    await endAll([
      () => plans.end(open.principal, open.id), () => budgets.end('run', open.id), () => budgets.end('session', open.id),
      () => audit.append({ type: 'session', event: 'closed', outcome: 'allow', session: open.id, transport: open.transport, principal: shown(open.principal) }),
    ]);
  }

  instructions(session: Session): string {
    const profiles = session.principal.profiles.join(', ');
    return `Tollgate stands between you and your tools (profile: ${profiles}). Prefer read, write, edit and bash where they are listed. `
      + 'Each call is judged by policy; a refusal names its rule and what to do next, so do not repeat a refused call unchanged. '
      + 'Long results are cut: the notice at the end names the exact call that reads on.'
      + (this.#deps.plans.applies(session.principal) ? ' Only reading runs at first: present a plan to the user; when an owner has approved it, the rest runs too.' : '');
  }

  async listTools(session: Session): Promise<Reply> {
    return listTools(this.#deps.exposures, session as OpenSession, { redactor: this.#deps.redactor, newId: this.#deps.newId });
  }

  async callTool(session: Session, request: CallRequest): Promise<Reply> {
    return callTool(this.#deps, session as OpenSession, request);
  }

  onToolsChanged(listener: () => void): void {
    this.#listener = listener;
  }

  metrics(): string {
    const entries = [...this.#catalog.servers.values()].map(({ name, adapter }) => [name, adapter.health()] as const);
    return this.#metrics.text(Object.fromEntries(entries), this.#deps.budgets.unsettled);
  }

  health(): Readonly<Record<string, string>> {
    return Object.fromEntries([...this.#catalog.servers.values()].map(({ name, adapter }) => [name, adapter.health().state]));
  }

  /** Ends sessions, servers, spills and the log, in this order, so that the last records are written. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    const { spills, policy, audit, recorder } = this.#deps;
    await endAll([
      () => together([...this.#sessions].map((session) => this.closeSession(session))),
      () => together([...this.#catalog.servers.values()].map(({ adapter }) => adapter.stop())),
      () => spills.close(), () => policy().close(), () => recorder?.close(), () => audit.close(), () => this.#state.close(),
    ]);
  }

  /** A server's list has changed: told to the clients once for many changes. */
  noteChange(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#listener?.();
    }, CHANGES_MS);
  }
}

/** One after the other, each whatever became of the others; then throws the first fault. */
async function endAll(works: readonly (() => unknown)[]): Promise<void> {
  const faults: unknown[] = [];
  for (const work of works) {
    try {
      await work();
    } catch (thrown) {
      faults.push(thrown);
    }
  }
  if (faults.length > 0) throw faults[0];
}

/** All to their end; then throws the first fault. */
async function together(works: readonly Promise<void>[]): Promise<void> {
  const ends = await Promise.allSettled(works);
  for (const end of ends) if (end.status === 'rejected') throw end.reason;
}

function shown(principal: Principal): { id: string; role: string; profiles: readonly string[]; origin: string } {
  return { id: principal.id, role: principal.role, profiles: principal.profiles, origin: principal.origin };
}
