/**
 * What a session puts into the context of a model, as the client was shown it and as it would have been without
 * Tollgate. Sizes in bytes; tokens are known for samples only, so the rest is estimated from their ratio.
 */

/** What is counted: lists of tools, the arguments of calls, and their results. */
export const CONTEXT_KINDS = ['lists', 'calls', 'results'] as const;
/** One of them. */
export type ContextKind = (typeof CONTEXT_KINDS)[number];
/** `shown`: as the client was shown it. `without`: as it would have been without Tollgate. */
export const CONTEXT_SIDES = ['shown', 'without'] as const;
/** One of them. */
export type ContextSide = (typeof CONTEXT_SIDES)[number];

/** An amount of text. `sampledTokens`: the tokens of `sampledBytes` of it. */
export interface ContextAmount {
  bytes: number;
  sampledBytes: number;
  sampledTokens: number;
}

/** How many texts of one kind there were, and how large they were. */
export type ContextTally = { count: number } & Record<ContextSide, ContextAmount>;

/** The counts of a session, or of several. */
export type ContextCounts = Record<ContextKind, ContextTally> & {
  /** The size of the largest list that was shown. */
  largestList: number;
  /** Bytes that Tollgate added to results under `_meta`. They are in no tally, because no model reads them. */
  metaBytes: number;
};

/** Returns counts of nothing. */
export function noContext(): ContextCounts {
  return { lists: noTally(), calls: noTally(), results: noTally(), largestList: 0, metaBytes: 0 };
}

function noTally(): ContextTally {
  return { count: 0, shown: noAmount(), without: noAmount() };
}

function noAmount(): ContextAmount {
  return { bytes: 0, sampledBytes: 0, sampledTokens: 0 };
}

/** Adds `more` to `sum`. */
export function addContext(sum: ContextCounts, more: ContextCounts): void {
  for (const kind of CONTEXT_KINDS) {
    sum[kind].count += more[kind].count;
    for (const side of CONTEXT_SIDES) addAmount(sum[kind][side], more[kind][side]);
  }
  sum.largestList = Math.max(sum.largestList, more.largestList);
  sum.metaBytes += more.metaBytes;
}

function addAmount(sum: ContextAmount, more: ContextAmount): void {
  sum.bytes += more.bytes;
  sum.sampledBytes += more.sampledBytes;
  sum.sampledTokens += more.sampledTokens;
}

/** Returns the sum of counts. */
export function sumContext(all: Iterable<ContextCounts>): ContextCounts {
  const sum = noContext();
  for (const one of all) addContext(sum, one);
  return sum;
}

/** Returns all bytes of one side. */
export function contextBytes(counts: ContextCounts, side: ContextSide): number {
  return CONTEXT_KINDS.reduce((sum, kind) => sum + counts[kind][side].bytes, 0);
}

/**
 * Returns the estimated tokens of one kind on one side, not rounded: its bytes by the ratio of its own samples, of
 * those of the other side, of those of other kinds, or of `others`. Undefined if there is no sample.
 */
export function contextTokens(
  counts: ContextCounts,
  { kind, side }: { readonly kind: ContextKind; readonly side: ContextSide },
  others: ContextCounts = counts,
): number | undefined {
  const { shown, without } = counts[kind];
  const own = side === 'shown' ? [shown, without] : [without, shown];
  const { bytes } = counts[kind][side];
  const sample = [...own, ...samplesIn(counts), ...samplesIn(others)].find(({ sampledBytes }) => sampledBytes > 0);
  if (sample === undefined) return bytes === 0 ? 0 : undefined;
  return (bytes * sample.sampledTokens) / sample.sampledBytes;
}

function samplesIn(counts: ContextCounts): readonly ContextAmount[] {
  return CONTEXT_KINDS.toReversed().flatMap((kind) => [counts[kind].without, counts[kind].shown]);
}

/**
 * Returns how much less was shown, in percent: 90 for a tenth, and negative if Tollgate showed more. Undefined if there
 * is nothing to compare with.
 */
export function savedPercent({ shown, without }: Readonly<Record<ContextSide, number>>): number | undefined {
  return without === 0 ? undefined : (1 - shown / without) * 100;
}
