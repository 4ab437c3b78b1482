/** Tests `tollgate approvals`: what an owner sees, and that no request is approved unseen. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { whileRequestWaits } from '../../facade/consent/approvals/approval-wait.ts';
import { KillSwitch } from '../../facade/consent/switch/kill-switch.ts';
import { ApprovalOwner, type Asking, askFor } from '../approvals/owner-context.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';
import { type Answer, cli, dataOf, start } from './terminal.ts';

const CONFIG = `version: 1
workspace: ./workspace
state: ./state
servers: {mail: {command: node, env: {KEY: "\${MAIL_KEY}"}}}
principals: [{id: agent, owner: true, stdio: true}, {id: olga, owner: true, stdio: true}, {id: guest, stdio: true}]
profiles: {default: {servers: [mail]}}
rules: [{id: asks, outcome: ask, when: {tools: [mail.send]}}]
`;
const ENV = { env: { MAIL_KEY: 'mail-key-123456' } };

let project: Project;
let desk: ApprovalOwner;

beforeEach(() => {
  project = new Project();
  project.write('workspace/README.md', '# Hello\n');
  project.write('tollgate.yaml', CONFIG);
  desk = new ApprovalOwner(`${project.folder}/state`);
});
afterEach(async () => {
  await desk.close();
  project.remove();
});

const run = (...words: readonly string[]): Promise<Answer> =>
  cli(project, ['approvals', ...words, ...(words.includes('--as') ? [] : ['--as', 'olga'])], ENV);
const ask = async (asking: Asking = {}): Promise<{ id: string; hash: string }> => {
  expect(await askFor(desk.state, asking)).toBe('APPROVAL_REQUIRED');
  const items = (await desk.all('pending')).map(({ item }) => item);
  return items.at(-1) as { id: string; hash: string };
};
/** Runs the command at a terminal and types this answer. */
async function atTerminal(words: readonly string[], typed: string): Promise<Answer> {
  const running = start(project, ['approvals', ...words], ENV);
  Object.assign(running.stdin, { isTTY: true });
  running.stdin.write(`${typed}\n`);
  return running.ended;
}
const events = async (): Promise<unknown[]> =>
  (await cli(project, ['audit', 'export', '--type', 'approval'], ENV)).out
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => dataOf<Record<string, unknown>>(line));

