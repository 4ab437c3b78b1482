/** Tests the bundle of an incident: what it holds, and that Python with openssl verifies it. */

import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path, { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ChainEntry } from '../../facade/audit/audit-chain.ts';
import type { Io } from '../../facade/cli/command-io.ts';
import { ApprovalOwner, askFor } from '../approvals/owner-context.ts';
import { type Answer, cli, start } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { DEAD_CHAIN, DEAD_PID, decision, intent, outcome, writeDeadChain } from './sample-log.ts';
import { calls } from './signed-log.ts';

const ROOT = path.join(import.meta.dirname, '..', '..');
const VERIFIER = join(ROOT, 'docs', 'verify-audit.py');
const SECRET = 'correct horse battery';
const ENV = { env: { DB_PASSWORD: SECRET } };
const HOSTILE = '<img src=x onerror=alert(1)>\u001b[31m"\n../../etc/passwd\u202e';
const CONFIG = `version: 1
workspace: ./work
state: ./state
servers: {mail: {command: node}}
secrets: {db: {env: DB_PASSWORD}}
policies: [./rules.yaml]
principals: [{id: agent, owner: true, stdio: true}]
profiles: {default: {servers: [mail]}}
`;
const RULES = `rules:
  - id: no-mail
    outcome: deny
    message: "The password is ${SECRET}"
    when: {tools: [mail.send]}
`;

const as = (id: string, session: string) => ({
  principal: { id, role: 'dev', profiles: ['default'], origin: 'x' },
  session,
});
const reload: ChainEntry = { type: 'config', event: 'reloaded', outcome: 'allow', revision: 'd'.repeat(64) };
const switched: ChainEntry = { type: 'switch', event: 'off', outcome: 'deny', by: 'olga' };
const grant = (event: string): ChainEntry => ({
  type: 'grant',
  event,
  id: 'grant-1',
  outcome: 'allow',
  principal: as('alice', 's1').principal,
});
/** Of 2026-01-01, one second apart, after the first record: alice, bob and a name that attacks its reader. */
const ENTRIES: readonly ChainEntry[] = [
  grant('given'),
  ...calls(1, 3),
  intent('b1', as('bob', 's2')),
  outcome('b1', { ...as('bob', 's2'), consent: 'grant-1' }),
  reload,
  switched,
  decision('h1', as(HOSTILE, 's3')),
  { type: 'server', server: 'mail', event: 'crashed' },
];

class Case {
  readonly project = new Project();
  readonly folder = join(this.project.folder, 'state', 'audit');

  constructor(entries = ENTRIES) {
    this.project.write('tollgate.yaml', CONFIG);
    this.project.write('rules.yaml', RULES);
    this.project.write('work/x', '');
    writeDeadChain(this.folder, [[...entries, { type: 'closed' }]]);
  }

  incident(words: readonly string[], more: Partial<Io> = {}): Promise<Answer> {
    return cli(this.project, ['incident', ...words], { ...ENV, ...more });
  }

  /** Writes a bundle, and returns its content and what the command printed. */
  async bundle(...words: readonly string[]): Promise<Bundle & { readonly answer: Answer }> {
    const file = join(temporaryFolder(), 'bundle.tar.gz');
    const answer = await this.incident([...words, '--out', file]);
    return { answer, file, ...unpacked(file) };
  }
}

interface Bundle {
  readonly file: string;
  readonly folder: string;
  /** The text of a file of the bundle. */
  readonly text: (name: string) => string;
  /** The log's numbers of the records, in the order of the bundle. */
  readonly seqs: readonly number[];
}

function unpacked(file: string): Omit<Bundle, 'file'> {
  const folder = temporaryFolder();
  execFileSync('tar', ['xzf', file, '-C', folder]);
  const text = (name: string): string => readFileSync(join(folder, 'incident', name), 'utf8');
  const lines = text('records.jsonl').trimEnd().split('\n');
  return {
    folder: join(folder, 'incident'),
    text,
    seqs: lines.map((line) => (JSON.parse(line) as { seq: number }).seq),
  };
}

function python(...args: readonly string[]): { readonly code: number | null; readonly said: string } {
  const { status, stdout, stderr } = spawnSync('python3', [VERIFIER, ...args], { encoding: 'utf8' });
  return { code: status, said: stdout + stderr };
}

let one: Case;
let key = '';

