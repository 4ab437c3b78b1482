/** Tests the tree of RFC 6962 against vectors of other implementations, and its proofs for all small sizes. */

import { createHash, createPrivateKey, createPublicKey, sign } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { AuditTree, checkTiles } from '../../facade/audit/proof/audit-tree.ts';
import {
  inclusionPath,
  leafHash,
  nodeHash,
  type ReadNode,
  rootOf,
  rootOfPath,
} from '../../facade/audit/proof/merkle-tree.ts';
import {
  findCosignature,
  isSignedBy,
  parseNote,
  parseVerifierKey,
  signCheckpoint,
  type VerifierKey,
  verifierKey,
} from '../../facade/audit/proof/signed-note.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';

/** The leaves and roots of the test of Certificate Transparency (google/certificate-transparency, merkle_tree_test). */
const CT_LEAVES = ['', '00', '10', '2021', '3031', '40414243', '5051525354555657', '606162636465666768696a6b6c6d6e6f'];
const CT_ROOTS = [
  '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
  'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
  'aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77',
  'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
  '4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4',
  '76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef',
  'ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c',
  '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
];

/** Reads nodes of leaves in memory, without tiles. */
function nodesOf(leaves: readonly Buffer[]): ReadNode {
  const levels: Map<number, Buffer>[] = [];
  const node: ReadNode = (level, index) => {
    if (level === 0) return leaves[index]!;
    const known = (levels[level] ??= new Map());
    const found = known.get(index) ?? nodeHash(node(level - 1, 2 * index), node(level - 1, 2 * index + 1));
    known.set(index, found);
    return found;
  };
  return node;
}

describe('the tree', () => {
  it('has the roots that Certificate Transparency has' + verifies('AD-20'), () => {
    const leaves = CT_LEAVES.map((hex) => leafHash(Buffer.from(hex, 'hex')));
    expect(CT_ROOTS.map((_, at) => rootOf(at + 1, nodesOf(leaves)).toString('hex'))).toEqual(CT_ROOTS);
    expect(rootOf(0, nodesOf([])).toString('hex')).toMatch(/^e3b0c44298fc1c14/);
  });

  it('proves each leaf of each size, and nothing else' + verifies('AD-20'), () => {
    const leaves = Array.from({ length: roundsOf(40, 20) }, (_, at) => leafHash(Buffer.from(String(at))));
    const read = nodesOf(leaves);
    for (let size = 1; size <= leaves.length; size += 1) {
      const root = rootOf(size, read);
      for (let index = 0; index < size; index += 1) {
        const path = inclusionPath(index, size, read);
        expect(rootOfPath(leaves[index]!, { index, size }, path)).toEqual(root);
        expect(rootOfPath(leafHash(Buffer.from('other')), { index, size }, path)).not.toEqual(root);
        if (size > 1) expect(rootOfPath(leaves[index]!, { index: (index + 1) % size, size }, path)).not.toEqual(root);
        expect(rootOfPath(leaves[index]!, { index, size }, [...path, root])).toBeUndefined();
        expect(rootOfPath(leaves[index]!, { index, size: index }, path)).toBeUndefined();
      }
    }
  });

  inFull('is stored in tiles with the same nodes, also if it grows in steps' + verifies('AD-20'), () => {
    const leaves = Array.from({ length: 65_800 }, (_, at) => leafHash(Buffer.from(String(at))));
    const { tree } = AuditTree.begin(temporaryFolder());
    const read = nodesOf(leaves);
    let from = 0;
    for (const size of [1, 255, 256, 257, 1000, 65_536, 65_800]) {
      const root = tree.transact(() => {
        for (let at = from; at < size; at += 1) tree.append(leaves[at]!, at);
        return tree.add([], { size, at: '' }, (found) => found.toString('hex'));
      });
      expect(root).toBe(rootOf(size, read).toString('hex'));
      from = size;
    }
    checkTiles(tree, from);
    for (const index of [0, 255, 256, 65_535, 65_536, 65_799]) {
      const path = inclusionPath(index, 65_800, tree.node);
      expect(rootOfPath(leaves[index]!, { index, size: 65_800 }, path)).toEqual(rootOf(65_800, read));
    }
    tree.close();
  });
});

