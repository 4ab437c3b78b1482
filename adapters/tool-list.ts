/** Owns the reading of a server's tools and prompts over all pages; refuses lists that do not end or do not fit. */
import { TollgateError } from '../catalogs/errors.ts';
import type { RawTool } from '../catalogs/tool.ts';
import { UpstreamError } from './port.ts';
import type { JsonDoc } from './port.ts';
import { isObject } from './rpc/json.ts';
import type { JsonObject } from './rpc/json.ts';

const MAX_PAGES = 64;
const MAX_LIST_BYTES = 8 * 1024 * 1024;

/** Sends one tools/list or prompts/list with this text as params. */
export type RequestPage = (params: string) => Promise<JsonDoc<JsonObject>>;

/**
 * All tools, in the server's order (MCP 2025-11-25, pagination; `""` is a cursor like any other). `onBad` is called for
 * each entry that has no name or no input schema and is left out. Throws UPSTREAM_INVALID for what is no list or does
 * not end, UPSTREAM_TOO_LARGE over 8 MiB, and what the request throws.
 */
export function readToolList(request: RequestPage, onBad: () => void): Promise<readonly RawTool[]> {
  return readPages<RawTool>(request, { key: 'tools', isUsable: (tool) => isObject(tool['inputSchema']), onBad });
}

/** A prompt as a server listed it; unknown keys are kept. */
export interface RawPrompt {
  readonly name: string;
  readonly [key: string]: unknown;
}

/** All prompts; as `readToolList` (MCP 2025-11-25, server/prompts). */
export function readPromptList(request: RequestPage, onBad: () => void): Promise<readonly RawPrompt[]> {
  return readPages<RawPrompt>(request, { key: 'prompts', isUsable: () => true, onBad });
}

interface Wanted {
  readonly key: 'tools' | 'prompts';
  readonly isUsable: (entry: JsonObject) => boolean;
  readonly onBad: () => void;
}

async function readPages<Entry>(request: RequestPage, wanted: Wanted): Promise<readonly Entry[]> {
  const found: JsonObject[] = [];
  const cursors = new Set<string>();
  let size = 0;
  let params = '{}';
  for (let pages = 0; pages < MAX_PAGES; pages++) {
    const page = await requestPage(request, params);
    if (page === undefined) return found as Entry[];
    size += page.text.length;
    if (size > MAX_LIST_BYTES) throw new TollgateError('UPSTREAM_TOO_LARGE', { detail: `The server's list of ${wanted.key} is larger than ${MAX_LIST_BYTES} bytes.` });
    keepUsable(page.value[wanted.key], found, wanted);
    const cursor = page.value['nextCursor'];
    if (typeof cursor !== 'string') return found as Entry[];
    if (cursors.has(cursor)) break;
    cursors.add(cursor);
    params = JSON.stringify({ cursor });
  }
  throw new TollgateError('UPSTREAM_INVALID', { detail: `The server's list of ${wanted.key} does not end.` });
}

/** Undefined from a server without tools, which may not know the method. */
async function requestPage(request: RequestPage, params: string): Promise<JsonDoc<JsonObject> | undefined> {
  try {
    return await request(params);
  } catch (thrown) {
    if (thrown instanceof UpstreamError && thrown.rpc.code === -32601) return undefined;
    throw thrown;
  }
}

/** One bad entry costs itself, not the list: real catalogs hold some. */
function keepUsable(listed: unknown, found: JsonObject[], { key, isUsable, onBad }: Wanted): void {
  if (!Array.isArray(listed)) throw new TollgateError('UPSTREAM_INVALID', { detail: `The server's list of ${key} is no list.` });
  for (const entry of listed as unknown[]) {
    if (isObject(entry) && typeof entry['name'] === 'string' && isUsable(entry)) found.push(entry);
    else onBad();
  }
}