describe('approvals list', () => {
  it('shows pending, approved and denied requests, and removes expired ones', async () => {
    expect(await run('list')).toMatchObject({ code: EXIT.ok, out: '', err: 'Nothing waits for approval.\n' });
    const { id } = await ask({ argsText: '{"n":1}' });
    await desk.approve();
    await ask({ argsText: '{"n":2}' });
    await desk.deny();
    await ask({ argsText: '{"n":3}' });
    await ask({ argsText: '{"n":4}', now: Date.now() - 700_000 }).catch(() => undefined);
    const { out } = await run('list');
    expect(out.split('\n')[0]).toMatch(/^ID +STATE +PRINCIPAL +CALL +RULE +EXPIRES$/);
    expect(
      out
        .trimEnd()
        .split('\n')
        .slice(1)
        .map((line) => line.split(/ +/).slice(1, -3).join(' '))
        .sort(),
    ).toEqual([
      'approved agent mail.send {"n":1} asks',
      'denied agent mail.send {"n":2} asks',
      'pending, caller has gone agent mail.send {"n":3} asks',
    ]);
    expect(
      dataOf<{ approvals: { id: string }[] }>((await run('list', '--json')).out).approvals.map((one) => one.id),
    ).toContain(id);
    expect(await desk.all()).toHaveLength(3);
  });

  it('shows the beginning of the arguments, escaped, and whether the caller still waits', async () => {
    const { id } = await ask({
      argsText: JSON.stringify({ text: `\u001b[2J${'x'.repeat(60)}` }).replace('\\u001b', '\u009b'),
    });
    const lineOf = async (): Promise<string> => (await run('list')).out.split('\n').slice(1).join(' ');
    expect(await lineOf()).toMatch(/ has gone .*\{"text":"\\u\{9b\}\[2Jx+ .* x+… /);
    await whileRequestWaits(desk.state, { id, call: 'd' }, async () => {
      expect(await lineOf()).toContain(' caller waits ');
      expect(dataOf<{ approvals: unknown }>((await run('list', '--json')).out).approvals).toMatchObject([
        { id, awaited: true },
      ]);
    });
    // A caller whose process has died does not wait.
    await desk.state.put('waiting', `${id}/dead`, JSON.stringify({ pid: 2 ** 22 + 1, born: 'x' }));
    expect(dataOf<{ approvals: unknown }>((await run('list', '--json')).out).approvals).toMatchObject([
      { id, awaited: false },
    ]);
    expect((await desk.state.list('waiting')).size).toBe(0);
  });

  it.each([['list'], ['show', 'x'], ['approve', 'x'], ['deny', 'x']])(
    'refuses `%s` to a principal that is no owner',
    async (...words) => {
      expect(await run(...words, '--as', 'guest')).toMatchObject({
        code: EXIT.auth,
        err: expect.stringContaining('guest is no owner, and only an owner decides about calls.'),
      });
    },
  );
});

describe('approvals show', () => {
  it(
    'shows the caller, the call, the rules, the hosts and what the approval would cover' + verifies('PF-08'),
    async () => {
      const { id, hash } = await ask({
        argsText: '{"to":"ann@example.org","body":"Dear Ann,\\n\\nyours","n":7}',
        effect: {
          paths: [{ argument: 'path', path: '/etc/passwd', inside: false }],
          urls: [{ argument: 'url', url: 'https://x.example/', host: 'x.example' }],
          command: { text: 'x', opaque: true, words: [] },
        },
        reasons: [{ id: 'asks', message: 'Look.', file: 'rules.yaml', line: 3, approval: 'server' }],
      });
      const { out } = await run('show', id.slice(0, 4));
      expect(
        out.replace(/\d+ s ago, expires in \d+ min/, 'N s ago, expires in N min'),
      ).toBe(`approval   ${id}  pending, asked N s ago, expires in N min
principal  agent (role developer, profile default, origin cli)
run        agent/task
tool       mail.send (write)
rule       asks (rules.yaml:3): Look.
path       path: /etc/passwd (outside the workspace)
url        url: https://x.example/
reaches    x.example
command    starts other programs, or cannot be analysed
covers     this call, once; --for server widens it to all calls of mail that may be approved in 
    | this way, by agent in this run
binding    ${hash.slice(0, 12)}, the hash of this request for --yes
arguments  58 characters
  to: "ann@example.org"
  body:
    | "Dear Ann,
    | 
    | yours"
  n: 7
`);
      expect(dataOf((await run('show', id, '--json')).out)).toMatchObject({
        id,
        binding: hash,
        arguments: '{"to":"ann@example.org","body":"Dear Ann,\\n\\nyours","n":7}',
        server: 'mail',
        widest: 'server',
        state: 'pending',
      });
    },
  );

  it('shows the real host of a deceptive address, and marks words that mix alphabets', async () => {
    const url = 'https://docs.example.org\u2215guide@evil.example/x';
    const { id } = await ask({
      argsText: JSON.stringify({ url, name: 'p\u0430ypal', pad: 'a\u3164b' }),
      effect: {
        paths: [],
        urls: [
          { argument: 'url', url, host: 'evil.example', address: 'https://evil.example:443/x' },
          { argument: 'other', url: '::', host: '' },
        ],
      },
    });
    const { out } = await run('show', id);
    expect(out).toContain(
      `url        url: ${url}  (not all ASCII)\nreaches    evil.example (https://evil.example:443/x)\n`,
    );
    expect(out).toContain('reaches    a host that cannot be read from the address\n');
    expect(out).toContain('  name: "p\u0430ypal"  (not all ASCII, mixes scripts: p\\u{430}ypal)\n  pad: "a\\u{3164}b"');
  });

  it('never lets a long argument begin a row that looks like one of its own', async () => {
    const { id } = await ask({
      argsText: JSON.stringify({ x: `${' '.repeat(89)}binding    000000000000${' '.repeat(77)}covers     nothing` }),
    });
    const { out } = await run('show', id);
    expect(out.split('\n').filter((row) => /^(?:binding|covers)/.test(row))).toHaveLength(2);
    expect(Math.max(...out.split('\n').map((row) => row.length))).toBeLessThanOrEqual(100);
  });

  it('escapes bidi and control characters, and keeps text that imitates its own rows in place', async () => {
    const { id } = await ask({
      argsText: '{"a":"\\u001b[2J\\u202e","b\\u202e":"\u202etxt.exe","c":"x\\nbinding    000000000000\\\\n"}',
    });
    const { out } = await run('show', id);
    expect(out).not.toMatch(/[\u001b\u202e]/);
    expect(out).toContain('"a":"\\u001b[2J\\u202e"');
    expect(out).toContain('\\u{202e}txt.exe');
    expect(out.match(/^binding/gm)).toHaveLength(1);
  });

  it('shows numbers exactly, and long arguments by their first page with their full length', async () => {
    const { id } = await ask({ argsText: '{"n":12345678901234567890,"f":1.0}' });
    expect((await run('show', id)).out).toContain('{"n":12345678901234567890,"f":1.0}');
    await desk.deny();
    const long = await ask({ argsText: JSON.stringify({ text: `${'x'.repeat(5000)}END` }) });
    const [page, all] = [(await run('show', long.id)).out, (await run('show', long.id, '--all')).out];
    expect(page).toContain('[2000 of 5005 characters; the rest: --all]');
    expect([page.includes('END'), all.includes('END')]).toEqual([false, true]);
  });

  it('shows registered secrets as ***, also those of this configuration alone', async () => {
    const { id } = await ask({ argsText: '{"key":"mail-key-123456"}' });
    expect((await run('show', id)).out).toContain('key: "***"');
    expect((await run('show', id, '--json')).out).not.toContain('mail-key-123456');
  });

  it('accepts the beginning of an id if it fits no other request', async () => {
    await ask({ argsText: '{"n":1}' });
    await ask({ argsText: '{"n":2}' });
    expect(await run('show', '')).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('is the beginning of 2 approvals'),
    });
    expect(await run('show', 'nothing\u001b')).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('There is no approval "nothing'),
    });
  });
});

