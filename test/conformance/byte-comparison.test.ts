/**
 * Tests that what a server answers arrives byte for byte, for each method, each kind of content, and each way to reach
 * the server. Only keys under `tollgate/` in `_meta` are Tollgate's, and only what docs/wire.md names is removed.
 */

import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { jsonItems } from '../../adapters/rpc/definition-text.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { objectText, stringText, valueText } from '../properties/json-text.ts';
import { memberOf, theirMeta, without } from '../properties/raw-facade.ts';
import { type ProtocolFacade, type Step, startProtocol, type WireClient } from '../protocol/protocol-facade.ts';
import { verifies } from '../verifies.ts';
import { type RawHttpServer, startRawHttp } from './raw-http-server.ts';

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
/** Spellings that a parser could change: numbers, escapes, white space, order of keys, and letters. */
const ODD =
  '"n" : 12345678901234567890 ,"e":1E+2,"z":-0.0, "s":"a\\/b\\u00e9 \\ud83d\\ude00 é 中","a":[ ],"o":{ },"x":null';

/** Items of content (MCP 2025-11-25, server/tools), each with members that no revision knows. */
const ITEMS = {
  text: `{"type":"text","text":"a\\/b \\u00e9 é 中 😀",${ODD}}`,
  'empty text': '{"text":"","type":"text"}',
  image: `{"type":"image","data":"${PIXEL}","mimeType":"image/png",${ODD}}`,
  audio: `{"type":"audio","data":"UklGRiYAAABXQVZF","mimeType":"audio/wav",${ODD}}`,
  resource_link: `{"type":"resource_link","uri":"https://example.org/a?b=%20c","name":"a","size":12345678901234567890}`,
  'text resource': `{"type":"resource","resource":{"uri":"test://a","mimeType":"text/plain","text":"t",${ODD}}}`,
  'blob resource': `{"type":"resource","resource":{"uri":"test://b","blob":"${PIXEL}",${ODD}}}`,
  annotations: `{"type":"text","text":"t","annotations":{"audience":["user"],"priority":0.10,"x-more":{${ODD}}}}`,
  'meta of an item': `{"type":"text","text":"t","_meta":{"example.org/k":{${ODD}}}}`,
} as const;

/** Results of tools/call. */
const RESULTS = {
  ...Object.fromEntries(Object.entries(ITEMS).map(([kind, item]) => [kind, `{"content":[${item}]}`])),
  'all kinds at once': `{"content" : [ ${Object.values(ITEMS).join(' ,')} ]}`,
  'no content': '{"content":[ ]}',
  structuredContent: `{"content":[],"structuredContent":{${ODD},"deep":{"deeper":[[1.0],{}]}}}`,
  isError: `{"isError":true,"content":[{"type":"text","text":"no"}]}`,
  'unknown keys': `{"content":[],${ODD},"x-more":{${ODD}}}`,
  'meta of the result': `{"_meta":{"example.org/k":12345678901234567890,"b":{${ODD}}},"content":[]}`,
};

/** Contents of resources/read. */
const CONTENTS = {
  text: `{"uri":"test://a","mimeType":"text/plain","text":"a\\/b \\u00e9 é 中 😀",${ODD}}`,
  blob: `{"uri":"test://a","mimeType":"image/png","blob":"${PIXEL}",${ODD}}`,
  'empty text': '{"text":"","uri":"test://a"}',
} as const;
const READS = {
  ...Object.fromEntries(Object.entries(CONTENTS).map(([kind, one]) => [kind, `{"contents":[${one}]}`])),
  several: `{"contents":[ ${Object.values(CONTENTS).join(' , ')} ],${ODD},"_meta":{"k":12345678901234567890}}`,
  none: '{"contents":[ ]}',
};

/** Messages of prompts/get. The template of each prompt is what it says. */
const PROMPTS = {
  text: `{"messages":[{"role":"user","content":{"type":"text","text":"a\\/b \\u00e9 é 中"}}]}`,
  image: `{"messages":[{"role":"user","content":{"type":"image","data":"${PIXEL}","mimeType":"image/png"}}]}`,
  audio: `{"messages":[{"role":"assistant","content":{"type":"audio","data":"UklGRg==","mimeType":"audio/wav"}}]}`,
  resource: `{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"test://a","text":"t"}}}]}`,
  'with more': `{ "description" : "d","messages":[{"content":{"text":"t","type":"text"},"role":"user"}],${ODD}}`,
};

const COMPLETIONS = {
  none: '{"completion":{"values":[ ],"total":0,"hasMore":false}}',
  some: `{"completion":{"values":["a\\/b","é","\\u00e9"],"total":12345678901234567890,${ODD}},"x-more":{${ODD}}}`,
};