beforeAll(async () => {
  one = new Case();
  key = (await cli(one.project, ['audit', 'key'], ENV)).out.trim();
});
afterAll(() => one.project.remove());

describe('tollgate incident', () => {
  it('writes one private archive that Python verifies, byte for byte as the log' + verifies('AD-100'), async () => {
    const { answer, file, text, folder } = await one.bundle('--since', '2026-01-01T00:00:00Z', '--until', '2026-02-01');
    expect([answer.code, answer.out]).toEqual([0, expect.stringContaining('15 records, 15 proven')]);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(readdirSync(path.dirname(file))).toEqual(['bundle.tar.gz']);
    expect(text('records.jsonl')).toBe(readFileSync(join(one.folder, `${DEAD_CHAIN}.jsonl`), 'utf8'));
    expect(python(file, '--key', key)).toEqual({ code: 0, said: expect.stringContaining('15 of 15 records') });
    expect(python(folder)).toMatchObject({ code: 0 });
    expect(text('key.txt').trim()).toBe(key);
    expect(text('checkpoint.txt')).toBe((JSON.parse(text('proofs.json')) as { checkpoint: string }).checkpoint);
    expect(text('README.txt')).toContain('15 of 15 records proven.');
  });

  inFull('is refused after any change, and with another key' + verifies('AD-100'), async () => {
    const { text, folder } = await one.bundle('--since', '2026-01-01');
    const other = `${key.split('+')[0]}+00000000+${Buffer.alloc(33, 1).toString('base64')}`;
    expect(python(folder, '--key', other)).toMatchObject({ code: 3 });
    const [records, proofs] = [text('records.jsonl'), text('proofs.json')];
    const [, second = '', ...rest] = records.split('\n');
    const changes: Readonly<Record<string, readonly [string, string]>> = {
      'a changed record': [records.replace('"bob"', '"eve"'), proofs],
      'a removed record': [[second, ...rest].join('\n'), proofs],
      'an added record': [`${second}\n${records}`, proofs],
      'moved records': [records.split('\n').slice(0, -1).reverse().join('\n').concat('\n'), proofs],
      'a changed path': [
        records,
        proofs.replace(/("path":\[")(.)/, (_all, head, digit) => head + (digit === 'A' ? 'B' : 'A')),
      ],
      'a changed number': [records, proofs.replace('"leaf":1,', '"leaf":2,')],
      'a changed checkpoint': [records, proofs.replace(/\\n(\d+)\\n/, '\\n1$1\\n')],
    };
    for (const [what, [lines, proof]] of partOf(Object.entries(changes), 4)) {
      writeFileSync(join(folder, 'records.jsonl'), lines);
      writeFileSync(join(folder, 'proofs.json'), proof);
      expect([what, python(folder, '--key', key).code]).toEqual([what, 3]);
    }
  });

  it('selects calls of a principal or session, with what happened around them' + verifies('AD-100'), async () => {
    const time = ['--since', '2026-01-01T00:00:08Z', '--until', '2026-02-01'];
    // The grant that bob's call used was given before this time.
    expect((await one.bundle(...time, '--principal', 'b*')).seqs).toEqual([9, 10, 11, 12, 14, 15, 2]);
    expect((await one.bundle(...time, '--principal', 'alice')).seqs).toEqual([8, 11, 12, 14, 15]);
    expect((await one.bundle('--until', '2026-02-01', '--session', 's2')).seqs).toEqual([1, 9, 10, 11, 12, 14, 15, 2]);
    const whole = await one.bundle('--until', '2026-02-01', '--session', 's1');
    expect(whole.seqs).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15]);
    expect(python(whole.file)).toMatchObject({ code: 0 });
  });

  it('holds revisions, rules with their places, and versions, but no secret' + verifies('AD-101'), async () => {
    const { text, folder } = await one.bundle('--since', '2026-01-01', '--until', '2026-02-01');
    const policy = JSON.parse(text('policy.json')) as Record<string, unknown>;
    expect(policy).toMatchObject({
      revisions: [
        { revision: 'c'.repeat(64), records: 9, first: '2026-01-01T00:00:03.000Z' },
        { revision: 'd'.repeat(64), records: 1 },
      ],
      rules: [{ id: 'allow-read', file: 'tollgate.yaml', line: 12, decided: 9, shadow: 0 }],
      present: {
        revision: expect.stringMatching(/^[0-9a-f]{64}$/),
        files: [{ file: 'rules.yaml', kind: 'yaml', redacted: true, text: RULES.replace(SECRET, '[redacted]') }],
      },
    });
    expect(JSON.parse(text('versions.json'))).toMatchObject({
      tollgate: expect.any(String),
      node: process.version,
      servers: [
        { name: 'mail', transport: 'stdio' },
        { name: 'workspace', inRecords: true },
      ],
    });
    for (const name of readdirSync(folder)) expect(text(name)).not.toContain(SECRET);
  });

  it('leaves the texts of rules out if a secret cannot be read' + verifies('AD-101'), async () => {
    const file = join(temporaryFolder(), 'bundle.tar.gz');
    const answer = await one.incident(['--since', '2026-01-01', '--out', file], { env: {} });
    expect(answer).toMatchObject({ code: 0, err: expect.stringContaining('these secrets could not be read') });
    const { text, folder } = unpacked(file);
    expect((JSON.parse(text('policy.json')) as { present: { files: unknown } }).present.files).toEqual([
      { file: 'rules.yaml', kind: 'yaml', mode: 'enforce' },
    ]);
    expect(text('README.txt')).toContain('could not be read and searched for: db.');
    for (const name of readdirSync(folder)) expect(text(name)).not.toContain(SECRET);
  });

  it('holds stored requests without their arguments, and the hashes of starts' + verifies('AD-101'), async () => {
    const two = new Case();
    await two.project.approve({ env: ENV.env });
    const owner = new ApprovalOwner(join(two.project.folder, 'state'));
    expect(await askFor(owner.state, { argsText: '{"to":"private@example.org"}' })).toBe('APPROVAL_REQUIRED');
    await owner.close();
    const { text, folder } = await two.bundle('--since', '2026-01-01', '--until', '9999-01-01');
    expect(JSON.parse(text('approvals.json'))).toMatchObject([{ state: 'pending', server: 'mail', tool: 'send' }]);
    for (const name of readdirSync(folder)) expect(text(name)).not.toContain('private@example.org');
    const { servers } = JSON.parse(text('versions.json')) as { servers: Record<string, unknown>[] };
    expect(servers.find(({ name }) => name === 'mail')).toMatchObject({
      start: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    two.project.remove();
  });

  it('names what is not proven, and what could not be read' + verifies('AD-102'), async () => {
    const two = new Case();
    await two.bundle('--since', '2026-01-01');
    const log = join(two.folder, `${DEAD_CHAIN}.jsonl`);
    writeFileSync(log, readFileSync(log, 'utf8').replace('"bob"', '"eve"'));
    writeDeadChain(two.folder, [calls(900, 1)], `20260201T000000000Z-${DEAD_PID}`);
    two.project.write('rules.yaml', 'rules: [{id: x, outcome: what}]\n');
    const changed = await two.bundle('--since', '2026-01-01', '--until', '2026-02-01', '--json');
    expect(changed.answer.code).toBe(8);
    expect(JSON.parse(changed.answer.out)).toMatchObject({
      file: changed.file,
      proven: expect.any(Number),
      changed: 1,
      notProven: expect.arrayContaining([expect.any(Number)]),
      missing: expect.arrayContaining([expect.stringContaining('policy could not be read (POLICY_INVALID)')]),
    });
    expect(python(changed.file)).toMatchObject({ code: 8 });
    expect(changed.text('README.txt')).toContain('1 record changed after they were written');
    two.project.remove();
  });

  it('is written without a key, a tree or a readable state' + verifies('AD-102'), async () => {
    const two = new Case();
    mkdirSync(join(two.folder, 'tree.db'));
    writeFileSync(join(two.folder, '..', 'state.db'), 'x'.repeat(8192));
    const { answer, text, file } = await two.bundle('--since', '2026-01-01');
    expect(answer).toMatchObject({ code: 8, err: expect.stringContaining('Nothing more was signed') });
    expect(answer.err).toContain('Nothing is proven');
    expect(text('README.txt')).toContain('The state could not be read');
    expect(python(file)).toMatchObject({ code: 8, said: expect.stringContaining('nothing is signed') });
    two.project.remove();
  });

  inFull('needs bounded memory, and shows progress' + verifies('AD-103'), { timeout: 120_000 }, async () => {
    // `npm test` writes fewer records into a heap that is smaller by that.
    const [count, heapMb] = [roundsOf(10_000, 1500), roundsOf(32, 20)];
    const two = new Case(calls(1, count));
    expect((await cli(two.project, ['audit', 'verify', '--seal'], ENV)).code).toBe(0);
    const words = ['incident', '--since', '2026-01-01', '--until', '2026-02-01', '--out'];
    const out = join(temporaryFolder(), 'bundle.tar.gz');
    // The records and proofs of 10,000 calls are 35 MB as texts, and more as objects.
    const { status, stderr } = spawnSync(
      process.execPath,
      [`--max-old-space-size=${heapMb}`, join(ROOT, 'dist/facade/main.js'), ...words, out],
      {
        cwd: two.project.folder,
        env: { PATH: process.env.PATH, HOME: two.project.home, ...ENV.env },
        encoding: 'utf8',
      },
    );
    expect([status, stderr]).toEqual([0, expect.any(String)]);
    expect(python(out)).toMatchObject({
      code: 0,
      said: expect.stringContaining(`${2 * count + 2} of ${2 * count + 2}`),
    });
    const terminal = await two.incident([...words.slice(1), `${out}.2`], { isTTY: true });
    expect(terminal).toMatchObject({ code: 0, err: expect.stringMatching(/\r\d+000 records/) });
    const running = start(two.project, [...words, `${out}.3`], ENV);
    running.stop();
    expect(await running.ended).toMatchObject({
      code: 1,
      err: 'CANCELLED: No bundle was written.\nRun the command again.\n',
    });
    expect(readdirSync(path.dirname(out)).sort()).toEqual(['bundle.tar.gz', 'bundle.tar.gz.2']);
    two.project.remove();
  });

  it('replaces no file, and says what it cannot write' + verifies('AD-103'), async () => {
    const folder = temporaryFolder();
    const file = join(folder, 'mine');
    writeFileSync(file, 'mine');
    const since = ['--since', '2026-01-01', '--out'];
    expect(await one.incident([...since, file])).toMatchObject({ code: 2, err: expect.stringContaining('exists') });
    expect(readFileSync(file, 'utf8')).toBe('mine');
    expect(await one.incident([...since, join(folder, 'none', 'x')])).toMatchObject({ code: 2 });
    expect(await one.incident([])).toMatchObject({ code: 2, err: expect.stringContaining('--since') });
    expect(await one.incident(['--since', '1h', '--until', '2h'])).toMatchObject({ code: 2 });
    const named = await one.incident(['--since', '2026-01-01', '--json']);
    const { file: written } = JSON.parse(named.out) as { file: string };
    expect(written).toMatch(/\/incident-\d{8}T\d{9}Z\.tar\.gz$/);
    expect(path.dirname(written)).toBe(one.project.folder);
    rmSync(written);
  });

  it('says what selects nothing' + verifies('AD-104'), async () => {
    const since = ['--since', '2026-01-01', '--out', join(temporaryFolder(), 'x')];
    for (const principal of ['alise', 'ali*se', 'alicf*'])
      expect(await one.incident([...since, '--principal', principal])).toMatchObject({
        code: 1,
        out: '',
        err: expect.stringContaining('did you mean "alice"'),
      });
    expect(await one.incident([...since, '--session', 's9'])).toMatchObject({ code: 1 });
    expect(await one.incident(['--since', '2025-01-01', '--until', '2025-02-01'])).toMatchObject({
      code: 1,
      err: 'There is no record of this time. Nothing was written.\n',
    });
    expect(existsSync(since.at(-1) ?? '')).toBe(false);
  });

  it('is not harmed by names that look like markup, paths or control codes' + verifies('AD-104'), async () => {
    const { answer, text, file } = await one.bundle('--since', '2026-01-01', '--principal', HOSTILE);
    expect(answer.code).toBe(0);
    expect(`${answer.out}${answer.err}${text('README.txt')}`).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u202e]/);
    expect(execFileSync('tar', ['tzf', file], { encoding: 'utf8' }).trim().split('\n').sort()).toEqual(
      [
        'README.txt',
        'approvals.json',
        'checkpoint.txt',
        'key.txt',
        'policy.json',
        'proofs.json',
        'records.jsonl',
        'versions.json',
      ].map((name) => `incident/${name}`),
    );
    const none = await one.incident(['--since', '2026-01-01', '--principal', `${HOSTILE}x`]);
    expect([none.code, none.err]).toEqual([1, expect.not.stringMatching(/[\u0000-\u0009\u000b-\u001f\u202e]/)]);
  });
});
