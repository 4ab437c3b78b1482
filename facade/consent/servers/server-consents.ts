/**
 * People's consent to servers: which may start, with which settings, and with which tools. A server that differs from
 * what was shown is refused.
 */
import type { DigestStore } from '../../../adapters/port.ts';
import type { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type Awaitable, andThen } from '../../../catalogs/text/awaitable.ts';
import type { RawTool } from '../../../catalogs/tools/tool-definition.ts';
import type { State } from '../../state/state-port.ts';
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
import {
  changedRefusal,
  changedStartRefusal,
  damagedRefusal,
  disabledRefusal,
  toolsUnapprovedRefusal,
  unapprovedRefusal,
} from './server-refusals.ts';
import { type NotedChange, StartChangeNotes, startChanges } from './start-changes.ts';
import { type FactSources, type StartFacts, type StartSettings, startFacts, startHash } from './start-facts.ts';
import type { ToolSet } from './tool-set.ts';

/** The consent to a server, without a check of what it would run now. */
export interface ConsentStatus {
  readonly state: ConsentState;
  readonly consent?: ServerConsent;
  /** The act that disabled it. */
  readonly disabled?: ConsentAct;
}

/** An approval of a start by a person. */
export interface StartApproval extends ConsentAct {
  readonly facts: StartFacts;
}

/** The refusals of servers, from one read. `mark` of a server changes whenever its refusal may. */
export interface ConsentRefusals {
  readonly marks: ReadonlyMap<string, string>;
  readonly refusalOf: (server: string) => TollgateError | undefined;
}

/**
 * What is approved of a server's tools: nothing, with a reason; one set; or all that it lists. `mark` changes whenever
 * the rest may.
 */
export type Admission = { readonly mark: string } & (
  | { readonly refusal: TollgateError }
  | { readonly hints: boolean; readonly set?: ToolSet }
);

/** Told of servers that differ from their approval when they are to start or are called. They must not throw. */
export interface ConsentWatcher {
  /** Another start than the approved one was refused: once for each change over all processes. */
  readonly onStart: (server: string, change: NotedChange) => void;
  /** A call was refused, because the server lists other definitions than were approved. */
  readonly onTools: (
    server: string,
    drift: { readonly approved: readonly RawTool[]; readonly now: readonly RawTool[] },
  ) => void;
  readonly onFault: (thrown: unknown) => void;
}

/**
 * Reads the state for every answer, so a decision of another process counts at the next call. Methods throw
 * STATE_FAILED.
 */
export class Consents {
  readonly store: ConsentStore;
  readonly tools: ApprovedTools;
  readonly changes: StartChangeNotes;
  readonly sources: FactSources;
  readonly #watcher: ConsentWatcher | undefined;
  /** Server → the consent under which this process started it. A new consent is for another program. */
  readonly #started = new Map<string, { readonly hash: string; readonly at: number }>();

