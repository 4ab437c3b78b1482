/**
 * Rows for readers that do I/O: files and folders of the workspace, lists and bodies of servers, texts of mapped
 * backends.
 */

import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import { readBatch, readEvents, readJsonBody } from '../../adapters/http/message-body.ts';
import type { PrimitiveBackend, ServerAdapter } from '../../adapters/port.ts';
import { readOutputPage } from '../../adapters/primitives/mapped/command-markers.ts';
import { createMappedBackend } from '../../adapters/primitives/mapped/mapped-backend.ts';
import { compileGlob } from '../../adapters/primitives/search/glob-matcher.ts';
import { searchByScan } from '../../adapters/primitives/search/scan-search.ts';
import { SearchHits, type SearchQuery } from '../../adapters/primitives/search/search-hits.ts';
import { OpenFolder } from '../../adapters/primitives/workspace/open-folder.ts';
import { createWorkspace } from '../../adapters/primitives/workspace/workspace-server.ts';
import { EventStreamReader } from '../../adapters/rpc/event-stream.ts';
import type { JsonObject } from '../../adapters/rpc/message-parser.ts';
import { MessageReader } from '../../adapters/rpc/message-reader.ts';
import type { JsonDoc } from '../../adapters/rpc/wire-message.ts';
import { readServerList, readToolList } from '../../adapters/supervisor/tool-list.ts';
import { loadMapping, type MAPPINGS } from '../../catalogs/primitives/primitive-mapping.ts';
import { readBody } from '../../facade/serve/http/request-body.ts';
import type { Target } from './targets.ts';

type Args = Readonly<Record<string, unknown>>;

const ROOT = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-fuzz-files-')));
process.once('exit', () => rmSync(ROOT, { recursive: true, force: true }));
const FILE = path.join(ROOT, 'file.txt');
const MOST = 1 << 26;

/** Returns a row whose reader finds the text in a file. Writing the file is not measured. */
function ofFile(name: string, run: (text: string) => unknown): Target {
  return {
    name,
    make: (text) => {
      writeFileSync(FILE, text);
      return text;
    },
    run: (text) => {
      // The file may have been replaced by a larger input meanwhile.
      writeFileSync(FILE, text as string);
      return run(text as string);
    },
  };
}

async function say(backend: PrimitiveBackend, tool: string, args: Args): Promise<unknown> {
  return backend.call({
    tool,
    args: { text: JSON.stringify(args), value: args, exact: true },
    scope: 's',
    signal: new AbortController().signal,
    timeoutMs: 600_000,
    hardTimeoutMs: 600_000,
  });
}

const workspace = createWorkspace({ root: ROOT });

async function scanned(query: Partial<SearchQuery>): Promise<unknown> {
  const folder = await OpenFolder.root(ROOT);
  const hits = new SearchHits();
  try {
    await searchByScan(
      { folder, root: ROOT, name: 'file.txt', prefix: 'file.txt', ignored: [], signal: new AbortController().signal },
      { pattern: 'a', glob: undefined, context: 2, ignoreCase: false, literal: false, hidden: true, ...query },
      hits,
    );
    return hits.page({}, 2);
  } finally {
    await folder.close();
  }
}

/** A server that returns this text for every tool. Facts of files are correct, because strategies check them. */
function replying(text: string, facts: string): ServerAdapter {
  return {
    name: 's',
    start: () => Promise.resolve({ name: 's', version: '0', protocolVersion: '2025-11-25' }),
    listTools: () => Promise.resolve([]),
    call: ({ tool, args }) => {
      // Each entry is compared with each of up to 2,000 rules. One rule is enough to measure the growth of the entries.
      const isIgnore = String(args.value.path).endsWith('.gitignore');
      const isNext = Number(args.value.offset ?? 0) > 0 && tool === 'get_more_search_results';
      const value = {
        content: [
          {
            type: 'text',
            text: isIgnore ? '*.tmp' : isNext ? 'Status: COMPLETED' : tool === 'get_file_info' ? facts : text,
          },
        ],
      };
      return Promise.resolve({ text: '', value, exact: true });
    },
    health: () => ({ state: 'healthy', restarts: 0, badLines: 0 }),
    info: () => undefined,
    onToolsChanged: () => undefined,
    stop: () => Promise.resolve(),
  };
}