describe('approvals approve', () => {
  it(
    'shows the call at a terminal and approves it on yes; any other answer decides nothing' + verifies('PF-08'),
    async () => {
      const { id } = await ask({ argsText: '{"to":"ann"}' });
      for (const typed of ['', 'n', 'yess', id])
        expect(await atTerminal(['approve', id, '--as', 'olga'], typed)).toMatchObject({
          code: EXIT.refused,
          err: expect.stringContaining('Nothing was decided.'),
        });
      const answer = await atTerminal(['approve', id, '--as', 'olga'], 'y');
      expect(answer).toMatchObject({
        code: EXIT.ok,
        err: expect.stringMatching(
          /to: "ann"\n[^]*Approve this call\? \[y\/N\] Approved: This call may be made once, until /,
        ),
      });
      expect(await askFor(desk.state, { argsText: '{"to":"ann"}' })).toBe(`used ${id}`);
      expect(await events()).toMatchObject([
        { event: 'approved', id, by: 'olga', outcome: 'allow', server: 'mail', tool: 'send', covers: 'call' },
      ]);
    },
  );

  it('needs at least twelve digits of the binding if there is no terminal', async () => {
    const { id, hash } = await ask();
    expect(await run('approve', id)).toMatchObject({
      code: EXIT.approval,
      err: expect.stringContaining(`--yes ${hash.slice(0, 12)}`),
    });
    for (const yes of [hash.slice(0, 11), 'f'.repeat(12), id, 'yes', `${hash}0`])
      expect(await run('approve', id, '--yes', yes)).toMatchObject({ code: EXIT.usage });
    expect(await run('approve', id, '--yes', hash.slice(0, 12))).toMatchObject({ code: EXIT.ok });
    expect(await run('approve', id, '--yes', hash)).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining(`${id} is approved already.`),
    });
  });

  it('lets a principal approve its own call only at a terminal, so that an agent with a shell cannot', async () => {
    const { id, hash } = await ask();
    expect(await run('approve', id, '--yes', hash, '--as', 'agent')).toMatchObject({
      code: EXIT.auth,
      err: expect.stringContaining('may approve its own calls only at a terminal'),
    });
    expect(await run('approve', id, '--as', 'agent')).toMatchObject({
      code: EXIT.approval,
      err: expect.stringMatching(
        /Approve it at a terminal, or let another owner approve it with --as\.$(?![^]*--yes)/m,
      ),
    });
    expect((await desk.open()).item.id).toBe(id);
    expect(await atTerminal(['approve', id, '--as', 'agent'], 'y')).toMatchObject({ code: EXIT.ok });
  });

  it('covers what --for names, as far as the rules allow' + verifies('CY-26'), async () => {
    const { id, hash } = await ask({ reasons: [{ id: 'asks', message: 'Look.', approval: 'group' }] });
    expect(await run('approve', id, '--yes', hash, '--for', 'server')).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('allow one approval to cover the group at most'),
    });
    expect(await run('approve', id, '--yes', hash, '--for', 'all')).toMatchObject({ code: EXIT.usage });
    expect(await run('approve', id, '--yes', hash, '--for', 'group', '--json')).toMatchObject({
      code: EXIT.ok,
      out: expect.stringContaining('"scope": "group"'),
    });
    const { out } = await run('show', id);
    expect(out).toContain('covers     calls of mail that the same rules ask about, by agent in this run; used 0 times');
  });
});

