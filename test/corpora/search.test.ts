/** Measures the search for tools with the catalogs of real servers: the bytes of a list, and how often it is right. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { parse } from 'yaml';
import { joinText } from '../../adapters/rpc/wire-message.ts';
import { exposedName } from '../../catalogs/tools/exposed-names.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { allow, type RawFacade, type RawServer, startRaw } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';
import { readCatalogs, serverNameOf } from './corpus.ts';

interface SearchQuery {
  readonly task: string;
  readonly query: string;
  /** `file.tool`, for each tool that would do. */
  readonly answers: readonly string[];
}

const catalogs = readCatalogs();
const FILE = path.join(import.meta.dirname, 'search-queries.yaml');
/** The queries whose tools are in this folder of catalogs: all of them, or none in another folder. */
const queries = (parse(readFileSync(FILE, 'utf8')) as readonly SearchQuery[]).filter(({ answers }) =>
  answers.some((answer) => catalogs.has(serverNameOf(answer.slice(0, answer.indexOf('.'))))),
);
/** Tools that are searched by their own names. */
const NAMED = 100;
const PRIMITIVES = { read: 'workspace', write: 'workspace', edit: 'workspace', bash: 'workspace' };
/** First results → the least part of the queries that must have a right tool among them. */
const LEAST = new Map([
  [5, 0.7],
  [10, 0.79],
]);

/** Returns the shown name of an answer. */
function shownName(answer: string): string {
  const at = answer.indexOf('.');
  return exposedName(serverNameOf(answer.slice(0, at)), answer.slice(at + 1));
}

describe('all tools of real servers behind search', () => {
  let facade: RawFacade;
  let session: Session;
  beforeAll(async () => {
    const servers = Object.fromEntries([...catalogs].map(([name, tools]): [string, RawServer] => [name, { tools }]));
    const names = Object.keys(servers);
    facade = await startRaw(servers, {
      limits: { servers: catalogs.size + 2, connections: catalogs.size },
      rules: [allow('workspace', ...names)],
      profiles: {
        all: {
          servers: names,
          expose: { primitives: PRIMITIVES, tools: names.map((name) => `${name}.*`), search: true },
        },
      },
    });
    session = facade.open('me');
    const { catalog } = facade.assembled;
    await vi.waitFor(
      async () => {
        await facade.list(session);
        expect(names.filter((server) => catalog.entries(server).length === 0)).toEqual([]);
      },
      { timeout: 100_000, interval: 250 },
    );
  }, 120_000);
  afterAll(() => facade.close());

  it('have a list of at most 6,000 bytes with the four primitives' + verifies('CM-07'), async () => {
    const { gateway } = facade.assembled;
    const reply = await gateway.list(session, 'tools/list', session.closed);
    const bytes = Buffer.byteLength(reply.kind === 'result' ? joinText(reply.text) : '');
    console.log(`search: tools/list has ${bytes} bytes`);
    expect(bytes).toBeLessThanOrEqual(6_000);
    expect(Object.keys(PRIMITIVES)).toEqual(
      (await facade.list(session)).map(({ name }) => name).filter((name) => Object.hasOwn(PRIMITIVES, name)),
    );
  });

  /** Returns the shown names that a query finds, best first. */
  const find = async (query: string): Promise<readonly string[]> => {
    const { text } = await facade.call(session, 'find_tools', { query });
    const [, ...lines] = text.split('\n');
    return lines.map((line) => line.split(' ', 1)[0] ?? '');
  };

  it('are found by their own names' + verifies('CM-08'), async () => {
    const all = [...catalogs].flatMap(([server, tools]) => tools.map(({ name }) => ({ server, name })));
    const step = Math.ceil(all.length / NAMED);
    const asked = all.filter((_, at) => at % step === 0);
    const missed: string[] = [];
    for (const { server, name } of asked)
      if (!(await find(`${server} ${name}`)).includes(exposedName(server, name))) missed.push(`${server}.${name}`);
    // Not all: a server has up to thirty tools whose names share all their words.
    expect(missed.length, missed.join(', ')).toBeLessThanOrEqual(asked.length / 20);
  });

  it.each(queries.length === 0 ? [] : [queries.length])(
    `are found by most of %i queries of people who do not know the names${verifies('CM-08')}`,
    async () => {
      const ranks: { readonly one: SearchQuery; readonly rank: number }[] = [];
      for (const one of queries) {
        const found = await find(one.query);
        const wanted = new Set(one.answers.map(shownName));
        ranks.push({ one, rank: found.findIndex((name) => wanted.has(name)) });
      }
      const recall = (first: number, part = ranks): number =>
        part.filter(({ rank }) => rank !== -1 && rank < first).length / part.length;
      // Weights and words were chosen with the queries of even places only.
      const halves = [0, 1].map((half) =>
        recall(
          5,
          ranks.filter((_, at) => at % 2 === half),
        ),
      );
      console.log(`search: recall@5 ${halves[0]} in the half for tuning, ${halves[1]} in the other one`);
      console.log(`search: ${[1, 3, 5, 10].map((first) => `recall@${first} ${recall(first)}`).join(', ')}`);
      console.log(
        ranks.flatMap(({ one, rank }) => (rank === -1 || rank >= 5 ? [`  missed: ${one.query}`] : [])).join('\n'),
      );
      for (const [first, least] of LEAST) expect(recall(first), `recall@${first}`).toBeGreaterThanOrEqual(least);
    },
  );
});
