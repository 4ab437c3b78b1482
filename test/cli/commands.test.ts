/**
 * Tests commands that answer and end over a real server: exit code, data on stdout, messages on stderr.
 * Covers: facade/cli.
 */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { Child } from '../process/child.ts';
import { verifies } from '../verifies.ts';
import { cli, dataOf, server, start } from './terminal.ts';

const CONFIG = `version: 1
workspace: ./workspace
servers:
  story: ${server(['story-server.mjs'], 'semantics: {echo: read, fetch: {verb: read, urls: [url]}}, tools: {deny: [hidden]}')}
principals:
  - {id: agent, profiles: [stories], stdio: true}
  - {id: remote, token: "sha256:${'a'.repeat(64)}"}
profiles: {stories: {servers: [story], expose: {primitives: workspace, tools: ["story.*"]}}}
policies: [rules.yaml]
budgets: [{id: ten, scope: session, calls: 10}]
caps: {bytes: 4000}
`;
const RULES = `rules:
  - {id: stories, outcome: allow, when: {servers: [story]}}
  - {id: inside, outcome: allow, when: {verbs: [read], insideWorkspace: true}, obligations: {caps: {lines: 50}}}
  - {id: plain, outcome: allow, when: {verbs: [execute], opaque: false}}
  - {id: no-secrets, outcome: deny, message: Secrets stay closed., when: {paths: ["**/.env"]}}
  - {id: ask-opening, outcome: ask, message: Somebody must look., when: {tools: [story.open]}}
  - {id: no-wiping, outcome: deny, when: {tools: [story.wipe]}}
  - {id: rehearsed, outcome: deny, mode: shadow, message: Not yet., when: {tools: [story.echo]}}
`;

let project: Project;

function configured(): Project {
  const made = new Project();
  made.write('workspace/README.md', '# Hello\n');
  made.write('rules.yaml', RULES);
  made.write('tollgate.yaml', CONFIG);
  return made;
}

beforeAll(async () => {
  project = configured();
  await project.approve();
});
afterAll(() => project.remove());

describe('init', () => {
  it('writes a project that check and tools accept, and prints the next commands on stderr', async () => {
    const fresh = new Project();
    try {
      const { code, out, err } = await cli(fresh, ['init']);
      expect([code, out]).toEqual([EXIT.ok, '']);
      expect(err).toContain('tollgate check');
      expect(await cli(fresh, ['check'])).toMatchObject({ code: EXIT.ok, err: '' });
      expect(await cli(fresh, ['try', 'read', '{"path": ".env"}'])).toMatchObject({
        code: EXIT.refused,
        out: expect.stringContaining('no-secret-files'),
      });
      expect(await cli(fresh, ['init'])).toMatchObject({
        code: EXIT.usage,
        out: '',
        err: expect.stringMatching(/^USAGE: These files exist already: tollgate\.yaml.*\nUse --force/),
      });
      expect(await cli(fresh, ['init', '--force', '--json'])).toMatchObject({
        code: EXIT.ok,
        err: '',
        out: expect.stringContaining('"written":["tollgate.yaml"'),
      });
    } finally {
      fresh.remove();
    }
  });
});

describe('check', () => {
  it('prints how many settings it read, and starts and writes nothing', async () => {
    const fresh = configured();
    try {
      const { code, out, err } = await cli(fresh, ['check']);
      expect({ code, err }).toEqual({
        code: EXIT.ok,
        err: expect.stringMatching(/^rules\.yaml:6:74: story is not approved yet, .*\n$/),
      });
      expect(out).toMatch(
        /^ok: 1 server, 2 principals, 3 profiles, 7 YAML rules, 1 policy source \(revision [0-9a-f]{12}\)\n$/,
      );
      expect(existsSync(path.join(fresh.home, '.local'))).toBe(false);
    } finally {
      fresh.remove();
    }
  });

  it('prints the same facts as data with --json', async () => {
    const { code, out } = await cli(project, ['check', '--json']);
    expect(code).toBe(EXIT.ok);
    expect(dataOf(out)).toEqual({
      file: project.file,
      servers: 1,
      principals: 2,
      profiles: 3,
      policies: 1,
      rules: 7,
      revision: expect.stringMatching(/^[0-9a-f]{64}$/),
      warnings: [],
      unbound: [],
      unjudged: [],
      missingSecrets: [],
      unstartable: [],
    });
  });

  it('reads the file of --config relative to the current folder', async () => {
    project.write('other/tollgate.yaml', 'version: 1\nworkspace: ../workspace\n');
    const { code, out } = await cli(project, ['check', '--config', 'tollgate.yaml'], {
      cwd: path.join(project.folder, 'other'),
    });
    expect([code, out]).toEqual([
      EXIT.ok,
      expect.stringContaining('There is no rule and no policy: every call is denied.'),
    ]);
    expect(dataOf((await cli(project, ['check', '-c', 'other/tollgate.yaml', '--json'])).out)).toMatchObject({
      file: path.join(project.folder, 'other', 'tollgate.yaml'),
    });
  });

  it('prints warnings on stderr', async () => {
    project.write('clients.json', '{"mcpServers": {"My Server": {"command": "x", "alwaysAllow": ["*"]}}}');
    project.write('warned.yaml', 'version: 1\nworkspace: ./workspace\ninclude: [clients.json]\n');
    const { code, err } = await cli(project, ['check', '-c', 'warned.yaml']);
    expect(code).toBe(EXIT.ok);
    expect(err).toMatch(/^clients\.json:1:\d+: .*alwaysAllow/m);
  });
});

