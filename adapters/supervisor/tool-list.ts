/** Reads all pages of a server's lists, and decides which of its tools the server offers. */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { pinOf } from '../../catalogs/tools/definition-pin.ts';
import {
  promptFault,
  resourceFault,
  resourceTemplateFault,
  toolFault,
} from '../../catalogs/tools/definition-schema.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { type InvalidDefinition, type ServerLists, UpstreamError } from '../port.ts';
import { keepDefinitionTexts } from '../rpc/definition-text.ts';
import { isObject, type JsonMember, type JsonObject } from '../rpc/message-parser.ts';
import { type JsonDoc, JsonText } from '../rpc/wire-message.ts';
import type { ServerSettings } from './server-settings.ts';

const MAX_PAGES = 64;
const MAX_LIST_BYTES = 8 * 1024 * 1024;
/** The number of invalid definitions that are named. Further ones are counted. */
const MAX_INVALID = 20;
const MAX_NAME = 64;

/** Sends one request for a page with this JSON text as params. */
export type RequestPage = (params: string) => Promise<JsonDoc<JsonObject>>;

/** The definitions of a list in their order: those that fit the protocol, and the ones that were left out. */
export interface DefinitionList<Entry> {
  readonly entries: readonly Entry[];
  readonly unfit: readonly InvalidDefinition[];
}

/**
 * Reads all tools (MCP 2025-11-25, pagination; `""` is a cursor like any other). Throws UPSTREAM_INVALID for a list
 * that is not an array or does not end, UPSTREAM_TOO_LARGE over 8 MiB, and what `request` throws.
 */
export function readToolList(request: RequestPage): Promise<DefinitionList<RawTool>> {
  return readPages<RawTool>(request, { key: 'tools', faultOf: toolFault });
}

/** Reads another list, as `readToolList` does (MCP 2025-11-25, server/resources and server/prompts). */
export function readServerList<Kind extends keyof ServerLists>(
  kind: Kind,
  request: RequestPage,
): Promise<DefinitionList<ServerLists[Kind][number]>> {
  return readPages(request, LISTS[kind]);
}

type FaultOf = (entry: unknown) => string | undefined;

/** The member of the result that holds the list, and what its entries must be. */
interface ListForm {
  readonly key: string;
  readonly faultOf: FaultOf;
}

const LISTS: Readonly<Record<keyof ServerLists, ListForm>> = {
  resources: { key: 'resources', faultOf: resourceFault },
  'resources/templates': { key: 'resourceTemplates', faultOf: resourceTemplateFault },
  prompts: { key: 'prompts', faultOf: promptFault },
};

async function readPages<Entry>(request: RequestPage, { key, faultOf }: ListForm): Promise<DefinitionList<Entry>> {
  const found: unknown[] = [];
  const cursors = new Set<string>();
  let size = 0;
  let params = '{}';
  for (let pages = 0; pages < MAX_PAGES; pages++) {
    const page = await requestPage(request, params);
    if (page === undefined) return separate(found, faultOf);
    size += page.text.length;
    if (size > MAX_LIST_BYTES)
      throw new TollgateError('UPSTREAM_TOO_LARGE', {
        detail: `The server's list of ${key} is larger than ${MAX_LIST_BYTES} bytes.`,
      });
    const listed = page.value[key];
    if (!Array.isArray(listed))
      throw new TollgateError('UPSTREAM_INVALID', { detail: `The server's list of ${key} is not a list.` });
    const list = listed as readonly unknown[];
    const { start, end } = JsonText.of(page).member(key) as JsonMember;
    keepDefinitionTexts(list, JsonText.of(page).slice(start, end));
    found.push(...list);
    const cursor = page.value.nextCursor;
    if (typeof cursor !== 'string') return separate(found, faultOf);
    if (cursors.has(cursor)) break;
    cursors.add(cursor);
    params = JSON.stringify({ cursor });
  }
  throw new TollgateError('UPSTREAM_INVALID', { detail: `The server's list of ${key} does not end.` });
}

/** Returns undefined for a server that does not know the method, because it does not offer the list. */
async function requestPage(request: RequestPage, params: string): Promise<JsonDoc<JsonObject> | undefined> {
  try {
    return await request(params);
  } catch (thrown) {
    if (thrown instanceof UpstreamError && thrown.rpc.code === -32601) return undefined;
    throw thrown;
  }
}

/** Separates the definitions that fit the protocol. An invalid one does not affect the others. */
function separate<Entry>(found: readonly unknown[], faultOf: FaultOf): DefinitionList<Entry> {
  const entries: Entry[] = [];
  const unfit: InvalidDefinition[] = [];
  let unnamed = 0;
  for (const [index, entry] of found.entries()) {
    const reason = faultOf(entry);
    if (reason === undefined) entries.push(entry as Entry);
    else if (unfit.length < MAX_INVALID) unfit.push({ tool: labelOf(entry, index), reason });
    else unnamed += 1;
  }
  if (unnamed > 0) unfit.push({ tool: '(more)', reason: `DEFINITION_INVALID: ${unnamed} more definitions do not fit` });
  return { entries, unfit };
}

function labelOf(entry: unknown, index: number): string {
  const name = isObject(entry) ? entry.name : undefined;
  return typeof name === 'string' && name !== '' ? name.slice(0, MAX_NAME).replace(/[^ -~]/gu, '?') : `#${index + 1}`;
}

/**
 * Returns the tools that a server offers. An external server offers all tools that it lists. An internal server offers
 * the tools of its allowlist, if it lists all of them and they match its pin. Otherwise throws PIN_MISMATCH, with the
 * pin of the listed tools.
 */
export function pinnedTools(
  { name, trust, tools, pin }: ServerSettings,
  listed: readonly RawTool[],
): readonly RawTool[] {
  if (trust !== 'internal') return listed;
  const allowed = tools?.allow ?? [];
  const missing = allowed.find((tool) => listed.filter((one) => one.name === tool).length !== 1);
  if (missing !== undefined)
    throw new TollgateError('PIN_MISMATCH', {
      detail: `Internal server "${name}" does not list its tool "${missing}" exactly once.`,
      next: `Fix the server, or remove the tool from servers.${name}.tools.allow.`,
    });
  const offered = listed.filter((tool) => allowed.includes(tool.name));
  const listedPin = pinOf(offered);
  if (listedPin === pin) return offered;
  const fault = pin === undefined ? 'has no pin' : 'defines its tools differently from its pin';
  throw new TollgateError('PIN_MISMATCH', {
    detail: `Internal server "${name}" ${fault}. If its definitions are correct, write \`pin: ${listedPin}\`.`,
    next: `An owner writes the pin under servers.${name} in tollgate.yaml.`,
  });
}
