/** Tests notices: once over all processes and restarts, without texts, and never to another address. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { AttentionItem } from '../../facade/attention/attention-list.ts';
import { createNotices } from '../../facade/attention/attention-notices.ts';
import { AttentionWatch } from '../../facade/attention/attention-watch.ts';
import { readTroubles, Troubles } from '../../facade/attention/troubles.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { State } from '../../facade/state/state-port.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';

const item = (id: string): AttentionItem => ({
  id,
  kind: 'approval',
  rank: 2,
  title: 'mallory <b>asks</b> for secret-tool',
  detail: 'payload',
  next: 'tollgate approvals show x',
  subject: 'x',
});

let folder: string;
let state: State;
let server: Server;
let url: string;
let status: number;
const got: { readonly url: string | undefined; readonly body: unknown }[] = [];

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-notices-'));
  state = openState(folder);
  status = 200;
  got.length = 0;
  server = createServer((request: IncomingMessage, response) => {
    let text = '';
    request.on('data', (chunk: Buffer) => (text += chunk.toString()));
    request.on('end', () => {
      got.push({ url: request.url, body: JSON.parse(text || 'null') as unknown });
      response.writeHead(status, { location: `${url}/elsewhere` }).end('x'.repeat(100_000));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  await new Promise((resolve) => server.close(resolve).closeAllConnections());
  await state.close();
  rmSync(folder, { recursive: true });
});

const faults: unknown[] = [];
const delivered: unknown[] = [];
const notices = (address = `${url}/hook`, quietMs = 5_000) =>
  createNotices({
    settings: () => ({ desktop: false, webhook: address }),
    env: {},
    home: '/nonexistent',
    onDelivery: (failure) => void delivered.push(failure),
    quietMs,
  });
const watchOf = (items: () => readonly AttentionItem[], notify = notices()): AttentionWatch =>
  new AttentionWatch({
    state,
    list: async () => items(),
    feed: { note: () => undefined },
    sessions: () => 0,
    notify,
    onFault: (thrown) => void faults.push(thrown),
    now: Date.now,
  });

describe('notices' + verifies('AD-52'), () => {
  it('are sent once over several processes and restarts, with ids, kinds and counts and no text', async () => {
    let items = [item('a'), item('b')];
    const [one, other] = [watchOf(() => items), watchOf(() => items)];
    await Promise.all([one.look(), other.look()]);
    await expect.poll(() => got.flatMap(({ body }) => (body as { added: unknown[] }).added).length).toBe(2);
    await watchOf(() => items).look();
    items = [item('b')];
    await one.look();
    const bodies = got.map(({ body }) => body as { version: number; added: { id: string }[]; counts: object });
    expect(bodies.flatMap(({ added }) => added.map(({ id }) => id)).sort()).toEqual(['a', 'b']);
    expect(bodies[0]).toMatchObject({ version: 1, counts: { approval: 2 } });
    expect(Object.keys(bodies[0]?.added[0] ?? {})).toEqual(['id', 'kind', 'rank']);
    expect(JSON.stringify(bodies)).not.toMatch(/mallory|secret-tool|payload|<b>/);
    await one.close();
    await other.close();
    expect(faults).toEqual([]);
  });

  it.each([301, 307, 308, 500])('do not follow an answer %i, and do not fail', async (answer) => {
    status = answer;
    await watchOf(() => [item('a')]).look();
    await expect.poll(() => got.length).toBe(1);
    expect(got.map((one) => one.url)).toEqual(['/hook']);
    expect(faults).toEqual([]);
  });

  it('are sent again until the webhook takes them, with what was added meanwhile' + verifies('AD-126'), async () => {
    status = 503;
    delivered.length = 0;
    let items = [item('a')];
    const watch = watchOf(() => items, notices(undefined, 20));
    await watch.look();
    await expect.poll(() => got.length).toBeGreaterThan(1);
    items = [item('a'), item('b')];
    await watch.look();
    status = 200;
    await expect.poll(() => delivered).toEqual([undefined]);
    const ids = got.map(({ body }) => (body as { added: { id: string }[] }).added.map(({ id }) => id));
    expect(ids[0]).toEqual(['a']);
    expect(ids.at(-1)).toEqual(['a', 'b']);
  });

  it('are tried six times, and then it is told that they cannot be sent' + verifies('AD-126'), async () => {
    status = 500;
    delivered.length = 0;
    await watchOf(() => [item('a')], notices(undefined, 5)).look();
    await expect.poll(() => delivered, { timeout: 5_000 }).toEqual(['status 500']);
    expect(got).toHaveLength(6);
    // The log and the list say it, without the address, which may hold a secret.
    const troubles = new Troubles(state, Date.now);
    troubles.note('notices-failed', 'status 500');
    await expect.poll(() => readTroubles(state, Date.now())).toMatchObject([{ kind: 'notices-failed' }]);
    troubles.clear('notices-failed');
    await expect.poll(() => readTroubles(state, Date.now())).toEqual([]);
  });

  it('that cannot be sent delay nothing', async () => {
    await watchOf(() => [item('a')], notices('http://127.0.0.1:1/')).look();
    expect(faults).toEqual([]);
    expect(got).toEqual([]);
  });

  it('go to https, or to this machine, only', () => {
    const project = new Project();
    const problems = (webhook: string): string => {
      const loaded = project.load(`version: 1\nnotices: {webhook: ${JSON.stringify(webhook)}}\n`);
      return JSON.stringify(loaded.config?.notices ?? loaded);
    };
    for (const refused of [
      'http://hooks.example/x',
      'ftp://x',
      'https://a@b',
      'hooks',
      'http://127.0.0.1.evil.example/',
    ])
      expect([refused, problems(refused)]).toEqual([refused, expect.stringContaining('not an https address')]);
    expect(problems('https://hooks.example/x')).toBe('{"desktop":false,"webhook":"https://hooks.example/x"}');
    project.remove();
  });
});