describe('try', () => {
  const tried = (...argv: readonly string[]) => cli(project, ['try', ...argv]);

  it('shows an allow with its rule and place, with exit code 0', async () => {
    expect(await tried('read', '{"path": "README.md"}')).toEqual({
      code: EXIT.ok,
      err: '',
      out: 'ALLOW\n  inside: Rule inside says allow.  (rules.yaml:3)\n',
    });
  });

  it('shows a deny with its message, with exit code 3', async () => {
    expect(await tried('read', '{"path": ".env"}')).toEqual({
      code: EXIT.refused,
      err: '',
      out: 'DENY\n  no-secrets: Secrets stay closed.  (rules.yaml:5)\n',
    });
  });

  it('shows an ask, with exit code 7', async () => {
    expect(await tried('story_open', '{"path": "x"}')).toEqual({
      code: EXIT.approval,
      err: '',
      out: 'ASK\n  ask-opening: Somebody must look.  (rules.yaml:6)\n',
    });
  });

  inFull('adds the effect and the obligations with --explain', async () => {
    const { out } = await tried('read', '{"path": "README.md"}', '--explain');
    expect(out).toContain('effect     read workspace.read');
    expect(out).toContain('path       README.md (inside the workspace, argument path)');
    expect(out).toMatch(/^caps +\{"bytes":4000,"lines":50\}$/m);
    expect(out).toMatch(/^budgets +ten$/m);
    expect((await tried('bash', '{"command": "git status && ls"}', '--explain')).out).toMatch(
      /^command +git status \| ls$/m,
    );
    expect((await tried('bash', '{"command": "rm $X"}', '--explain')).out).toMatch(/^command +opaque$/m);
    expect((await tried('story_fetch', '{"url": "https://example.org/x"}', '--explain')).out).toMatch(
      /^host +example\.org \(argument url\)$/m,
    );
  });

  inFull('reports rules in shadow mode, and arguments that were repaired', async () => {
    expect((await tried('story_echo', '{"text": "x"}')).out).toContain('in shadow, would deny: rehearsed: Not yet.');
    expect((await tried('story_count', '{"lines": "5"}', '--explain')).out).toMatch(/^note +/m);
  });

  it('prints decision, effect and obligations with --json', async () => {
    const { code, out } = await tried('story_open', '{"path": "x"}', '--json');
    expect(code).toBe(EXIT.approval);
    expect(dataOf(out)).toMatchObject({
      outcome: 'ask',
      reasons: [{ id: 'ask-opening', message: 'Somebody must look.', file: 'rules.yaml', line: 6 }],
      shadow: [],
      effect: { verb: 'destructive', server: 'story', tool: 'open' },
      obligations: { caps: { bytes: 4000 } },
      notes: [],
    });
  });

  it('accepts missing arguments for a tool that needs none', async () => {
    expect(await tried('story_fail')).toMatchObject({ code: EXIT.ok });
  });

  it.each([
    [
      'an unknown tool',
      ['nonsense'],
      EXIT.refused,
      /^UNKNOWN_TOOL: The agent agent does not see a tool "nonsense": .*\nUse a name that `tollgate tools` shows/,
    ],
    ['a tool that is never allowed', ['story_wipe'], EXIT.refused, /^UNKNOWN_TOOL: /],
    ['a tool that the server may not offer', ['story_hidden'], EXIT.refused, /^UNKNOWN_TOOL: /],
    ['wrong arguments', ['story_echo', '{}'], EXIT.refused, /^ARGS_INVALID: text: is required\n/],
    [
      'arguments that are no object',
      ['story_echo', '[1]'],
      EXIT.refused,
      /^ARGS_INVALID: arguments: expected an object\n/,
    ],
    [
      'arguments that are not JSON',
      ['story_echo', '{'],
      EXIT.usage,
      /^USAGE: The arguments are not JSON\.\nWrite and quote them like this/,
    ],
    [
      'arguments that name a key twice',
      ['story_echo', '{"text": "a", "text": "b"}'],
      EXIT.usage,
      /^USAGE: An object names the same key twice\.\n/,
    ],
    [
      'nobody',
      ['story_echo', '{"text": "x"}', '--as', 'nobody'],
      EXIT.auth,
      /^IDENTITY: Principal "nobody" is not available to this user over stdio\.\nUse --as with one of: agent\.\n$/,
    ],
    ['somebody with a token', ['story_echo', '{"text": "x"}', '--as', 'remote'], EXIT.auth, /^IDENTITY: /],
  ] as const)('refuses %s', async (_, argv, exit, expected) => {
    const { code, out, err } = await tried(...argv);
    expect([code, out]).toEqual([exit, '']);
    expect(err).toMatch(expected);
    expect(err.trimEnd().split('\n')).toHaveLength(2);
  });

  it('makes no call and spends no budget', async () => {
    const { out } = await cli(project, ['audit', 'list', '--json']);
    expect(dataOf(out)).toEqual([]);
  });
});

