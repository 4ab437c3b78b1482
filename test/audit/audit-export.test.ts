/**
 * Tests that the log is copied to a file and to receivers that fail, without losing or repeating a record.
 * Covers: facade/audit.
 */

import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { type AuditLog, openAudit } from '../../facade/audit/audit-log.ts';
import { archiveAudit } from '../../facade/audit/chain-archive.ts';
import { listParts } from '../../facade/audit/chain-lines.ts';
import { AuditExport, readExported } from '../../facade/audit/export/audit-export.ts';
import { exportTarget, targetName } from '../../facade/audit/export/export-target.ts';
import { createDigest } from '../../facade/audit/key-files.ts';
import type { ExportConfig } from '../../facade/config/config.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { startFixture, temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';

const PRINCIPAL = { id: 'p', role: 'dev', profiles: [], origin: 'test' };
/** More kills: TOLLGATE_EXPORT_KILLS=200. */
const KILLS = Number(process.env.TOLLGATE_EXPORT_KILLS ?? roundsOf(6, 2));

interface Place {
  readonly folder: string;
  readonly state: string;
  readonly file: string;
}

function place(): Place {
  const root = temporaryFolder();
  return { folder: path.join(root, 'audit'), state: path.join(root, 'state'), file: path.join(root, 'siem.jsonl') };
}

/** Appends records; a file holds about 40 of them. */
function writeLog(folder: string, records: number): AuditLog {
  const log = openAudit({ folder, rotateBytes: 12_000 });
  appendTo(log, records);
  return log;
}

function appendTo(log: AuditLog, records: number): void {
  for (let n = 0; n < records; n += 1)
    log.append({
      type: 'intent',
      id: `call-${n}`,
      principal: PRINCIPAL,
      session: 's',
      run: 'r',
      exposed: 'a_tool',
      outcome: 'allow',
      sizes: { args: 1 },
    });
}

/** The lines of all chain files, by file. */
function linesOf(folder: string): readonly string[] {
  return listParts(folder).flatMap((part) => linesIn(readFileSync(part.path, 'utf8')));
}

const linesIn = (text: string): readonly string[] => text.split('\n').slice(0, -1);
const sorted = (lines: readonly string[]): readonly string[] => [...lines].sort();

interface Post {
  readonly key: string;
  readonly headers: IncomingHttpHeaders;
  readonly lines: readonly string[];
}

