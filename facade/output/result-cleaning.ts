/**
 * Cleans every string of a result before it is cut: secrets are redacted, hostile characters made visible, local links
 * removed.
 */
import { isObject, type JsonText } from '../../adapters/rpc/wire-message.ts';
import { escapeHostile, MAX_HOSTILE, tooHostile } from '../../catalogs/text/hostile-text.ts';
import type { ContentItem, ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { ShapeRequest } from './content-cut.ts';

/** Counts of the changes, for `_meta` and the record. */
export interface Cleaning {
  redactions: number;
  escaped: number;
  links: number;
}

/**
 * Schemes by which a client would read, run or start something on its own machine. Schemes of resources (`github:`,
 * `memory:`) are not among them.
 */
const LOCAL_SCHEME = new RegExp(
  '^(file|javascript|data|vbscript|about|blob|filesystem|view-source|jar|mhtml|mk|search-ms|smb|cifs|nfs|afp|ssh|' +
    'telnet|intent|android-app|chrome|edge|vscode|vscode-insiders|vscodium|cursor|windsurf|jetbrains|' +
    'ms-[a-z0-9.-]+|x-apple[a-z0-9.-]*|x-man-page|hcp)$',
);
/**
 * What readers of addresses skip: spaces and control characters at the start, tabs and line ends anywhere (WHATWG URL,
 * section 4.4).
 */
const SKIPPED = /^[\u0000- ]+|[\t\n\r]+/g;
/** Replaces the address of a resource whose content is next to it. */
const NO_ADDRESS = 'urn:tollgate:address-removed';
/**
 * Cleans one result. Returns no result if nothing had to change, so that its bytes can pass unchanged: then its values
 * are not read either, unless the scan found something suspicious. `theirs` replaces the value of `doc`. `raw` leaves
 * characters as they are (the client asked for it, not the model); secrets and links are removed anyway. `hidePaths` is
 * for results that are errors.
 */
export function cleanResult(
  doc: JsonText<ToolResult>,
  theirs: ToolResult | undefined,
  options: Pick<ShapeRequest, 'redactor' | 'raw' | 'hidePaths' | 'form' | 'shownUri'>,
): { result: ToolResult | undefined; done: Cleaning } {
  const done: Cleaning = { redactions: 0, escaped: 0, links: 0 };
  const secret =
    doc.bytes === undefined
      ? options.redactor.touches(doc.text)
      : options.redactor.touchesBytes(doc.bytes, doc.strings.hasFreeEscape);
  const hostile = !options.raw && doc.strings.isSuspect;
  const linked = doc.strings.hasAddress;
  const hide = doc.memberValue('isError') === true ? options.hidePaths : undefined;
  if (!secret && !hostile && !linked && hide === undefined) return { result: undefined, done };
  const cleanString = (string: string): string => {
    const redacted = secret ? options.redactor.redact(string) : { value: string, count: 0 };
    const hidden = hide?.(redacted.value) ?? { value: redacted.value, count: 0 };
    const escaped = hostile ? escapeHostile(hidden.value) : { text: hidden.value, count: 0 };
    done.redactions += redacted.count + hidden.count;
    done.escaped += escaped.count;
    if (done.escaped > MAX_HOSTILE) throw tooHostile();
    return escaped.text;
  };
  const whole = theirs ?? doc.value;
  const walked = secret || hostile || hide !== undefined ? (mapStrings(whole, cleanString) as ToolResult) : whole;
  const cleaned = linked ? withSafeAddresses(walked, options, done) : walked;
  return { result: cleaned === whole ? undefined : cleaned, done };
}

/** Contents of resources are named by the URI that the client asked for, so no address is removed from them. */
function withSafeAddresses(
  result: ToolResult,
  { form, shownUri }: Pick<ShapeRequest, 'form' | 'shownUri'>,
  done: Cleaning,
): ToolResult {
  const items = form.itemsOf(result);
  const safe = items.map((item) => {
    const shown = withShownUri(item, shownUri);
    return form.key === 'contents' ? shown : withoutLocalAddress(shown, done);
  });
  return safe.every((item, at) => item === items[at]) ? result : form.withItems(result, safe);
}

/** Returns the same item if its URI stays as it is. */
function withShownUri(item: ContentItem, shownUri: ShapeRequest['shownUri']): ContentItem {
  const { uri, resource } = item;
  if (typeof uri === 'string') {
    const shown = shownUri(uri);
    return shown === uri ? item : { ...item, uri: shown };
  }
  if (!isObject(resource) || typeof resource.uri !== 'string') return item;
  const shown = shownUri(resource.uri);
  return shown === resource.uri ? item : { ...item, resource: { ...resource, uri: shown } };
}

/**
 * Removes a link to a file of the server's machine, because it is useless to the model and leaks a path, or worse
 * (OUTPUT_URI_SCHEME). Icons are removed too, because a client would fetch them. Returns the same item if nothing had
 * to be removed.
 */
function withoutLocalAddress(item: ContentItem, done: Cleaning): ContentItem {
  const { icons, ...rest } = item;
  if (icons !== undefined) done.links += 1;
  const kept = icons === undefined ? item : (rest as ContentItem);
  const scheme = localScheme(kept.uri);
  if (scheme !== undefined) {
    done.links += 1;
    if (kept.type === 'resource_link')
      return {
        type: 'text',
        text: `[tollgate: a link ${scheme === '' ? 'without a scheme' : `with the scheme ${scheme}:`} was removed]`,
      };
    return { ...kept, uri: NO_ADDRESS };
  }
  const resource = kept.resource;
  if (
    typeof resource !== 'object' ||
    resource === null ||
    localScheme((resource as { uri?: unknown }).uri) === undefined
  )
    return kept;
  done.links += 1;
  return { ...kept, resource: { ...resource, uri: NO_ADDRESS } };
}

/**
 * Returns the scheme of an address that a client must not open; empty for a path. Undefined for any other address, and
 * for other text.
 */
function localScheme(uri: unknown): string | undefined {
  if (typeof uri !== 'string') return undefined;
  const scheme = /^([a-z][a-z0-9+.-]*):/.exec(uri.slice(0, 1_000).replace(SKIPPED, '').toLowerCase())?.[1];
  if (scheme === undefined || scheme.length === 1) return '';
  return LOCAL_SCHEME.test(scheme) ? scheme : undefined;
}

/**
 * Maps every string and key of a JSON value. A part in which nothing changes stays the same object, so that its text
 * can be kept.
 */
export function mapStrings(value: unknown, map: (string: string) => string): unknown {
  if (typeof value === 'string') return map(value);
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) {
    const items = value.map((item) => mapStrings(item, map));
    return items.some((item, index) => item !== value[index]) ? items : value;
  }
  let changed = false;
  const entries = Object.entries(value).map(([key, item]): [string, unknown] => {
    const next: [string, unknown] = [map(key), mapStrings(item, map)];
    changed ||= next[0] !== key || next[1] !== item;
    return next;
  });
  return changed ? Object.fromEntries(entries) : value;
}