describe('tools', () => {
  it('prints names, servers, sizes, and the entry and rules that show each tool' + verifies('FH-37'), async () => {
    const { code, out, err } = await cli(project, ['tools', '--as', 'agent']);
    expect(code).toBe(EXIT.ok);
    const lines = out.trimEnd().split('\n');
    expect(lines[0]).toMatch(/^NAME +TOOL +BYTES +VERDICT +SHOWN BY +RULES$/);
    expect(lines[1]).toMatch(/^read +workspace\.read +\d+ +maybe +primitives +/);
    expect(out).toMatch(/^story_echo +story\.echo +\d+ +always +story\.\* +stories$/m);
    expect(out).toMatch(/^story_open +story\.open +\d+ +ask +story\.\* +ask-opening$/m);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(100);
    const { tools, bytes } = dataOf<{ tools: readonly unknown[]; bytes: number }>(
      (await cli(project, ['tools', '--json'])).out,
    );
    expect(err).toBe(
      `agent (profile stories) gets ${tools.length} tools, ${bytes} bytes in its list. One of them: tollgate tools NAME\n`,
    );
    expect(out).not.toContain('story_wipe');
    expect(out).not.toContain('story_hidden');
  });

  it('prints the same with the sum with --json', async () => {
    const found = dataOf<{
      principal: string;
      tools: { name: string; bytes: number }[];
      bytes: number;
      missing: unknown[];
    }>((await cli(project, ['tools', '--json'])).out);
    expect(found).toMatchObject({ principal: 'agent', missing: [] });
    expect(found.bytes).toBeGreaterThan(found.tools.reduce((sum, tool) => sum + tool.bytes, 0));
  });

  it('names two tools that claim the same exposed name', async () => {
    project.write(
      'clash.yaml',
      CONFIG.replace(
        'tools: ["story.*"]',
        'tools: ["story.*", {tool: story.echo, name: do-it}, {tool: story.fail, name: do_it}]',
      ),
    );
    const { out, err } = await cli(project, ['tools', '-c', 'clash.yaml']);
    expect(err).toContain(
      'story.echo and story.fail would both be called do-it; neither is shown. Give each its own name under expose.\n',
    );
    expect(out).not.toMatch(/do.it/);
  });

  inFull(
    'shows one named tool as the agent sees it: description, projected schema, verdict and limits' +
      verifies('HE-04', 'HA-18', 'ST-93'),
    async () => {
      const { code, out, err } = await cli(project, ['tools', 'story_echo', '--json']);
      expect([code, err]).toEqual([EXIT.ok, '']);
      const found = dataOf<{ definition: { inputSchema: unknown } }>(out);
      expect(found).toMatchObject({
        principal: 'agent',
        name: 'story_echo',
        server: 'story',
        tool: 'echo',
        verdict: 'always',
        reasons: [expect.objectContaining({ id: 'stories' }) as unknown],
        limits: {
          argumentBytes: 1_048_576,
          resultBytes: 4000,
          resultLines: 2000,
          timeoutMs: 30_000,
          concurrent: 16,
          budgets: [expect.objectContaining({ id: 'ten', calls: 10 }) as unknown],
        },
        definition: { name: 'story_echo', description: expect.stringMatching(/./) as unknown },
      });
      const child = new Child(project, ['run']);
      await child.hello();
      const { tools } = (await child.ask('tools/list')).result as { tools: readonly { name: string }[] };
      child.process.stdin.end();
      await child.ended;
      expect(tools.find(({ name }) => name === 'story_echo')).toEqual(found.definition);
      expect(dataOf((await cli(project, ['tools', 'story.open', '--json'])).out)).toMatchObject({
        name: 'story_open',
        verdict: 'maybe',
      });
      const text = (await cli(project, ['tools', 'read'])).out;
      expect(text).toMatch(/^verdict +decided for each call for agent$/m);
      expect(text).toMatch(/^ {2}path +string, required: /m);
    },
  );

  inFull('refuses a named tool that the agent does not see' + verifies('ST-93'), async () => {
    for (const name of ['story_wipe', 'story.hidden', 'nothing'])
      expect(await cli(project, ['tools', name])).toMatchObject({
        code: EXIT.refused,
        out: '',
        err: expect.stringContaining(`UNKNOWN_TOOL: The agent agent does not see a tool "${name}": `) as unknown,
      });
    expect((await cli(project, ['tools', 'story_ehco'])).err).toContain('did you mean "story_echo"');
  });

  it('exits with 4 for an unknown principal', async () => {
    expect(await cli(project, ['tools', '--as', 'nobody'])).toMatchObject({ code: EXIT.auth, out: '' });
  });
});

