/** Tests that a server whose start or tools differ from its approval is on the list, with one record for each change. */
import { createHash } from 'node:crypto';
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { listAttention, MOST_OF_KIND } from '../../facade/attention/attention-list.ts';
import { type AttentionParts, attentionSources } from '../../facade/attention/attention-sources.ts';
import { type ClientRoots, rootsAt } from '../../facade/clients/client-places.ts';
import { type Answer, dataOf, start } from '../cli/terminal.ts';
import { withConsents } from '../consent/consent-facade.ts';
import { scriptedServer } from '../consent/scripted-server.ts';
import { ACT, startRaw, tool } from '../properties/raw-facade.ts';
import { type Recorded, startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

let folder: string;
let script: string;
let facade: TestFacade;

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-changed-'));
  script = path.join(folder, 'notes-server.mjs');
  writeFileSync(script, scriptedServer({ 'tools/list': { tools: [tool('add')] } }));
});
afterEach(async () => {
  await facade.close();
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

const configOf = (servers: readonly string[]): string =>
  JSON.stringify({
    version: 1,
    workspace: './workspace',
    state: './state',
    limits: { servers: 64, connections: 32 },
    servers: Object.fromEntries(
      servers.map((name) => [
        name,
        { command: process.execPath, args: [script], isolation: 'direct', env: { A_KEY: 'hunter22' } },
      ]),
    ),
    principals: [{ id: 'me', profiles: ['all'], stdio: true }],
    profiles: { all: { servers, expose: { primitives: {}, tools: servers.map((name) => `${name}.*`) } } },
    rules: [{ id: 'all', outcome: 'allow', when: { servers } }],
  });
const shaOf = (file: string): string => createHash('sha256').update(readFileSync(file)).digest('hex');
const changedRecords = (): readonly Recorded[] => facade.records().filter(({ event }) => event === 'changed');
const items = async (kind: string) => (await facade.assembled.attention()).filter((one) => one.kind === kind);
/** What `status` and the console list, in a process without servers. */
const seenByOthers = async () =>
  withConsents(facade.assembled.config, async (consents, state) => {
    const parts: AttentionParts = { config: facade.assembled.config, state, consents, now: Date.now, readsFiles: true };
    const found = await Promise.all(attentionSources(parts).map(({ find }) => find()));
    return found.flat().filter(({ kind }) => kind === 'server-changed');
  });

describe('a server whose script changed after its approval' + verifies('AD-120', 'AD-121'), () => {
  it('is on the list from the first refused call on, with one record of what changed', async () => {
    facade = await startFacade(configOf(['notes']), { folder });
    const before = shaOf(script);
    appendFileSync(script, '// other');
    // A process that lists often does not read the files. A person who asks does.
    expect(await items('server-changed')).toEqual([]);
    expect(await seenByOthers()).toMatchObject([
      { subject: 'notes', title: expect.stringContaining(': notes-server') },
    ]);
    const session = facade.open('me');
    for (let call = 0; call < 3; call += 1) {
      const { code, text } = await facade.call(session, 'notes_add', {});
      expect([code, text]).toEqual([
        'SERVER_UNAVAILABLE',
        'Server "notes" waits for its owner, because it changed: a file that it runs differs from what was approved.\n' +
          'The owner reviews the change and approves it with `tollgate approve notes`.',
      ]);
    }
    expect(facade.callRecords().map(({ code, refusal }) => [code, refusal])).toEqual([
      ...Array.from({ length: 3 }, () => ['SERVER_UNAVAILABLE', 'changed']),
    ]);
    const [item] = await items('server-changed');
    expect(item).toMatchObject({
      subject: 'notes',
      rank: 3,
      title: 'notes changed since it was approved: notes-server.mjs',
      detail: `notes-server.mjs changed: sha256 ${before.slice(0, 12)} -> ${shaOf(script).slice(0, 12)}`,
      next: 'tollgate approve notes',
      since: expect.stringMatching(/^20/),
    });
    expect(changedRecords()).toMatchObject([
      {
        type: 'server',
        server: 'notes',
        outcome: 'deny',
        changes: [{ what: 'notes-server.mjs', was: before, is: shaOf(script) }],
      },
    ]);
    // Another change within a minute changes the item, and its id and the number of records stay.
    appendFileSync(script, '// and another');
    await facade.call(session, 'notes_add', {});
    const [again] = await items('server-changed');
    expect(again).toMatchObject({ id: item?.id, since: item?.since });
    expect(again?.detail).toContain(shaOf(script).slice(0, 12));
    expect(changedRecords()).toHaveLength(1);
    expect(JSON.stringify([item, changedRecords()])).not.toContain(folder);
  });

  it('is on the list after a start without a call, and leaves it when it is approved or restored', async () => {
    facade = await startFacade(configOf(['notes']), { folder });
    const text = readFileSync(script, 'utf8');
    appendFileSync(script, '// other');
    facade.assembled.warmUp();
    await facade.list(facade.open('me'));
    await expect.poll(() => items('server-changed'), { timeout: 20_000 }).toHaveLength(1);
    writeFileSync(script, text);
    expect(await items('server-changed')).toEqual([]);
    appendFileSync(script, '// other');
    expect(await items('server-changed')).toHaveLength(1);
    await withConsents(facade.assembled.config, async (consents) => {
      const facts = await consents.factsOf(facade.assembled.config.servers.get('notes')!);
      await consents.approveStart({ facts, by: 'boss', at: new Date().toISOString() });
    });
    await facade.assembled.state.refresh();
    expect(await items('server-changed')).toEqual([]);
    expect(await items('server-unapproved')).toHaveLength(1);
  });

  it('names settings without their values', async () => {
    facade = await startFacade(configOf(['notes']), { folder });
    await withConsents(facade.assembled.config, async (consents) => {
      const server = facade.assembled.config.servers.get('notes')!;
      const facts = await consents.factsOf({
        ...server,
        args: [...server.args, 'old-arg'],
        env: { A_KEY: 'hunter21' },
      });
      const start = await consents.approveStart({ facts, by: 'boss', at: '' });
      await consents.approveAnyTools('notes', { start, hints: false, by: 'boss', at: '' });
    });
    await facade.call(facade.open('me'), 'notes_add', {});
    expect(changedRecords()).toMatchObject([{ changes: [{ what: 'args[1]' }, { what: 'env.A_KEY' }] }]);
    expect((await items('server-changed'))[0]?.detail).toBe('args[1] differs; env.A_KEY differs');
    expect(JSON.stringify(facade.records())).not.toMatch(/hunter2|old-arg/);
  });
});

describe('the list of servers' + verifies('AD-125'), () => {
  it('says why a changed or killed server cannot be used, also if it starts nothing', async () => {
    facade = await startFacade(configOf(['notes']), { folder });
    appendFileSync(script, '// other');
    const run = (words: readonly string[]): Promise<Answer> => start({ folder, home: folder }, words).ended;
    const row = async (): Promise<Readonly<Record<string, unknown>> | undefined> => {
      const { out } = await run(['servers', '--no-start', '--json']);
      return dataOf<{ servers: readonly { name: string }[] }>(out).servers.find(({ name }) => name === 'notes');
    };
    expect(await row()).toMatchObject({
      consent: 'changed',
      state: 'not approved',
      killed: false,
      reason: expect.stringContaining('waits for its owner, because it changed'),
    });
    await run(['kill', 'notes']);
    expect(await row()).toMatchObject({
      state: 'killed',
      killed: true,
      reason: expect.stringContaining('kill --lift notes'),
    });
    await run(['kill', '--lift', 'notes']);
    expect((await row())?.killed).toBe(false);
  });
});

describe('the findings of doctor' + verifies('AD-127'), () => {
  it('are on the list where they need no program and no network, each server and client as its own item', async () => {
    facade = await startFacade(configOf(['notes', 'more']), { folder });
    const { config } = facade.assembled;
    const servers = new Map([...config.servers].map(([name, one]) => [name, { ...one, unusable: 'it is broken' }]));
    writeFileSync(path.join(folder, '.mcp.json'), JSON.stringify({ mcpServers: { mine: { command: 'node' } } }));
    const findings = async (roots?: ClientRoots) =>
      withConsents(config, async (consents, state) => {
        const parts = { config: { ...config, servers }, state, consents, now: Date.now, ...(roots && { roots }) };
        const list = await listAttention(attentionSources(parts), { redact: (value) => ({ value, count: 0 }) });
        return list.filter(({ kind }) => kind.startsWith('finding-')).map(({ kind, subject }) => `${kind} ${subject}`);
      });
    const broken = ['notes', 'more'].map((name) => `finding-missing unusable-server server ${name}`);
    expect([...(await findings())].sort()).toEqual(broken.sort());
    const seen = await findings(rootsAt(folder, { home: path.join(folder, 'home'), env: {} }));
    expect(seen).toEqual(
      expect.arrayContaining([...broken, expect.stringMatching(/^finding-weak bypass .*\.mcp\.json/)]),
    );
  });
});

describe('attack: an agent that floods the list' + verifies('AD-47', 'AD-122'), () => {
  it('with changed servers and their changes gets 20 items, one count, and one record for each server', async () => {
    const servers = Array.from({ length: 30 }, (_, at) => `s${at}`);
    facade = await startFacade(configOf(servers), { folder });
    const session = facade.open('me');
    for (let turn = 0; turn < 3; turn += 1) {
      appendFileSync(script, `// ${turn}\n`);
      await Promise.all(servers.map((name) => facade.call(session, `${name}_add`, {})));
    }
    const list = await items('server-changed');
    expect(list).toHaveLength(MOST_OF_KIND + 1);
    expect(list.find(({ subject }) => subject === '')?.title).toBe('And 10 more (server-changed)');
    expect(changedRecords()).toHaveLength(servers.length);
  });
});

describe('a server whose tools changed after their approval' + verifies('AD-120'), () => {
  it('is on the list when a call is refused for it, also if no one listed its tools', async () => {
    facade = await startRaw({ one: { lists: [[ACT]] } }, {}, {}, { approved: [] });
    await withConsents(facade.assembled.config, async (consents) => {
      const facts = await consents.factsOf(facade.assembled.config.servers.get('one')!);
      const start = await consents.approveStart({ facts, by: 'boss', at: '' });
      const set = { tools: [tool('act', { description: 'Other.' })], prompts: [], hints: false };
      await consents.approveTools('one', set, { start, by: 'boss', at: '' });
    });
    expect((await facade.call(facade.open('me'), 'one_act', {})).code).toBe('PIN_MISMATCH');
    await expect.poll(() => items('tools-changed'), { timeout: 20_000 }).toHaveLength(1);
    expect(facade.callRecords()).toMatchObject([{}, { code: 'PIN_MISMATCH', refusal: 'tool changed' }]);
  });
});
