/** Tests that the logs of a fleet are verified together, and that whatever is missing is named with its replica. */
import { generateKeyPairSync } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type FleetEvidence, type FleetVerdict, verifyFleet } from '../../facade/audit/fleet/fleet-verification.ts';
import { AuditTree, TREE_FILE } from '../../facade/audit/proof/audit-tree.ts';
import { verifierKey } from '../../facade/audit/proof/signed-note.ts';
import { openDatabase } from '../../facade/state/database.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { appendChain, Fleet, publishHead, type SampleReplica, START, sealReplica } from './fleet-logs.ts';
import { copyOf, putBack } from './signed-log.ts';

async function verify(fleet: Fleet, more: Partial<FleetEvidence> = {}): Promise<FleetVerdict> {
  const folders = fleet.folders.filter((folder) => existsSync(folder));
  return verifyFleet(folders, { heads: await fleet.heads(), publicKeys: [], proof: {}, expectHeads: [], ...more });
}

const chainsOf = ({ folder }: SampleReplica): string[] =>
  readdirSync(folder)
    .filter((name) => name.endsWith('.jsonl'))
    .sort()
    .map((name) => join(folder, name));

const linesOf = (file: string): string[] => readFileSync(file, 'utf8').split('\n').filter(Boolean);

/** Removes the tree, as someone who wants to sign another log under the same name or a new one. */
function removeTree({ folder }: SampleReplica): void {
  for (const name of ['tree.db', 'tree.db-wal', 'tree.db-shm']) rmSync(join(folder, name), { force: true });
}

/** Makes an empty tree with the name of another one. */
function beginAs({ folder }: SampleReplica, origin: string): void {
  AuditTree.begin(folder).tree.close();
  const database = openDatabase(join(folder, TREE_FILE), { version: 1, sql: '' });
  database.run('UPDATE tree SET origin = ?')(origin);
  database.close();
}

function originOf({ folder }: SampleReplica): string {
  const tree = AuditTree.open(folder);
  const origin = tree?.origin ?? '';
  tree?.close();
  return origin;
}

