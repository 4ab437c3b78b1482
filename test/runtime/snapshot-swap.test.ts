/** Tests that a configuration is replaced as a whole: no call sees two, and nothing of the old one remains. */

import { rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parse as parseYaml } from 'yaml';
import type { Policy } from '../../policies/port.ts';
import { server } from '../cli/terminal.ts';
import { TIMES } from '../faults/fault-seed.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { configure, Reloadable, rules } from './edited-project.ts';

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;

let facade: Reloadable;
afterEach(() => facade.close());

/** The number of swaps in which each kind of swap comes up. */
const ROUND = roundsOf(400, 40);
/** `npm run faults` swaps more often. */
const SWAPS = ROUND * TIMES;
const STORY = server(['story-server.mjs']);

/** Revisions that differ in all that a call shows: the rule, the cap and the label. */
const REVISIONS = [
  { id: 'even', bytes: 1500, label: 'one' },
  { id: 'odd', bytes: 3000, label: 'two' },
] as const;

function revision(number: number): string {
  const { id, bytes, label } = REVISIONS[number % 2] ?? REVISIONS[0];
  return rules({
    id,
    outcome: 'allow',
    when: { verbs: ['read', 'write'] },
    obligations: { caps: { bytes }, labels: [label] },
  });
}

/** Settings of a server that need no new approval: its tools and labels. */
const CATALOGS = [
  { allow: ['echo'], label: 'public' },
  { allow: ['echo', 'count'], label: 'internal' },
] as const;

/** Returns the catalog of a swap. In the last quarter of a round, every twentieth of it changes the file of the server. */
function catalogOf(number: number): (typeof CATALOGS)[number] | undefined {
  return number < 0.75 * ROUND ? undefined : CATALOGS[Math.floor((20 * number) / ROUND) % 2];
}

function serverFile({ allow, label }: (typeof CATALOGS)[number]): string {
  return JSON.stringify({
    ...(parseYaml(STORY) as object),
    profiles: ['default'],
    semantics: { echo: 'read' },
    tools: { allow },
    labels: [label],
  });
}

/** Returns the rest of the configuration. Four swaps of a round change it, and two add or remove Rego. */
function surroundings(number: number): { readonly text: string; readonly bytes: number } {
  const quarter = Math.floor((4 * number) / ROUND);
  const afterRego = (number % ROUND) - 0.875 * ROUND;
  const rego = afterRego >= 0 && afterRego < 2;
  const bytes = quarter % 2 === 1 ? 2000 : 9000;
  const text = configure(
    `caps: {concurrent: 64, bytes: ${bytes}}\nprofiles: {default: {}, of${quarter % 3}: {schemaProfile: openai}}\n`,
  );
  return { text: rego ? text.replace('[rules.yaml]', '[rules.yaml, rego]') : text, bytes };
}

