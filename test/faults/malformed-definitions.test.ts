/** Tests definitions that do not fit the protocol: each member of a tool replaced by each type of JSON. The other tools are listed and called, and clients of both SDKs accept the list. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Client as ClientV2 } from '@modelcontextprotocol/client';
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { promptFault, toolFault } from '../../catalogs/tools/definition-schema.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { cli, dataOf, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };
type Message = { readonly id?: unknown; readonly method?: string };
type Row = {
  readonly name: string;
  readonly quarantined: readonly { readonly tool: string; readonly reason: string }[];
};

/** A definition with every member of the protocol, and with the keywords on which compilers of schemas fail. */
const RICH: Json = {
  name: 'rich',
  title: 'Rich',
  description: 'All members.',
  icons: [{ src: 'https://example.org/a.png', mimeType: 'image/png', sizes: ['48x48'], theme: 'dark' }],
  annotations: {
    title: 'Rich',
    readOnlyHint: true,
    destructiveHint: false,
    idempotentHint: true,
    openWorldHint: false,
  },
  execution: { taskSupport: 'forbidden' },
  _meta: { note: 'x' },
  inputSchema: schema(),
  outputSchema: schema(),
};
const TYPES: readonly Json[] = [null, true, 5, 'x', '(', [], [5], ['x'], {}, { x: 5 }];
const STEADY = { name: 'steady', description: 'Always the same.', inputSchema: { type: 'object' } };

function schema(): Json {
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    $id: 'https://example.org/one',
    type: 'object',
    title: 'T',
    description: 'D',
    required: ['a'],
    additionalProperties: false,
    minProperties: 0,
    properties: {
      a: {
        type: 'string',
        pattern: '^a+$',
        minLength: 0,
        maxLength: 100,
        format: 'email',
        enum: ['a', 'b'],
        default: 'a',
      },
      b: { $ref: '#/$defs/thing' },
      c: { type: ['number', 'null'], minimum: 0, exclusiveMaximum: 10, multipleOf: 1 },
      d: { type: 'array', items: { type: 'string' }, minItems: 0, uniqueItems: true, contains: { type: 'string' } },
      e: { anyOf: [{ type: 'string' }, { not: { type: 'null' } }] },
      f: { type: 'string', nullable: true },
    },
    patternProperties: { '^x-': { type: 'string' } },
    dependentRequired: { a: ['b'] },
    $defs: { thing: { type: 'object', properties: { n: { type: 'integer' } } } },
  };
}

/** Every place in a value, the value itself last. */
function* placesOf(value: Json, at: readonly string[] = []): Generator<readonly string[]> {
  if (typeof value === 'object' && value !== null)
    for (const [key, child] of Object.entries(value as Readonly<Record<string, Json>>))
      yield* placesOf(child, [...at, key]);
  yield at;
}

function replaced(value: Json, [key, ...rest]: readonly string[], by: Json | undefined): Json {
  if (key === undefined) return by as Json;
  const copy = structuredClone(value) as Record<string, Json>;
  if (rest.length === 0 && by === undefined) delete copy[key];
  else copy[key] = replaced(copy[key] as Json, rest, by);
  return copy;
}

/** Each place of the rich definition replaced by each type, and left out, under a name of its own where the name is not what was replaced. */
function mutants(): readonly Json[] {
  const changed = [...placesOf(RICH)].flatMap((at) =>
    [...TYPES, ...(at.length === 0 ? [] : [undefined])].map((by) => ({ at, value: replaced(RICH, at, by) })),
  );
  return changed.map(({ at, value }, index) =>
    at.length === 0 || at[0] === 'name' ? value : { ...(value as Record<string, Json>), name: `m${index}` },
  );
}