const ERRORS = {
  plain: '{"code":-32602,"message":"no"}',
  'with data': `{"code":-32099,"message":"a\\/b é","data":{${ODD},"deep":[{${ODD}}]}}`,
  'with a number as data': '{"code":7,"message":"","data":12345678901234567890}',
};

const CAPABILITIES = { tools: {}, resources: {}, prompts: {}, completions: {} };
const RULES = [
  { id: 'reads', outcome: 'allow', when: { servers: ['raw'], verbs: ['read'] } },
  { id: 'others', outcome: 'allow', when: { servers: ['raw'], kind: ['resource', 'prompt', 'completion'] } },
];
const RESOURCE = `{"uri":"test://a","name":"a","title":"A","size":12345678901234567890,"mimeType":"text/plain",${ODD}}`;
const TEMPLATE = `{"uriTemplate":"test://{id}","name":"t","title":"T","mimeType":"text/plain",${ODD}}`;
const SCHEMA = `{"type" : "object","properties":{"a":{"default":1.0,${ODD}},"b":{ }},${ODD}}`;
const TOOLS = {
  act: `{"name":"act","title":"A\\/B","description":"d \\u00e9","inputSchema":${SCHEMA},${ODD}}`,
  typed: `{"name":"typed","description":"d","inputSchema":{"type":"object"},"outputSchema":${SCHEMA}}`,
} as const;
const PROMPT_NAMES = Object.keys(PROMPTS).map((kind) => kind.replaceAll(' ', '_'));

/** What the server lists. */
const LISTS: Readonly<Record<string, Step>> = {
  'tools/list': { raw: `{"tools": [ ${Object.values(TOOLS).join(' , ')} ]}` },
  'resources/list': { raw: `{"resources":[${RESOURCE}]}` },
  'resources/templates/list': { raw: `{"resourceTemplates":[${TEMPLATE}]}` },
  'prompts/list': {
    raw: JSON.stringify({
      prompts: [...PROMPT_NAMES, 'any'].map((name) => ({
        name,
        description: 'd',
        arguments: [{ name: 'city', required: false }],
      })),
    }),
  },
};

/** Writes the members that a method knows around a text. `item` adds members to an object. */
type Writer = (text: string, item: (own: string) => string) => string;

const WRITERS: Readonly<Record<string, Writer>> = {
  'tools/call': (text, item) => `"content": [ ${item(`"type":"text","text":${text}`)} ]`,
  'resources/read': (text, item) => `"contents" : [ ${item(`"uri":"test://a","text":${text}`)} ]`,
  // A template decides about each member of a message.
  'prompts/get': (text) => `"messages": [ {"role" :"user","content":{ "type":"text","text":${text}}} ]`,
  'completion/complete': (text, item) => `"completion": ${item(`"values":[ ${text} ]`)}`,
};

/** No template checks the other members of a prompt's result, so they are removed (docs/wire.md). */
const KEPT_OF_PROMPT: ReadonlySet<string> = new Set(['messages', 'description']);

