/**
 * Tests the stream of events for hosts: their content and ids, who may listen, where a listener continues, and what is
 * kept.
 * Covers: facade/serve/host.
 */

import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadConfig } from '../../facade/config/load-config.ts';
import { EventFeed } from '../../facade/serve/host/event-feed.ts';
import { OPENAPI_FILE } from '../../facade/serve/host/host-api-description.ts';
import { verifies } from '../verifies.ts';
import { type Heard, Listener } from './event-listener.ts';
import { type HostBench, hostConfig, startHost, TOKENS } from './host-bench.ts';

const { Ajv2020 } = createRequire(import.meta.url)('ajv/dist/2020.js') as typeof import('ajv/dist/2020.js');
const { components } = JSON.parse(readFileSync(OPENAPI_FILE, 'utf8')) as { components: { schemas: { Event: object } } };
const fits = new Ajv2020({ strict: false, validateFormats: false }).compile(components.schemas.Event);

describe('the events of servers', () => {
  let bench: HostBench;
  beforeAll(async () => {
    bench = await startHost(hostConfig().replace('id: host, profiles: [reach, harbor]', 'id: host, profiles: [reach]'));
  });
  afterAll(() => bench.close());

  it(
    'reach hosts at once, with ids of connections and decisions, and without texts of servers' +
      verifies('HE-05', 'HB-09'),
    async () => {
      const listener = await Listener.open(bench);
      await bench.ask('POST /calls', { name: 'chaos_echo', arguments: { say: 'a-word-of-the-call' } });
      await bench.ask('POST /calls', { name: 'chaos_crash', arguments: {} });
      await expect
        .poll(() => listener.words, { timeout: 20_000 })
        .toEqual(expect.arrayContaining(['started', 'tools.discovered', 'tool.completed', 'crashed', 'tool.failed']));
      for (const { key: _, ...event } of listener.heard) expect([event, fits(event)]).toEqual([event, true]);
      const one = (word: string): Heard | undefined => listener.heard.find(({ event }) => event === word);
      expect(one('started')?.id).toBe(one('crashed')?.id);
      expect(one('tools.discovered')).toMatchObject({
        server: 'chaos',
        tools: 29,
        names: { added: expect.arrayContaining(['echo', 'crash']) },
      });
      const calls = bench.facade.records().filter(({ type }) => type === 'outcome');
      expect(calls.map(({ id }) => id)).toEqual(
        expect.arrayContaining([one('tool.completed')?.id, one('tool.failed')?.id]),
      );
      expect(JSON.stringify(listener.heard)).not.toContain('a-word-of-the-call');
      // Another host continues where this one ended.
      const later = await Listener.open(bench, one('tool.completed')?.key);
      await expect.poll(() => later.words).toEqual(listener.words.slice(listener.words.indexOf('tool.completed') + 1));
      // A new listener gets only new events.
      const fresh = await Listener.open(bench);
      expect(fresh.heard).toEqual([]);
      for (const each of [listener, later, fresh]) each.stop();
    },
  );

  it('are for owners, and for sixteen listeners at once', async () => {
    expect(await bench.ask('GET /events', undefined, { token: TOKENS.alice })).toMatchObject({
      status: 403,
      value: { error: { code: 'IDENTITY' } },
    });
    expect(await bench.ask('GET /events?after=1')).toMatchObject({ status: 400 });
    const all = await Promise.all(Array.from({ length: 16 }, () => Listener.open(bench)));
    expect(await bench.ask('GET /events')).toMatchObject({ status: 429, value: { error: { code: 'RATE_LIMITED' } } });
    for (const one of all) one.stop();
    await expect
      .poll(
        async () =>
          Listener.open(bench).then(
            (one) => one.stop(),
            () => 'refused',
          ),
        { timeout: 20_000 },
      )
      .toBeUndefined();
  });

  it('end when the host is no longer an owner, and when Tollgate stops', async () => {
    const other = await startHost();
    const { folder, assembled } = other.facade;
    const unseated = await Listener.open(other);
    const file = path.join(folder, 'tollgate.yaml');
    const change = async (from: string, to: string): Promise<void> => {
      writeFileSync(file, readFileSync(file, 'utf8').replace(from, to));
      const env = { ...process.env, HOST_TOKEN: TOKENS.host, ALICE_TOKEN: TOKENS.alice, CHAOS_STARTS: '/dev/null' };
      await assembled.reload(() => loadConfig(file, { env, home: '/home/nobody-at-all' }), false);
    };
    await change(', owner: true', '');
    assembled.feed.note({ event: 'stopped', server: 'chaos', id: 'x' });
    await unseated.ended;
    expect(unseated.heard).toEqual([]);
    await change('token: "${env:HOST_TOKEN}"', 'token: "${env:HOST_TOKEN}", owner: true');
    const listener = await Listener.open(other);
    await other.close();
    await listener.ended;
    expect(listener.heard).toEqual([]);
  });
});

