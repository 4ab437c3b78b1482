/**
 * Suspended principals. A suspension is in the stop file, so it needs neither the database nor free disk space, and
 * every process sees it at its next call. A list of a suspended principal stays the same; a call is refused.
 */
import { createHash } from 'node:crypto';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Awaitable } from '../../../catalogs/text/awaitable.ts';
import type { Principal } from '../../../policies/port.ts';
import type { SwitchEntry } from '../../audit/audit-entry.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { subjectPrefix } from '../../config/settings/jwt-settings.ts';
import { elapsed, type Instant, instant } from '../../state/budget-clock.ts';
import { isStopOver, PRINCIPAL_MARK, type Stop, type Stops } from '../../state/stop-file.ts';
import { NO_PRECONDITIONS, OPEN_VIEW, type Precondition } from '../preconditions.ts';

/** A suspension. `until`: ISO 8601, UTC, by the present clock; absent: until it is lifted. */
export interface Suspension {
  /** The id of the principal. Of an id that is too long for the stop file, `#` and the SHA-256 of it. */
  readonly principal: string;
  readonly since: string;
  readonly by: string;
  readonly until?: string;
}

/** Differences of the clocks that are not a change of the time, ms. */
const CLOCK_MS = 2_000;
/** The longest id that is written into the stop file as it is, bytes as JSON. */
const MAX_ID_BYTES = 64;

/** Reads the stop file for every answer, so a suspension by another process counts at the next call. */
export class Suspensions {
  readonly #stops: Stops;
  readonly #clock: () => Instant;

  /** Tests replace `clock`. */
  constructor({ stops }: { readonly stops: Stops }, clock: () => Instant = instant) {
    this.#stops = stops;
    this.#clock = clock;
  }

