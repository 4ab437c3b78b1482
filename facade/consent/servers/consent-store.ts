/**
 * Stores consent in the shared state. A keyed digest seals each entry to its server. An entry that something else wrote
 * is refused, and never repaired.
 */
import type { ServerProbeResult } from '../../../adapters/port.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { State } from '../../state/state-port.ts';
import type { StartFacts } from './start-facts.ts';

const SPACE = 'consent';
const DISABLED = 'disabled';
const VERSION = 1;

/** Who decided, and when (ISO 8601, UTC). */
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
  /** What the server says about its tools counts, because the owner confirmed it (PF-05). */
  readonly hints: boolean;
}

/**
 * What a look found, and what it was given beyond nothing (see openingsOf), so that it can be shown again without
 * another run.
 */
export interface ProbeFindings {
  readonly at: string;
  readonly opened: readonly string[];
  readonly looked: ServerProbeResult;
}

/**
 * Consent to one server as it would run. Without `tools` it is not started for agents, and each look at it needs its
 * own consent.
 */
export interface ServerConsent extends ConsentAct {
  readonly hash: string;
  readonly facts: StartFacts;
  readonly tools?: ToolConsent;
  /** The set that was approved before the start changed, only to show what is new since. */
  readonly formerSet?: string;
  /** Until its tools are agreed to. */
  readonly seen?: ProbeFindings;
}

/** What is stored of one server: nothing, consent, or an entry that must not be used. */
export type StoredConsent = { readonly consent?: ServerConsent; readonly damaged?: true };

/** How far the consent to one server goes. */
export type ConsentState = 'unapproved' | 'start only' | 'approved' | 'any tools' | 'damaged';

/** The state of consent to one server, in a word. */
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
  /** The entry that was read last, so that the same text needs no second digest. */
  readonly #read = new Map<string, { readonly text: string; readonly kept: StoredConsent }>();

  /**
   * `digest` is keyed: someone who can write the database but not read the key cannot move consent to another server.
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

  /** Throws APPROVAL_REQUIRED if no one approved the start, and PIN_MISMATCH if another start was approved. */
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

  /** Adds consent to tools to the start that was shown with them, in one step. Throws as `checkStart`. */
  async addTools(server: string, start: string, tools: ToolConsent): Promise<void> {
    const from = this.#state.get(SPACE, server);
    const to = this.#write(server, { ...this.checkStart(server, start), tools });
    if (from !== undefined && (await this.#state.swap(SPACE, server, { from, to }))) return;
    throw new TollgateError('PIN_MISMATCH', {
      detail: `There was another decision about server "${server}" meanwhile, so its tools were not approved.`,
      next: `Run \`tollgate approve ${server}\`.`,
    });
  }

  /** Stores what a look found, unless the consent has changed by now. */
  async keepSeen(server: string, hash: string, seen: ProbeFindings): Promise<void> {
    const { consent } = await this.get(server);
    if (consent?.hash === hash) await this.put(server, { ...consent, seen });
  }

  async remove(server: string): Promise<void> {
    await this.#state.remove(SPACE, server);
  }

  /** All entries by server. */
  all(): ReadonlyMap<string, StoredConsent> {
    const texts = this.#state.list(SPACE);
    return new Map([...texts].map(([server, text]) => [server, this.#open(server, text)]));
  }

  /** Returns who has disabled a server. */
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

  /** True when it was disabled. */
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