const factsOf = (text: string): string =>
  `size: ${Buffer.byteLength(text)}\nmodified: "2026-11-21T23:04:53.489Z"\n` +
  'isDirectory: false\nisFile: true\npermissions: 644';

/** Returns a row for one action of a mapped primitive. `dress` turns the text into an answer of the backend. */
function ofMapped(
  id: (typeof MAPPINGS)[number],
  [tool, args]: readonly [string, Args],
  dress: (text: string) => string = plain,
): Target {
  return {
    name: `${id}, ${tool} ${typeof args.action === 'string' ? args.action : ''}: ${dress.name}`,
    make: (text) => {
      const dressed = dress(text);
      return createMappedBackend({
        inner: replying(dressed, args.action === 'stat' ? dressed : factsOf(dressed)),
        mapping: loadMapping(id),
        root: ROOT,
      });
    },
    run: (backend) => say(backend as PrimitiveBackend, tool, args),
  };
}

const plain = (text: string): string => text;
const paged = (text: string): string =>
  `[Reading ${text.split('\n').length} lines from start ` +
  `(total: ${text.split('\n').length} lines, 0 remaining)]\n\n${text}`;
const entries = (text: string): string =>
  text
    .split('\n')
    .map((line) => `[FILE] ${line}`)
    .join('\n');
const tree = (text: string): string =>
  JSON.stringify(
    text.split(/[\n,]/).map((name, at) => ({
      name,
      type: at % 2 === 0 ? 'file' : 'directory',
      ...(at % 2 === 0 ? {} : { children: [{ name, type: 'file' }] }),
    })),
  );
const found = (text: string): string =>
  `Started content search session: x\nStatus: COMPLETED\nTotal results found: ${text.split('\n').length}\n${text
    .split('\n')
    .map((line, at) => `📄 ${ROOT}/${line}:${at + 1} - ${line}`)
    .join('\n')}`;
const dated = (text: string): string =>
  `size: 5\nmodified: "${text.replaceAll('\n', ' (')}"\npermissions: 644\nisDirectory: true\n${text}`;
const outputs = (text: string): string => `[Reading 100 lines from line 0 (total: 100 lines)]\n\n${text}`;

const MAPPED: readonly Target[] = [
  ofMapped('desktop-commander', ['read', { action: 'list', path: '.' }]),
  ofMapped('desktop-commander', ['read', { action: 'list', path: '.' }], entries),
  ofMapped('server-filesystem', ['read', { action: 'list', path: '.', depth: 2 }], entries),
  ofMapped('server-filesystem', ['read', { action: 'find', path: '.', pattern: '**/*a*' }], tree),
  ofMapped('server-filesystem', ['read', { action: 'find', path: '.', pattern: '**/*a*' }]),
  ofMapped('desktop-commander', ['read', { action: 'search', path: '.', pattern: 'a' }], found),
  ofMapped('desktop-commander', ['read', { action: 'stat', path: 'file.txt' }], dated),
  ofMapped('server-filesystem', ['read', { action: 'stat', path: 'file.txt' }], dated),
  ofMapped('desktop-commander', ['read', { path: 'file.txt' }], paged),
  ofMapped('server-filesystem', ['read', { path: 'file.txt', offset: -3 }]),
  ofMapped('server-filesystem', ['edit', { path: 'file.txt', old_string: 'a', new_string: 'b', replace_all: true }]),
  ofMapped('desktop-commander', ['edit', { path: 'file.txt', old_string: 'a', new_string: 'b' }], paged),
];

function pageOf(text: string): JsonDoc<JsonObject> {
  const tools = text
    .split(/[\n,]/)
    .map((part) => ({ name: part.slice(0, 50), inputSchema: { type: 'object', description: part } }));
  const value = { tools, prompts: tools, nextCursor: `${text.length}` };
  return { text: JSON.stringify(value), value, exact: true };
}

