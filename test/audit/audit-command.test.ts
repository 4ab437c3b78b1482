/** Tests the command `tollgate audit` and its table printer. */
import { appendFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, expectTypeOf, it, vi } from 'vitest';
import { type AUDIT_TYPES, type ChainEntry, chainFileName } from '../../facade/audit/audit-chain.ts';
import { openAudit } from '../../facade/audit/audit-log.ts';
import type { Io } from '../../facade/cli/command-io.ts';
import { paint, printable, table } from '../../facade/cli/print.ts';
import { runCli } from '../../facade/cli/program.ts';
import type { Wiring } from '../../facade/cli/wiring.ts';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { DEAD_CHAIN, DEAD_PID, decision, intent, outcome, writeDeadChain } from './sample-log.ts';

interface Answer {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs `tollgate audit` in this process. */
async function audit(words: readonly string[], more: Partial<Io> = {}): Promise<Answer> {
  let [out, err] = ['', ''];
  const io = {
    stdout: (text: string) => void (out += text),
    stderr: (text: string) => void (err += text),
    isTTY: false,
    env: {},
    home: '/nowhere',
    cwd: '/',
    stopped: new Promise<void>(() => undefined),
    ...more,
  } as Io;
  return { code: await runCli(['audit', ...words], io, {} as Wiring), out, err };
}

/** What `verify` says of records that are not signed. */
const UNSEEN = /^Of records that are not signed, removed ones are found only if a later process saw them/;

const HOSTILE = '=cmd|"x"!A1\u001B[31m\u202E';

function log(): { readonly folder: string; readonly head: string } {
  const folder = temporaryFolder();
  const head = writeDeadChain(folder, [
    [
      intent('call-1'),
      outcome('call-1', { ms: 12.6 }),
      decision('call-2', { exposed: HOSTILE, principal: { id: 'bob', role: 'ci', profiles: [], origin: 'o' } }),
      { type: 'server', server: 'gh', event: 'crashed', exit: 1 },
      intent('call-3'),
    ],
  ]);
  return { folder, head };
}

describe('tollgate audit', () => {
  it('list names the files that were withheld from repositories', async () => {
    const folder = temporaryFolder();
    writeDeadChain(folder, [
      [
        {
          type: 'server',
          server: 'workspace',
          event: 'settings-withheld',
          outcome: 'deny',
          files: ['sub/.git/config', 'sub/.git/hooks'],
          count: 2,
        },
      ],
    ]);
    expect((await audit(['list', '--folder', folder, '--all'])).out).toMatch(
      /deny +workspace .*settings-withheld sub\/\.git\/config and 1 more/,
    );
  });

  it('list shows one aligned line per call, with the reason', async () => {
    const { folder } = log();
    const { code, out, err } = await audit(['list', '--folder', folder]);
    expect([code, err]).toEqual([0, '3 records. Read one completely: tollgate audit show ID\n']);
    const lines = out.split('\n').filter((line) => /^\S/.test(line));
    expect(lines).toHaveLength(4);
    expect(lines[0]).toMatch(/^TIME \(UTC\) +OUTCOME +TOOL +PRINCIPAL +MS +ID +WHY$/);
    expect(lines[1]).toMatch(/^2026-01-01T00:00:03 +allow +read \(workspace\.read\) +alice +13 +call-1 +allow-read$/);
    expect(lines[2]).toContain('DENIED');
    expect(lines[3]).toMatch(/unknown .*call-3( |$)/);
    expect((await audit(['list', '--folder', folder, '--all'])).out).toMatch(/crashed +gh/);
    expect((await audit(['list', '--folder', folder, '--limit', '1'])).out.trimEnd().split('\n')).toHaveLength(2);
    expect((await audit(['list', '--folder', folder, '--unknown'])).out).toMatch(/ call-3( |\n)/);
  });

  it('list says which value no record has, and what was probably meant' + verifies('AD-04'), async () => {
    const { folder } = log();
    const found = await audit(['list', '--folder', folder, '--principal', 'alcie']);
    expect([found.code, found.out]).toEqual([2, '']);
    expect(found.err).toMatch(/No record has the principal "alcie"; did you mean "alice"\?/);
    const page = await audit(['list', '--folder', folder, '--limit', '1', '--json']);
    const cursor = /--before (\w+)\n$/.exec(page.err)?.[1] ?? '';
    expect(JSON.parse((await audit(['list', '--folder', folder, '--before', cursor, '--json'])).out)).toHaveLength(2);
  });

  it('list shows what allowed calls read or ran, and each call once' + verifies('AD-111'), async () => {
    const folder = temporaryFolder();
    const facts = { programs: ['base64', 'gzip'], paths: ['deploy/production.key'] };
    const long = { paths: [`src/${'long-'.repeat(12)}name.ts`] };
    writeDeadChain(folder, [
      [
        intent('c1', { facts }),
        outcome('c1'),
        intent('c2', { facts: long }),
        { type: 'server', server: 'gh', event: 'crashed', exit: 1 },
        outcome('c2'),
        decision('c3', { facts: { hosts: ['a.example'] } }),
      ],
    ]);
    const list = async (...words: string[]): Promise<string> =>
      (await audit(['list', '--folder', folder, ...words])).out;
    const rows = (await list()).split('\n');
    expect(rows.filter((row) => /^2026/.test(row))).toHaveLength(3);
    expect(await list('--path', '*.key')).toMatch(/allow +read base64 deploy\/production\.key \+1 +alice/);
    expect(await list('--session', 's1')).toMatch(/…ong-long/);
    const all = JSON.parse(await list('--all', '--json')) as { id?: string; type: string; facts?: unknown }[];
    expect(all.map(({ id, type, facts: named }) => [id ?? type, named])).toEqual([
      ['opened', undefined],
      ['c1', facts],
      ['server', undefined],
      ['c2', long],
      ['c3', { hosts: ['a.example'] }],
    ]);
    const exported = (await audit(['export', '--folder', folder])).out.trim().split('\n');
    expect(exported.map((line) => (JSON.parse(line) as { type: string }).type)).toEqual([
      'opened',
      'intent',
      'outcome',
      'intent',
      'server',
      'outcome',
      'decision',
    ]);
  });

  it('list names an archive that is damaged, and a file that cannot be read' + verifies('AD-116'), async () => {
    const folder = temporaryFolder();
    writeDeadChain(folder, [[decision('a')], [decision('b')]]);
    const first = chainFileName(DEAD_CHAIN, 0);
    const packed = gzipSync(readFileSync(join(folder, first)));
    writeFileSync(join(folder, `${first}.gz`), packed.subarray(0, packed.length - 9));
    rmSync(join(folder, first));
    mkdirSync(join(folder, chainFileName(DEAD_CHAIN, 2)));
    for (const words of [['list'], ['list', '--json'], ['stats'], ['export'], ['show', 'b'], ['session', 's1']]) {
      const { code, err } = await audit([...words, '--folder', folder]);
      expect([code, err.replaceAll(/\s+/g, ' ')]).toEqual([0, expect.stringContaining(`${first}.gz is damaged`)]);
      expect(err).toContain(`${chainFileName(DEAD_CHAIN, 2)} cannot be read (EISDIR)`);
    }
  });

  it('list says that recorded arguments are not searched' + verifies('AD-115'), async () => {
    const { folder } = log();
    const { code, err } = await audit(['list', '--folder', folder, '--text', 'nothing-such']);
    expect([code, err]).toEqual([0, expect.stringContaining('Recorded arguments (audit.facts: full) are encrypted')]);
    expect((await audit(['list', '--folder', folder, '--text', 'alice'])).err).not.toContain('Recorded');
  });

  it('list refuses a value that neither log nor configuration has' + verifies('AD-117'), async () => {
    const project = new Project();
    try {
      mkdirSync(join(project.folder, 'workspace'));
      const { audit: place } = project.config(`version: 1
workspace: ./workspace
state: ./state
principals: [{id: carol, stdio: true, owner: true}]
servers: {notes: {command: node, isolation: direct}}
profiles: {default: {servers: [notes], budgets: [{id: few, scope: session, calls: 2}]}}
rules: [{id: no-push, outcome: deny, message: no, when: {tools: [notes.push]}}]
`);
      const budget = { type: 'budget', id: 'b', budget: 'many', outcome: 'deny' } as unknown as ChainEntry;
      writeDeadChain(place.folder, [[decision('a'), budget]]);
      const known = { principal: 'carol', server: 'notes', tool: 'notes.push', rule: 'no-push', budget: 'few' };
      for (const [key, value] of Object.entries(known)) {
        const empty = await cli(project, ['audit', 'list', `--${key}`, value]);
        expect([key, empty.code, empty.err]).toEqual([key, 0, expect.stringContaining('There is no such record')]);
        const refused = await cli(project, ['audit', 'list', `--${key}`, key === 'tool' ? 'nots.push' : `${value}x`]);
        expect([key, refused.code, refused.err]).toEqual([key, 2, expect.stringContaining(`No record has the ${key}`)]);
      }
    } finally {
      project.remove();
    }
  });

  it('session and reindex print what they found, also as JSON' + verifies('AD-07', 'AD-18'), async () => {
    const { folder } = log();
    const { code, out } = await audit(['session', 's1', '--folder', folder]);
    expect([code, out]).toEqual([
      0,
      expect.stringMatching(/^session s1 · alice \(dev\) · 2026-01-01 · \d events\n\nTIME/),
    ]);
    expect(JSON.parse((await audit(['session', 's1', '--folder', folder, '--json'])).out)).toMatchObject({
      session: 's1',
    });
    expect((await audit(['session', 'zz', '--folder', folder])).code).toBe(1);
    expect((await audit(['reindex', '--folder', folder])).out).toMatch(/^indexed 1 chain in 1 file, 0\.0 MB\n$/);
  });

  it('list shows who did what, and show finds each record by the id in the list' + verifies('CY-03'), async () => {
    const folder = temporaryFolder();
    writeDeadChain(folder, [
      [
        {
          type: 'consent',
          event: 'tools-approved',
          server: 'gh',
          outcome: 'allow',
          by: 'local',
          user: 'ann',
          approved: 'a'.repeat(64),
          tools: 2,
        },
        { type: 'consent', event: 'pending', server: 'gh', outcome: 'deny', added: 1 },
        { type: 'switch', event: 'off', outcome: 'deny', by: 'ann' },
        { type: 'upgrade', event: 'enabled', id: 'shell', outcome: 'allow', by: 'local', user: 'local' },
        { type: 'server', server: 'gh', event: 'kill', outcome: 'deny', by: 'ann' },
        {
          type: 'setup',
          event: 'imported',
          outcome: 'allow',
          by: 'ann',
          clients: ['cursor'],
          servers: ['gh', 'notes'],
          secrets: ['gh.token'],
        },
        { type: 'config', event: 'loaded', outcome: 'allow', revision: 'r' },
      ],
    ]);
    const { out } = await audit(['list', '--folder', folder, '--all']);
    const rows = out.trimEnd().split('\n').slice(2);
    const expected = [
      /allow +gh +[0-9a-f]{12} +tools approved by local \(ann\)$/,
      /deny +gh +[0-9a-f]{12} +pending$/,
      /deny +switch +[0-9a-f]{12} +switched off by ann$/,
      /allow +upgrade +shell +shell enabled by local$/,
      /deny +gh +[0-9a-f]{12} +kill by ann$/,
      /allow +setup +[0-9a-f]{12} +imported gh, notes, gh\.token \(cursor\) by ann$/,
      /allow +config +[0-9a-f]{12} +loaded$/,
    ];
    for (const [at, pattern] of expected.entries()) expect(rows[at]).toMatch(pattern);
    const [id = ''] = / [0-9a-f]{12} /.exec(rows[0] ?? '') ?? [];
    const shown = await audit(['show', id.trim(), '--folder', folder]);
    expect([shown.code, shown.out.match(/hash fits/g)?.length]).toEqual([0, 1]);
    expect(shown.out).toMatch(/user +ann[^]*approved +a{64}\n/);
    expect((await audit(['show', '0'.repeat(12), '--folder', folder])).code).toBe(1);
    expect((await audit(['list', '--folder', folder, '--type', 'consent'])).out.trimEnd().split('\n')).toHaveLength(3);
  });

  it('refuses an unknown type or outcome and suggests the right one', async () => {
    const { folder } = log();
    expect(await audit(['list', '--type', 'consnt', '--folder', folder])).toMatchObject({
      code: 2,
      out: '',
      err: expect.stringContaining('No record has the type "consnt"; did you mean "consent"?'),
    });
    expect(await audit(['export', '--outcome', 'dney', '--folder', folder])).toMatchObject({
      code: 2,
      err: expect.stringContaining('did you mean "deny"?'),
    });
    expectTypeOf<(typeof AUDIT_TYPES)[number]>().toEqualTypeOf<ChainEntry['type']>();
  });

  it('list makes control characters of names visible, and uses colours only in a terminal', async () => {
    const { folder } = log();
    const plain = await audit(['list', '--folder', folder, '--principal', 'bob']);
    expect(plain.out).toContain('\\u{1b}[31m\\u{202e}');
    expect(plain.out).not.toContain('\u001B');
    vi.stubEnv('FORCE_COLOR', '1');
    expect((await audit(['list', '--folder', folder], { isTTY: true })).out).toContain('\u001B[31mdeny\u001B[39m');
    vi.unstubAllEnvs();
  });

  it('list selects records by field and time, and prints JSON', async () => {
    const { folder } = log();
    const find = async (...words: string[]): Promise<unknown[]> =>
      (JSON.parse((await audit(['list', '--folder', folder, '--json', ...words])).out) as { id: string }[]).map(
        ({ id }) => id,
      );
    expect(await find('--principal', 'bob')).toEqual(['call-2']);
    expect(await find('--outcome', 'allow')).toEqual(['call-1', 'call-3']);
    expect(await find('--since', '2026-01-01T00:00:04Z')).toEqual(['call-2', 'call-3']);
    expect(await find('--until', '2026-01-01T00:00:04Z')).toEqual(['call-1']);
    expect(await find('--since', '1h')).toEqual([]);
  });

  it('show prints every field of a call, and reports an unknown id', async () => {
    const { folder } = log();
    const { code, out } = await audit(['show', 'call-1', '--folder', folder]);
    expect(code).toBe(0);
    expect(out).toMatch(/type +intent[^]*type +outcome/);
    expect(out).toMatch(/sizes +\{"args":20/);
    expect(out.match(/hash fits/g)).toHaveLength(2);
    expect((await audit(['show', 'b309', '--folder', folder])).err).toBe(
      'There is no record with the id b309. The beginning of an id needs 8 digits or more.\n',
    );
    expect(await audit(['show', 'none\u001B', '--folder', folder])).toMatchObject({
      code: 1,
      out: '',
      err: 'There is no record with the id none\\u{1b}.\n',
    });
    expect(JSON.parse((await audit(['show', 'call-2', '--folder', folder, '--json'])).out)).toMatchObject([
      { code: 'DENIED' },
    ]);
  });

  it('verify exits with 8 and the heads, or with 3 and the first bad record', async () => {
    const { folder, head } = log();
    expect(await audit(['verify', '--folder', folder, '--expect-head', head])).toMatchObject({
      code: 8,
      out: 'ended: 1 chain, 6 records\n1 chain, 6 records: each record follows the one before it\n6 records linked, not signed\n',
      err: '',
    });
    expect((await audit(['verify', '--folder', folder])).err).toMatch(UNSEEN);
    expect(await audit(['verify', '--folder', folder, '--expect-head', 'f'.repeat(64)])).toMatchObject({ code: 3 });
    expect((await audit(['verify', '--all', '--folder', folder])).out).toContain(
      `${DEAD_CHAIN}  1      6        ended  ${head.slice(0, 16)}`,
    );
    const whole = `20260102T000000000Z-${DEAD_PID}`;
    writeDeadChain(folder, [[]], whole);
    appendFileSync(join(folder, chainFileName(DEAD_CHAIN, 0)), '{"seq":7}\n');
    const broken = await audit(['verify', '--folder', folder]);
    expect([broken.out.includes(`${DEAD_CHAIN} `), broken.out.includes(whole)]).toEqual([true, false]);
    expect(broken.out).toMatch(/2 chains, 7 records: broken, 1 fault\n$/);
    expect(broken).toMatchObject({ code: 3, out: expect.stringMatching(/\.jsonl, record 7: the record was changed/) });
    expect(JSON.parse((await audit(['verify', '--folder', folder, '--json'])).out)).toMatchObject({
      ok: false,
      faults: [{ seq: 7, unproven: 1 }],
    });
    expect(broken.err.replaceAll(/\s+/g, ' ')).toMatch(
      /^Not proven: 1 record, each from the fault to the end of its chain\. Copy \S+ before you change anything, /,
    );
    expect(Math.max(...broken.err.split('\n').map((line) => line.length))).toBeLessThanOrEqual(100);
    const page = readFileSync(new URL('../../docs/audit.md', import.meta.url), 'utf8');
    expect(page).toContain(/"(If verify .+?)"/.exec(broken.err.replaceAll(/\s+/g, ' '))?.[1]);
    const listed = await audit(['list', '--folder', folder, '--all']);
    expect(listed.err).toContain('1 of these records were changed');
    const path = join(folder, chainFileName(DEAD_CHAIN, 0));
    writeFileSync(path, readFileSync(path, 'utf8').replace('"ms":12.6', '"ms":12.7'));
    expect((await audit(['show', 'call-1', '--folder', folder])).out).toContain('its hash does not match');
  });

  it('stats prints three tables', async () => {
    const { folder } = log();
    const { out } = await audit(['stats', '--folder', folder]);
    expect(out).toMatch(/^3 calls, 1 without a known outcome\n/);
    expect(out).toMatch(/workspace\.read +3 +12\.6 ms +12\.6 ms/);
    expect(JSON.parse((await audit(['stats', '--folder', folder, '--json', '--principal', 'bob'])).out)).toMatchObject({
      calls: 1,
      unknown: 0,
    });
    expect((await audit(['stats', '--folder', folder, '--principal', 'bob'])).out).toMatch(/^1 call\n/);
  });

  it('export prints the lines of the log, or CSV without formulas in cells', async () => {
    const { folder } = log();
    const jsonl = await audit(['export', '--folder', folder]);
    expect(
      jsonl.out
        .trimEnd()
        .split('\n')
        .map((line) => (JSON.parse(line) as { seq: number }).seq),
    ).toEqual([1, 2, 3, 4, 5, 6]);
    const csv = await audit(['export', '--folder', folder, '--format', 'csv', '--type', 'decision']);
    const [head, row] = csv.out.split('\r\n');
    const page = readFileSync(new URL('../../docs/audit-records.md', import.meta.url), 'utf8');
    expect(page.replaceAll(/,\s+/g, ',')).toContain(`\`\`\`text\n${head}\n\`\`\``);
    expect(row).toContain(`"'=cmd|""x""!A1`);
    expect(row).toMatch(/,allow-read,,,allow-read tollgate\.yaml:12,,,$/);
    const decided = temporaryFolder();
    const { principal } = outcome('call-1');
    writeDeadChain(decided, [
      [
        {
          type: 'approval',
          event: 'approved',
          id: 'a-1',
          outcome: 'allow',
          by: 'boss',
          user: 'ann',
          covers: 'call',
          principal,
        },
        outcome('call-1', { consent: 'a-1', reasons: [{ id: 'ask-write' }] }),
      ],
    ]);
    const rows = (await audit(['export', '--folder', decided, '--format', 'csv'])).out.split('\r\n');
    expect(rows.map((one) => one.split(',').slice(-5).join())).toEqual(
      expect.arrayContaining(['boss,ann,,,call', ',,ask-write,a-1,']),
    );
    expect(await audit(['export', '--folder', folder, '--format', 'xml'])).toMatchObject({ code: 2 });
  });

  it('tail prints the newest records, then new ones, until it is stopped', async () => {
    const folder = temporaryFolder();
    const live = openAudit({ folder, rotateBytes: 1e9 });
    live.append(outcome('before'));
    let out = '';
    let stop = (): void => undefined;
    const stopped = new Promise<void>((resolve) => (stop = resolve));
    const running = audit(['tail', '--folder', folder], { stdout: (text) => void (out += text), stopped });
    await expect.poll(() => out).toContain('before');
    live.append(decision('coming'));
    await expect.poll(() => out).toMatch(/ before .*\n.* coming /);
    expect(out.match(/PRINCIPAL/g)).toHaveLength(1);
    stop();
    expect((await running).code).toBe(0);
    await live.close();
  });

  it('finds the log through the configuration', async () => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, 'work'));
    writeFileSync(join(folder, 'tollgate.yaml'), 'workspace: ./work\nstate: ./state\n');
    writeDeadChain(join(folder, 'state', 'audit'), [[outcome('call-1')]]);
    const loaded = await audit(['list', '-c', 'tollgate.yaml', '--json'], { cwd: folder, home: folder });
    expect(loaded).toMatchObject({ code: 0, out: expect.stringContaining('call-1') });
    expect(existsSync(join(folder, 'state', 'audit-index.db'))).toBe(true);
    mkdirSync(join(folder, 'empty'));
    expect(await audit(['list'], { cwd: join(folder, 'empty') })).toMatchObject({
      code: 2,
      err: expect.stringContaining('CONFIG_INVALID'),
    });
  });