  /**
   * Suspends a principal, or replaces its suspension. It is on the disk when the method returns. Suspensions that are
   * over are removed, so that they take no place of others. `forMs`: for how long; absent: until it is lifted.
   */
  suspend(principal: string, { by, forMs }: { readonly by: string; readonly forMs?: number }): Suspension {
    const from = this.#clock();
    for (const [name, stop] of this.#stops.list())
      if (name.startsWith(PRINCIPAL_MARK) && isStopOver(stop, from)) this.#stops.remove(name, stop);
    const since = new Date(from.wall).toISOString();
    const stop = { since, by, ...(forMs !== undefined && { lasts: { ms: forMs, from } }) };
    this.#stops.put(nameOf(principal), stop);
    return suspensionOf(nameOf(principal), stop, from);
  }

  /** Lifts the suspension of a principal. Returns false if it was not suspended. */
  resume(principal: string): boolean {
    const isSuspended = this.find(principal) !== undefined;
    this.#stops.remove(nameOf(principal));
    return isSuspended;
  }

  /** Returns the suspensions that are in force, by name. */
  list(): readonly Suspension[] {
    const now = this.#clock();
    return [...this.#stops.list()].flatMap(([name, stop]) =>
      name.startsWith(PRINCIPAL_MARK) && !isStopOver(stop, now) ? [suspensionOf(name, stop, now)] : [],
    );
  }

  /** Returns the suspension of a principal. Throws STATE_FAILED: if the stops are unknown, nothing runs. */
  find(principal: string): Suspension | undefined {
    const stops = this.#stops.list();
    // Nearly always nothing is stopped.
    if (stops.size === 0) return undefined;
    const name = nameOf(principal);
    const stop = stops.get(name);
    if (stop === undefined) return undefined;
    const now = this.#clock();
    return isStopOver(stop, now) ? undefined : suspensionOf(name, stop, now);
  }

  /** Returns the refusal of everything that a suspended principal asks for. Throws as `find`. */
  refusalOf(principal: string): TollgateError | undefined {
    const found = this.find(principal);
    if (found === undefined) return undefined;
    const { since, until } = found;
    return new TollgateError('SUSPENDED', {
      detail: `An owner has suspended you since ${since}${until === undefined ? '' : ` until ${until}`}.`,
      data: { since, ...(until !== undefined && { until }) },
      retryable: until !== undefined,
    });
  }
}

function nameOf(principal: string): string {
  const fits = Buffer.byteLength(JSON.stringify(principal)) <= MAX_ID_BYTES;
  return PRINCIPAL_MARK + (fits ? principal : `#${createHash('sha256').update(principal).digest('base64url')}`);
}

function suspensionOf(name: string, { since, by, lasts }: Stop, now: Instant): Suspension {
  const principal = name.slice(PRINCIPAL_MARK.length);
  if (lasts === undefined) return { principal, since, by };
  const planned = lasts.from.wall + lasts.ms;
  const end = now.wall + lasts.ms - elapsed(lasts.from, now);
  // The two differ by more than the rounding of clocks only if the clock was set.
  const until = Math.abs(end - planned) < CLOCK_MS ? planned : end;
  return { principal, since, by, until: new Date(until).toISOString() };
}

/** Returns the precondition for suspensions. Every list and every call reads it. */
export function suspensionPrecondition(suspensions: Pick<Suspensions, 'refusalOf'>): Precondition {
  return {
    view: ({ id }: Principal) => {
      const refused = suspensions.refusalOf(id);
      return refused === undefined ? OPEN_VIEW : { ...OPEN_VIEW, refused };
    },
    // The suspension may have come after the name was resolved.
    judge: ({ caller }) => {
      const refused = suspensions.refusalOf(caller.principal.id);
      if (refused !== undefined) throw refused;
      return NO_PRECONDITIONS;
    },
  };
}

/** What an act on a principal works with. */
export interface SuspensionParts {
  readonly suspensions: Suspensions;
  /** Absent if no configuration can be read. Names are then not compared with it. */
  readonly config?: Pick<Config, 'principals' | 'listen'> | undefined;
  /** Throws AUDIT_FAILED. */
  readonly append: (entry: SwitchEntry) => Awaitable<void>;
}

/** An act of an owner. `by`: the owner's id, or the user of the machine, who is then not under `user` too. */
export interface SuspensionAct {
  readonly principal: string;
  readonly by: string;
  readonly user?: string;
}

/**
 * Suspends a principal, and records it afterwards, because a full disk must not keep an agent running. Throws USAGE for
 * an unknown principal, STATE_FAILED, and AUDIT_FAILED: then the principal is suspended, and there is no record.
 */
export async function suspendPrincipal(
  { suspensions, config, append }: SuspensionParts,
  { forMs, ...act }: SuspensionAct & { readonly forMs?: number | undefined },
): Promise<Suspension> {
  const { principal, by } = act;
  if (config !== undefined && !isPrincipal(principal, config)) throw noPrincipal(principal, config);
  if (forMs !== undefined && !(forMs >= MIN_MS && forMs <= MAX_MS))
    throw new TollgateError('USAGE', {
      detail: 'A suspension lasts from a second to ten years.',
      next: 'Give another duration, or none: then it lasts until someone lifts it.',
    });
  const suspension = suspensions.suspend(principal, { by, ...(forMs !== undefined && { forMs }) });
  const { until } = suspension;
  try {
    await append({ ...recordOf('suspended', act, config), ...(until !== undefined && { until }) });
  } catch (thrown) {
    const { code, message, next } = asTollgateError(thrown);
    throw new TollgateError(code, {
      detail: `The principal is suspended. This was not recorded: ${message}`,
      next,
      cause: thrown,
    });
  }
  return suspension;
}

/**
 * Lifts a suspension. It is recorded first, because what cannot be recorded is not done. Returns false if the principal
 * was not suspended. Throws USAGE for an unknown principal that is not suspended, STATE_FAILED, AUDIT_FAILED.
 */
export async function resumePrincipal(
  { suspensions, config, append }: SuspensionParts,
  act: SuspensionAct,
): Promise<boolean> {
  const { principal } = act;
  if (suspensions.find(principal) === undefined) {
    if (config !== undefined && !isPrincipal(principal, config)) throw noPrincipal(principal, config);
    return false;
  }
  await append(recordOf('resumed', act, config));
  return suspensions.resume(principal);
}

/** The shortest and the longest time of a suspension, ms. */
const [MIN_MS, MAX_MS] = [1_000, 10 * 365 * 86_400_000];

function isPrincipal(id: string, { principals, listen: { jwt } }: NonNullable<SuspensionParts['config']>): boolean {
  return principals.some((one) => one.id === id) || (jwt !== undefined && id.startsWith(subjectPrefix(jwt.issuer)));
}

function noPrincipal(id: string, { principals }: NonNullable<SuspensionParts['config']>): TollgateError {
  return new TollgateError('USAGE', {
    detail: `There is no principal ${quote(id)}.`,
    next: `Name one of tollgate.yaml; ${didYouMean(
      id,
      principals.map((one) => one.id),
    )}`,
  });
}

function recordOf(
  event: 'suspended' | 'resumed',
  { principal, by, user }: SuspensionAct,
  config: SuspensionParts['config'],
): SwitchEntry {
  const known = config?.principals.find((one) => one.id === principal);
  const { role = '', profiles = [], client: origin = '' } = known ?? {};
  const outcome = event === 'suspended' ? 'deny' : 'allow';
  return {
    type: 'switch',
    event,
    outcome,
    by,
    ...(user !== undefined && { user }),
    principal: { id: principal, role, profiles, origin },
  };
}
