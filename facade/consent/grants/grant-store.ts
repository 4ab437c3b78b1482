/** Stores the grants, for all processes of a state folder. A grant that cannot be recorded is not given. */
import { randomBytes } from 'node:crypto';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ConsentEntry } from '../../audit/audit-entry.ts';
import type { State } from '../../state/state-port.ts';
import { completeGrant, type Grant, isInForce, type NewGrant } from './grant.ts';

/** The parts that grants use. `now` in ms since 1970; `append` throws AUDIT_FAILED. */
export interface GrantParts {
  readonly state: State;
  readonly now: () => number;
  readonly append: (entry: ConsentEntry) => void;
}

const SPACE = 'grants';
/** The form of an id. Nothing else is accepted (attack: a path in an id). */
const ID = /^grant_[0-9a-f]{32}$/;

/** The grants of a state folder. Methods throw STATE_FAILED. */
export class Grants {
  readonly #parts: GrantParts;
  /** Origin → grants that were read, valid until a grant changes. */
  readonly #known = new Map<string, readonly Grant[]>();
  #stamp = '';

  constructor(parts: GrantParts) {
    this.#parts = parts;
  }

  /**
   * Returns the valid grants of one origin. Every list and every call reads them, so a revocation counts at the next
   * call.
   */
  of(origin: string): readonly Grant[] {
    const { state, now } = this.#parts;
    const stamp = state.stamp();
    if (stamp !== this.#stamp || this.#known.size > MAX_KNOWN) this.#known.clear();
    this.#stamp = stamp;
    let known = this.#known.get(origin);
    if (known === undefined) {
      known = [...state.list(SPACE, `${origin} `).values()].map(parse).filter((grant) => grant.origin === origin);
      this.#known.set(origin, known);
    }
    if (known.length === 0) return known;
    const time = now();
    return known.every((grant) => isInForce(grant, time)) ? known : known.filter((grant) => isInForce(grant, time));
  }

  /** Returns all valid grants, the newest first. Removes and records expired grants. */
  async list(only: { readonly origin?: string; readonly profile?: string } = {}): Promise<readonly Grant[]> {
    const now = this.#parts.now();
    const live: Grant[] = [];
    for (const grant of this.#all()) {
      if (isInForce(grant, now)) live.push(grant);
      else await this.#end(grant, 'expired');
    }
    return live
      .filter(({ origin, profile }) => (only.origin ?? origin) === origin && (only.profile ?? profile) === profile)
      .sort((a, b) => b.at - a.at || (a.id < b.id ? -1 : 1));
  }

  /** Adds a grant. Throws USAGE for a malformed grant. Throws AUDIT_FAILED, and then grants nothing. */
  async add(wanted: NewGrant, by: string): Promise<Grant> {
    const at = this.#parts.now();
    const grant: Grant = { ...completeGrant(wanted, at), id: `grant_${randomBytes(16).toString('hex')}`, by, at };
    this.#parts.append(record(grant, 'added', by));
    await this.#parts.state.put(SPACE, keyOf(grant), JSON.stringify(grant));
    return grant;
  }

  /** Revokes a grant. Throws USAGE for an unknown id. Throws AUDIT_FAILED after the revocation. */
  async revoke(id: string, by: string): Promise<Grant> {
    const grant = ID.test(id) ? this.#all().find((one) => one.id === id) : undefined;
    if (grant === undefined)
      throw new TollgateError('USAGE', {
        detail: 'There is no such grant.',
        next: '`tollgate grants list` shows all of them.',
      });
    await this.#end(grant, 'revoked', by);
    return grant;
  }

  /** Ends the grants of a session or a tab that has ended (HB-03). Returns their number. */
  async expire(
    what: { readonly session: string } | { readonly tab: string; readonly origin?: string },
    by?: string,
  ): Promise<number> {
    const ended = this.#all().filter((grant) =>
      'session' in what
        ? grant.session === what.session
        : grant.tab === what.tab && (what.origin ?? grant.origin) === grant.origin,
    );
    for (const grant of ended) await this.#end(grant, 'expired', by);
    return ended.length;
  }

  #all(): readonly Grant[] {
    return [...this.#parts.state.list(SPACE).values()].map(parse);
  }

  /** Removes the grant before it is recorded, so that a log that cannot be written does not keep a permission alive. */
  async #end(grant: Grant, event: 'revoked' | 'expired', by?: string): Promise<void> {
    await this.#parts.state.remove(SPACE, keyOf(grant));
    this.#parts.append(record(grant, event, by));
  }
}

/** The most origins that are cached, because their names come from outside. */
const MAX_KNOWN = 1000;

/** Neither origins nor profiles contain a space. */
function keyOf({ origin, profile, id }: Grant): string {
  return `${origin} ${profile} ${id}`;
}

function parse(text: string): Grant {
  return JSON.parse(text) as Grant;
}

function record({ id, origin, profile, scope, kind }: Grant, event: string, by: string | undefined): ConsentEntry {
  return {
    type: 'grant',
    event,
    id,
    outcome: event === 'added' && kind !== 'deny' ? 'allow' : 'deny',
    principal: { id: '', role: '', profiles: [profile], origin },
    scope,
    kind,
    ...(by !== undefined && { by }),
  };
}
