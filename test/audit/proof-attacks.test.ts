/** Attacks on a signed log. Each is made on real files, and `verify` must find it. */
import { generateKeyPairSync } from 'node:crypto';
import { appendFileSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { chainFileName } from '../../facade/audit/audit-chain.ts';
import { openAudit } from '../../facade/audit/audit-log.ts';
import { verifyAudit } from '../../facade/audit/chain-verification.ts';
import { AuditTree, TREE_FILE } from '../../facade/audit/proof/audit-tree.ts';
import { parseVerifierKey, verifierKey } from '../../facade/audit/proof/signed-note.ts';
import { beginTree } from '../../facade/audit/proof/tree-beginning.ts';
import { openDatabase } from '../../facade/state/database.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { DEAD_PID, intent, writeDeadChain } from './sample-log.ts';
import { calls, copyOf, DEAD_CHAIN, KEY, NEXT_CHAIN, prove, putBack, seal, signedLog } from './signed-log.ts';

const FIRST = chainFileName(DEAD_CHAIN, 0);
const SECOND = chainFileName(DEAD_CHAIN, 1);
const NEXT = chainFileName(NEXT_CHAIN, 0);

const linesOf = (path: string): string[] => readFileSync(path, 'utf8').trimEnd().split('\n');
const write = (path: string, lines: readonly string[]): void =>
  writeFileSync(path, lines.map((line) => `${line}\n`).join(''));

/** Returns the last note of a log. */
function noteOf(folder: string): string {
  const tree = AuditTree.open(folder);
  const note = tree?.last?.note ?? '';
  tree?.close();
  return note;
}

describe('a signed log', () => {
  it('is proven completely, to the time of its newest record' + verifies('AD-25'), () => {
    const folder = signedLog();
    expect(prove(folder)).toMatchObject({
      ok: true,
      records: 25,
      proof: { complete: true, signed: 25, unsigned: 0, verified: true, until: '2026-01-01T00:00:17.000Z' },
    });
    expect(verifyAudit(folder)).toMatchObject({ ok: true, proof: { complete: false, verified: false } });
    writeDeadChain(folder, [calls(40, 1)], `20260103T000000000Z-${DEAD_PID}`);
    expect(prove(folder)).toMatchObject({ ok: true, proof: { complete: false, signed: 25, unsigned: 3 } });
    expect(prove(temporaryFolder())).toMatchObject({ ok: true, proof: { complete: false, signed: 0 } });
  });

  const ATTACKS: readonly (readonly [string, (folder: string) => void, object])[] = [
    [
      'a bit that was flipped',
      (folder) => {
        const bytes = readFileSync(join(folder, FIRST));
        bytes[700] = bytes[700]! ^ 1;
        writeFileSync(join(folder, FIRST), bytes);
      },
      { file: FIRST, seq: 2 },
    ],
    [
      'a record that was deleted',
      (folder) => write(join(folder, FIRST), linesOf(join(folder, FIRST)).toSpliced(3, 1)),
      { file: FIRST, seq: 4 },
    ],
    [
      'records that were moved',
      (folder) => {
        const lines = linesOf(join(folder, FIRST));
        write(join(folder, FIRST), [...lines.slice(0, 3), lines[4]!, lines[3]!, ...lines.slice(5)]);
      },
      { file: FIRST, seq: 4 },
    ],
    [
      'an end that was cut',
      (folder) => write(join(folder, NEXT), linesOf(join(folder, NEXT)).slice(0, 5)),
      { file: NEXT, seq: 6, unproven: 3, what: 'signed records are missing from here on' },
    ],
    [
      'a chain that was removed',
      (folder) => rmSync(join(folder, NEXT)),
      { file: NEXT, seq: 1, unproven: 8, what: 'the file with these signed records is missing' },
    ],
    [
      'a chain that was replaced by another valid one',
      (folder) => writeDeadChain(folder, [[...calls(20, 2), { type: 'closed' }]], NEXT_CHAIN),
      { file: NEXT, seq: 6, what: expect.stringContaining('was written again') },
    ],
    [
      'the last file of a chain that was removed',
      (folder) => rmSync(join(folder, SECOND)),
      { file: SECOND, seq: 10, unproven: 8 },
    ],
  ];

  it.each(ATTACKS)('shows %s' + verifies('AD-26'), (_what, attack, fault) => {
    const folder = signedLog();
    attack(folder);
    expect(prove(folder).faults[0]).toMatchObject(fault);
    expect(prove(folder)).toMatchObject({ ok: false, proof: { complete: false } });
  });

  it('shows a rewrite by someone who holds all files but not the key' + verifies('AD-26'), () => {
    const folder = signedLog();
    const forged = join(temporaryFolder(), 'audit');
    writeDeadChain(forged, [[...calls(1, 7), { type: 'closed' }]]);
    seal(forged, generateKeyPairSync('ed25519').privateKey);
    const { origin } = AuditTree.open(folder)!;
    rmSync(folder, { recursive: true });
    putBack(forged, folder);
    expect(prove(folder).faults).toMatchObject([
      { file: TREE_FILE, what: expect.stringContaining('not signed with the key') },
    ]);
    // With the origin of the true log, and with its last checkpoint, which was signed.
    const database = openDatabase(join(folder, TREE_FILE), { version: 1, sql: '' });
    database.run('UPDATE tree SET origin = ?')(origin);
    expect(prove(folder)).toMatchObject({ ok: false });
    const [true1] = [noteOf(signedLog())];
    database.run('UPDATE checkpoint SET note = ?')(true1 ?? '');
    expect(prove(folder)).toMatchObject({ ok: false });
    database.close();
  });

  it('cannot show a rewrite with the key, but a checkpoint that was kept can' + verifies('AD-27'), () => {
    const folder = signedLog();
    const note = noteOf(folder);
    rmSync(folder, { recursive: true });
    writeDeadChain(folder, [[...calls(1, 7), { type: 'closed' }]]);
    seal(folder);
    expect(prove(folder)).toMatchObject({ ok: true, proof: { complete: true } });
    expect(prove(folder, { kept: new Map([['kept', note]]) }).faults).toMatchObject([
      { file: 'kept', what: expect.stringContaining('and this is another one') },
    ]);
  });

  it('shows a rollback and a fork against a checkpoint that was kept elsewhere' + verifies('AD-27'), () => {
    const folder = signedLog();
    const older = copyOf(folder);
    appendChain(folder, 50);
    const note = noteOf(folder);
    const kept = new Map([['kept', note]]);
    expect(prove(folder, { kept })).toMatchObject({ ok: true, proof: { kept: 1 } });
    putBack(older, folder);
    rmSync(join(folder, chainFileName(`20260103T000000000Z-${DEAD_PID}`, 0)));
    expect(prove(folder)).toMatchObject({ ok: true, proof: { complete: true } });
    expect(prove(folder, { kept }).faults).toMatchObject([
      { what: expect.stringContaining('rolled back: 28 records') },
    ]);
    appendChain(folder, 60);
    expect(prove(folder)).toMatchObject({ ok: true });
    expect(prove(folder, { kept }).faults).toMatchObject([{ what: expect.stringContaining('forked') }]);
    const forged = note.replace('28', '26');
    expect(prove(folder, { kept: new Map([['kept', forged]]) }).faults).toMatchObject([
      { what: expect.stringContaining('not signed') },
    ]);
    expect(prove(folder, { kept: new Map([['kept', 'x']]) }).faults).toMatchObject([{ what: 'it is no checkpoint' }]);
  });

  it('is verified with a key that was kept elsewhere, which names the tree' + verifies('AD-27'), () => {
    const folder = signedLog();
    const tree = AuditTree.open(folder)!;
    const publicKey = parseVerifierKey(verifierKey(tree.origin, KEY).text)!;
    tree.close();
    expect(verifyAudit(folder, [], { proof: { publicKey } })).toMatchObject({ ok: true, proof: { complete: true } });
    const other = verifierKey('tollgate.local/other', KEY);
    expect(verifyAudit(folder, [], { proof: { publicKey: other } })).toMatchObject({ ok: false });
  });
});

/** Appends a chain of three records, and signs it. */
function appendChain(folder: string, from: number): void {
  writeDeadChain(folder, [calls(from, 1)], `20260103T000000000Z-${DEAD_PID}`);
  seal(folder);
}

describe('the tree of a log', () => {
  const HARM: readonly (readonly [string, (folder: string) => void])[] = [
    ['garbage', (folder) => writeFileSync(join(folder, TREE_FILE), 'x'.repeat(5000))],
    ['a changed leaf', (folder) => change(folder, "UPDATE tile SET hashes = replace(hashes, 'A', 'B')")],
    ['a leaf that is missing', (folder) => change(folder, 'UPDATE tile SET hashes = substr(hashes, 44)')],
    ['no tile', (folder) => change(folder, 'DELETE FROM tile')],
    ['other places of its leaves', (folder) => change(folder, 'UPDATE span SET count = count - 1 WHERE leaf = 0')],
    ['another file of its leaves', (folder) => change(folder, `UPDATE span SET file = '${NEXT}' WHERE leaf = 0`)],
    ['a changed checkpoint', (folder) => change(folder, "UPDATE checkpoint SET note = 'x'")],
    ['another size', (folder) => change(folder, 'UPDATE checkpoint SET size = 24')],
    ['another name', (folder) => change(folder, "UPDATE tree SET origin = 'tollgate.local/1'")],
  ];

  it.each(HARM)('with %s is a fault, and is not signed again' + verifies('AD-30'), (_what, harm) => {
    const folder = signedLog();
    harm(folder);
    expect(prove(folder)).toMatchObject({ ok: false, proof: { complete: false } });
    writeDeadChain(folder, [calls(40, 1)], `20260103T000000000Z-${DEAD_PID}`);
    const isSigned = ((): boolean => {
      try {
        return seal(folder).note !== undefined && prove(folder).ok;
      } catch {
        return false;
      }
    })();
    expect(isSigned).toBe(false);
  });

  it('that another key signed is not signed again' + verifies('AD-30'), () => {
    const folder = signedLog();
    writeDeadChain(folder, [calls(40, 1)], `20260103T000000000Z-${DEAD_PID}`);
    const other = generateKeyPairSync('ed25519').privateKey;
    expect(() => seal(folder, other)).toThrow('is not signed with the key of this log');
  });

  it('that is removed or older is missed by the chains that began later' + verifies('AD-29', 'AD-31'), async () => {
    const folder = signedLog();
    const older = copyOf(folder);
    appendChain(folder, 50);
    await openAudit({ folder, rotateBytes: 1e9 }).close();
    expect(prove(folder)).toMatchObject({ ok: true, proof: { unsigned: 2 } });
    const tree = join(folder, TREE_FILE);
    renameSync(tree, `${tree}.away`);
    expect(prove(folder).faults).toMatchObject([{ what: expect.stringContaining('which is missing') }]);
    writeFileSync(tree, readFileSync(join(older, TREE_FILE)), { mode: 0o600 });
    expect(prove(folder).faults).toMatchObject([{ what: expect.stringContaining('rolled back') }]);
    rmSync(tree);
    const log = openAudit({ folder, rotateBytes: 1e9 });
    beginTree(folder, (entry) => log.append(entry));
    beginTree(folder, () => expect.unreachable('the tree was begun before'));
    await log.close();
    seal(folder);
    expect(prove(folder)).toMatchObject({
      ok: true,
      proof: { complete: true, replaced: [expect.stringMatching(/^tollgate\.local\//)] },
    });
  });
});

describe('a chain that is not signed yet', () => {
  it('is missed by the next chain if it is removed, cut or replaced' + verifies('AD-29'), async () => {
    const folder = temporaryFolder();
    writeDeadChain(folder, [calls(1, 2)]);
    const copy = copyOf(folder);
    await openAudit({ folder, rotateBytes: 1e9 }).close();
    expect(prove(folder)).toMatchObject({ ok: true, faults: [] });
    const path = join(folder, FIRST);
    write(path, linesOf(path).slice(0, 4));
    expect(prove(folder).faults).toMatchObject([
      { file: FIRST, seq: 5, what: expect.stringMatching(/^the record is m/) },
    ]);
    writeDeadChain(folder, [[...calls(1, 1), ...calls(9, 1)]]);
    expect(prove(folder).faults).toMatchObject([{ file: FIRST, seq: 5, what: expect.stringContaining('another one') }]);
    rmSync(path);
    expect(prove(folder).faults).toMatchObject([
      { file: FIRST, seq: 5, what: expect.stringMatching(/^the chain is m/) },
    ]);
    putBack(copy, folder);
    expect(prove(folder)).toMatchObject({ ok: true });
  });

  it('is named with at most 31 others, also if one ends in the middle of a record' + verifies('AD-29'), async () => {
    const folder = temporaryFolder();
    for (let at = 0; at < 40; at += 1)
      writeDeadChain(folder, [[intent('1')]], `20260101T0000000${String(at).padStart(2, '0')}Z-${DEAD_PID}`);
    appendFileSync(join(folder, chainFileName(`20260101T000000039Z-${DEAD_PID}`, 0)), '{"half');
    seal(folder);
    const begun = openAudit({ folder, rotateBytes: 1e9 });
    expect(linesOf(begun.file)[0]).not.toContain('heads');
    const later = openAudit({ folder, rotateBytes: 1e9 });
    expect(JSON.parse(linesOf(later.file)[0] ?? '')).toMatchObject({ tree: { size: 80 }, heads: [{ seq: 2 }] });
    await Promise.all([begun.close(), later.close()]);
    rmSync(join(folder, TREE_FILE));
    const third = openAudit({ folder, rotateBytes: 1e9 });
    expect((JSON.parse(linesOf(third.file)[0] ?? '') as { heads: unknown[] }).heads).toHaveLength(32);
    await third.close();
  });
});

function change(folder: string, sql: string): void {
  const database = openDatabase(join(folder, TREE_FILE), { version: 1, sql: '' });
  database.run(sql)();
  database.close();
}