describe('servers', () => {
  it('refuses --log for an unknown server, and says that a server has written nothing', async () => {
    expect(await cli(project, ['servers', '--log', 'stroy'])).toMatchObject({
      code: EXIT.usage,
      out: '',
      err: 'USAGE: There is no server "stroy".\nName one of tollgate.yaml; did you mean "story"?\n',
    });
    expect(await cli(project, ['servers', '--log', 'story'])).toMatchObject({ code: EXIT.ok, out: '' });
  });

  inFull('shows state, counts and version, as a table and as data', async () => {
    const { code, out, err } = await cli(project, ['servers']);
    expect([code, err]).toEqual([EXIT.ok, '']);
    expect(out).toMatch(/^NAME +CONSENT +STATE +TOOLS +PENDING +BYTES +QUARANTINED +VERSION$/m);
    expect(out).toMatch(/^story +any tools +healthy +17 +0 +\d+ +0 +7\.0\.0$/m);
    const { servers } = dataOf<{ servers: unknown[] }>((await cli(project, ['servers', '--json'])).out);
    expect(servers).toEqual([
      expect.objectContaining({ name: 'workspace' }),
      expect.objectContaining({
        name: 'story',
        state: 'healthy',
        tools: 17,
        version: '7.0.0',
        reason: '',
        quarantined: [],
      }),
    ]);
  });
});

