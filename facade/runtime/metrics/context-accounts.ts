/**
 * Counts what each session of this process puts into the context of a model. A call costs a few additions. Only numbers
 * are kept, never a text.
 */
import type { ServerAnswer } from '../../../adapters/port.ts';
import { errorJson, JsonText, sizeOfText } from '../../../adapters/rpc/wire-message.ts';
import { CODE } from '../../../catalogs/servers/shipped-servers.ts';
import type { RawTool } from '../../../catalogs/tools/tool-definition.ts';
import type { EffectKind } from '../../../policies/port.ts';
import type { EndedCall } from '../../call/record.ts';
import { NOTHING } from '../../operations/operation.ts';
import type { Reply, Session } from '../../serve/facade-port.ts';
import {
  addContext,
  CONTEXT_KINDS,
  CONTEXT_SIDES,
  type ContextCounts,
  type ContextKind,
  type ContextSide,
  contextTokens,
  noContext,
  sumContext,
} from './context-counts.ts';
import { type ContextReport, readContextReport } from './context-report.ts';
import { type ContextSession, type ContextState, putSession, sumUpSessions } from './context-store.ts';
import { type TextSize, TokenSamples } from './token-samples.ts';

/** One counter of this process. `tokens` are estimated, and 0 while no sample is counted. They never decrease. */
export interface ContextSample {
  readonly kind: ContextKind;
  readonly side: ContextSide;
  readonly bytes: number;
  readonly tokens: number;
}

/** A session of this process. */
interface Account {
  readonly id: string;
  readonly principal: string;
  readonly started: number;
  readonly counts: ContextCounts;
  ended?: number;
  isChanged: boolean;
}

/** How long counts are only in this process, ms. A killed process loses them. */
const WRITE_MS = 10_000;
/** What a model reads. Other requests go to the client itself. */
const READ_BY_MODELS: ReadonlySet<EffectKind> = new Set(['tool', 'resource', 'prompt']);
/** A list without tools. It says that something is switched off, and saves nothing. */
const NO_TOOLS = '{"tools":[]}';