describe('many swaps under load', () => {
  inFull(
    'drop no decision and mix none: rule, cap, labels, catalog and revision of each call fit',
    async () => {
      const rego = 'package policy.a\n\ndeny contains {"id": "r", "message": "No."} if input.effect.arguments.no\n';
      facade = new Reloadable({
        'tollgate.yaml': surroundings(0).text,
        'rego/a.rego': rego,
        'rules.yaml': revision(0),
        'servers/story.yaml': serverFile(CATALOGS[0]),
        'workspace/long.txt': 'x'.repeat(10_000),
      });
      await facade.approve();
      rmSync(facade.at('servers/story.yaml'));
      await facade.start();
      const sessions = Array.from({ length: 2 }, () => facade.open('local'));
      /** By revision: the rule, the cap and the catalog. */
      const known = new Map<
        string,
        { readonly which: number; readonly cap: number; readonly catalog: ReturnType<typeof catalogOf> }
      >();
      const note = (number: number): void =>
        void known.set(facade.assembled.deps.policy().revision, {
          which: number % 2,
          cap: surroundings(number).bytes,
          catalog: catalogOf(number),
        });
      const policies: WeakRef<Policy>[] = [];
      const answers: Awaited<ReturnType<Reloadable['call']>>[] = [];
      let [swapping, catalog] = [true, catalogOf(0)];
      const load = sessions.map(async (session) => {
        while (swapping) {
          answers.push(
            ...(await Promise.all([
              facade.call(session, 'read', { path: 'long.txt' }),
              catalog === undefined
                ? facade.call(session, 'read', { path: 'long.txt' })
                : facade.call(session, 'story_echo', { text: 'x'.repeat(10_000) }),
            ])),
          );
          await sleep(5);
        }
      });
      for (let number = 0; number < SWAPS; number += 1) {
        note(number);
        facade.write('rules.yaml', revision(number + 1));
        const { text } = surroundings(number + 1);
        if (text !== surroundings(number).text) facade.write('tollgate.yaml', text);
        const next = catalogOf(number + 1);
        if (next !== undefined && next !== catalog) facade.write('servers/story.yaml', serverFile(next));
        await facade.reload();
        // Waits for the start of the server. Each swap decides a call to it, however slowly the load runs.
        if (next !== undefined)
          answers.push(
            ...(await Promise.all(sessions.map((session) => facade.call(session, 'story_echo', { text: 'x' })))),
          );
        catalog = next;
        policies.push(new WeakRef(facade.assembled.deps.policy()));
      }
      swapping = false;
      await Promise.all(load);

      note(SWAPS);
      expect(known.size).toBeGreaterThan(8 * TIMES);
      expect(answers.length).toBeGreaterThan(SWAPS / 4);
      expect(answers.filter(({ code }) => code !== '')).toEqual([]);
      for (const { text, meta } of answers) {
        const which = REVISIONS.find(({ label }) => (meta['tollgate/labels'] as readonly string[]).includes(label));
        // The revision of the label must also be that of the cap. The note on the cut does not count.
        const bytes = Buffer.byteLength(text.replace(/\n\[tollgate: [^\n]*\]$/, ''));
        if (text !== 'x') expect([which?.id, bytes > 1500]).toEqual([which?.id, which?.id === 'odd']);
        expect(bytes).toBeLessThanOrEqual(which?.bytes ?? 0);
      }
      const intents = facade.records('intent');
      expect(intents).toHaveLength(answers.length);
      expect(facade.records('outcome')).toHaveLength(answers.length);
      const seen = new Set(
        intents.map(({ reasons, obligations, server: called, verb, revision: recorded }) => {
          const {
            which: number,
            cap,
            catalog,
          } = known.get(String(recorded)) ?? { which: -1, cap: 0, catalog: undefined };
          const which = REVISIONS[number];
          const own = called === 'story' ? { verb: 'read', labels: [catalog?.label] } : { verb: 'read', labels: [] };
          expect({ verb, reasons, obligations }).toMatchObject({
            verb: own.verb,
            reasons: [{ id: which?.id }],
            obligations: { bytes: Math.min(cap, which?.bytes ?? 0), labels: [...own.labels, which?.label].sort() },
          });
          return [which?.id, own.verb, ...own.labels].join(' ');
        }),
      );
      expect([...seen].sort()).toEqual([
        'even read',
        'even read internal',
        'even read public',
        'odd read',
        'odd read internal',
        'odd read public',
      ]);
      expect(facade.records('config').filter(({ event }) => event === 'reloaded')).toHaveLength(SWAPS);

      expect(facade.assembled.gateway.snapshotCount).toBe(1);
      for (let tries = 0; tries < 500 && alive(policies) > 2; tries += 1) {
        await sleep(20);
        gc();
      }
      expect(alive(policies)).toBeLessThanOrEqual(2);
    },
    180_000 * TIMES,
  );

  it('end the workers of replaced Rego, and answer every call', async () => {
    const rego = (number: number): string =>
      `package policy.a\n\nallow contains {"id": "r${number % 3}", "message": "It is."} if input.effect.verb ` +
      '== "read"\n';
    facade = await new Reloadable({
      'tollgate.yaml': configure().replace('rules.yaml', 'rego'),
      'rego/a.rego': rego(0),
      'workspace/a.txt': 'a',
    }).start();
    const session = facade.open('local');
    const before = workers();
    const calls: Promise<Awaited<ReturnType<Reloadable['call']>>>[] = [];
    for (let number = 1; number <= roundsOf(8, 3); number += 1) {
      facade.write('rego/a.rego', rego(number));
      calls.push(...Array.from({ length: 5 }, () => facade.call(session, 'read', { path: 'a.txt' })));
      await facade.reload();
    }
    expect((await Promise.all(calls)).map(({ text, code }) => [text, code])).toEqual(calls.map(() => ['a', '']));
    // Fewer if a worker of an earlier test has ended meanwhile.
    await expect.poll(workers, { timeout: 20_000 }).toBeLessThanOrEqual(before);
    expect(facade.assembled.gateway.snapshotCount).toBe(1);
  }, 120_000);
});

function alive(policies: readonly WeakRef<Policy>[]): number {
  return policies.filter((policy) => policy.deref() !== undefined).length;
}

function workers(): number {
  return process.getActiveResourcesInfo().filter((name) => name === 'Worker' || name === 'MessagePort').length;
}

