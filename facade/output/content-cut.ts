/**
 * Cuts the content of a result, item by item: items that fit stay, one text is cut, and the rest is spilled. An image
 * is never cut.
 */
import { NOTE_BYTES, NOTE_PREFIX } from '../../catalogs/text/text-pages.ts';
import type { ContentItem } from '../../catalogs/tools/tool-definition.ts';
import type { ResultEnvelope } from '../serve/facade-port.ts';
import type { HidePaths } from './host-paths.ts';
import type { Redactor } from './redactor.ts';
import { RESOURCE_READER, type ResultForm } from './result-forms.ts';
import { type Cap, cutText, fitsCap } from './text-cut.ts';

/** Bytes of an item besides its text that are free: its type, and little more. */
const FREE_BYTES = 64;
/** How many notes a backend may add to one result. */
const MAX_NOTES = 3;
/** The form of a media type or a content type (RFC 6838 §4.2). */
const KIND = /^[\w.+-]{1,40}(\/[\w.+-]{1,80})?$/;

/** Says what was left out of a result, and the exact call that reads it. */
export interface CutNotice {
  readonly line: string;
  readonly bytes: number;
  readonly spill: string;
  readonly offset: number;
}

/**
 * Returns the items that fit and the part of the first that does not, cut at a line end. The rest is spilled as lines
 * of JSON.
 */
export function cutContent(
  items: readonly ContentItem[],
  request: ShapeRequest,
): { items: ContentItem[]; notices: CutNotice[] } {
  const own = request.ownNotes ? ownNotes(items) : 0;
  const cut = cutItems(own === 0 ? items : items.slice(0, -own), request);
  return { ...cut, items: own === 0 ? cut.items : [...cut.items, ...items.slice(-own)] };
}

/** How many items at the end are notes of Tollgate's own backends. They say how to read on, and are short. */
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
    if ((item.type === 'text' || item.uri !== undefined) && text === item.text && extra * 2 <= left.bytes) {
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

/**
 * Decoded bytes of media, and of what is next to it or to the text. Unknown keys count too, or they would carry what
 * the limit keeps out.
 */
function weigh(item: ContentItem): { readonly media: number; readonly extra: number } {
  const resource = item.resource as { blob?: unknown } | null | undefined;
  // Contents of resources have their bytes in `blob`.
  const key = typeof item.data !== 'string' && typeof item.blob === 'string' ? 'blob' : 'data';
  const inside = typeof item[key] !== 'string' && typeof resource?.blob === 'string';
  const data = inside ? resource?.blob : item[key];
  const media = typeof data === 'string' ? Math.floor((data.length * 3) / 4) : 0;
  const hidden = inside
    ? { resource: { ...resource, blob: undefined } }
    : { [typeof data === 'string' ? key : 'text']: undefined };
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
  const count = `${items.length} more content item${items.length === 1 ? '' : 's'}`;
  const line = `${count} (${kinds}; ${bytes} bytes) not shown. ${nextCall(handle, 1, request.reader)}`;
  return { line, bytes, spill: handle, offset: 1 };
}

/** The server's word becomes part of a line of Tollgate, so only a plain kind is repeated. */
function kindOf(item: ContentItem): string {
  const kind = String(item.mimeType ?? item.type);
  return KIND.test(kind) ? kind : 'unknown';
}

/** The end of every notice. */
export function nextCall(handle: string, offset: number, reader: string | undefined): string {
  if (reader === RESOURCE_READER) return `Next: ${reader} uri="${handle}?offset=${offset}"`;
  return reader !== undefined ? `Next: ${reader} path="${handle}" offset=${offset}` : 'Ask for a smaller part.';
}
/** Stores what was cut. Returns the handle under which `read` finds it, and how many bytes it kept. */
export interface SpillSink {
  put(text: string): { readonly handle: string; readonly bytes: number };
}

/** What shaping needs besides the result. */
export interface ShapeRequest {
  readonly form: ResultForm;
  /** Returns the URI under which the client reads a resource of this server. */
  readonly shownUri: (uri: string) => string;
  readonly cap: Cap;
  /** Decoded bytes of images, audio and blobs that the result may carry completely (HA-23). */
  readonly mediaBytes: number;
  /** The part of the limit for the head: 1, or 0.3 for command output. */
  readonly headShare: number;
  readonly redactor: Redactor;
  /** For the errors of servers; absent if Tollgate itself made the result. */
  readonly hidePaths?: HidePaths | undefined;
  readonly raw: boolean;
  readonly spill: SpillSink;
  /** The exposed tool that reads spills for this principal. Absent: the notice names no call, because it would fail. */
  readonly reader: string | undefined;
  /** Validates structured content after a cut; absent if the tool declares no output schema. */
  readonly validOutput?: ((value: unknown) => boolean) | undefined;
  /** Members under `tollgate/` for `_meta`, as JSON without braces, and those of the envelope. */
  readonly meta: string;
  /** What the result is sent in. Absent for a revision without such members. */
  readonly envelope?: ResultEnvelope | undefined;
  /** True for primitives: the notes of their backends at the end are kept, whatever is cut before them. */
  readonly ownNotes: boolean;
  /** Lines to show before the result: repairs that were made to arguments. */
  readonly notes: readonly string[];
}