/** The accounts of this process. */
export class ContextAccounts {
  readonly #state: ContextState;
  readonly #accounts = new Map<string, Account>();
  /** Of ended sessions that are written, by principal. */
  readonly #ended = new Map<string, ContextCounts>();
  readonly #originals = new WeakMap<readonly RawTool[], TextSize>();
  readonly #samples: TokenSamples;
  /** Principal → kind and side → bytes whose tokens are estimated, so that a later ratio does not change them. */
  readonly #estimated = new Map<string, Map<string, { bytes: number; tokens: number }>>();
  #sampled = 0;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(state: ContextState) {
    this.#state = state;
    this.#samples = new TokenSamples(() => {
      // Which sessions the samples belong to is not kept.
      for (const account of this.#accounts.values()) this.#change(account);
    });
  }

  /** Begins the account of a session. A call by hand has none, because no model reads its result. */
  open({ id, principal, operator }: Session): void {
    if (operator !== undefined) return;
    const started = Date.now();
    this.#accounts.set(id, { id, principal: principal.id, started, counts: noContext(), isChanged: false });
  }

  /** Notes that a session has ended. */
  end(session: string): void {
    const account = this.#accounts.get(session);
    if (account === undefined) return;
    const { lists, calls } = account.counts;
    if (lists.count + calls.count === 0) this.#accounts.delete(session);
    else {
      account.ended = Date.now();
      this.#change(account);
    }
  }

  /** Counts a list of tools. `originals`: the lists of all servers of the principal. Never throws. */
  onList({ id }: Session, { text }: Extract<Reply, { kind: 'result' }>, originals: Iterable<readonly RawTool[]>): void {
    const account = this.#accounts.get(id);
    if (account === undefined || text === NO_TOOLS) return;
    const { lists } = account.counts;
    const size = this.#samples.repeated(text);
    lists.count += 1;
    size.addTo(lists.shown);
    for (const tools of originals) if (tools.length > 0) this.#originalOf(tools).addTo(lists.without);
    account.counts.largestList = Math.max(account.counts.largestList, size.bytes);
    this.#change(account);
  }

  #originalOf(tools: readonly RawTool[]): TextSize {
    const known = this.#originals.get(tools);
    if (known !== undefined) return known;
    const size = this.#samples.repeated(JSON.stringify(tools));
    this.#originals.set(tools, size);
    return size;
  }

  /** Counts a call and its result. Never throws. */
  onEnd(end: EndedCall, answered: Reply): void {
    const { start, caller, judged } = end;
    const account = this.#accounts.get(start.session);
    const shaped = end.kind === 'sent' && end.error === undefined ? end.shaped : undefined;
    if (account === undefined || !READ_BY_MODELS.has(start.kind) || shaped === NOTHING) return;
    const { calls, results } = account.counts;
    const meta = shaped?.metaBytes ?? 0;
    const sent = shaped === undefined ? sizeOfReply(answered) : shaped.sent - meta;
    // Without Tollgate, no one would read the rest of a cut result, or call tools by another call.
    const lowered = judged?.lowered;
    const isOwn = lowered?.destination.kind === 'own' || lowered?.effect.server === CODE;
    const isInner = caller?.parent !== undefined;
    const { rawBytes = sent, answer } = end.kind === 'sent' ? end.forwarded : { rawBytes: 0 };
    if (!isInner) {
      calls.count += 1;
      results.count += 1;
      calls.shown.bytes += start.argBytes;
      results.shown.bytes += sent;
      account.counts.metaBytes += meta;
    }
    if (!isOwn) {
      calls.without.bytes += start.argBytes;
      results.without.bytes += rawBytes;
      if (answer !== undefined) this.#sampleCall(account, answer, judged?.lowered?.argsText);
    }
    this.#change(account);
  }

  /**
   * Samples the calls 1, 2, 4, 8 … of this process, because more of them would hardly change the ratio. Of the result
   * it takes what the server sent: Tollgate's `_meta` has ids, which have more tokens than other text.
   */
  #sampleCall({ counts }: Account, answer: ServerAnswer, args: string | undefined): void {
    this.#sampled += 1;
    if ((this.#sampled & (this.#sampled - 1)) !== 0) return;
    const { bytes } = answer instanceof JsonText ? answer : {};
    this.#samples.sample(bytes === undefined ? answer.text : [bytes]).addTo(counts.results.without, true);
    if (args !== undefined) this.#samples.sample(args).addTo(counts.calls.shown, true);
  }

  #change(account: Account): void {
    account.isChanged = true;
    this.#timer ??= setTimeout(() => void this.flush(), WRITE_MS).unref();
  }

  /** Returns the counters of this process; with `only`, those of one principal. */
  samples(only?: string): readonly ContextSample[] {
    const sums = new Map<string, ContextSample>();
    for (const [principal, counts] of this.#byPrincipal())
      if (only === undefined || only === principal)
        for (const sample of this.#samplesOf(principal, counts)) {
          const key = `${sample.kind} ${sample.side}`;
          const { bytes = 0, tokens = 0 } = sums.get(key) ?? {};
          sums.set(key, { ...sample, bytes: bytes + sample.bytes, tokens: tokens + sample.tokens });
        }
    return KEYS.map(
      ({ kind, side }) => sums.get(`${kind} ${side}`) ?? ({ kind, side, bytes: 0, tokens: 0 } satisfies ContextSample),
    );
  }

  #byPrincipal(): ReadonlyMap<string, ContextCounts> {
    const sums = new Map([...this.#ended].map(([principal, counts]) => [principal, sumContext([counts])]));
    for (const { principal, counts } of this.#accounts.values()) addContext(sumOf(sums, principal), counts);
    return sums;
  }

  #samplesOf(principal: string, counts: ContextCounts): readonly ContextSample[] {
    let estimated = this.#estimated.get(principal);
    if (estimated === undefined) this.#estimated.set(principal, (estimated = new Map()));
    const known = estimated;
    return KEYS.map(({ kind, side }) => {
      const { bytes } = counts[kind][side];
      const key = `${kind} ${side}`;
      const done = known.get(key) ?? { bytes: 0, tokens: 0 };
      const tokens = contextTokens(counts, { kind, side });
      if (tokens !== undefined && bytes > done.bytes) {
        done.tokens += Math.round((tokens * (bytes - done.bytes)) / bytes);
        done.bytes = bytes;
      }
      known.set(key, done);
      return { kind, side, bytes, tokens: done.tokens };
    });
  }

  /** Writes what has changed. What cannot be written is kept for the next time. Never rejects. */
  flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    return (this.#writing = this.#writing.then(() =>
      this.#write().catch(() => {
        // Counts only inform. Every call that needs the state reports its failure.
      }),
    ));
  }

  async #write(): Promise<void> {
    const mark = this.#state.mark();
    for (const account of [...this.#accounts.values()].filter(({ isChanged }) => isChanged)) {
      const { id, principal, started, ended, counts } = account;
      const session: ContextSession = { id, principal, started, ...(ended !== undefined && { ended }), mark, counts };
      account.isChanged = false;
      try {
        await putSession(this.#state, session);
      } catch (thrown) {
        account.isChanged = true;
        throw thrown;
      }
      if (ended === undefined) continue;
      this.#accounts.delete(id);
      addContext(sumOf(this.#ended, principal), counts);
    }
    await sumUpSessions(this.#state);
  }

  /** Returns the counts of all processes, those of this one included. Throws STATE_FAILED. */
  async report(): Promise<ContextReport> {
    await this.flush();
    return readContextReport(this.#state);
  }

  /** Writes what is left, and stops to count tokens. Never rejects. */
  async close(): Promise<void> {
    await this.#samples.close();
    await this.flush();
  }
}

const KEYS = CONTEXT_KINDS.flatMap((kind) => CONTEXT_SIDES.map((side) => ({ kind, side })));

function sumOf(sums: Map<string, ContextCounts>, key: string): ContextCounts {
  let sum = sums.get(key);
  if (sum === undefined) sums.set(key, (sum = noContext()));
  return sum;
}

function sizeOfReply(reply: Reply): number {
  return reply.kind === 'result' ? sizeOfText(reply.text) : Buffer.byteLength(errorJson(reply.error));
}
