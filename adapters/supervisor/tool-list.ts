/** Owns the reading of a server's tools and prompts over all pages; refuses lists that do not end or do not fit, and a definition that does not fit alone. */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { promptFault, toolFault } from '../../catalogs/tools/definition-schema.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { type InvalidDefinition, type RawPrompt, UpstreamError } from '../port.ts';
import { isObject, type JsonObject } from '../rpc/message-parser.ts';
import type { JsonDoc } from '../rpc/wire-message.ts';

const MAX_PAGES = 64;
const MAX_LIST_BYTES = 8 * 1024 * 1024;
/** Definitions that were left out are named up to so many, and then counted. */
const MAX_UNFIT = 20;
const MAX_NAME = 64;

/** Sends one tools/list or prompts/list with this text as params. */
export type RequestPage = (params: string) => Promise<JsonDoc<JsonObject>>;

/** What a server listed, in its order: the definitions that fit the protocol, and what was left out. */
export interface DefinitionList<Entry> {
  readonly entries: readonly Entry[];
  readonly unfit: readonly InvalidDefinition[];
}

/**
 * All tools (MCP 2025-11-25, pagination; `""` is a cursor like any other). Throws UPSTREAM_INVALID for what is no list or does not end,
 * UPSTREAM_TOO_LARGE over 8 MiB, and what the request throws.
 */
export function readToolList(request: RequestPage): Promise<DefinitionList<RawTool>> {
  return readPages<RawTool>(request, { key: 'tools', faultOf: toolFault });
}

/** All prompts; as `readToolList` (MCP 2025-11-25, server/prompts). */
export function readPromptList(request: RequestPage): Promise<DefinitionList<RawPrompt>> {
  return readPages<RawPrompt>(request, { key: 'prompts', faultOf: promptFault });
}

interface Wanted {
  readonly key: 'tools' | 'prompts';
  readonly faultOf: (entry: unknown) => string | undefined;
}

async function readPages<Entry>(request: RequestPage, { key, faultOf }: Wanted): Promise<DefinitionList<Entry>> {
  const found: unknown[] = [];
  const cursors = new Set<string>();
  let size = 0;
  let params = '{}';
  for (let pages = 0; pages < MAX_PAGES; pages++) {
    const page = await requestPage(request, params);
    if (page === undefined) return sort(found, faultOf);
    size += page.text.length;
    if (size > MAX_LIST_BYTES)
      throw new TollgateError('UPSTREAM_TOO_LARGE', {
        detail: `The server's list of ${key} is larger than ${MAX_LIST_BYTES} bytes.`,
      });
    const listed = page.value[key];
    if (!Array.isArray(listed))
      throw new TollgateError('UPSTREAM_INVALID', { detail: `The server's list of ${key} is no list.` });
    found.push(...(listed as readonly unknown[]));
    const cursor = page.value.nextCursor;
    if (typeof cursor !== 'string') return sort(found, faultOf);
    if (cursors.has(cursor)) break;
    cursors.add(cursor);
    params = JSON.stringify({ cursor });
  }
  throw new TollgateError('UPSTREAM_INVALID', { detail: `The server's list of ${key} does not end.` });
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

/** One bad definition costs itself, not the list. */
function sort<Entry>(found: readonly unknown[], faultOf: Wanted['faultOf']): DefinitionList<Entry> {
  const entries: Entry[] = [];
  const unfit: InvalidDefinition[] = [];
  let left = 0;
  for (const [index, entry] of found.entries()) {
    const reason = faultOf(entry);
    if (reason === undefined) entries.push(entry as Entry);
    else if (unfit.length < MAX_UNFIT) unfit.push({ tool: labelOf(entry, index), reason });
    else left += 1;
  }
  return {
    entries,
    unfit:
      left === 0
        ? unfit
        : [...unfit, { tool: '(more)', reason: `DEFINITION_INVALID: ${left} more definitions do not fit` }],
  };
}

function labelOf(entry: unknown, index: number): string {
  const name = isObject(entry) ? entry.name : undefined;
  return typeof name === 'string' && name !== '' ? name.slice(0, MAX_NAME).replace(/[^ -~]/gu, '?') : `#${index + 1}`;
}