  it('distinguishes a missing folder from an empty one', async () => {
    const nowhere = join(temporaryFolder(), 'nowhere');
    for (const command of ['verify', 'list', 'stats', 'export', 'tail']) {
      const { code, out, err } = await audit([command, '--folder', nowhere]);
      expect([code, out]).toEqual([2, '']);
      expect(err).toMatch(/^USAGE: There is no folder .*nowhere\.\nGive the folder .*\n$/);
    }
    const said = await audit(['verify', '--json', '--folder', nowhere]);
    expect(JSON.parse(said.err)).toMatchObject({ error: { code: 'USAGE' } });
    expect(await audit(['verify', '--folder', temporaryFolder()])).toEqual({
      code: 8,
      out: 'no record to verify\nnothing is signed\n',
      err: '',
    });
  });

  it('names all outcomes if the given one does not exist', async () => {
    expect(await audit(['list', '--outcome', 'denied', '--folder', temporaryFolder()])).toEqual({
      code: 2,
      out: '',
      err: `USAGE: No record has the outcome "denied"; known are allow, ask, deny, error
Read \`tollgate audit --help\`.
`,
    });
  });

  it('verify reports that no record is left, and that an expected head is missing', async () => {
    const { folder, head } = log();
    rmSync(join(folder, chainFileName(DEAD_CHAIN, 0)));
    expect(await audit(['verify', '--folder', folder])).toMatchObject({
      code: 8,
      out: 'no record to verify\nnothing is signed\n',
    });
    expect(await audit(['verify', '--folder', folder, '--expect-head', head])).toMatchObject({
      code: 3,
      out: expect.stringMatching(/is in no\s+chain/),
    });
  });