/** The key of RFC 8032, section 7.1, test 1. */
const KEY = createPrivateKey({
  key: {
    kty: 'OKP',
    crv: 'Ed25519',
    d: Buffer.from('9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60', 'hex').toString('base64url'),
    x: Buffer.from('d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a', 'hex').toString('base64url'),
  },
  format: 'jwk',
});

describe('a checkpoint', () => {
  it('is a signed note that Go reads' + verifies('AD-21'), () => {
    // The example of golang.org/x/mod/sumdb/note.
    const peter = parseVerifierKey('PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW');
    const text =
      "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n";
    const signature = 'x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=';
    const raw = Buffer.from(signature, 'base64');
    const note = {
      text,
      signatures: [{ name: 'PeterNeumann', id: raw.toString('hex', 0, 4), bytes: raw.subarray(4) }],
      checkpoint: { origin: '', size: 0, root: '' },
    };
    expect(peter && isSignedBy(note, peter)).toBe(true);
    expect(peter && isSignedBy({ ...note, text: text.replace('answer', 'Answer') }, peter)).toBe(false);
  });

  it('is read as it was signed, and refused with any other byte' + verifies('AD-21'), () => {
    const root = leafHash(Buffer.from('x')).toString('base64');
    const note = signCheckpoint({ origin: 'tollgate.local/1', size: 12, root }, KEY);
    const key = verifierKey('tollgate.local/1', createPublicKey(KEY));
    expect(parseVerifierKey(key.text)).toMatchObject({ name: key.name, id: key.id, text: key.text });
    const read = parseNote(note)!;
    expect(read.checkpoint).toEqual({ origin: 'tollgate.local/1', size: 12, root });
    expect(isSignedBy(read, key)).toBe(true);
    const bytes = Buffer.from(note);
    for (let at = 0; at < bytes.length; at += 1) {
      const other = Buffer.from(bytes);
      other[at] = other[at]! ^ 1;
      const changed = parseNote(other.toString());
      expect(changed !== undefined && isSignedBy(changed, key)).toBe(false);
    }
    for (const bad of ['', 'x', '\n\n', 'a\n01\nb\n\n', `${note}${'x'.repeat(20_000)}`])
      expect(parseNote(bad)).toBeUndefined();
    expect(parseVerifierKey(key.text.replace(/\+[0-9a-f]{8}\+/, '+00000000+'))).toBeUndefined();
  });

  it('is cosigned by a witness as C2SP tlog-cosignature says' + verifies('AD-28'), () => {
    const note = signCheckpoint({ origin: 'o', size: 1, root: leafHash(Buffer.from('x')).toString('base64') }, KEY);
    const raw = Buffer.from((createPublicKey(KEY).export({ format: 'jwk' }) as { x: string }).x, 'base64url');
    const witness = witnessKey('w.example', raw);
    const line = cosign(note, 1_700_000_000, witness.id);
    expect(findCosignature(note, `garbage\n${line}\n`, witness)).toEqual({ line, at: 1_700_000_000_000 });
    const other = signCheckpoint({ origin: 'o', size: 2, root: leafHash(Buffer.from('y')).toString('base64') }, KEY);
    expect(findCosignature(other, line, witness)).toBeUndefined();
    expect(findCosignature(note, line.replace('w.example', 'v.example'), witness)).toBeUndefined();
  });
});

function witnessKey(name: string, raw: Buffer): VerifierKey {
  const body = Buffer.concat([Buffer.from([4]), raw]);
  const id = createHash('sha256').update(`${name}\n`).update(body).digest('hex').slice(0, 8);
  return parseVerifierKey(`${name}+${id}+${body.toString('base64')}`)!;
}

function cosign(note: string, seconds: number, id: string): string {
  const time = Buffer.alloc(8);
  time.writeBigUInt64BE(BigInt(seconds));
  const text = note.slice(0, note.lastIndexOf('\n\n') + 1);
  const signature = sign(null, Buffer.from(`cosignature/v1\ntime ${seconds}\n${text}`), KEY);
  return `\u2014 w.example ${Buffer.concat([Buffer.from(id, 'hex'), time, signature]).toString('base64')}`;
}