describe('the logs of three replicas with three keys', () => {
  it('are proven if nothing is missing' + verifies('FL-12'), async () => {
    const fleet = await Fleet.make();
    expect(await verify(fleet)).toMatchObject({
      ok: true,
      complete: true,
      heads: 3,
      records: 60,
      findings: [],
      unpublished: [],
      logs: [{ replica: 'gw-1' }, { replica: 'gw-2' }, { replica: 'gw-3' }],
    });
  });

  it('name the replica whose last records were deleted, how many, and since when' + verifies('FL-12'), async () => {
    const fleet = await Fleet.make();
    const [, second] = fleet.replicas as [SampleReplica, SampleReplica, SampleReplica];
    const [, last = ''] = chainsOf(second);
    writeFileSync(last, `${linesOf(last).slice(0, -3).join('\n')}\n`);
    const { ts: since } = JSON.parse(linesOf(last).at(-1) ?? '') as { ts: string };
    expect((await verify(fleet)).findings).toMatchObject([
      {
        kind: 'changed',
        replica: 'gw-2',
        records: 3,
        since,
        what: `3 records of its log are missing or were changed, from after ${since.slice(0, 19).replace('T', ' ')} UTC on`,
      },
    ]);
  });

  it('name the replica whose folder was put back to an older copy' + verifies('FL-12'), async () => {
    const fleet = await Fleet.make();
    const [, , third] = fleet.replicas as [SampleReplica, SampleReplica, SampleReplica];
    const older = copyOf(third.folder);
    await appendChain(third, { from: START + 7_200_000, count: 5 });
    sealReplica(third);
    await publishHead(fleet.state, third);
    rmSync(third.folder, { recursive: true });
    putBack(older, third.folder);
    const { ok, findings } = await verify(fleet);
    expect(ok).toBe(false);
    expect(findings).toMatchObject([
      {
        kind: 'short',
        replica: 'gw-3',
        records: 12,
        since: expect.stringMatching(/^2026-01-05T01:00:/),
        what: expect.stringMatching(
          /^12 records are missing at its end: it had published 32 records by .*20 are signed/,
        ),
        next: expect.stringContaining('Collect the folder of its log again'),
      },
    ]);
    // The replica itself does not replace the head that shows it.
    expect(await publishHead(fleet.state, third)).toMatchObject([
      expect.stringContaining('an older copy was put back'),
    ]);
    expect((await verify(fleet)).findings).toMatchObject([{ kind: 'short', replica: 'gw-3' }]);
  });

  it('name a replica whose folder is missing' + verifies('FL-12'), async () => {
    const fleet = await Fleet.make();
    rmSync(fleet.replicas[0]!.folder, { recursive: true });
    expect((await verify(fleet)).findings).toMatchObject([
      {
        kind: 'missing',
        replica: 'gw-1',
        records: 20,
        since: expect.any(String),
        what: expect.stringMatching(/^its log is missing: it had published 20 records by .* and ended normally$/),
        next: expect.stringContaining('tollgate audit retire gw-1 --lost'),
      },
    ]);
  });

  it('name a replica that wrote its end again and signed it with its own key' + verifies('FL-12'), async () => {
    const fleet = await Fleet.make();
    const [, second] = fleet.replicas as [SampleReplica, SampleReplica, SampleReplica];
    const origin = originOf(second);
    const [, last = ''] = chainsOf(second);
    removeTree(second);
    rmSync(last);
    await appendChain(second, { from: START + 3_600_000, count: 9 });
    beginAs(second, origin);
    sealReplica(second);
    // By itself, the log is in order.
    const alone = verifyFleet([second.folder], {
      heads: { heads: [], faults: [] },
      publicKeys: [verifierKey(origin, second.key)],
      proof: {},
      expectHeads: [],
    });
    expect(alone).toMatchObject({ ok: true, complete: true });
    const { findings } = await verify(fleet);
    expect(findings).toMatchObject([
      {
        kind: 'forked',
        replica: 'gw-2',
        records: 20,
        what: expect.stringContaining('its log is not the one that it published (a fork)'),
      },
    ]);
    expect(await publishHead(fleet.state, second)).toMatchObject([
      expect.stringContaining('are not those of this log'),
    ]);
  });

  it('name a replica that began another log under the same name' + verifies('FL-12'), async () => {
    const fleet = await Fleet.make();
    const [first] = fleet.replicas as [SampleReplica, SampleReplica, SampleReplica];
    rmSync(first.folder, { recursive: true });
    await appendChain(first, { from: START, count: 6 });
    sealReplica(first);
    await publishHead(fleet.state, first);
    expect((await fleet.heads()).heads.filter(({ replica }) => replica === 'gw-1')).toHaveLength(2);
    expect((await verify(fleet)).findings).toMatchObject([
      { kind: 'missing', replica: 'gw-1', what: expect.stringContaining('is another log of the same name') },
    ]);
  });

  it('name a log that was signed with another key, and a head that was forged' + verifies('FL-12'), async () => {
    const fleet = await Fleet.make();
    const [first, second] = fleet.replicas as [SampleReplica, SampleReplica, SampleReplica];
    const { heads } = await fleet.heads();
    const noted = verifierKey(originOf(second), generateKeyPairSync('ed25519').privateKey);
    expect((await verify(fleet, { publicKeys: [noted] })).findings).toMatchObject([
      { kind: 'head', replica: 'gw-2', what: expect.stringContaining('another key than the one that was named') },
    ]);
    const head = heads.find(({ replica }) => replica === 'gw-1')!;
    const { origin } = head.checkpoint;
    const forged = { note: head.note.replace('\n20\n', '\n10\n'), key: head.key, at: head.at, ended: true };
    await fleet.state.put('audit-heads', `gw-1/${origin}`, JSON.stringify(forged));
    await fleet.state.put('audit-heads', 'gw-4/x', 'nothing');
    await fleet.state.put('audit-heads', `gw-5/${origin}`, JSON.stringify({ ...forged, note: head.note }));
    expect((await verify(fleet)).findings).toMatchObject([
      { kind: 'head', replica: 'gw-1', what: expect.stringContaining('not signed with its key') },
      { kind: 'head', replica: 'gw-4', what: expect.stringContaining('cannot be read') },
      { kind: 'head', replica: 'gw-5', what: expect.stringContaining('is of the replica gw-1') },
    ]);
    expect(first.name).toBe('gw-1');
  });

  it('count only the longest of several copies of one log' + verifies('FL-12'), async () => {
    const fleet = await Fleet.make();
    const [first] = fleet.replicas as [SampleReplica, SampleReplica, SampleReplica];
    const older = copyOf(first.folder);
    await appendChain(first, { from: START + 7_200_000, count: 5 });
    sealReplica(first);
    await publishHead(fleet.state, first);
    const evidence = { heads: await fleet.heads(), publicKeys: [], proof: {}, expectHeads: [] };
    expect(verifyFleet([older, ...fleet.folders], evidence)).toMatchObject({ ok: true, findings: [] });
  });

  it('show whatever end of a log is cut' + verifies('FL-12'), async () => {
    const fleet = await Fleet.make(3);
    const copies = fleet.replicas.map(({ folder }) => copyOf(folder));
    const heads = await fleet.heads();
    const cut = fc.record({
      replica: fc.nat(2),
      bytes: fc.integer({ min: 1, max: 20_000 }),
      tree: fc.constantFrom('kept', 'removed', 'new'),
    });
    fc.assert(
      fc.property(cut, ({ replica: at, bytes, tree }) => {
        const replica = fleet.replicas[at]!;
        rmSync(replica.folder, { recursive: true, force: true });
        putBack(copies[at]!, replica.folder);
        let left = bytes;
        for (const file of chainsOf(replica).reverse()) {
          const size = readFileSync(file).length;
          if (left >= size) rmSync(file);
          else if (left > 0) truncateSync(file, size - left);
          left = Math.max(0, left - size);
        }
        if (tree !== 'kept') removeTree(replica);
        if (tree === 'new') sealReplica(replica);
        const evidence = { heads, publicKeys: [], proof: {}, expectHeads: [] };
        const folders = fleet.folders.filter((folder) => existsSync(folder));
        const { ok, findings } = verifyFleet(folders, evidence);
        expect(ok).toBe(false);
        expect(findings.map((one) => one.replica)).toContain(replica.name);
        putBack(copies[at]!, replica.folder);
        for (const name of ['tree.db-wal', 'tree.db-shm']) rmSync(join(replica.folder, name), { force: true });
      }),
      { numRuns: roundsOf(60, 20) },
    );
  });
});
