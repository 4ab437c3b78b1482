/** Tests definitions that do not match the protocol: they are left out, and all other tools work in both SDKs. */

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
import { inFull } from '../harness/full-tests.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };
type Message = { readonly id?: unknown; readonly method?: string };
type Row = {
  readonly name: string;
  readonly quarantined: readonly { readonly tool: string; readonly reason: string }[];
};

/** A definition with every member of the protocol, and with schema keywords that compilers often fail on. */
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

/** Yields the path of every member of a value, and last the path of the value itself. */
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

/** Returns the rich definition with members replaced by other types, and without them. Each has its own name. */
function mutants(most: number): readonly Json[] {
  const changed = [...placesOf(RICH)].flatMap((at) =>
    [...TYPES, ...(at.length === 0 ? [] : [undefined])].map((by) => ({ at, value: replaced(RICH, at, by) })),
  );
  return partOf(changed, most).map(({ at, value }, index) =>
    at.length === 0 || at[0] === 'name' ? value : { ...(value as Record<string, Json>), name: `m${index}` },
  );
}

/** Returns the names that a client of an SDK reads from a list of Tollgate. */
async function namesFor(client: ClientV1 | ClientV2, list: unknown): Promise<readonly string[]> {
  let onMessage: ((message: unknown) => void) | undefined;
  const answer = ({ method }: Message): unknown =>
    method === 'initialize'
      ? { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'tollgate', version: '1' } }
      : list;
  const transport = {
    start: () => Promise.resolve(),
    close: () => Promise.resolve(),
    send: (message: Message) => {
      if (message.id !== undefined)
        queueMicrotask(() => onMessage?.({ jsonrpc: '2.0', id: message.id, result: answer(message) }));
      return Promise.resolve();
    },
    set onmessage(listener: ((message: unknown) => void) | undefined) {
      onMessage = listener;
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
  const started = await startFacade(configOf('./workspace'), { folder });
  running.push(started);
  return started;
}

describe('definitions that do not match the protocol', () => {
  inFull(
    'are left out, while every other tool is listed and can be called, and both SDKs accept the list' +
      verifies('ST-50', 'ST-51'),
    async () => {
      define('odd', [[...mutants(300), STEADY]]);
      define('even', [[STEADY]]);
      const one = await facade();
      const session = one.open('alice');
      const tools = await one.list(session);
      const names = tools.map(({ name }) => name);
      expect(names).toEqual(expect.arrayContaining(['odd_steady', 'even_steady']));
      // Valid definitions are not left out with invalid ones.
      expect(names.length).toBeGreaterThan(roundsOf(400, 100));
      for (const client of [new ClientV1({ name: 't', version: '1' }), new ClientV2({ name: 't', version: '1' })])
        expect(await namesFor(client, { tools })).toEqual(names);
      for (const name of names.filter((_, index) => index % 25 === 0 || index > names.length - 4))
        expect((await one.call(session, name, { a: 'a', b: {} })).code, name).not.toBe('INTERNAL');
      for (const name of ['odd_steady', 'even_steady']) expect((await one.call(session, name, {})).text).toBe('ok');
    },
  );

  const BAD: readonly (readonly [key: string, value: Json, reason: string])[] = [
    ['description', 5, 'description: expected string, got number 5'],
    ['title', {}, 'title: expected string, got an object'],
    ['annotations', 5, 'annotations: expected object, got number 5'],
    ['icons', 5, 'icons: expected array, got number 5'],
    ['_meta', 5, '_meta: expected object, got number 5'],
    ['outputSchema', { type: 'array' }, 'outputSchema.type: expected "object", got string "array"'],
  ];

  it('are left out with a reason while the server runs, and listed again when they are fixed', async () => {
    define('odd', [[STEADY]]);
    define('even', [[STEADY]]);
    const one = await facade();
    const session = one.open('alice');
    await one.list(session);
    const { adapter } = one.assembled.catalog.servers.get('odd')!;
    // Each call makes the server send list_changed.
    const listed = async (): Promise<unknown> => {
      const names = (await one.list(session)).map(({ name }) => name).filter((name) => name.includes('_'));
      return { names, unfit: adapter.health().unfit };
    };
    const good = BAD.map(([key]) => ({ name: `bad-${key}`, inputSchema: { type: 'object' } }));
    define('odd', [[...BAD.map(([key, value], at) => ({ ...good[at], [key]: value })), STEADY]]);
    expect((await one.call(session, 'odd_steady', {})).text).toBe('ok');
    await expect.poll(listed, { timeout: 20_000 }).toEqual({
      names: ['odd_steady', 'even_steady'],
      unfit: BAD.map(([key, , reason]) => ({ tool: `bad-${key}`, reason: `DEFINITION_INVALID: ${reason}` })),
    });
    define('odd', [[...good, STEADY]]);
    expect((await one.call(session, 'odd_steady', {})).text).toBe('ok');
    await expect.poll(listed, { timeout: 20_000 }).toEqual({
      names: [...good.map(({ name }) => `odd_${name}`), 'odd_steady', 'even_steady'],
      unfit: undefined,
    });
  });

  inFull(
    'are shown with their reason by servers and approve, without an INTERNAL error' + verifies('ST-50'),
    async () => {
      const project = new Project();
      try {
        project.write('workspace/a.txt', 'a');
        define('odd', [
          [...mutants(600).slice(0, 60), { name: 'bad\u001b[8m', description: 5, inputSchema: {} }, STEADY].reverse(),
        ]);
        define('even', [[STEADY]]);
        project.write('tollgate.yaml', configOf('./workspace'));
        const { start } = dataOf<{ start: { hash: string } }>((await cli(project, ['approve', 'odd', '--json'])).out);
        const shown = await cli(project, ['approve', 'odd', '--own-isolation', '--yes', start.hash]);
        expect(`${shown.out}${shown.err}`).not.toContain('INTERNAL');
        expect(shown.out.replace(/\n +\| /g, '')).toContain(
          '! "bad?[8m" is in quarantine, whatever you answer: ' +
            'DEFINITION_INVALID: description: expected string, got number 5',
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
        const listed = await cli(project, ['servers']);
        expect(`${listed.out}${listed.err}`).toContain('odd.bad?[8m is in quarantine: DEFINITION_INVALID');
      } finally {
        project.remove();
      }
    },
  );

  inFull('are reported by the Tollgate that runs the server, so that servers does not start a copy', async () => {
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

describe('toolFault and promptFault', () => {
  it('accept what the protocol allows, and additional members' + verifies('ST-50'), () => {
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
