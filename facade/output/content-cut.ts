/** Owns the cut of a result's content, item by item: what fits stays, one text is cut, the rest is spilled; refuses half an image. */
import { NOTE_BYTES, NOTE_PREFIX } from '../../catalogs/text/text-pages.ts';
import type { ContentItem } from '../../catalogs/tools/tool-definition.ts';
import type { HidePaths } from './host-paths.ts';
import type { Redactor } from './redactor.ts';
import { type Cap, cutText, fitsCap } from './text-cut.ts';

/** Bytes of an item that cost nothing beside its text: its type, and little more. */
const FREE_BYTES = 64;
/** Notes that a backend adds to one result. */
const MAX_NOTES = 3;
/** What a media type or a type of content looks like (RFC 6838 §4.2). */
const KIND = /^[\w.+-]{1,40}(\/[\w.+-]{1,80})?$/;

/** What was left out of a result, and the exact call that reads it. */
export interface CutNotice {
  readonly line: string;
  readonly bytes: number;
  readonly spill: string;
  readonly offset: number;
}

/** The items that fit, the first that does not cut on line ends, the rest spilled as lines of JSON. */
export function cutContent(
  items: readonly ContentItem[],
  request: ShapeRequest,
): { items: ContentItem[]; notices: CutNotice[] } {
  const own = request.ownNotes ? ownNotes(items) : 0;
  const cut = cutItems(own === 0 ? items : items.slice(0, -own), request);
  return { ...cut, items: own === 0 ? cut.items : [...cut.items, ...items.slice(-own)] };
}

/** How many items at the end are notes of a backend of ours: they say how to read on, and are short. */
function ownNotes(items: readonly ContentItem[]): number {
  const isNote = (item: ContentItem): boolean =>
    item.type === 'text' &&
    typeof item.text === 'string' &&
    item.text.length <= NOTE_BYTES &&
    item.text.startsWith(NOTE_PREFIX) &&
    !item.text.includes('\n');
  const last = items.findLastIndex((item) => !isNote(item));
  return Math.min(MAX_NOTES, items.length - 1 - last);
}

function cutItems(
  items: readonly ContentItem[],
  request: ShapeRequest,
): { items: ContentItem[]; notices: CutNotice[] } {
  const kept: ContentItem[] = [];
  const notices: CutNotice[] = [];
  let left: Cap = request.cap;
  let media = request.mediaBytes;
  for (const [index, item] of items.entries()) {
    const { media: size, extra } = weigh(item);
    if (size > 0 && size <= media && extra <= left.bytes) {
      media -= size;
      left = { ...left, bytes: left.bytes - extra };
      kept.push(item);
      continue;
    }
    const text = typeof item.text === 'string' ? item.text : JSON.stringify(item);
    const room = { bytes: left.bytes - (text === item.text ? extra : 0), lines: left.lines };
    if (size === 0 && fitsCap(text, room)) {
      left = { bytes: room.bytes - Buffer.byteLength(text), lines: left.lines - 1 - (text.match(/\n/g)?.length ?? 0) };
      kept.push(item);
      continue;
    }
    if (item.type === 'text' && text === item.text && extra * 2 <= left.bytes) {
      const cut = cutText(text, { ...left, bytes: left.bytes - 2 * extra }, request.headShare);
      kept.push({ ...item, text: cut.head }, ...(cut.tail === '' ? [] : [{ ...item, text: cut.tail }]));
      notices.push(noticeFor(text, cut, request));
      if (items.length > index + 1) notices.push(restNotice(items.slice(index + 1), request));
      return { items: kept, notices };
    }
    notices.push(restNotice(items.slice(index), request));
    return { items: kept, notices };
  }
  return { items: kept, notices };
}

/** Decoded bytes of media, and what stands beside it or beside the text: unknown keys count, or they would carry what the cap keeps out. */
function weigh(item: ContentItem): { readonly media: number; readonly extra: number } {
  const resource = item.resource as { blob?: unknown } | null | undefined;
  const inside = typeof item.data !== 'string' && typeof resource?.blob === 'string';
  const data = inside ? resource?.blob : item.data;
  const media = typeof data === 'string' ? Math.floor((data.length * 3) / 4) : 0;
  const hidden = inside
    ? { resource: { ...resource, blob: undefined } }
    : { [typeof data === 'string' ? 'data' : 'text']: undefined };
  return { media, extra: Math.max(0, Buffer.byteLength(JSON.stringify({ ...item, ...hidden })) - FREE_BYTES) };
}

function noticeFor(text: string, cut: ReturnType<typeof cutText>, request: ShapeRequest): CutNotice {
  const { handle, bytes } = request.spill.put(text);
  const range = `cut lines ${cut.gap.first}-${cut.gap.last} of ${cut.segments} (${cut.gap.bytes} bytes)`;
  return {
    line: `${range}. ${nextCall(handle, cut.gap.first, request.reader)}`,
    bytes,
    spill: handle,
    offset: cut.gap.first,
  };
}

function restNotice(items: readonly ContentItem[], request: ShapeRequest): CutNotice {
  const { handle, bytes } = request.spill.put(items.map((item) => JSON.stringify(item)).join('\n'));
  const kinds = [...new Set(items.map(kindOf))].slice(0, 3).join(', ');
  const line = `${items.length} more content item${items.length === 1 ? '' : 's'} (${kinds}; ${bytes} bytes) not shown. ${nextCall(handle, 1, request.reader)}`;
  return { line, bytes, spill: handle, offset: 1 };
}

/** The server's word stands in a line of ours: whatever could pass for more than a kind is not repeated. */
function kindOf(item: ContentItem): string {
  const kind = String(item.mimeType ?? item.type);
  return KIND.test(kind) ? kind : 'unknown';
}

/** The end of every notice. */
export function nextCall(handle: string, offset: number, reader: string | undefined): string {
  return reader !== undefined ? `Next: ${reader} path="${handle}" offset=${offset}` : 'Ask for a smaller part.';
}
/** Keeps what was cut; gives the handle under which `read` finds it, and how many bytes it kept. */
export interface SpillSink {
  put(text: string): { readonly handle: string; readonly bytes: number };
}

/** What shaping needs to know beside the result. */
export interface ShapeRequest {
  readonly cap: Cap;
  /** Decoded bytes of images, audio and blobs that the result may carry whole (HA-23). */
  readonly mediaBytes: number;
  /** Part of the cap for the head: 1, or 0.3 for command output. */
  readonly headShare: number;
  readonly redactor: Redactor;
  /** For the errors of servers; absent where Tollgate itself made the result. */
  readonly hidePaths?: HidePaths | undefined;
  readonly raw: boolean;
  readonly spill: SpillSink;
  /** The exposed tool that reads spills for this principal. Absent: the notice names no call, because it would fail. */
  readonly reader: string | undefined;
  /** Judges structured content after a cut; absent when the tool declares no output schema. */
  readonly validOutput?: (value: unknown) => boolean;
  /** Keys under `tollgate/` for `_meta`. */
  readonly meta: Readonly<Record<string, unknown>>;
  /** True for primitives: their backends' own notes, at the end, are kept whatever is cut before them. */
  readonly ownNotes: boolean;
  /** Lines to show before the result: repairs of arguments that were made. */
  readonly notes: readonly string[];
}