  /** `watcher`: of a process that starts servers for agents. Without one, no change is noted. */
  constructor(state: State, sources: Omit<FactSources, 'store'>, watcher?: ConsentWatcher) {
    this.store = new ConsentStore(state, sources.digest);
    this.tools = new ApprovedTools(state);
    this.changes = new StartChangeNotes(state);
    this.#watcher = watcher;
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
   * Approves the start, and one probe of its tools. An earlier approval of its tools becomes invalid. Returns the hash
   * of the start.
   */
  async approveStart({ facts, by, at }: StartApproval): Promise<string> {
    const { consent } = this.store.get(facts.server);
    const formerSet = consent?.tools?.set ?? consent?.formerSet;
    const hash = startHash(facts);
    await this.store.put(facts.server, { hash, facts, by, at, ...(formerSet !== undefined && { formerSet }) });
    await this.changes.settle(facts.server);
    return hash;
  }

  /** Returns the set of tools that was approved last; undefined if there is none, or if any tool is approved. */
  lastSet(server: string): ToolSet | undefined {
    const { consent } = this.store.get(server);
    const hash = consent?.tools?.set ?? consent?.formerSet;
    return hash === undefined ? undefined : this.tools.get(server, hash);
  }

  /** Returns tool → server for tools of the other approved servers. A definition may pretend to be one of them. */
  toolsOfOthers(server: string): ReadonlyMap<string, string> {
    const others = [...this.store.all().keys()].filter((name) => name !== server);
    return new Map(others.flatMap((name) => this.lastSet(name)?.tools.map((tool) => [tool.name, name] as const) ?? []));
  }

  /** Approves one set of tools. Throws as `checkStart` of the store. */
  async approveTools(server: string, set: ToolSet, { start, by, at }: ToolConsentAct): Promise<void> {
    this.store.checkStart(server, start);
    await this.store.addTools(server, start, { set: await this.tools.put(server, set), hints: set.hints, by, at });
  }

  /** Approves all tools that it lists, now and later. It is for the owner's own server that changes often. */
  async approveAnyTools(server: string, { start, ...tools }: Omit<ToolConsent, 'set'> & ToolConsentAct): Promise<void> {
    await this.store.addTools(server, start, tools);
    await this.tools.settle(server);
  }

  /** Returns when this process last started it, in ms since 1970. */
  startedAt(server: string): number {
    return this.#started.get(server)?.at ?? Number.NEGATIVE_INFINITY;
  }

  /** Withdraws all consent, so that no call in any process reaches the server. Returns true if there was consent. */
  async revoke(server: string): Promise<boolean> {
    const kept = this.store.get(server);
    await this.store.remove(server);
    await this.tools.remove(server);
    await this.changes.settle(server);
    return kept.consent !== undefined || kept.damaged === true;
  }

  async disable(server: string, act: ConsentAct): Promise<void> {
    await this.store.disable(server, act);
  }

  /** Returns true if it was disabled. */
  enable(server: string): Promise<boolean> {
    return this.store.enable(server);
  }

  /** Returns the refusal of a call to the server, without a check of its files. */
  refusalOf(server: string): TollgateError | undefined {
    const act = this.store.disabledBy(server);
    return act === undefined ? this.#refusalIn(server, this.store.get(server)) : disabledRefusal(server, act);
  }

  /**
   * Notes that the server's process has ended, so that the next start may use another consent. Returns true if it had
   * run.
   */
  noteEnd(server: string): boolean {
    return this.#started.delete(server);
  }

  /** Returns the refusals of servers now. */
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

  /** Returns what is approved of the tools of servers. */
  admit(servers: readonly string[]): ReadonlyMap<string, Admission> {
    const { refusalOf } = this.currentRefusals();
    return new Map(servers.map((server) => [server, this.#admissionOf(server, refusalOf(server))]));
  }

  /**
   * Returns why this tool may not be called with its present definition. `list` is called only if one set was approved.
   */
  refuseTool(
    server: string,
    tool: string,
    list: () => Awaitable<readonly RawTool[]>,
  ): Awaitable<TollgateError | undefined> {
    const set = this.store.get(server).consent?.tools?.set;
    if (set === undefined) return undefined;
    const approved = this.tools.get(server, set);
    return approved === undefined
      ? damagedRefusal(server)
      : andThen(list(), (now) => {
          const refusal = refuseDrifted(tool, { server, approved: approved.tools, now });
          if (refusal !== undefined) this.#watcher?.onTools(server, { approved: approved.tools, now });
          return refusal;
        });
  }

  /** Returns the refusal of a start. Exactly this start, and tools of it, must be approved. */
  async refuseStart(settings: StartSettings): Promise<TollgateError | undefined> {
    const { name } = settings;
    this.#started.delete(name);
    // Compared at the end: a consent that was given while the files are being read is for other files.
    const { consent } = this.store.get(name);
    const refusal = this.refusalOf(name) ?? (await this.refuseProbe(settings));
    if (refusal === undefined && consent !== undefined) this.#started.set(name, { hash: consent.hash, at: Date.now() });
    return refusal;
  }

  /**
   * Returns the refusal of a probe, or of a sign-in. Exactly this start must be approved. Its files are read last, just
   * before they run.
   */
  async refuseProbe(settings: StartSettings): Promise<TollgateError | undefined> {
    const { name } = settings;
    const { state, consent, disabled } = this.statusOf(name);
    if (disabled !== undefined) return disabledRefusal(name, disabled);
    if (consent === undefined) return state === 'damaged' ? damagedRefusal(name) : unapprovedRefusal(name);
    const facts = await this.factsOf(settings);
    const refusal = changedStartRefusal(name, consent, facts);
    await this.#noteStart(consent, facts, refusal);
    return refusal;
  }

  /** A note that cannot be written does not change the answer. */
  async #noteStart(approved: ServerConsent, now: StartFacts, refusal: TollgateError | undefined): Promise<void> {
    if (this.#watcher === undefined) return;
    const { server } = now;
    try {
      if (refusal === undefined) return await this.changes.settle(server);
      const changes = startChanges(approved.facts, now);
      const change = { approved: approved.hash, start: startHash(now), changes };
      const news = await this.changes.note(server, change, Date.now());
      if (news !== undefined) this.#watcher.onStart(server, news);
    } catch (thrown) {
      this.#watcher.onFault(thrown);
    }
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

/** In the shared state, one row per path. */
const SPACE = 'file-digest';

/** Returns the cache. `digest` is keyed. If the state cannot be used, the file itself is read. */
export function createDigestStore(state: Pick<State, 'get' | 'put'>, digest: (text: string) => string): DigestStore {
  const pathOf = (identity: string): string => identity.slice(0, identity.indexOf('\0'));
  const sealed = (identity: string, sha256: string): string => `${sha256} ${digest(`file\0${identity}\0${sha256}`)}`;
  return {
    get: async (identity) => {
      const row = await quietly(() => state.get(SPACE, pathOf(identity)));
      const sha256 = row?.slice(0, 64);
      return sha256 !== undefined && row === sealed(identity, sha256) ? sha256 : undefined;
    },
    put: async (identity, sha256) =>
      void (await quietly(() => state.put(SPACE, pathOf(identity), sealed(identity, sha256)))),
  };
}

/** Ignores errors of the state here: the next check of consent meets them and refuses the start. */
async function quietly<T>(work: () => T | Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch {
    return undefined;
  }
}
