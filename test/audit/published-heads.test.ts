/** Tests the name of a replica in its records and checkpoints, its published head, its export, and questions to a fleet. */

import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { openAudit } from '../../facade/audit/audit-log.ts';
import { AuditExport } from '../../facade/audit/export/audit-export.ts';
import { exportTarget } from '../../facade/audit/export/export-target.ts';
import { verifyFleet } from '../../facade/audit/fleet/fleet-verification.ts';
import { HeadPublisher, parseHeads, readHeads } from '../../facade/audit/fleet/published-heads.ts';
import { openAuditReader } from '../../facade/audit/index/audit-reader.ts';
import { parseNote } from '../../facade/audit/proof/signed-note.ts';
import { openPostgresStore } from '../../facade/state/shared/postgres-store.ts';
import { openRedisStore } from '../../facade/state/shared/redis-store.ts';
import { openSharedState } from '../../facade/state/shared/shared-state.ts';
import type { SharedStore } from '../../facade/state/shared/shared-store.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { State } from '../../facade/state/state-port.ts';
import { withProject } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { startStoreServer } from '../state/store-servers.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { appendChain, Fleet, publishHead, type SampleReplica, START, sealReplica } from './fleet-logs.ts';
import { readRecords } from './sample-log.ts';
import { calls } from './signed-log.ts';

describe('the name of a replica', () => {
  it('is the configured one, or the host name if the state is shared' + verifies('FL-10'), () => {
    withProject((project) => {
      const replicaOf = (more: string, name = ''): string | undefined =>
        project.load(`version: 1\nworkspace: ./work\n${more}`, { POD_NAME: name }).config?.audit.replica;
      project.write('work/x', '');
      expect(replicaOf('state: ./state\n')).toBeUndefined();
      const store = 'state: postgres://tollgate@127.0.0.1/tollgate\n';
      expect(replicaOf(store)).toMatch(/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/);
      expect(os.hostname()).toContain(replicaOf(store)?.slice(0, 1));
      expect(replicaOf(`${store}audit: {replica: gw-1}\n`)).toBe('gw-1');
      expect(replicaOf(`${store}audit: {replica: "\${env:POD_NAME}"}\n`, 'gw-5')).toBe('gw-5');
      expect(replicaOf(`${store}audit: {replica: "\${env:POD_NAME}"}\n`, 'two words')).toBeUndefined();
    });
  });

  it('is in every record from the first one on, and in each checkpoint' + verifies('FL-10'), async () => {
    const config = 'version: 1\nworkspace: ./workspace\nstate: ./state\naudit: {replica: gw-7}\n';
    const facade = await startFacade(config, { folder: temporaryFolder() });
    await facade.close();
    const records = facade.records();
    expect(records[0]).toMatchObject({ type: 'opened', replica: 'gw-7' });
    expect(records.every(({ replica }) => replica === 'gw-7')).toBe(true);
    const state = openState(join(facade.folder, 'state'));
    const { heads, faults } = await readHeads(state);
    await state.close();
    expect(faults).toEqual([]);
    expect(heads).toMatchObject([{ replica: 'gw-7', ended: true, checkpoint: { replica: 'gw-7' } }]);
    expect(heads[0]?.note).toMatch(/^tollgate\.local\/[0-9a-f]{32}\n\d+\n[A-Za-z0-9+/]{43}=\nreplica gw-7\n\n\u2014 /);
    expect(heads[0]?.checkpoint.size).toBe(records.length);
  });

  it('is in no record and no checkpoint of a process alone' + verifies('FL-10'), async () => {
    const folder = temporaryFolder();
    const facade = await startFacade('version: 1\nworkspace: ./workspace\nstate: ./state\n', { folder });
    await facade.close();
    expect(facade.records().some((record) => 'replica' in record)).toBe(false);
    const state = openState(join(folder, 'state'));
    expect(await readHeads(state)).toEqual({ heads: [], faults: [] });
    await state.close();
  });

  it('cannot be written by an entry' + verifies('FL-10'), () => {
    const log = openAudit({ folder: temporaryFolder(), rotateBytes: 1e9, replica: 'gw-1' });
    const [entry] = calls(1, 1);
    expect(() => log.append({ ...entry, replica: 'gw-2' } as never)).toThrow(/cannot be written/);
    expect(readRecords(log.file)).toMatchObject([{ replica: 'gw-1' }]);
  });
});