/** Returns the same list in 64 pages. */
async function listed(pages: readonly JsonDoc<JsonObject>[]): Promise<unknown> {
  const next = (): (() => Promise<JsonDoc<JsonObject>>) => {
    let at = 0;
    return () => {
      const page = pages[at] ?? { text: '{}', value: { tools: [], prompts: [] }, exact: true };
      at += 1;
      return Promise.resolve({
        ...page,
        value: { ...page.value, nextCursor: at < pages.length ? String(at) : undefined },
      });
    };
  };
  return [await readToolList(next()), await readServerList('prompts', next())];
}

function chunksOf(text: string, size: number): readonly Buffer[] {
  const bytes = Buffer.from(text);
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) => bytes.subarray(at * size, (at + 1) * size));
}

async function streamed(text: string, type: string): Promise<number> {
  let heard = 0;
  const body = Readable.toWeb(Readable.from(chunksOf(text, 997))) as ReadableStream<Uint8Array>;
  const response = new Response(body, { headers: { 'content-type': type } });
  if (type === 'application/json') return (await readJsonBody(response)).length;
  const onMessage = (data: Buffer): void => void (heard += readBatch(data).length);
  await readEvents(response, new EventStreamReader({ maxBytes: 1 << 26, onMessage }), () => undefined);
  return heard;
}

/** Returns a row for a body or a stream. */
function ofStream(name: string, run: (text: string) => unknown): Target {
  return { name, make: (text) => text, run: run as Target['run'] };
}

/** The rows of this file. */
export const READERS: readonly Target[] = [
  ofFile('read of a file', async () => [
    await say(workspace, 'read', { path: 'file.txt', offset: 2 }),
    await say(workspace, 'read', { path: 'file.txt', offset: -3, limit: 2 }),
    await say(workspace, 'read', { action: 'stat', path: 'file.txt' }),
  ]),
  ofFile('edit of a file', (text) =>
    say(workspace, 'edit', { path: 'file.txt', old_string: text.slice(0, 2), new_string: 'xy', replace_all: true }),
  ),
  ofFile('scan of a file', () => scanned({ pattern: 'a' })),
  ofFile('scan of a file, no match', () => scanned({ pattern: 'none of it', literal: true, ignoreCase: true })),
  ofFile('lines of a file that were found', async (text) => {
    const hits = new SearchHits();
    for (let line = 1; line <= Math.min(1_000, text.length); line += 1)
      hits.add({ path: 'file.txt', line, text, matches: true });
    return hits.page({}, 3);
  }),
  ofStream('names for list and find', (text) => {
    const globs = ['**/*a*', 'a*b', '{a,b}/**'].map((glob) => compileGlob(glob));
    return text.split(/[\n,]/).map((name) => globs.map((glob) => glob(name)));
  }),
  { name: 'tools/list and prompts/list, one page', make: (text) => [pageOf(text)], run: listed as Target['run'] },
  {
    name: 'tools/list and prompts/list, 64 pages',
    make: (text) =>
      Array.from({ length: 64 }, (_, at) => pageOf(text.slice((at * text.length) / 64, ((at + 1) * text.length) / 64))),
    run: listed as Target['run'],
  },
  ofStream('the body of a request', async (text) => {
    const request = Object.assign(Readable.from(chunksOf(text, 61)), { headers: {} }) as unknown as IncomingMessage;
    return readBody(request, MOST);
  }),
  ofStream('the messages of a stream', async (text) => {
    let heard = 0;
    const stream = Readable.from(chunksOf(`${text}\n`, 997));
    const note = (): void => void (heard += 1);
    new MessageReader(stream, { onMessage: note, onBad: note, onTooLarge: note, onFailed: note, onClosed: note });
    await new Promise((resolve) => stream.once('end', resolve));
    return heard;
  }),
  ofStream('the answer of a remote server, JSON', (text) => streamed(text, 'application/json')),
  ofStream('the answer of a remote server, a list', (text) =>
    streamed(`[${JSON.stringify({ jsonrpc: '2.0', id: 1, result: { text } })}]`, 'application/json'),
  ),
  ofStream('the answer of a remote server, events', (text) =>
    streamed(`data: ${text}\n\n${text}`, 'text/event-stream'),
  ),
  ofStream('a page of process output', (text) => [
    readOutputPage(loadMapping('desktop-commander'), outputs(text)),
    readOutputPage(loadMapping('desktop-commander'), text),
  ]),
  ...MAPPED,
];
