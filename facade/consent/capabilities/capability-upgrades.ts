/**
 * The capabilities that an owner has added, for all processes of a state folder. Each change is recorded before it
 * takes effect.
 */
import type { Capability } from '../../../catalogs/tools/tool-capabilities.ts';
import type { UpgradeEntry } from '../../audit/audit-entry.ts';
import type { State } from '../../state/state-port.ts';

const SPACE = 'upgrades';
const NONE: readonly Upgrade[] = [];

/** A capability that an owner has added. */
export interface Upgrade {
  readonly capability: string;
  /** Absent: for every profile. */
  readonly profile?: string;
  /** The calls that are allowed per session. */
  readonly calls: number;
  readonly bytes: number;
  readonly by: string;
  /** ISO 8601, UTC. */
  readonly since: string;
  readonly until?: string;
}

/** The parts that upgrades use. `now` in ms since 1970; `append` throws AUDIT_FAILED. */
export interface UpgradeParts {
  readonly state: State;
  readonly now: () => number;
  readonly append: (entry: UpgradeEntry) => void;
}

/** A capability to add. `ms`: for how long; absent: until it is withdrawn. */
export interface NewUpgrade {
  readonly capability: Capability;
  readonly by: string;
  readonly profile?: string | undefined;
  readonly calls?: number | undefined;
  readonly bytes?: number | undefined;
  readonly ms?: number | undefined;
}

/** The upgrades of a state folder. Methods throw STATE_FAILED. */
export class Upgrades {
  readonly #parts: UpgradeParts;

  constructor(parts: UpgradeParts) {
    this.#parts = parts;
  }

  /** Returns all valid upgrades. Every list and every call reads them, so a withdrawal counts at the next call. */
  list(): readonly Upgrade[] {
    const found = this.#parts.state.list(SPACE);
    if (found.size === 0) return NONE;
    const now = this.#parts.now();
    return [...found.values()]
      .map((text) => JSON.parse(text) as Upgrade)
      .filter(({ until }) => until === undefined || Date.parse(until) > now);
  }

  /** Adds or replaces an upgrade. Throws AUDIT_FAILED, and then adds nothing. */
  async enable({
    capability,
    by,
    profile,
    calls = capability.budget.calls,
    bytes = capability.budget.bytes,
    ms,
  }: NewUpgrade): Promise<Upgrade> {
    const now = this.#parts.now();
    const upgrade: Upgrade = {
      capability: capability.name,
      ...(profile !== undefined && { profile }),
      calls,
      bytes,
      by,
      since: new Date(now).toISOString(),
      ...(ms !== undefined && { until: new Date(now + ms).toISOString() }),
    };
    const { since: _since, capability: id, ...rest } = upgrade;
    this.#parts.append({ type: 'upgrade', event: 'enabled', id, outcome: 'allow', ...rest });
    await this.#parts.state.put(SPACE, keyOf(id, profile), JSON.stringify(upgrade));
    return upgrade;
  }

  /**
   * Withdraws an upgrade of one profile, or of every profile. Returns the withdrawn ones. Throws AUDIT_FAILED after the
   * withdrawal.
   */
  async disable({
    capability,
    profile,
    by,
  }: {
    readonly capability: string;
    readonly profile?: string | undefined;
    readonly by: string;
  }): Promise<readonly Upgrade[]> {
    const ended = this.list().filter(
      (one) => one.capability === capability && (profile === undefined || one.profile === profile),
    );
    for (const one of ended) await this.#parts.state.remove(SPACE, keyOf(capability, one.profile));
    for (const one of ended)
      this.#parts.append({
        type: 'upgrade',
        event: 'disabled',
        id: capability,
        outcome: 'deny',
        by,
        ...(one.profile !== undefined && { profile: one.profile }),
      });
    return ended;
  }
}

/** Names of profiles contain no space, and none is `*`. */
function keyOf(capability: string, profile = '*'): string {
  return `${capability} ${profile}`;
}