describe('a head', () => {
  it('is published in the background, and replaced by newer ones only' + verifies('FL-11'), async () => {
    const fleet = await Fleet.make();
    const first = fleet.replicas[0] as SampleReplica;
    const sizes = async (): Promise<number[]> =>
      (await fleet.heads()).heads.map(({ checkpoint }) => checkpoint.size).slice(0, 1);
    expect(await sizes()).toEqual([20]);
    await appendChain(first, { from: START + 7_200_000, count: 2 });
    sealReplica(first);
    const { state } = fleet;
    const publisher = new HeadPublisher({
      state: { get: state.get, swap: async (...at) => state.swap(...at), refresh: () => undefined },
      replica: first.name,
      folder: first.folder,
      onResult: () => undefined,
    });
    publisher.publish(first.key);
    await expect.poll(sizes).toEqual([26]);
    // It says that the replica runs, until it ends.
    expect((await fleet.heads()).heads[0]?.ended).toBeUndefined();
    await publisher.finish(first.key);
    expect((await fleet.heads()).heads[0]).toMatchObject({ ended: true, checkpoint: { size: 26 } });
  });

  it('that cannot be published stops nothing, and each failure is reported' + verifies('FL-11'), async () => {
    const fleet = await Fleet.make();
    const first = fleet.replicas[0] as SampleReplica;
    const results: (string | undefined)[] = [];
    let isAway = true;
    const publisher = new HeadPublisher({
      state: {
        get: fleet.state.get,
        swap: async (...at) => fleet.state.swap(...at),
        refresh: () => (isAway ? Promise.reject(new TollgateError('STATE_AWAY')) : undefined),
      },
      replica: first.name,
      folder: first.folder,
      onResult: (failure) => void results.push(failure?.code),
    });
    await publisher.finish(first.key);
    isAway = false;
    await publisher.finish(first.key);
    expect(results).toEqual(['STATE_AWAY', undefined]);
  });

  inFull('that the state refuses is recorded and counted by a running facade' + verifies('FL-11'), async () => {
    const folder = temporaryFolder();
    const config =
      'version: 1\nworkspace: ./workspace\nstate: ./state\naudit: {replica: gw-7, signing: {within: 1s}}\n';
    const facade = await startFacade(config, { folder });
    onTestFinished(() => facade.close());
    const state = openState(join(folder, 'state'));
    onTestFinished(() => state.close());
    await expect.poll(async () => (await readHeads(state)).heads.length, { timeout: 20_000 }).toBe(1);
    const head = (await readHeads(state)).heads[0]!;
    // Someone replaces the head by one of more records than this log has.
    const { origin, size } = head.checkpoint;
    const forged = { ...head, note: head.note.replace(`\n${size}\n`, '\n9999\n') };
    await state.put('audit-heads', `gw-7/${origin}`, JSON.stringify(forged));
    const unpublished = () => facade.records().filter(({ event }) => event === 'unpublished');
    await expect.poll(() => unpublished().length, { timeout: 20_000 }).toBe(1);
    expect(unpublished()).toMatchObject([
      {
        type: 'proof',
        outcome: 'error',
        replica: 'gw-7',
        reason: expect.stringContaining('9999 records were published'),
      },
    ]);
    await expect
      .poll(async () => (await facade.assembled.attention()).map(({ kind }) => kind), { timeout: 20_000 })
      .toContain('heads-failed');
  });

  it.each(partOf(['redis', 'postgres'] as const, 1))('is in %s for every machine' + verifies('FL-11'), async (kind) => {
    const server = await startStoreServer(kind);
    onTestFinished(() => server.remove());
    const access = server.access('heads');
    const openStore = (): SharedStore =>
      access.kind === 'postgres' ? openPostgresStore(access) : openRedisStore(access);
    const creating = openStore();
    await creating.migrate();
    await creating.close();
    const fleet = await Fleet.make();
    const machine = async (): Promise<State> => {
      const state = await openSharedState({ folder: temporaryFolder(), store: openStore() });
      onTestFinished(async () => void (await state.close()));
      return state;
    };
    const [first, second] = [await machine(), await machine()];
    // Two workers of one log publish at the same time.
    const results: (string | undefined)[] = [];
    const publishing = [...fleet.replicas, fleet.replicas[0] as SampleReplica].map(({ name, folder, key }, at) =>
      new HeadPublisher({
        state: at % 2 === 0 ? first : second,
        replica: name,
        folder,
        onResult: (failure) => void results.push(failure?.message),
      }).finish(key),
    );
    await Promise.all(publishing);
    expect(results).toEqual([undefined, undefined, undefined, undefined]);
    const found = await readHeads(second);
    expect(found.heads.map(({ replica, ended }) => [replica, ended])).toEqual(
      fleet.replicas.map(({ name }) => [name, true]),
    );
    expect(verifyFleet(fleet.folders, { heads: found, publicKeys: [], proof: {}, expectHeads: [] }).complete).toBe(
      true,
    );
  });

  it('is read from what `audit heads --json` printed, and nothing else is' + verifies('FL-12'), async () => {
    const { heads } = await (await Fleet.make()).heads();
    expect(parseHeads(JSON.stringify(heads))).toEqual({ heads, faults: [] });
    for (const text of ['', '{}', 'null', '[null]', '[3]', '[{"replica": 7}]'])
      expect(parseHeads(text)).toMatchObject({ heads: [], faults: [{ what: expect.any(String) }] });
  });
});

