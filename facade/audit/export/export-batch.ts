/** Reads records from all chain files after a position, in time slices. */
import fs from 'node:fs';
import { TimeSlices } from '../../../catalogs/text/time-slices.ts';
import { checkSeal } from '../audit-chain.ts';
import { type ChainPart, listParts, readLineAt, readLines } from '../chain-lines.ts';
import type { ExportPlace, ExportPlaces } from './export-cursor.ts';

/** Records to deliver, and the position after them. */
export interface ExportBatch {
  /** The exact lines of the log. */
  readonly bytes: Buffer;
  readonly records: number;
  readonly places: ExportPlaces;
}

/** The most bytes of one batch, apart from its last record. */
const MAX_BATCH_BYTES = 1_048_576;

/** What bounds a batch. `until`: exactly to these places, for a batch that is delivered again. */
export interface BatchLimits {
  readonly records: number;
  readonly until?: ExportPlaces | undefined;
  /** Called with the name of a file that was changed after its records were exported. It is exported again. */
  readonly onChanged: (name: string) => void;
}

interface Gathering {
  readonly lines: Buffer[];
  bytes: number;
  readonly places: Record<string, ExportPlace>;
}

/**
 * Returns the next batch; undefined if there is nothing new. Records of one chain stay in their order. Files that were
 * removed are forgotten. Throws what node:fs throws, and the reason of the signal.
 */
export async function readExportBatch(
  folder: string,
  from: ExportPlaces,
  limits: BatchLimits & { readonly signal: AbortSignal },
): Promise<ExportBatch | undefined> {
  const slices = new TimeSlices(limits.signal);
  const gathering: Gathering = { lines: [], bytes: 0, places: {} };
  for (const part of listParts(folder)) {
    const place = Object.hasOwn(from, part.name) ? from[part.name] : undefined;
    if (place !== undefined) gathering.places[part.name] = place;
    if (isFull(gathering, limits)) continue;
    await readPart(part, place, { gathering, limits, slices });
  }
  const { lines, places } = gathering;
  return lines.length === 0 ? undefined : { bytes: Buffer.concat(lines), records: lines.length, places };
}

function isFull({ lines, bytes }: Gathering, { records, until }: BatchLimits): boolean {
  return until === undefined && (lines.length >= records || bytes >= MAX_BATCH_BYTES);
}

async function readPart(
  part: ChainPart,
  place: ExportPlace | undefined,
  {
    gathering,
    limits,
    slices,
  }: { readonly gathering: Gathering; readonly limits: BatchLimits; readonly slices: TimeSlices },
): Promise<void> {
  const { until } = limits;
  const end = until === undefined ? Infinity : Object.hasOwn(until, part.name) ? (until[part.name]?.offset ?? 0) : 0;
  let at = place;
  if (at !== undefined && !isInPlace(part, at)) {
    limits.onChanged(part.name);
    at = undefined;
  }
  if (sizeOf(part.path) === (at?.offset ?? 0)) return;
  for (const { offset, bytes, whole } of readLines(part.path, at?.offset ?? 0)) {
    // A record that is being written, or was torn, has no end yet.
    if (!whole || offset >= end || isFull(gathering, limits)) return;
    const line = Buffer.concat([bytes, NEWLINE]);
    gathering.lines.push(line);
    gathering.bytes += line.length;
    at = { offset: offset + line.length, hash: checkSeal(bytes) ?? '' };
    gathering.places[part.name] = at;
    if (slices.isDue) await slices.rest();
  }
}

const NEWLINE = Buffer.from('\n');

function sizeOf(file: string): number {
  return fs.statSync(file, { throwIfNoEntry: false })?.size ?? 0;
}

/** The bytes of `HASH"}` and a newline, which end a record. */
const [HASH_BYTES, END_BYTES] = [64, 67];

/** Returns whether the record before this place is the one that was exported last. A broken one has no hash. */
function isInPlace({ path }: ChainPart, { offset, hash }: ExportPlace): boolean {
  if (hash === '') return sizeOf(path) >= offset;
  return readLineAt(path, Math.max(0, offset - END_BYTES), HASH_BYTES)?.toString('latin1') === hash;
}
