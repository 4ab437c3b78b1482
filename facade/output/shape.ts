/** Owns stage 7: one result cleaned, cut to its cap, the rest spilled, and its provenance added; loses nothing in silence. */
import type { JsonDoc } from '../../adapters/port.ts';
import type { ContentItem, ToolResult } from '../../catalogs/tool.ts';
import { cleanResult, type Cleaning } from './clean.ts';
import { cutText, fits, type Cap } from './cut.ts';
import { serialise, withMeta } from './meta.ts';
import type { Redactor } from './redact.ts';
import { shrink } from './shrink.ts';

/** Decoded bytes of images, audio and blobs that one result may carry whole (HA-23). */
const MEDIA_BYTES = 1_048_576;
const PLAIN: Cleaning = { redactions: 0, escaped: 0, links: 0 };

/** Keeps what was cut; gives the handle under which `read` finds it, and how many bytes it kept. */
export interface SpillSink {
  put(text: string): { readonly handle: string; readonly bytes: number };
}

/** What shaping needs to know beside the result. */
export interface ShapeRequest {
  readonly cap: Cap;
  /** Part of the cap for the head: 1, or 0.3 for command output. */
  readonly headShare: number;
  readonly redactor: Redactor;
  readonly raw: boolean;
  readonly spill: SpillSink;
  /** False when this principal has no `read`: the notice then does not name a call that would fail. */
  readonly canRead: boolean;
  /** Judges structured content after a cut; absent when the tool declares no output schema. */
  readonly validOutput?: (value: unknown) => boolean;
  /** Keys under `tollgate/` for `_meta`. */
  readonly meta: Readonly<Record<string, unknown>>;
  /** Lines to show before the result: repairs of arguments that were made. */
  readonly notes: readonly string[];
}

/** The text of the result as it leaves, and the sizes for settle and record. */
export interface Shaped extends Cleaning {
  readonly text: string;
  readonly sent: number;
  readonly cut: boolean;
  readonly spilled: number;
  readonly isError: boolean;
}

/** Shapes one result. The same bytes leave when nothing was cleaned, cut or noted, `_meta` excepted (design §3). */
export function shape(doc: JsonDoc<ToolResult>, request: ShapeRequest): Shaped {
  const { result: cleaned, done } = cleanResult(doc.text, doc.value, request);
  const same = cleaned === doc.value;
  const result = request.notes.length === 0 ? cleaned : { ...cleaned, content: [...request.notes.map(note), ...(cleaned.content ?? [])] };
  const small = surelyFits(doc.text, request.cap);
  const cutting = small ? undefined : cutResult(result, request);
  const meta = metaOf(request.meta, done, cutting);
  const text = same && result === cleaned && cutting === undefined ? withMeta(doc.text, doc.value, meta) : serialise(doc, cutting?.result ?? result, meta);
  return { ...(same ? PLAIN : done), text, sent: Buffer.byteLength(text), cut: cutting !== undefined, spilled: cutting?.spilled ?? 0, isError: result.isError === true };
}

/** The JSON of a result is longer than its texts, and each newline in them stands there as an escape. */
function surelyFits(json: string, cap: Cap): boolean {
  if (json.length > cap.bytes || Buffer.byteLength(json) > cap.bytes) return false;
  if (json.length <= cap.lines * 2) return true;
  let newlines = 0;
  for (let at = json.indexOf('\\n'); at !== -1; at = json.indexOf('\\n', at + 2)) newlines += 1;
  return newlines < cap.lines;
}

function note(line: string): ContentItem {
  return { type: 'text', text: `[tollgate: ${line}]` };
}

function metaOf(base: Readonly<Record<string, unknown>>, done: Cleaning, cutting: Cutting | undefined): Record<string, unknown> {
  const meta: Record<string, unknown> = { ...base };
  if (done.redactions > 0) meta['tollgate/redacted'] = done.redactions;
  if (done.escaped > 0) meta['tollgate/escaped'] = done.escaped;
  if (cutting !== undefined) meta['tollgate/cut'] = cutting.facts;
  return meta;
}

interface Cutting {
  readonly result: ToolResult;
  readonly facts: Readonly<Record<string, unknown>>;
  readonly spilled: number;
}