describe('the export of three replicas', () => {
  it('names the replica in each record and checkpoint, and repeats no key' + verifies('FL-13'), async () => {
    const fleet = await Fleet.make();
    const received: { headers: IncomingHttpHeaders; body: string }[] = [];
    const server = createServer(async (request, response) => {
      let body = '';
      for await (const chunk of request) body += String(chunk);
      received.push({ headers: request.headers, body });
      response.writeHead(204).end();
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/in`;
    await Promise.all(
      fleet.replicas.map(async ({ folder }) => {
        const target = exportTarget({ url, headers: {}, batch: 4 }, async () => ({}));
        const parts = { state: temporaryFolder(), folder, target, batch: 4, onState: () => undefined };
        const exporting = new AuditExport(parts);
        await expect.poll(() => exporting.state.records, { timeout: 20_000 }).toBe(20);
        await exporting.close();
      }),
    );
    const keys = received.map(({ headers }) => headers['idempotency-key']);
    expect(keys).toHaveLength(15);
    expect(new Set(keys).size).toBe(15);
    const replicas = new Set<string>();
    for (const { headers, body } of received) {
      const records = body
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as { replica: string; hash: string });
      const note = Buffer.from(String(headers['tollgate-checkpoint']), 'base64').toString();
      for (const { replica } of records) expect(replica).toBe(parseNote(note)?.checkpoint.replica);
      for (const { replica } of records) replicas.add(replica);
    }
    expect([...replicas].sort()).toEqual(['gw-1', 'gw-2', 'gw-3']);
  });
});

describe('questions to the logs of three replicas', () => {
  it('give all records in the order of time, in pages' + verifies('FL-13'), async () => {
    const fleet = await Fleet.make(30);
    const reader = openAuditReader(fleet.folders, ':memory:');
    onTestFinished(() => reader.close());
    const all = [...reader.all({})];
    const total = 3 * 2 * (60 + 2);
    expect(all).toHaveLength(total);
    const times = all.map(({ record }) => record.ts);
    expect(times).toEqual([...times].sort());
    expect(new Set(all.map(({ record }) => record.hash)).size).toBe(total);
    const paged: string[] = [];
    for (let before: string | undefined; ; ) {
      const page = reader.page({}, { limit: 50, ...(before !== undefined && { before }) });
      paged.push(...page.records.map(({ record }) => record.hash));
      before = page.next;
      if (before === undefined) break;
    }
    expect(paged).toEqual(all.map(({ record }) => record.hash).reverse());
  });

  it('are answered by replica' + verifies('FL-13'), async () => {
    const fleet = await Fleet.make();
    const reader = openAuditReader(fleet.folders, ':memory:');
    onTestFinished(() => reader.close());
    expect([...reader.all({ replica: 'gw-2' })].map(({ record }) => record.replica)).toEqual(Array(20).fill('gw-2'));
    expect([...reader.all({ replica: 'gw-*' })]).toHaveLength(60);
    expect([...reader.all({ replica: 'gw-2', type: 'intent' })]).toHaveLength(8);
    expect(reader.values('replica', '')).toEqual(['gw-1', 'gw-2', 'gw-3']);
  });

  it('find new records of each log, and chains of the same name' + verifies('FL-13'), async () => {
    const fleet = new Fleet();
    onTestFinished(() => fleet.state.close());
    // Pods often have the same process id: two chains of one name.
    for (const replica of fleet.replicas) await appendChain(replica, { from: START, count: 2 });
    const reader = openAuditReader(fleet.folders, ':memory:');
    onTestFinished(() => reader.close());
    expect([...reader.all({})]).toHaveLength(18);
    await appendChain(fleet.replicas[1] as SampleReplica, { from: START + 5000, count: 1 });
    expect([...reader.all({ replica: 'gw-2' })]).toHaveLength(10);
    expect(await publishHead(fleet.state, fleet.replicas[0] as SampleReplica)).toEqual([]);
  });
});