describe('approvals deny', () => {
  it('refuses the call with a reason, and withdraws an approval', async () => {
    const { id } = await ask({ argsText: '{"n":1}' });
    expect(await run('deny', id, '--reason', 'Too late.')).toMatchObject({
      code: EXIT.ok,
      err: expect.stringMatching(/^Denied: this call is refused until 2/),
    });
    expect(await askFor(desk.state, { argsText: '{"n":1}' })).toBe('DENIED');
    const other = await ask({ argsText: '{"n":2}', reasons: [{ id: 'asks', message: 'Look.', approval: 'group' }] });
    await run('approve', other.id, '--yes', other.hash, '--for', 'group');
    expect(await run('deny', other.id, '--json')).toMatchObject({
      code: EXIT.ok,
      out: expect.stringContaining('"denied"'),
    });
    expect(
      await askFor(desk.state, { argsText: '{"n":2}', reasons: [{ id: 'asks', message: 'Look.', approval: 'group' }] }),
    ).toBe('APPROVAL_REQUIRED');
    expect((await events()).map((event) => (event as { event: string }).event)).toEqual([
      'denied',
      'approved',
      'denied',
    ]);
  });
});

describe('approvals approve of a call that cannot be made', () => {
  it('says before it asks that no caller waits and that the server is stopped', async () => {
    const { id } = await ask();
    await new KillSwitch(desk.state).throw({ server: 'mail', since: 'x', by: 'olga' });
    const { code, err } = await atTerminal(['approve', id, '--as', 'olga'], 'n');
    expect(code).toBe(EXIT.refused);
    expect(err).toMatch(
      /No call waits [^]*It cannot run now: Server "mail" was stopped by the kill switch\.[^]*Approve this call\?/,
    );
  });

  it('refuses to approve or deny a withdrawn request, and shows why it ended', async () => {
    const { id, hash } = await ask();
    const stored = await desk.open();
    await desk.store.replace(stored, {
      ...stored.item,
      state: 'withdrawn',
      decided: { by: 'tollgate', at: 1, reason: 'Server "mail" was disabled by olga.' },
    });
    expect((await run('show', id)).out).toMatch(/withdrawn by tollgate[^]*ended +Server "mail" was disabled by olga\./);
    for (const words of [
      ['approve', id, '--yes', hash],
      ['deny', id],
    ])
      expect(await run(...words)).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining(
          `${id} has ended, because its call cannot run any more: Server "mail" was disabled by olga.`,
        ),
      });
    await desk.age(700_000);
    await run('list');
    expect(await events()).toEqual([]);
  });
});