/** Cuts content first, structured content with what the text left; undefined when all of it fits after all. */
function cutResult(result: ToolResult, request: ShapeRequest): Cutting | undefined {
  const content = cutContent(result.content ?? [], request);
  const structured = result.structuredContent === undefined ? undefined : cutStructured(result.structuredContent, request);
  if (content.notices.length === 0 && structured?.notice === undefined) return undefined;
  const notices = [...content.notices, ...(structured?.notice === undefined ? [] : [structured.notice])];
  const whole: ToolResult = { ...result, content: [...content.items, ...notices.map((notice) => note(notice.line))] };
  const facts = notices.map(({ line: _, ...fact }) => fact);
  const spilled = notices.reduce((sum, notice) => sum + notice.bytes, 0);
  return { result: applyStructured(whole, structured), facts: { parts: facts }, spilled };
}

function applyStructured(result: ToolResult, structured: { value: unknown; notice?: Notice } | undefined): ToolResult {
  if (structured?.notice === undefined) return result;
  if (structured.value !== undefined) return { ...result, structuredContent: structured.value };
  const { structuredContent: _, ...rest } = result;
  return { ...rest, isError: true };
}

interface Notice {
  readonly line: string;
  readonly bytes: number;
  readonly spill: string;
  readonly offset: number;
}

function cutContent(items: readonly ContentItem[], request: ShapeRequest): { items: ContentItem[]; notices: Notice[] } {
  const kept: ContentItem[] = [];
  const notices: Notice[] = [];
  let left: Cap = request.cap;
  let media = MEDIA_BYTES;
  for (const [index, item] of items.entries()) {
    const size = mediaBytes(item);
    if (size > 0 && size <= media) {
      media -= size;
      kept.push(item);
      continue;
    }
    const text = size > 0 ? undefined : (item.text ?? JSON.stringify(item));
    if (text !== undefined && fits(text, left)) {
      left = { bytes: left.bytes - Buffer.byteLength(text), lines: left.lines - 1 - (text.match(/\n/g)?.length ?? 0) };
      kept.push(item);
      continue;
    }
    if (item.type === 'text' && typeof item.text === 'string') {
      const cut = cutText(item.text, left, request.headShare);
      kept.push({ ...item, text: cut.head }, ...(cut.tail === '' ? [] : [{ ...item, text: cut.tail }]));
      notices.push(noticeFor(item.text, cut, request));
      left = { bytes: 0, lines: 0 };
      if (items.length > index + 1) notices.push(restNotice(items.slice(index + 1), request));
      return { items: kept, notices };
    }
    notices.push(restNotice(items.slice(index), request));
    return { items: kept, notices };
  }
  return { items: kept, notices };
}

function mediaBytes(item: ContentItem): number {
  const resource = item['resource'] as { blob?: unknown } | undefined;
  const data = item['data'] ?? resource?.blob;
  return typeof data === 'string' ? Math.floor((data.length * 3) / 4) : 0;
}

function noticeFor(text: string, cut: ReturnType<typeof cutText>, request: ShapeRequest): Notice {
  const { handle, bytes } = request.spill.put(text);
  const range = `cut lines ${cut.gap.first}-${cut.gap.last} of ${cut.segments} (${cut.gap.bytes} bytes)`;
  return { line: `${range}. ${nextCall(handle, cut.gap.first, request.canRead)}`, bytes, spill: handle, offset: cut.gap.first };
}

function restNotice(items: readonly ContentItem[], request: ShapeRequest): Notice {
  const { handle, bytes } = request.spill.put(items.map((item) => JSON.stringify(item)).join('\n'));
  const kinds = [...new Set(items.map((item) => String(item['mimeType'] ?? item.type)))].slice(0, 3).join(', ');
  const line = `${items.length} more content item${items.length === 1 ? '' : 's'} (${kinds}; ${bytes} bytes) not shown. ${nextCall(handle, 1, request.canRead)}`;
  return { line, bytes, spill: handle, offset: 1 };
}

function nextCall(handle: string, offset: number, canRead: boolean): string {
  return canRead ? `Next: read path="${handle}" offset=${offset}` : 'Ask for a smaller part.';
}

/** Structured content that cannot be cut within its schema makes the result an error that says where all of it is. */
function cutStructured(value: unknown, request: ShapeRequest): { value: unknown; notice?: Notice } {
  const text = JSON.stringify(value);
  if (Buffer.byteLength(text) <= request.cap.bytes) return { value };
  const { handle, bytes } = request.spill.put(text);
  const smaller = shrink(value, request.cap.bytes);
  const valid = smaller !== undefined && (request.validOutput?.(smaller) ?? true);
  const what = valid ? `structured content was shortened (${bytes} bytes in all)` : `structured content of ${bytes} bytes cannot be shortened within its schema`;
  return { value: valid ? smaller : undefined, notice: { line: `${what}. ${nextCall(handle, 1, request.canRead)}`, bytes, spill: handle, offset: 1 } };
}