describe.each(['stdio', 'http with json', 'http with sse'] as const)('over %s', (way) => {
  let facade: ProtocolFacade;
  let client: WireClient;
  let server: RawHttpServer | undefined;

  beforeAll(async () => {
    const settings = { uri: 'own', semantics: { act: 'read', typed: 'read' } };
    const templates = Object.entries(PROMPTS).map(([kind, raw], at) => [
      `raw.${PROMPT_NAMES[at] ?? kind}`,
      { template: (JSON.parse(raw) as { messages: unknown }).messages },
    ]);
    const rest = {
      profiles: {
        p: {
          servers: ['raw'],
          expose: {
            primitives: {},
            tools: Object.keys(TOOLS).map((name) => ({ tool: `raw.${name}`, name })),
            resources: ['raw'],
            prompts: [...PROMPT_NAMES, 'any'].map((name) => ({ prompt: `raw.${name}`, name })),
          },
        },
      },
      prompts: { ...Object.fromEntries(templates), 'raw.any': { template: '{{*}}' } },
      rules: RULES,
      schemaProfile: 'exact',
      caps: { bytes: 1_000_000, lines: 100_000 },
    };
    if (way === 'stdio')
      facade = await startProtocol({ raw: { capabilities: CAPABILITIES, answers: LISTS, settings } }, rest);
    else {
      server = await startRawHttp(way === 'http with sse' ? 'sse' : 'json', CAPABILITIES);
      server.answers = LISTS;
      facade = await startProtocol({}, { ...rest, servers: { raw: { url: server.url, ...settings } } });
    }
    client = await facade.connect();
    // The server starts with the script that was approved.
    for (const method of Object.keys(LISTS)) await client.request(method, {});
  });
  afterAll(async () => {
    await facade.close();
    server?.close();
  });

  /** Sets what the server answers next. */
  function answer(more: Readonly<Record<string, Step>>): void {
    const answers = { ...LISTS, ...more };
    if (server === undefined) facade.rescript('raw', { capabilities: CAPABILITIES, answers });
    else server.answers = answers;
  }

  async function ask(method: string, params: unknown): Promise<string> {
    await client.request(method, params);
    return client.lastLine();
  }

  /** Compares a result with the one that the server sent: members in order, each with its text. */
  function expectSame(line: string, raw: string, keeps: (member: string) => boolean = () => true): void {
    const got = memberOf(line, 'result');
    expect(without(got), line).toEqual(without(raw).filter(([member]) => keeps(member)));
    expect(theirMeta(got)).toEqual(theirMeta(raw));
  }

  /** A request of each method whose result passes. */
  const requests = [
    ['tools/call', { name: 'act', arguments: {} }, RESULTS],
    ['resources/read', { uri: 'test://a' }, READS],
    [
      'completion/complete',
      { ref: { type: 'ref/prompt', name: 'any' }, argument: { name: 'city', value: 'x' } },
      COMPLETIONS,
    ],
  ] as const;

  for (const [method, params, results] of requests) {
    for (const [kind, raw] of Object.entries(results))
      it(`${method} passes ${kind}` + verifies('PR-C02'), async () => {
        answer({ [method]: { raw } });
        expectSame(await ask(method, params), raw);
      });
  }

  for (const [at, [kind, raw]] of Object.entries(PROMPTS).entries())
    it(`prompts/get passes ${kind}` + verifies('PR-C02'), async () => {
      answer({ 'prompts/get': { raw } });
      expectSame(await ask('prompts/get', { name: PROMPT_NAMES[at] }), raw, (member) => KEPT_OF_PROMPT.has(member));
    });

  for (const [method, params] of [...requests, ['prompts/get', { name: 'any' }] as const]) {
    for (const [kind, error] of Object.entries(ERRORS))
      it(`${method} passes the error ${kind}` + verifies('PR-C02'), async () => {
        answer({ [method]: { error } });
        expect(without(memberOf(await ask(method, params), 'error'))).toEqual(without(error));
      });
  }

  for (const [method, key, entry] of [
    ['tools/list', 'tools', TOOLS.act],
    ['tools/list', 'tools', TOOLS.typed],
    ['resources/list', 'resources', RESOURCE],
    ['resources/templates/list', 'resourceTemplates', TEMPLATE],
  ] as const)
    it(`${method} passes ${memberOf(entry, 'name')}` + verifies('PR-C02'), async () => {
      answer({});
      const list = jsonItems(memberOf(memberOf(await ask(method, {}), 'result'), key));
      const listed = list.find((one) => memberOf(one, 'name') === memberOf(entry, 'name')) ?? '';
      expect(without(listed)).toEqual(without(entry));
    });

  const runs = { numRuns: roundsOf(60, way === 'stdio' ? 20 : 8) };
  /** Members that no revision knows. */
  const unknown = objectText(valueText({ depth: 2 }))
    .map((text) => text.trim().slice(1, -1))
    .filter((text) => !/"(_meta|content|contents|type|text|data|uri|blob|resultType|isError)"/.test(text));
  const members = (own: string, rest: string): string => (rest.trim() === '' ? `{${own}}` : `{${own},${rest}}`);

  /** For each method, how a result is made of a text, members of an item, and members of the result. */
  const generated = [
    ...requests.map(([method, params]) => [method, params] as const),
    ['prompts/get', { name: 'any' }] as const,
  ].map(([method, params]) => [method, params, WRITERS[method] as Writer] as const);

  for (const [method, params, write] of generated)
    inFull(`generated results of ${method}` + verifies('PR-C02'), async () => {
      await fc.assert(
        fc.asyncProperty(stringText(), unknown, unknown, async (text, item, result) => {
          const raw = members(
            write(text, (own) => members(own, item)),
            result,
          );
          answer({ [method]: { raw } });
          const keeps = method === 'prompts/get' ? (member: string) => KEPT_OF_PROMPT.has(member) : undefined;
          expectSame(await ask(method, params), raw, keeps);
        }),
        runs,
      );
    });

  it('generated results of errors' + verifies('PR-C02'), async () => {
    await fc.assert(
      fc.asyncProperty(stringText(), valueText({ depth: 2 }), async (message, data) => {
        const error = `{"code":-32050,"message":${message},"data":${data}}`;
        answer({ 'tools/call': { error } });
        const line = await ask('tools/call', { name: 'act', arguments: {} });
        expect(without(memberOf(line, 'error'))).toEqual(without(error));
      }),
      runs,
    );
  });
});