  it.each([
    [[]],
    [['nonsense\u001B']],
    [['list', '--nonsense']],
    [['list', 'extra']],
    [['show']],
    [['list', '--limit', '0']],
    [['list', '--since', 'soon']],
  ])('refuses %j with exit code 2', async (words) => {
    const { code, out, err } = await audit([...words, ...(words.length > 0 ? ['--folder', temporaryFolder()] : [])]);
    expect([code, out]).toEqual([2, '']);
    expect(err).toMatch(/\n$/);
    expect(err).not.toContain('\u001B');
  });

  it('prints help on request', async () => {
    for (const word of ['--help', 'help'])
      expect(await audit([word])).toMatchObject({ code: 0, out: expect.stringContaining('Usage: tollgate audit') });
  });
});

describe('the table printer', () => {
  it('aligns columns, continues long cells in their column, and prints no blanks at line ends', () => {
    expect(
      table(
        { isTTY: false },
        ['a', 'b'],
        [
          ['😀😀', ''],
          ['x'.repeat(120), { text: 'y', colour: 'red' }],
        ],
      ),
    ).toBe(`a${' '.repeat(98)}b\n😀😀\n${'x'.repeat(97)}  y\n  ${'x'.repeat(23)}\n`);
    expect(paint({ isTTY: false }, 'red', 'x')).toBe('x');
    vi.stubEnv('FORCE_COLOR', '1');
    expect(paint({ isTTY: true }, 'red', 'x')).toBe('\u001B[31mx\u001B[39m');
    vi.unstubAllEnvs();
  });

  it('escapes hostile characters and keeps letters of every language', () => {
    expect(printable('a\nb\u009B\u200B\u{E0041}\uD800\u2028')).toBe(
      'a\\u{a}b\\u{9b}\\u{200b}\\u{e0041}\\u{d800}\\u{2028}',
    );
    expect(printable('Grüße, 日本語 😀')).toBe('Grüße, 日本語 😀');
  });
});