describe('the event feed', () => {
  it('keeps the last thousand events, and starts from the oldest for an id of another process', () => {
    let now = 1000;
    const feed = new EventFeed(() => (now += 1));
    const read = (place: number): readonly number[] => {
      const found: number[] = [];
      for (let next = feed.next(place); next !== undefined; next = feed.next(next.seq)) found.push(next.seq);
      return found;
    };
    expect([feed.placeAfter(undefined), read(0)]).toEqual([0, []]);
    for (let count = 1; count <= 1500; count += 1) feed.note({ event: 'stopped', server: 'one', id: String(count) });
    expect([read(0).length, read(0)[0], read(1499), read(1500)]).toEqual([1000, 501, [1500], []]);
    const last = feed.next(1499);
    expect(JSON.parse(last?.text ?? '')).toEqual({
      at: '1970-01-01T00:00:02.501Z',
      event: 'stopped',
      server: 'one',
      id: '1500',
    });
    expect([
      feed.placeAfter(last?.id),
      feed.placeAfter(undefined),
      feed.placeAfter('other-7'),
      feed.placeAfter('nonsense'),
      feed.placeAfter(`${last?.id}0`),
    ]).toEqual([1500, 1500, 0, 0, 1500]);
  });

  it(
    'has at most a hundred tool names in an event, short, without secrets and control characters' + verifies('ST-75'),
    () => {
      const feed = new EventFeed(
        () => 0,
        (text) => text.replaceAll('secret-value', '[redacted]'),
      );
      feed.note({
        event: 'tools.discovered',
        server: 'one',
        id: 'x',
        tools: ['x\u001b[2Jsecret-value', 'y'.repeat(1000), ...Array.from({ length: 200 }, (_, at) => `tool-${at}`)],
      });
      const { tools, names } = JSON.parse(feed.next(0)?.text ?? '') as { tools: number; names: { added: string[] } };
      expect([tools, names.added.length, names.added[1]?.length]).toEqual([202, 100, 128]);
      expect(names.added[0]).toMatch(/^x[^\u001b]*\[redacted\]$/);
    },
  );

  it('counts lists by their length, and calls each listener until it stops' + verifies('ST-75', 'HE-14'), () => {
    const feed = new EventFeed(() => 0);
    let told = 0;
    const stop = feed.listen(() => (told += 1));
    feed.note({
      event: 'tools.refreshed',
      server: 'one',
      id: 'x',
      added: ['of-the-server'],
      removed: [],
      changed: ['a', 'b'],
      unchanged: 4,
    });
    stop();
    feed.note({ event: 'stopped', server: 'one', id: 'x' });
    expect([told, JSON.parse(feed.next(0)?.text ?? '')]).toEqual([
      1,
      {
        at: '1970-01-01T00:00:00.000Z',
        event: 'tools.refreshed',
        server: 'one',
        id: 'x',
        added: 1,
        removed: 0,
        changed: 2,
        unchanged: 4,
        names: { added: ['of-the-server'], changed: ['a', 'b'] },
      },
    ]);
  });
});