/** Starts a receiver that keeps what it gets. `answer` decides what it answers. */
async function receiver(
  answer: (response: ServerResponse, nth: number) => void,
): Promise<{ url: string; posts: Post[] }> {
  const posts: Post[] = [];
  const server = createServer((request, response) => {
    let text = '';
    request.setEncoding('utf8').on('data', (part: string) => (text += part));
    request.on('end', () => {
      posts.push({ key: String(request.headers['idempotency-key']), headers: request.headers, lines: linesIn(text) });
      answer(response, posts.length);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/ingest`, posts };
}

function settingsOf(target: { file?: string; url?: string }, batch = 7): ExportConfig {
  return { ...target, headers: {}, batch };
}

interface Exporting {
  readonly running: AuditExport;
  readonly said: (string | undefined)[];
}

function begin({ folder, state }: Place, settings: ExportConfig): Exporting {
  const said: (string | undefined)[] = [];
  const target = exportTarget(settings, async () => settings.headers);
  const running = new AuditExport({
    state,
    folder,
    target,
    batch: settings.batch,
    onState: (failure) => said.push(failure),
  });
  onTestFinished(() => running.close());
  return { running, said };
}

const until = (check: () => void): Promise<void> => vi.waitFor(check, { timeout: 20_000, interval: 10 });

describe('the export to a file', () => {
  it('copies every record once, over rotation, restarts and several chains' + verifies('AD-70'), async () => {
    const at = place();
    const [first, second] = [writeLog(at.folder, 90), writeLog(at.folder, 5)];
    const { running } = begin(at, settingsOf({ file: at.file }));
    await until(() => expect(running.state.records).toBe(linesOf(at.folder).length));
    appendTo(first, 30);
    await running.close();
    await first.close();
    await second.close();
    const again = begin(at, settingsOf({ file: at.file })).running;
    await until(() => expect(again.state.records).toBe(linesOf(at.folder).length));
    expect(sorted(linesIn(readFileSync(at.file, 'utf8')))).toEqual(sorted(linesOf(at.folder)));
    expect(statSync(at.file).mode & 0o777).toBe(0o600);
  });

  it(
    'goes on in the middle of a line after a crash, and in a new file after log rotation' + verifies('AD-71'),
    async () => {
      const at = place();
      await writeLog(at.folder, 60).close();
      const whole = linesOf(at.folder);
      const settings = settingsOf({ file: at.file });
      const { running } = begin(at, settings);
      await until(() => expect(running.state.records).toBe(whole.length));
      await running.close();
      const text = readFileSync(at.file, 'utf8');
      const [cursor = ''] = readdirSync(path.join(at.state, 'audit-export')).filter((name) => name.endsWith('.json'));
      const kept = path.join(at.state, 'audit-export', cursor);
      // As if the process had died while it wrote its first batch, at each of these bytes.
      for (const cut of [0, 1, 300, Buffer.byteLength(linesIn(text).slice(0, 7).join('\n')) + 1]) {
        writeFileSync(at.file, text.slice(0, cut));
        const places = { places: {}, records: 7, before: { ino: statSync(at.file).ino, size: 0 } };
        const [{ name } = { name: '' }] = listParts(at.folder);
        const offset = Buffer.byteLength(`${whole.slice(0, 7).join('\n')}\n`);
        const hash = (JSON.parse(whole[6] ?? '') as { hash: string }).hash;
        writeFileSync(
          kept,
          JSON.stringify({ places: {}, records: 0, pending: { ...places, places: { [name]: { offset, hash } } } }),
        );
        const again = begin(at, settings).running;
        await until(() => expect(again.state.records).toBe(whole.length));
        await again.close();
        expect(readFileSync(at.file, 'utf8')).toBe(text);
      }
      renameSync(at.file, `${at.file}.1`);
      const log = writeLog(at.folder, 3);
      onTestFinished(() => log.close());
      const later = begin(at, settings).running;
      await until(() => expect(later.state.records).toBe(linesOf(at.folder).length));
      expect(linesIn(readFileSync(at.file, 'utf8'))).toHaveLength(4);
    },
  );

  it('refuses what is no regular file, and ends in time' + verifies('AD-72'), async () => {
    const at = place();
    await writeLog(at.folder, 3).close();
    spawnSync('mkfifo', [at.file]);
    for (const file of [at.file, path.dirname(at.file)]) {
      const { running, said } = begin({ ...at, state: `${at.state}-${path.basename(file)}` }, settingsOf({ file }));
      await until(() => expect(said[0]).toMatch(/no regular file|EISDIR/));
      await running.close();
    }
  });

  it('waits and reports while the file cannot be written, and then delivers all' + verifies('AD-72'), async () => {
    const at = place();
    const log = writeLog(at.folder, 20);
    onTestFinished(() => log.close());
    const file = path.join(path.dirname(at.file), 'missing', 'siem.jsonl');
    const { running, said } = begin(at, settingsOf({ file }));
    await until(() => expect(said).toEqual(['ENOENT']));
    appendTo(log, 20);
    mkdirSync(path.dirname(file));
    await until(() => expect(said).toEqual(['ENOENT', undefined]));
    await until(() => expect(running.state).toEqual({ records: linesOf(at.folder).length, failure: undefined }));
  });
});

describe('the export by HTTP', () => {
  it(
    'sends a batch again, unchanged and with its key, until the receiver takes it; redirects are not followed' +
      verifies('AD-73'),
    async () => {
      const at = place();
      const log = writeLog(at.folder, 30);
      onTestFinished(() => log.close());
      const { url, posts } = await receiver((response, nth) => {
        if (nth === 1) return void response.writeHead(500).end('x'.repeat(100_000));
        if (nth === 2) return void response.writeHead(307, { location: '/elsewhere' }).end();
        if (nth === 3) return void response.destroy();
        response.writeHead(nth % 2 === 0 ? 204 : 200).end();
      });
      const { running, said } = begin(at, { ...settingsOf({ url }), headers: { Authorization: 'Bearer token' } });
      await until(() => expect(running.state.records).toBe(31));
      expect(said).toEqual(['HTTP 500', undefined]);
      expect(new Set(posts.slice(0, 4).map(({ key }) => key)).size).toBe(1);
      expect(posts[0]!.lines).toEqual(posts[3]!.lines);
      expect(posts.slice(3).flatMap(({ lines }) => lines)).toEqual(linesOf(at.folder));
      expect(posts[0]!.headers).toMatchObject({
        authorization: 'Bearer token',
        'content-type': 'application/x-ndjson',
      });
      expect(new Set(posts.map(({ key }) => key)).size).toBe(posts.length - 3);
    },
  );

  inFull(
    'is ended in two seconds at most by a receiver that hangs, and loses nothing' + verifies('AD-72', 'AD-73'),
    async () => {
      const at = place();
      await writeLog(at.folder, 9).close();
      let hangs = true;
      const { url, posts } = await receiver((response) => void (hangs || response.writeHead(200).end()));
      const { running } = begin(at, settingsOf({ url }));
      await until(() => expect(posts).toHaveLength(1));
      const began = performance.now();
      await running.close();
      expect(performance.now() - began).toBeLessThan(5000);
      hangs = false;
      const again = begin(at, settingsOf({ url })).running;
      await until(() => expect(again.state.records).toBe(11));
      expect(posts[1]).toMatchObject({ key: posts[0]!.key, lines: posts[0]!.lines });
      expect(posts.slice(1).flatMap(({ lines }) => lines)).toEqual(linesOf(at.folder));
    },
  );
});

describe('processes that export', () => {
  inFull(
    'lose and repeat nothing when they are killed at any moment' + verifies('AD-74'),
    async () => {
      for (const kind of ['file', 'url'] as const) {
        const at = place();
        const log = writeLog(at.folder, 400);
        onTestFinished(() => log.close());
        const { url, posts } = await receiver((response) => void response.writeHead(200).end());
        const settings = settingsOf(kind === 'file' ? { file: at.file } : { url }, 5);
        const args = (count: number): readonly string[] => [
          at.folder,
          at.state,
          JSON.stringify(settings),
          String(count),
        ];
        const progress = (): number =>
          kind === 'url' ? posts.length : existsSync(at.file) ? Math.floor(statSync(at.file).size / 300) : 0;
        for (let kill = 0; kill < KILLS; kill += 1) {
          const { child, ended } = startFixture('audit-exporter.ts', args(1e9));
          const before = progress();
          // Between two batches, and in the middle of them.
          await until(() => expect(progress()).toBeGreaterThan(before + (kill % 3)));
          child.kill('SIGKILL');
          await ended;
          appendTo(log, 10);
        }
        const expected = linesOf(at.folder);
        await startFixture('audit-exporter.ts', args(expected.length)).ended;
        const got = kind === 'file' ? linesIn(readFileSync(at.file, 'utf8')) : posts.flatMap(({ lines }) => lines);
        // A receiver by HTTP may get a batch twice. Its key and the hashes of its records are the same then.
        const byHash = new Set(got);
        expect(sorted([...byHash])).toEqual(sorted(expected));
        if (kind === 'file') expect(got).toHaveLength(expected.length);
        const once = [...new Map(posts.map((post) => [post.key, post])).values()];
        if (kind === 'url') expect(sorted(once.flatMap(({ lines }) => lines))).toEqual(sorted(expected));
      }
    },
    120_000,
  );

  it('are one at a time' + verifies('AD-74'), async () => {
    const at = place();
    const log = writeLog(at.folder, 10);
    onTestFinished(() => log.close());
    const { running } = begin(at, settingsOf({ file: at.file }));
    await until(() => expect(running.state.records).toBe(11));
    const other = startFixture('audit-exporter.ts', [
      at.folder,
      at.state,
      JSON.stringify(settingsOf({ file: at.file })),
      '1',
    ]);
    appendTo(log, 10);
    await until(() => expect(running.state.records).toBe(21));
    other.child.kill('SIGKILL');
    await other.ended;
    expect(linesIn(readFileSync(at.file, 'utf8'))).toEqual(linesOf(at.folder));
  });
});

describe('hostile and damaged places', () => {
  it('are reported: a damaged cursor, and a chain file that was changed' + verifies('AD-75'), async () => {
    const at = place();
    const log = writeLog(at.folder, 10);
    const settings = settingsOf({ file: at.file });
    const { running } = begin(at, settings);
    await until(() => expect(running.state.records).toBe(11));
    await log.close();
    await running.close();
    const [chain = ''] = readdirSync(at.folder).filter((name) => name.endsWith('.jsonl'));
    const whole = readFileSync(path.join(at.folder, chain));
    writeFileSync(path.join(at.folder, chain), whole.subarray(0, 200));
    const cut = begin(at, settings);
    await until(() => expect(cut.said[0]).toMatch(/not as it was/));
    await cut.running.close();
    const [cursor = ''] = readdirSync(path.join(at.state, 'audit-export')).filter((name) => name.endsWith('.json'));
    writeFileSync(path.join(at.state, 'audit-export', cursor), '{"places":{"a":{"offset":"1"}},"records":1}');
    const damaged = begin(at, settings);
    await until(() => expect(damaged.said).toEqual(['the cursor is damaged']));
  });

  it('never copy a torn end, and copy a broken record as it is' + verifies('AD-75'), async () => {
    const at = place();
    await writeLog(at.folder, 3).close();
    const [chain = ''] = readdirSync(at.folder).filter((name) => name.endsWith('.jsonl'));
    appendFileSync(path.join(at.folder, chain), '{"not":"a record"}\n{"torn":');
    const { running } = begin(at, settingsOf({ file: at.file }));
    await until(() => expect(running.state.records).toBe(6));
    expect(readFileSync(at.file, 'utf8')).toBe(
      readFileSync(path.join(at.folder, chain), 'utf8').replace(/\{"torn":$/, ''),
    );
  });

  it('are not archived before they are exported' + verifies('AD-76'), async () => {
    const at = place();
    const log = writeLog(at.folder, 100);
    onTestFinished(() => log.close());
    const settings = settingsOf({ file: at.file });
    const archive = async (): Promise<unknown> =>
      archiveAudit({
        folder: at.folder,
        to: path.join(path.dirname(at.file), 'archive'),
        before: new Date(Date.now() + 86_400_000).toISOString(),
        digest: createDigest(Buffer.alloc(32, 1)),
        now: Date.now(),
        record: () => undefined,
        mayLeave: await readExported(at.state, targetName(settings)),
      });
    expect(await archive()).toEqual({ files: 0, records: 0 });
    const { running } = begin(at, settings);
    const whole = linesOf(at.folder);
    await until(() => expect(running.state.records).toBe(whole.length));
    await running.close();
    expect(await archive()).toMatchObject({ files: expect.any(Number) });
    expect(linesOf(at.folder).length).toBeLessThan(whole.length);
    const again = begin(at, settings).running;
    appendTo(log, 5);
    await until(() => expect(linesIn(readFileSync(at.file, 'utf8'))).toHaveLength(whole.length + 5));
    await again.close();
  });
});