describe('commands while servers are down', () => {
  beforeAll(async () => {
    project.write(
      'broken.yaml',
      `version: 1
workspace: ./workspace
servers:
  story: ${server(['story-server.mjs'])}
  dead: ${server(['chaos.mjs', 'crash-at-start'])}
  mute: ${server(['chaos.mjs', 'mute'], 'connectTimeoutMs: 400')}
  gone: {command: no-such-program-here, isolation: direct}
  closed: ${server(['story-server.mjs'])}
profiles: {default: {servers: [story, dead, mute, gone, closed], expose: {tools: ["story.*", "dead.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`,
    );
    // All records but `closed`.
    await project.approve({ file: 'broken.yaml', names: ['story', 'dead', 'mute', 'gone'] });
  });

  inFull(
    'show the reason for each broken server and keep the others, with exit code 5 (servers)' + verifies('HE-01'),
    async () => {
      const { code, out, err } = await cli(project, ['servers', '-c', 'broken.yaml']);
      expect(code).toBe(EXIT.server);
      expect(out).toMatch(/^story +any tools +healthy/m);
      expect(err).toContain('dead: Server "dead" ended with exit code 7');
      expect(err).toContain('mute: Server "mute" did not answer within 400 ms');
      expect(err).toContain('gone: Server "gone" did not start: its command or its folder was not found');
      expect(err).toMatch(/^closed: .*no one has approved.*`tollgate approve closed`/m);
      expect(err).not.toContain('story');
      const { servers } = dataOf<{ servers: { name: string; reason: string }[] }>(
        (await cli(project, ['servers', '-c', 'broken.yaml', '--json'])).out,
      );
      expect(servers.filter(({ reason }) => reason !== '').map(({ name }) => name)).toEqual([
        'dead',
        'mute',
        'gone',
        'closed',
      ]);
    },
  );

  it('show the tools of working servers and name the missing servers, with exit code 5 (tools)', async () => {
    const { code, out, err } = await cli(project, ['tools', '-c', 'broken.yaml']);
    expect(code).toBe(EXIT.server);
    expect(out).toContain('story_echo');
    expect(err).toMatch(/^The tools of dead are missing: Server "dead" ended/m);
  });

  inFull('tell a missing server from a missing tool (try)', async () => {
    expect(await cli(project, ['try', 'story_fail', '-c', 'broken.yaml'])).toMatchObject({ code: EXIT.ok });
    expect(await cli(project, ['try', 'dead_echo', '-c', 'broken.yaml'])).toMatchObject({
      code: EXIT.server,
      out: '',
      err: expect.stringMatching(
        /^SERVER_UNAVAILABLE: Server "dead" ended with exit code 7 .*\nIt has written nothing to its log\./,
      ),
    });
    expect(await cli(project, ['try', 'renamed', '-c', 'broken.yaml'])).toMatchObject({
      code: EXIT.refused,
      out: '',
      err: expect.stringMatching(/^UNKNOWN_TOOL: .*"renamed": .*\n.*Tools of dead, mute, gone, closed are missing/),
    });
  });

  it('stop waiting for a server that hangs when a signal comes, and end the server', async () => {
    project.write(
      'hangs.yaml',
      `version: 1
workspace: ./workspace
servers: {mute: ${server(
        ['chaos.mjs', 'mute'],
        `connectTimeoutMs: 60000, env: {CHAOS_STARTS: ${path.join(project.folder, 'started')}}`,
      )}}
`,
    );
    await project.approve({ file: 'hangs.yaml' });
    const running = start(project, ['servers', '-c', 'hangs.yaml']);
    const started = path.join(project.folder, 'started');
    await expect.poll(() => existsSync(started) && readFileSync(started, 'utf8'), { timeout: 20_000 }).toMatch(/\d/);
    running.stop();
    expect(await running.ended).toEqual({
      code: EXIT.unexpected,
      out: '',
      err: 'CANCELLED: Stopped by a signal.\nRun it again when you want the answer.\n',
    });
    const pid = Number(readFileSync(started, 'utf8'));
    expect(() => process.kill(pid, 0)).toThrow('ESRCH');
  });
});

describe('audit', () => {
  it('accepts options before and after the subcommand, short and long', async () => {
    const list = await cli(project, ['audit', 'list', '--json', '--limit', '5', '-c', 'tollgate.yaml', '--all']);
    expect(list).toMatchObject({ code: EXIT.ok, err: expect.stringMatching(/^Older ones: --before \S+\n$/) });
    expect(dataOf<unknown[]>(list.out).length).toBe(5);
    expect(await cli(project, ['audit', 'verify', '-c', 'tollgate.yaml'])).toMatchObject({
      code: EXIT.ok,
      err: expect.stringContaining('--checkpoint') as string,
      out: expect.stringContaining('each record follows the one before it'),
    });
    expect(dataOf((await cli(project, ['audit', 'stats', '--json'])).out)).toMatchObject({ calls: 0, unknown: 0 });
    const lines = (await cli(project, ['audit', 'export', '--type', 'config'])).out
      .trimEnd()
      .split('\n')
      .map((line) => dataOf<{ event: string }>(line).event);
    expect(new Set(lines)).toEqual(new Set(['loaded']));
    expect(await cli(project, ['audit', 'show', 'nothing'])).toEqual({
      code: EXIT.unexpected,
      out: '',
      err: 'There is no record with the id nothing.\n',
    });
  });

  it('follows the log until a signal (tail), and prints CSV (export)', async () => {
    const running = start(project, ['audit', 'tail', '--all', '--json']);
    await expect.poll(() => running.said.out, { timeout: 20_000 }).not.toBe('');
    running.stop();
    expect(await running.ended).toMatchObject({ code: EXIT.ok, err: '' });
    expect((await cli(project, ['audit', 'export', '--format', 'csv'])).out).toMatch(/^ts,seq,type,id,/);
  });

  it('reports a changed log with exit code 3', async () => {
    mkdirSync(path.join(project.folder, 'copy'));
    const { out } = await cli(project, ['audit', 'export']);
    const first = out.split('\n', 1)[0] ?? '';
    writeFileSync(
      path.join(project.folder, 'copy', `${dataOf<{ chain: string }>(first).chain}.jsonl`),
      `${first.replace('"opened"', '"forged"')}\n`,
    );
    const { code, err } = await cli(project, ['audit', 'verify', '--folder', 'copy']);
    expect([code, err]).toEqual([EXIT.refused, expect.stringMatching(/^Not proven: 1 record, /)]);
  });
});
