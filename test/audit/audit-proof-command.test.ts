/** Tests the commands that prove the log, and that Python with openssl verifies what they write. */

import { execFileSync, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import path, { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openAudit } from '../../facade/audit/audit-log.ts';
import { type ProofDocument, proveRecords } from '../../facade/audit/proof/inclusion-proof.ts';
import { proofStatus } from '../../facade/audit/proof/proof-status.ts';
import { type Answer, cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { DEAD_PID, decision, intent, outcome, writeDeadChain } from './sample-log.ts';
import { calls, copyOf, DEAD_CHAIN } from './signed-log.ts';

const VERIFIER = path.join(import.meta.dirname, '..', '..', 'docs', 'verify-audit.py');
const NEWER = `20260201T000000000Z-${DEAD_PID}`;

/** Runs the verifier of the documentation. */
function python(...args: readonly string[]): { readonly code: number | null; readonly said: string } {
  const { status, stdout, stderr } = spawnSync('python3', [VERIFIER, ...args], { encoding: 'utf8' });
  return { code: status, said: stdout + stderr };
}

/** A project with a log that is signed when a test begins. */
class SignedProject {
  readonly project = new Project();
  readonly folder = join(this.project.folder, 'state', 'audit');

  constructor(more = '') {
    this.project.write('tollgate.yaml', `version: 1\nworkspace: ./work\nstate: ./state\n${more}`);
    this.project.write('work/x', '');
    writeDeadChain(this.folder, [[...calls(1, 3), intent('call-1'), outcome('call-1'), ...calls(5, 300)]]);
  }

  audit(...words: readonly string[]): Promise<Answer> {
    return cli(this.project, ['audit', ...words]);
  }
}

let signed: SignedProject;
let publicKey = '';
let note = '';

beforeAll(async () => {
  signed = new SignedProject();
  publicKey = (await signed.audit('key')).out.trim();
  note = (await signed.audit('checkpoint', '--seal')).out;
});
afterAll(() => signed.project.remove());

describe('tollgate audit verify', () => {
  it('says until when the log is proven, and what is not signed' + verifies('AD-25', 'AD-27'), async () => {
    const one = new SignedProject();
    const before = await one.audit('verify');
    expect(before).toMatchObject({ code: 8, out: expect.stringMatching(/\n609 records linked, not signed\n$/) });
    const sealed = await one.audit('verify', '--seal');
    expect(sealed).toMatchObject({
      code: 0,
      out: expect.stringMatching(/\nverified to \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, record 612\n$/),
    });
    expect(sealed.err).toContain('The signing key is in the state folder');
    expect(sealed.err.replaceAll(/\s+/g, ' ')).toContain('are found only with --checkpoint');
    writeDeadChain(one.folder, [calls(900, 1)], NEWER);
    const open = await one.audit('verify');
    expect(open).toMatchObject({
      code: 8,
      out: expect.stringMatching(/, record 612; 3 records after it linked, not signed\n$/),
    });
    expect(Math.max(...`${open.out}${open.err}`.split('\n').map((line) => line.length))).toBeLessThanOrEqual(100);
    const asJson = await one.audit('verify', '--json');
    expect([asJson.code, JSON.parse(asJson.out)]).toMatchObject([
      8,
      { ok: true, proof: { complete: false, signed: 612, unsigned: 3, verified: true }, warnings: expect.any(Array) },
    ]);
    rmSync(join(one.folder, `${DEAD_CHAIN}.jsonl`));
    expect(await one.audit('verify')).toMatchObject({ code: 3, out: expect.stringContaining('is missing') });
    one.project.remove();
  });

  it('compares a copy with a key and a checkpoint that were kept elsewhere' + verifies('AD-27', 'AD-35'), async () => {
    const place = temporaryFolder();
    const file = (name: string, text: string): string => {
      writeFileSync(join(place, name), text);
      return join(place, name);
    };
    const copy = copyOf(signed.folder);
    expect(await signed.audit('verify', '--folder', copy)).toMatchObject({
      code: 8,
      out: expect.stringContaining('not verified, because the key is not known'),
      err: expect.stringContaining('--public-key'),
    });
    const given = ['--folder', copy, '--public-key', file('key', `${publicKey}\n`)];
    expect(await signed.audit('verify', ...given)).toMatchObject({ code: 0 });
    expect(await signed.audit('verify', ...given, '--checkpoint', file('note', note))).toMatchObject({
      code: 0,
      out: expect.stringContaining('1 checkpoint kept elsewhere: the same log'),
      err: '',
    });
    const other = file('other', note.replace('612', '613'));
    expect(await signed.audit('verify', ...given, '--checkpoint', other)).toMatchObject({
      code: 3,
      out: expect.stringContaining('not signed with the key'),
    });
    for (const wrong of [
      ['--public-key', 'x'],
      ['--checkpoint', join(place, 'none')],
      ['--folder', copy, '--seal'],
    ])
      expect(await signed.audit('verify', ...wrong)).toMatchObject({ code: 2 });
  });

  inFull('counts signed records of an archive that it did not read' + verifies('AD-34'), async () => {
    const one = new SignedProject();
    writeDeadChain(one.folder, [[...calls(900, 1), { type: 'closed' }]], NEWER);
    await one.audit('verify', '--seal');
    const to = join(one.project.home, 'archive');
    expect(await one.audit('archive', '--before', '2026-01-20T00:00:00Z', '--to', to)).toMatchObject({ code: 0 });
    await one.audit('verify', '--seal');
    expect(existsSync(join(one.folder, `${DEAD_CHAIN}.jsonl`))).toBe(false);
    // Records of these chains name the tree, which is not in the archive.
    expect(await one.audit('archive', '--before', new Date().toISOString(), '--to', to)).toMatchObject({ code: 0 });
    const state = join(one.folder, '..');
    expect(await one.audit('verify', '--folder', to, '--key', join(state, 'audit.key'))).toMatchObject({ code: 8 });
    await one.audit('verify', '--seal');
    const unread = await one.audit('verify');
    expect(unread.out.replaceAll(/\s+/g, ' ')).toMatch(/\d+ signed records in archives not read; name them/);
    expect(unread.code).toBe(8);
    expect(await one.audit('verify', '--archive', to)).toMatchObject({ code: 0 });
    const key = (await one.audit('key')).out.trim();
    expect(python(one.folder, '--key', key)).toMatchObject({ code: 8, said: expect.stringContaining('were not read') });
    expect(python(one.folder, '--key', key, '--archive', to)).toMatchObject({ code: 0 });
    const archived = join(to, `${NEWER}.jsonl.gz`);
    truncateSync(archived, statSync(archived).size >> 1);
    expect(python(one.folder, '--key', key, '--archive', to)).toMatchObject({
      code: 3,
      said: expect.stringMatching(/^NOT PROVEN: /m),
    });
    expect(await one.audit('verify', '--archive', to)).toMatchObject({ code: 3 });
    rmSync(archived);
    expect(await one.audit('verify', '--archive', to)).toMatchObject({ code: 3 });
    one.project.remove();
  });
});

describe('tollgate audit prove', () => {
  inFull('writes a proof that Python verifies, and that no change survives' + verifies('AD-32', 'AD-33'), async () => {
    const file = join(temporaryFolder(), 'proof.json');
    expect(await signed.audit('prove', 'call-1', '--out', file)).toMatchObject({
      code: 0,
      out: '',
      err: expect.stringContaining('2 records proven'),
    });
    expect((await signed.audit('prove', 'call-1')).out).toBe(readFileSync(file, 'utf8'));
    expect(python(file, '--key', publicKey)).toMatchObject({
      code: 0,
      said: expect.stringContaining('2 of 2 records'),
    });
    expect(python(file)).toMatchObject({ code: 0, said: expect.stringContaining('The key is the one in the proof') });
    const proof = JSON.parse(readFileSync(file, 'utf8')) as ProofDocument;
    const [first, second] = proof.records as NonNullable<ProofDocument['records'][0]>[];
    const changed: readonly object[] = [
      { ...proof, records: [{ ...first, line: first?.line?.replace('allow', 'deny') }, second] },
      { ...proof, records: [{ ...first, leaf: (first?.leaf ?? 0) + 1 }, second] },
      { ...proof, records: [{ ...first, path: first?.path.slice(1) }, second] },
      { ...proof, records: [{ ...first, path: [...(first?.path ?? []), 'x'] }, second] },
      { ...proof, checkpoint: note.replace('612', '611') },
      { ...proof, checkpoint: 7 },
      { ...proof, key: publicKey.replace('tollgate', 'tellgate') },
      { records: 3 },
    ];
    for (const other of partOf(changed, 4)) {
      writeFileSync(file, JSON.stringify(other));
      expect(python(file)).toMatchObject({ code: 3, said: expect.stringContaining('NOT PROVEN') });
    }
    expect(readFileSync(VERIFIER, 'utf8').split('\n').length).toBeLessThanOrEqual(201);
  });

  it('says which records are not signed yet, and signs them first with --seal' + verifies('AD-32'), async () => {
    const one = new SignedProject();
    await one.audit('verify', '--seal');
    writeDeadChain(one.folder, [[decision('call-9')]], NEWER);
    const open = await one.audit('prove', 'call-9');
    expect(open).toMatchObject({ code: 8, err: expect.stringContaining('1 record of 1 not proven: not signed yet') });
    expect(await one.audit('prove', 'call-9', '--seal')).toMatchObject({ code: 0 });
    expect(await one.audit('prove', 'call-10')).toMatchObject({ code: 1, out: '' });
    one.project.remove();
  });
});

describe('docs/verify-audit.py', () => {
  inFull('verifies a copy of the log as `verify` does' + verifies('AD-33'), () => {
    const kept = join(temporaryFolder(), 'note');
    writeFileSync(kept, note);
    const copy = copyOf(signed.folder);
    const chain = join(copy, `${DEAD_CHAIN}.jsonl`);
    const good = readFileSync(chain, 'utf8');
    expect(python(copy, '--key', publicKey, '--checkpoint', kept)).toMatchObject({
      code: 0,
      said: expect.stringMatching(/^612 of 612 records of tollgate\.local/),
    });
    expect(python(copy)).toMatchObject({ code: 3 });
    const lines = good.split('\n');
    for (const bad of [
      good.replace('"exposed":"read"', '"exposed":"reaD"'),
      lines.toSpliced(5, 1).join('\n'),
      lines.toSpliced(5, 0, lines[5] ?? '').join('\n'),
      [...lines.slice(0, 5), lines[6], lines[5], ...lines.slice(7)].join('\n'),
      good.slice(0, -600),
    ]) {
      writeFileSync(chain, bad);
      expect(python(copy, '--key', publicKey)).toMatchObject({ code: 3 });
    }
    writeFileSync(chain, `${good}{}\n`);
    expect(python(copy, '--key', publicKey)).toMatchObject({ code: 8, said: expect.stringContaining('1 are not') });
    rmSync(chain);
    expect(python(copy, '--key', publicKey)).toMatchObject({ code: 8, said: expect.stringContaining('not here') });
    writeFileSync(kept, note.replace('612', '613'));
    expect(python(copy, '--key', publicKey, '--checkpoint', kept)).toMatchObject({ code: 3 });
    rmSync(join(copy, 'tree.db'));
    expect(python(copy, '--key', publicKey)).toMatchObject({ code: 3 });
  });

  it('verifies a bundle, as a folder and as an archive' + verifies('AD-33'), () => {
    const bundle = join(temporaryFolder(), 'bundle');
    mkdirSync(bundle);
    const text = readFileSync(join(signed.folder, `${DEAD_CHAIN}.jsonl`), 'utf8');
    const lines = text.trimEnd().split('\n').slice(0, 20);
    let offset = 0;
    const records = lines.map((line) => {
      const placed = { file: `${DEAD_CHAIN}.jsonl`, offset, line };
      offset += Buffer.byteLength(line) + 1;
      return placed;
    });
    writeFileSync(join(bundle, 'records.jsonl'), `${lines.join('\n')}\n`);
    writeFileSync(
      join(bundle, 'proofs.json'),
      JSON.stringify(proveRecords(signed.folder, records, { withLines: false })),
    );
    expect(python(bundle, '--key', publicKey)).toMatchObject({ code: 0, said: expect.stringContaining('20 of 20') });
    execFileSync('tar', ['-czf', `${bundle}.tar.gz`, '-C', path.dirname(bundle), 'bundle']);
    expect(python(`${bundle}.tar.gz`, '--key', publicKey)).toMatchObject({ code: 0 });
    writeFileSync(join(bundle, 'records.jsonl'), `${lines.slice(1).join('\n')}\n`);
    expect(python(bundle, '--key', publicKey)).toMatchObject({ code: 3, said: expect.stringContaining('19 records') });
    writeFileSync(join(bundle, 'records.jsonl'), `${lines.toReversed().join('\n')}\n`);
    expect(python(bundle, '--key', publicKey)).toMatchObject({ code: 3 });
  });
});

describe('the signing key', () => {
  it('is made in the state folder, or is a file that the owner names' + verifies('AD-35'), async () => {
    const made = join(signed.project.folder, 'state', 'audit-signing.pem');
    expect(statSync(made).mode & 0o777).toBe(0o600);
    const pem = join(signed.project.home, 'own.pem');
    execFileSync('openssl', ['genpkey', '-algorithm', 'ed25519', '-out', pem]);
    const one = new SignedProject(`audit: {signing: {key: ${pem}}}\n`);
    const key = await one.audit('key');
    expect(key).toMatchObject({ code: 0, err: '' });
    expect(key.out).not.toBe(publicKey);
    expect((await one.audit('verify', '--seal')).err).not.toContain('state folder');
    expect(existsSync(join(one.project.folder, 'state', 'audit-signing.pem'))).toBe(false);
    writeFileSync(pem, 'x');
    expect(await one.audit('verify')).toMatchObject({ code: 1, err: expect.stringContaining('no Ed25519 key') });
    one.project.remove();
  });

  it('is a secret that the owner names' + verifies('AD-35'), async () => {
    const pem = execFileSync('openssl', ['genpkey', '-algorithm', 'ed25519'], { encoding: 'utf8' });
    const file = join(signed.project.home, 'secret.pem');
    writeFileSync(file, pem);
    const one = new SignedProject(
      `audit: {signing: {key: 'secret:audit-key'}}\nsecrets: {audit-key: {exec: [/bin/cat, ${file}]}}\n`,
    );
    expect(await one.audit('verify', '--seal')).toMatchObject({ code: 0 });
    expect((await one.audit('verify')).err).not.toContain('state folder');
    rmSync(file);
    expect(await one.audit('verify')).toMatchObject({ err: expect.stringContaining('SECRET_MISSING') });
    one.project.remove();
  });

  it.each([
    ['{key: ./work/key.pem}', 'an agent could sign a changed log'],
    ['{witness: {command: [./send]}}', 'a relative path'],
    ['{witness: {command: [sh, WORK/send.sh]}}', 'leads into the workspace'],
    ['{witness: {command: [cat], key: x}}', 'no verifier key of a witness'],
    ['{within: 5}', 'within'],
  ])('is refused with the setting %s', (setting, why) => {
    const project = new Project();
    project.write('work/x', '');
    const written = setting.replace('WORK', join(project.folder, 'work'));
    const { problems } = project.load(`version: 1\nworkspace: ./work\nstate: ~/state\naudit: {signing: ${written}}\n`);
    expect(problems.map(({ message }) => message).join()).toContain(why);
    project.remove();
  });
});

describe('the status of the proof', () => {
  it('counts what was appended since the last checkpoint' + verifies('AD-36'), async () => {
    const one = new SignedProject();
    const signing = { every: 1, withinMs: 1 };
    const status = () => proofStatus({ state: join(one.folder, '..'), audit: { folder: one.folder, signing } });
    expect(status()).toEqual({ unsigned: 609, keyInState: true });
    await one.audit('verify', '--seal');
    expect(status()).toMatchObject({ last: { size: 612 }, unsigned: 0, origin: expect.any(String) });
    await openAudit({ folder: one.folder, rotateBytes: 1e9 }).close();
    expect(status()).toMatchObject({ last: { size: 612 }, unsigned: 2 });
    writeFileSync(join(one.folder, 'tree.db'), 'x'.repeat(4096));
    for (const name of readdirSync(one.folder)) if (/db-/.test(name)) rmSync(join(one.folder, name));
    expect(status()).toMatchObject({ unsigned: 614, fault: expect.stringContaining('tree.db') });
    one.project.remove();
  });
});