it('reloads run one after the other, and the last one is in force', async () => {
  facade = await new Reloadable({ 'tollgate.yaml': configure(), 'rules.yaml': revision(0) }).start();
  const configs = Array.from({ length: 6 }, (_, number) => {
    facade.write('tollgate.yaml', configure(`caps: {bytes: ${2000 + number}}\n`));
    return facade.read();
  });
  await Promise.all(configs.map((config) => facade.assembled.reload(() => config, false)));
  expect(facade.assembled.config).toBe(configs.at(-1));
  await expect.poll(() => facade.assembled.gateway.snapshotCount).toBe(1);
});

describe('a running call', () => {
  const CONFIG = configure(
    `bash: {isolation: direct}
servers: {story: ${STORY}}
profiles: {default: {servers: [story], expose: {primitives: workspace, tools: ["story.*"]}}}
`,
  );

  beforeEach(async () => {
    facade = await new Reloadable({
      'tollgate.yaml': CONFIG,
      'rules.yaml': rules({ id: 'before', outcome: 'allow', when: {} }),
    }).start();
  });

  it('keeps its snapshot, which closes when the call ends', async () => {
    const session = facade.open('local');
    const old = facade.assembled.gateway.snapshot;
    const slow = facade.call(session, 'bash', { command: 'until [ -e go ]; do sleep 0.05; done; echo done' });
    await expect.poll(() => facade.records('intent')).toHaveLength(1);
    facade.write('rules.yaml', rules({ id: 'after', outcome: 'deny', message: 'No more.', when: {} }));
    await facade.reload();
    expect(facade.assembled.gateway.snapshotCount).toBe(2);
    expect(await facade.call(session, 'bash', { command: 'echo x' })).toMatchObject({ code: 'UNKNOWN_TOOL' });
    facade.write('workspace/go', '');
    expect((await slow).text).toContain('done');
    expect(facade.records('outcome')).toMatchObject([
      { revision: old.policy.revision, reasons: [{ id: 'before' }], executed: 'yes' },
    ]);
    await expect.poll(() => facade.assembled.gateway.snapshotCount).toBe(1);
  });

  it('keeps its server and its shell session if other settings change', async () => {
    const session = facade.open('local');
    const pid = (
      await facade.call(session, 'bash', { action: 'start', session: 's', command: 'echo $$; cat', wait_ms: 300 })
    ).text;
    await facade.list(session);
    const { adapter } = facade.assembled.catalog.servers.get('story') ?? {};
    const entries = facade.assembled.catalog.entries('story');
    expect(entries.length).toBeGreaterThan(0);
    facade.write('tollgate.yaml', CONFIG.replace('policies:', 'caps: {bytes: 9000}\npolicies:'));
    await facade.reload();
    expect(facade.assembled.catalog.servers.get('story')?.adapter).toBe(adapter);
    expect(adapter?.health().state).toBe('healthy');
    expect(facade.assembled.deps.capsOf(session.principal).bytes).toBe(9000);
    expect((await facade.call(session, 'bash', { action: 'list' })).text).toContain('s');
    expect(pid).not.toBe('');
    // The tool list is carried over, so the server is not asked again.
    expect(facade.assembled.catalog.entries('story')).toBe(entries);
  });

  it('ends with its server if that is removed; a new server starts at its first call', async () => {
    const session = facade.open('local');
    expect(await facade.list(session)).toContain('story_echo');
    const { adapter } = facade.assembled.catalog.servers.get('story') ?? {};
    facade.write('tollgate.yaml', configure());
    await facade.reload();
    expect(await facade.list(session)).not.toContain('story_echo');
    await expect.poll(() => adapter?.health().state, { timeout: 20_000 }).not.toBe('healthy');
    facade.write('tollgate.yaml', CONFIG);
    await facade.reload();
    expect(await facade.list(session)).toContain('story_echo');
    expect(facade.assembled.catalog.servers.get('story')?.adapter).not.toBe(adapter);
  });

  it('keeps its workspace; the next call uses the new one, and old shells end with their last call', async () => {
    facade.write('other/here.txt', 'the other');
    const session = facade.open('local');
    const before = facade.assembled.catalog.servers.get('workspace')?.adapter;
    facade.write('tollgate.yaml', CONFIG.replace('./workspace', './other'));
    await facade.reload();
    expect((await facade.call(session, 'read', { path: 'here.txt' })).text).toBe('the other');
    expect(facade.assembled.catalog.servers.get('workspace')?.adapter).not.toBe(before);
  });
});