/** A client over a list, as a client of Tollgate gets it. */
async function namesFor(client: ClientV1 | ClientV2, list: unknown): Promise<readonly string[]> {
  let hear: ((message: unknown) => void) | undefined;
  const answer = ({ method }: Message): unknown =>
    method === 'initialize'
      ? { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'tollgate', version: '1' } }
      : list;
  const transport = {
    start: () => Promise.resolve(),
    close: () => Promise.resolve(),
    send: (message: Message) => {
      if (message.id !== undefined)
        queueMicrotask(() => hear?.({ jsonrpc: '2.0', id: message.id, result: answer(message) }));
      return Promise.resolve();
    },
    set onmessage(listener: ((message: unknown) => void) | undefined) {
      hear = listener;
    },
  };
  await client.connect(transport as never);
  return (await client.listTools()).tools.map(({ name }) => name);
}

let folder: string;
const running: TestFacade[] = [];
beforeEach(() => (folder = mkdtempSync(path.join(tmpdir(), 'tollgate-definitions-'))));
afterEach(async () => {
  await Promise.all(running.splice(0).map((one) => one.close()));
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

const raw = (name: string): string =>
  server(['raw-server.mjs', path.join(folder, `${name}.json`), path.join(folder, `${name}.log`)]);
const define = (name: string, lists: readonly (readonly Json[])[]): void =>
  writeFileSync(path.join(folder, `${name}.json`), JSON.stringify({ lists, answers: { steady: { notify: true } } }));
const configOf = (workspace: string): string => `version: 1
workspace: ${workspace}
state: ./state
servers: {odd: ${raw('odd')}, even: ${raw('even')}}
principals: [{id: alice, stdio: true, owner: true}]
profiles: {default: {servers: [odd, even], expose: {tools: ["odd.*", "even.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`;

async function facade(): Promise<TestFacade> {
  const made = await startFacade(configOf('./workspace'), { folder });
  running.push(made);
  return made;
}

describe('definitions that do not fit the protocol', () => {
  it(
    'cost themselves alone: every other tool is listed and called, and both SDKs accept the list' +
      verifies('ST-50', 'ST-51'),
    async () => {
      define('odd', [[...mutants(), STEADY]]);
      define('even', [[STEADY]]);
      const one = await facade();
      const session = one.open('alice');
      const tools = await one.list(session);
      const names = tools.map(({ name }) => name);
      expect(names).toEqual(expect.arrayContaining(['odd_steady', 'even_steady']));
      // What fits is not lost with what does not.
      expect(names.length).toBeGreaterThan(400);
      for (const client of [new ClientV1({ name: 't', version: '1' }), new ClientV2({ name: 't', version: '1' })])
        expect(await namesFor(client, { tools })).toEqual(names);
      for (const name of names.filter((_, index) => index % 25 === 0 || index > names.length - 4))
        expect((await one.call(session, name, { a: 'a', b: {} })).code, name).not.toBe('INTERNAL');
      for (const name of ['odd_steady', 'even_steady']) expect((await one.call(session, name, {})).text).toBe('ok');
    },
  );

  it.each([
    ['description', 5, 'description: expected string, got number 5'],
    ['title', {}, 'title: expected string, got an object'],
    ['annotations', 5, 'annotations: expected object, got number 5'],
    ['icons', 5, 'icons: expected array, got number 5'],
    ['_meta', 5, '_meta: expected object, got number 5'],
    ['outputSchema', { type: 'array' }, 'outputSchema.type: expected "object", got string "array"'],
  ])(
    '%s: %j added while it runs is left out with its reason, and it is back when it is mended',
    async (key, value, reason) => {
      const bad = { name: 'bad', inputSchema: { type: 'object' }, [key]: value as Json };
      define('odd', [[STEADY]]);
      define('even', [[STEADY]]);
      const one = await facade();
      const session = one.open('alice');
      await one.list(session);
      const { adapter } = one.assembled.catalog.servers.get('odd')!;
      // Each call of it makes the server say that its list has changed.
      const listed = async (): Promise<unknown> => {
        const names = (await one.list(session)).map(({ name }) => name).filter((name) => name.includes('_'));
        return { names, unfit: adapter.health().unfit };
      };
      define('odd', [[bad, STEADY]]);
      expect((await one.call(session, 'odd_steady', {})).text).toBe('ok');
      await expect.poll(listed, { timeout: 10_000 }).toEqual({
        names: ['odd_steady', 'even_steady'],
        unfit: [{ tool: 'bad', reason: `DEFINITION_INVALID: ${reason}` }],
      });
      define('odd', [[{ name: 'bad', inputSchema: { type: 'object' } }, STEADY]]);
      expect((await one.call(session, 'odd_steady', {})).text).toBe('ok');
      await expect
        .poll(listed, { timeout: 10_000 })
        .toEqual({ names: ['odd_bad', 'odd_steady', 'even_steady'], unfit: undefined });
    },
  );

  it(
    'are shown by servers and by approve, with the reason, and nothing ends in INTERNAL' + verifies('ST-50'),
    async () => {
      const project = new Project();
      try {
        project.write('workspace/a.txt', 'a');
        define('odd', [
          [...mutants().slice(0, 60), { name: 'bad\u001b[8m', description: 5, inputSchema: {} }, STEADY].reverse(),
        ]);
        define('even', [[STEADY]]);
        project.write('tollgate.yaml', configOf('./workspace'));
        const { start } = dataOf<{ start: { hash: string } }>((await cli(project, ['approve', 'odd', '--json'])).out);
        const shown = await cli(project, ['approve', 'odd', '--own-isolation', '--yes', start.hash]);
        expect(`${shown.out}${shown.err}`).not.toContain('INTERNAL');
        expect(shown.out.replace(/\n +\| /g, '')).toContain(
          '! "bad?[8m" is in quarantine, whatever you answer: DEFINITION_INVALID: description: expected string, got number 5',
        );
        const { tools } = dataOf<{ tools: { hash: string } }>((await cli(project, ['approve', 'odd', '--json'])).out);
        expect((await cli(project, ['approve', 'odd', '--own-isolation', '--yes', start.hash, tools.hash])).code).toBe(
          0,
        );
        const { servers } = dataOf<{ servers: readonly Row[] }>((await cli(project, ['servers', '--json'])).out);
        expect(servers.find(({ name }) => name === 'odd')?.quarantined).toContainEqual({
          tool: 'bad?[8m',
          reason: 'DEFINITION_INVALID: description: expected string, got number 5',
        });
        const said = await cli(project, ['servers']);
        expect(`${said.out}${said.err}`).toContain('odd.bad?[8m is in quarantine: DEFINITION_INVALID');
      } finally {
        project.remove();
      }
    },
  );

  it('are told by the Tollgate that runs the server: servers starts no copy to know them', async () => {
    const project = new Project();
    define('odd', [[{ name: 'bad', title: 5, inputSchema: {} }, STEADY]]);
    define('even', [[STEADY]]);
    const one = await startFacade(configOf('./workspace'), { folder: project.folder });
    running.push(one);
    one.assembled.warmUp();
    await one.list(one.open('alice'));
    const rows = async (): Promise<readonly Row[]> =>
      dataOf<{ servers: readonly Row[] }>((await cli(project, ['servers', '--json'])).out).servers.filter(
        ({ name }) => name === 'odd',
      );
    await expect.poll(rows, { timeout: 20_000 }).toMatchObject([
      {
        state: 'healthy',
        processes: [{ pid: process.pid }],
        quarantined: [{ tool: 'bad', reason: 'DEFINITION_INVALID: title: expected string, got number 5' }],
      },
    ]);
    await running.pop()?.close();
    project.remove();
  });
});

describe('the shape of a definition', () => {
  it('is that of the protocol; what else it has is kept' + verifies('ST-50'), () => {
    expect(toolFault(RICH)).toBeUndefined();
    expect(toolFault({ name: 'x', inputSchema: {}, 'x-more': [1] } as unknown as RawTool)).toBeUndefined();
    for (const wrong of [null, 5, [], 'x', { name: 'x' }, { inputSchema: {} }, { name: 'x', inputSchema: true }])
      expect(toolFault(wrong), JSON.stringify(wrong)).toMatch(/^DEFINITION_INVALID: /);
    expect([
      promptFault({ name: 'x', arguments: [{ name: 'a', required: true }] }),
      promptFault({ name: 'x', arguments: [{ name: 5 }] }),
    ]).toEqual([undefined, 'DEFINITION_INVALID: arguments[0].name: expected string, got number 5']);
  });
});
