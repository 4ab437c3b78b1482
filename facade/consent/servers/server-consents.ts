/**
 * People's consent to servers: which may start, as what, and with which tools. What differs from what was shown is
 * refused.
 */
import type { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { RawTool } from '../../../catalogs/tools/tool-definition.ts';
import type { Awaitable, State } from '../../state/state-port.ts';
import { ApprovedTools, refuseDrifted } from './approved-tools.ts';
import {
  type ConsentAct,
  type ConsentState,
  ConsentStore,
  consentStateOf,
  type ServerConsent,
  type StoredConsent,
  type ToolConsent,
  type ToolConsentAct,
} from './consent-store.ts';
import { createDigestStore } from './program-digests.ts';
import {
  changedRefusal,
  damagedRefusal,
  disabledRefusal,
  exposedRefusal,
  toolsUnapprovedRefusal,
  unapprovedRefusal,
} from './server-refusals.ts';
import {
  type FactSources,
  type StartFacts,
  type StartSettings,
  startDifferences,
  startFacts,
  startHash,
} from './start-facts.ts';
import type { ToolSet } from './tool-set.ts';

/** What is known of the consent to a server, without checking what it would run now. */
export interface ConsentStatus {
  readonly state: ConsentState;
  readonly consent?: ServerConsent;
  /** Who has disabled it. */
  readonly disabled?: ConsentAct;
}

/** What a person approved to start. */
export interface StartApproval extends ConsentAct {
  readonly facts: StartFacts;
}

/** Which servers are refused, from one read. The mark of a server changes whenever what is known of it does. */
export interface ConsentRefusals {
  readonly marks: ReadonlyMap<string, string>;
  readonly refusalOf: (server: string) => TollgateError | undefined;
}

/**
 * What people approved of a server's tools: nothing, with a reason; one set; or all that it lists. `mark` changes
 * whenever the rest may.
 */
export type Admission = { readonly mark: string } & (
  | { readonly refusal: TollgateError }
  | { readonly hints: boolean; readonly set?: ToolSet }
);

/** Reads the state at every question, so a decision of another process counts at the next call. Throws STATE_FAILED. */
export class Consents {
  readonly store: ConsentStore;
  readonly tools: ApprovedTools;
  readonly sources: FactSources;
  /** The consent under which this process started each running server. Another consent is for another program. */
  readonly #started = new Map<string, { readonly hash: string; readonly at: number }>();

  constructor(state: State, sources: Omit<FactSources, 'store'>) {
    this.store = new ConsentStore(state, sources.digest);
    this.tools = new ApprovedTools(state);
    this.sources = { ...sources, store: createDigestStore(state, sources.digest) };
  }

  /** Returns what a start with these settings would run now. */
  factsOf(settings: StartSettings): Promise<StartFacts> {
    return startFacts(settings, this.sources);
  }

  statusOf(server: string): ConsentStatus {
    const kept = this.store.get(server);
    const disabled = this.store.disabledBy(server);
    return {
      state: consentStateOf(kept),
      ...(kept.consent !== undefined && { consent: kept.consent }),
      ...(disabled !== undefined && { disabled }),
    };
  }

  /**
   * Approves the start, and one look at its tools. An earlier approval of its tools becomes invalid. Returns the hash
   * of the start.
   */
  async approveStart({ facts, by, at }: StartApproval): Promise<string> {
    const { consent } = this.store.get(facts.server);
    const formerSet = consent?.tools?.set ?? consent?.formerSet;
    const hash = startHash(facts);
    await this.store.put(facts.server, { hash, facts, by, at, ...(formerSet !== undefined && { formerSet }) });
    return hash;
  }

  /** Returns the set of tools that was approved last; undefined: none, or any. */
  lastSet(server: string): ToolSet | undefined {
    const { consent } = this.store.get(server);
    const hash = consent?.tools?.set ?? consent?.formerSet;
    return hash === undefined ? undefined : this.tools.get(server, hash);
  }

  /** Returns the tools of the other approved servers, each with its server. A definition may try to speak for them. */
  toolsBeside(server: string): ReadonlyMap<string, string> {
    const others = [...this.store.all().keys()].filter((name) => name !== server);
    return new Map(others.flatMap((name) => this.lastSet(name)?.tools.map((tool) => [tool.name, name] as const) ?? []));
  }

  /** Approves one set of tools. Throws as `checkStart` of the store. */
  async approveTools(server: string, set: ToolSet, { start, by, at }: ToolConsentAct): Promise<void> {
    this.store.checkStart(server, start);
    await this.store.addTools(server, start, { set: await this.tools.put(server, set), hints: set.hints, by, at });
  }

  /** Approves all tools that it lists, now and later: for a server of one's own that changes often. */
  async approveAnyTools(server: string, { start, ...tools }: Omit<ToolConsent, 'set'> & ToolConsentAct): Promise<void> {
    await this.store.addTools(server, start, tools);
    await this.tools.settle(server);
  }

  /** When this process last started it, ms since 1970. */
  startedAt(server: string): number {
    return this.#started.get(server)?.at ?? Number.NEGATIVE_INFINITY;
  }

  /** Withdraws all consent: no call reaches it from now on, in any process. Returns true if there was some. */
  async revoke(server: string): Promise<boolean> {
    const kept = this.store.get(server);
    await this.store.remove(server);
    await this.tools.remove(server);
    return kept.consent !== undefined || kept.damaged === true;
  }

  async disable(server: string, act: ConsentAct): Promise<void> {
    await this.store.disable(server, act);
  }

  /** Returns true if it was disabled. */
  enable(server: string): Promise<boolean> {
    return this.store.enable(server);
  }

  /** Before a call: returns what refuses the server now, without checking its files. */
  refusalOf(server: string): TollgateError | undefined {
    const act = this.store.disabledBy(server);
    return act === undefined ? this.#refusalIn(server, this.store.get(server)) : disabledRefusal(server, act);
  }

  /**
   * The server that this process ran is ended. Only then may another consent count for the next start. Returns true if
   * it had run.
   */
  noteEnd(server: string): boolean {
    return this.#started.delete(server);
  }

  /** Returns what refuses servers now. */
  currentRefusals(): ConsentRefusals {
    const kept = this.store.all();
    const disabled = this.store.disabled();
    const marks = [...new Set([...kept.keys(), ...disabled.keys()])].map(
      (server) => [server, markOf(kept.get(server) ?? {}, disabled.get(server))] as const,
    );
    return {
      marks: new Map(marks),
      refusalOf: (server) => {
        const act = disabled.get(server);
        return act === undefined ? this.#refusalIn(server, kept.get(server) ?? {}) : disabledRefusal(server, act);
      },
    };
  }

  /** Returns what may be shown of servers. */
  admit(servers: readonly string[]): ReadonlyMap<string, Admission> {
    const { refusalOf } = this.currentRefusals();
    return new Map(servers.map((server) => [server, this.#admissionOf(server, refusalOf(server))]));
  }

  /**
   * Before a call: returns why this tool may not be called as the server lists it now. `list` is only called if one set
   * was approved.
   */
  async refuseTool(
    server: string,
    tool: string,
    list: () => Awaitable<readonly RawTool[]>,
  ): Promise<TollgateError | undefined> {
    const set = this.store.get(server).consent?.tools?.set;
    if (set === undefined) return undefined;
    const approved = this.tools.get(server, set);
    return approved === undefined
      ? damagedRefusal(server)
      : refuseDrifted(tool, { server, approved: approved.tools, now: await list() });
  }

  /** Before a start: checks that exactly this was approved, and tools of it. */
  async refuseStart(settings: StartSettings): Promise<TollgateError | undefined> {
    const { name } = settings;
    this.#started.delete(name);
    // What was approved while its files are being read is not what they were compared with.
    const { consent } = this.store.get(name);
    const refusal = this.refusalOf(name) ?? (await this.refuseLook(settings));
    if (refusal === undefined && consent !== undefined) this.#started.set(name, { hash: consent.hash, at: Date.now() });
    return refusal;
  }

  /**
   * Before a look at its tools, or a sign-in: checks that exactly this was approved. Its files are read last, right
   * before they run.
   */
  async refuseLook(settings: StartSettings): Promise<TollgateError | undefined> {
    const { name } = settings;
    const { state, consent, disabled } = this.statusOf(name);
    if (disabled !== undefined) return disabledRefusal(name, disabled);
    if (consent === undefined) return state === 'damaged' ? damagedRefusal(name) : unapprovedRefusal(name);
    const facts = await this.factsOf(settings);
    if (facts.exposed !== undefined) return exposedRefusal(name, facts.exposed);
    return startHash(facts) === consent.hash ? undefined : changedRefusal(name, startDifferences(consent.facts, facts));
  }

  #admissionOf(server: string, refusal: TollgateError | undefined): Admission {
    const { consent } = this.store.get(server);
    if (refusal !== undefined || consent?.tools === undefined) return refused(refusal ?? unapprovedRefusal(server));
    const { set: hash, hints } = consent.tools;
    const mark = markOf({ consent });
    if (hash === undefined) return { mark, hints };
    const set = this.tools.get(server, hash);
    return set === undefined ? refused(damagedRefusal(server)) : { mark, hints, set };
  }

  #refusalIn(server: string, { consent, damaged }: StoredConsent): TollgateError | undefined {
    if (damaged === true) return damagedRefusal(server);
    if (consent === undefined) return unapprovedRefusal(server);
    if (consent.tools === undefined) return toolsUnapprovedRefusal(server);
    const started = this.#started.get(server);
    return started === undefined || started.hash === consent.hash ? undefined : changedRefusal(server, []);
  }
}

function markOf({ consent, damaged }: StoredConsent, disabled?: ConsentAct): string {
  return JSON.stringify([consent?.hash, consent?.tools, damaged, disabled?.at]);
}

function refused(refusal: TollgateError): Admission {
  return { mark: `refused: ${refusal.message}`, refusal };
}
