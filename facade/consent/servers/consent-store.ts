/**
 * Stores consent in the shared state. A keyed digest seals each entry to its server. An entry with a wrong seal is
 * refused, and never repaired.
 */
import type { ServerProbeResult } from '../../../adapters/port.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { State } from '../../state/state-port.ts';
import type { StartFacts } from './start-facts.ts';

const SPACE = 'consent';
const DISABLED = 'disabled';
const VERSION = 1;

/** The owner who decided, and the time (ISO 8601, UTC). */
export interface ConsentAct {
  readonly by: string;
  readonly at: string;
}

/** A decision about tools; `start` is the hash of the start that was shown with them. */
export interface ToolConsentAct extends ConsentAct {
  readonly start: string;
}

/** Consent to the tools of a server: to one exact set, or to all that it lists. */
export interface ToolConsent extends ConsentAct {
  /** Hash of the set; absent: any tools. */
  readonly set?: string;
  /** The annotations of its tools count, because the owner confirmed them (PF-05). */
  readonly hints: boolean;
}

/**
 * The result of a probe, and what the owner allowed it (see probeOpeningsOf), so that the result can be shown again
 * without another probe.
 */
export interface ProbeFindings {
  readonly at: string;
  readonly opened: readonly string[];
  readonly looked: ServerProbeResult;
}

/**
 * Consent to the start of one server. Without `tools` it is not started for agents, and each probe needs its own
 * consent.
 */
export interface ServerConsent extends ConsentAct {
  readonly hash: string;
  readonly facts: StartFacts;
  readonly tools?: ToolConsent;
  /** The set that was approved before the start changed, to show what is new. */
  readonly formerSet?: string;
  /** The result of the last probe, until the tools are approved. */
  readonly seen?: ProbeFindings;
}

/** The stored entry of one server: none, a consent, or a damaged entry. */
export type StoredConsent = { readonly consent?: ServerConsent; readonly damaged?: true };

/** What a person has approved of one server: nothing, its start, or its start and tools. */
export type ConsentState = 'unapproved' | 'start only' | 'approved' | 'any tools' | 'damaged';

/** Returns the state of the consent to one server. */
export function consentStateOf({ consent, damaged }: StoredConsent): ConsentState {
  if (damaged === true) return 'damaged';
  if (consent === undefined) return 'unapproved';
  if (consent.tools === undefined) return 'start only';
  return consent.tools.set === undefined ? 'any tools' : 'approved';
}

/** The entries of one state folder. */
export class ConsentStore {
  readonly #state: State;
  readonly #digest: (text: string) => string;
  /** The entry of each server that was read last, so that an unchanged text needs no second digest. */
  readonly #read = new Map<string, { readonly text: string; readonly kept: StoredConsent }>();

  /**
   * `digest` is keyed: a user who can write the database but not read the key cannot move consent to another server.
   */
  constructor(state: State, digest: (text: string) => string) {
    this.#state = state;
    this.#digest = digest;
  }

  /** Throws STATE_FAILED. */
  get(server: string): StoredConsent {
    return this.#open(server, this.#state.get(SPACE, server));
  }

  async put(server: string, consent: ServerConsent): Promise<void> {
    await this.#state.put(SPACE, server, this.#write(server, consent));
  }

  /** Throws APPROVAL_REQUIRED if no start is approved, and PIN_MISMATCH if another start was approved. */
  checkStart(server: string, start: string): ServerConsent {
    const { consent } = this.get(server);
    const next = `Run \`tollgate approve ${server}\`.`;
    if (consent === undefined)
      throw new TollgateError('APPROVAL_REQUIRED', {
        detail: `No one has approved the start of server "${server}".`,
        next,
      });
    if (consent.hash !== start)
      throw new TollgateError('PIN_MISMATCH', {
        detail: `Another start of server "${server}" was approved meanwhile; its tools were not.`,
        next,
      });
    return consent;
  }

  /** Adds consent to tools to the start that was shown with them, in one transaction. Throws as `checkStart`. */
  async addTools(server: string, start: string, tools: ToolConsent): Promise<void> {
    const from = this.#state.get(SPACE, server);
    const to = this.#write(server, { ...this.checkStart(server, start), tools });
    if (from !== undefined && (await this.#state.swap(SPACE, server, { from, to }))) return;
    throw new TollgateError('PIN_MISMATCH', {
      detail: `There was another decision about server "${server}" meanwhile, so its tools were not approved.`,
      next: `Run \`tollgate approve ${server}\`.`,
    });
  }

  /** Stores the result of a probe, unless the consent has changed meanwhile. */
  async keepSeen(server: string, hash: string, seen: ProbeFindings): Promise<void> {
    const { consent } = await this.get(server);
    if (consent?.hash === hash) await this.put(server, { ...consent, seen });
  }

  async remove(server: string): Promise<void> {
    await this.#state.remove(SPACE, server);
  }

  /** Returns all entries by server. */
  all(): ReadonlyMap<string, StoredConsent> {
    const texts = this.#state.list(SPACE);
    return new Map([...texts].map(([server, text]) => [server, this.#open(server, text)]));
  }

  /** Returns the act that disabled a server. */
  disabledBy(server: string): ConsentAct | undefined {
    const text = this.#state.get(DISABLED, server);
    return text === undefined ? undefined : (JSON.parse(text) as ConsentAct);
  }

  /** Returns who has disabled which servers. */
  disabled(): ReadonlyMap<string, ConsentAct> {
    return new Map([...this.#state.list(DISABLED)].map(([server, text]) => [server, JSON.parse(text) as ConsentAct]));
  }

  async disable(server: string, act: ConsentAct): Promise<void> {
    await this.#state.put(DISABLED, server, JSON.stringify(act));
  }

  /** Returns true if it was disabled. */
  async enable(server: string): Promise<boolean> {
    const was = this.disabledBy(server) !== undefined;
    await this.#state.remove(DISABLED, server);
    return was;
  }

  #open(server: string, text: string | undefined): StoredConsent {
    if (text === undefined) return {};
    const known = this.#read.get(server);
    if (known?.text === text) return known.kept;
    const kept = this.#unseal(server, text);
    this.#read.set(server, { text, kept });
    return kept;
  }

  #unseal(server: string, text: string): StoredConsent {
    try {
      const { v, seal, body } = JSON.parse(text) as { v?: unknown; seal?: unknown; body?: unknown };
      if (v !== VERSION || typeof body !== 'string' || seal !== this.#seal(server, body)) return { damaged: true };
      return { consent: JSON.parse(body) as ServerConsent };
    } catch {
      return { damaged: true };
    }
  }

  #write(server: string, { seen, ...consent }: ServerConsent): string {
    const body = JSON.stringify(consent.tools === undefined ? { ...consent, seen } : consent);
    return JSON.stringify({ v: VERSION, seal: this.#seal(server, body), body });
  }

  #seal(server: string, body: string): string {
    return this.#digest(`tollgate-consent\0${VERSION}\0${server}\0${body}`);
  }
}
