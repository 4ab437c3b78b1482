/**
 * Tests `tollgate setup` without a terminal and at interrupted ones: nothing happens without consent.
 * Covers: facade/cli/setup.
 */

import { chownSync, existsSync, mkdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { dataOf, start } from '../cli/terminal.ts';
import { atHome, type Home } from '../clients/home.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';

const SERVER = path.resolve('test/fixtures/notes-server.mjs');
/** Some of its tools say that they only read. */
const EVERYTHING = path.resolve('test/servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js');
const CURSOR = '.cursor/mcp.json';
const DESKTOP = '.config/Claude/claude_desktop_config.json';
const KEY = 'sk-proj-Zx81kPq02LmVt77';

/** The parts of the output of `--json` that are compared. */
interface Shown {
  readonly plan: string;
  readonly config: string;
  readonly servers: readonly { readonly name: string; readonly from: readonly { readonly client: string }[] }[];
  readonly stays: readonly { readonly name: string; readonly why: string }[];
  readonly unread: readonly { readonly file: string; readonly why: string }[];
  readonly open?: readonly { readonly name: string; readonly start: string; readonly tools: string }[];
  readonly approved?: readonly string[];
  readonly bypasses?: readonly { readonly name: string; readonly why: string }[];
  readonly next?: string;
  readonly agent?: { readonly hidden: Readonly<Record<string, readonly string[]>> };
  readonly trials?: readonly { readonly server: string; readonly verdict?: string; readonly ok?: boolean }[];
}

const entry = (...more: string[]) => ({ command: process.execPath, args: [SERVER, ...more], env: { API_KEY: KEY } });

/** Runs `work` in a home with a project of another user, as sandboxes need it, and with two clients. */
function atClients(work: (home: Home) => Promise<void>): Promise<void> {
  return atHome([], async (home) => {
    if (process.getuid?.() === 0) chownSync(home.file('project'), 65_534, 65_534);
    home.write(CURSOR, JSON.stringify({ mcpServers: { notes: entry(), other: entry('one') } }));
    home.write(
      DESKTOP,
      JSON.stringify({
        mcpServers: { notes: entry(), other: { command: process.execPath, args: [EVERYTHING, 'stdio'] } },
      }),
    );
    await work(home);
  });
}

async function setup(home: Home, ...words: string[]): Promise<{ readonly code: number; readonly shown: Shown }> {
  const { code, out, err } = await home.run(['setup', '--json', ...words]);
  if (out === '') throw new Error(err);
  return { code, shown: dataOf<Shown>(out) };
}

/** The words of a command that setup printed. */
const wordsOf = (next = ''): string[] => next.replace(/^tollgate setup /, '').split(' ');

describe('setup without a terminal' + verifies('FH-03'), () => {
  it('writes nothing in a dry run, and names what entries of the same name become', async () => {
    await atClients(async (home) => {
      const before = home.snapshot();
      const { code, shown } = await setup(home, '--dry-run');
      expect(code).toBe(EXIT.ok);
      expect(shown.servers.map(({ name, from }) => [name, from.map(({ client }) => client)])).toEqual([
        ['notes', ['cursor', 'claude-desktop']],
        ['other', ['cursor']],
        ['other-2', ['claude-desktop']],
      ]);
      expect(home.snapshot()).toEqual(before);
      expect(JSON.stringify(shown)).not.toContain(KEY);
    });
  });

  inFull(
    'needs the hash of the plan, then the hash of each server, and continues with every run' + verifies('FH-08'),
    async () => {
      await atClients(async (home) => {
        const before = home.snapshot();
        const planned = await setup(home);
        expect([planned.code, planned.shown.next]).toEqual([
          EXIT.approval,
          `tollgate setup --yes-to ${planned.shown.plan}`,
        ]);
        expect(home.snapshot()).toEqual(before);
        expect((await home.run(['setup', '--yes-to', 'f'.repeat(64)])).code).toBe(EXIT.refused);
        expect(home.snapshot()).toEqual(before);

        const started = await setup(home, ...wordsOf(planned.shown.next));
        expect(started.code).toBe(EXIT.approval);
        expect(started.shown.open?.map(({ name }) => name)).toEqual(['notes', 'other', 'other-2']);
        expect(home.read(CURSOR)).toBe(JSON.stringify({ mcpServers: { notes: entry(), other: entry('one') } }));

        const [, plan = '', one = '', ...rest] = wordsOf(started.shown.next);
        const partly = await setup(home, '--yes-to', plan, one);
        expect([partly.code, partly.shown.approved]).toEqual([EXIT.approval, ['notes']]);
        expect(home.read(CURSOR)).toContain('"other"');
        expect(partly.shown.bypasses?.map(({ name }) => name).sort()).toEqual(['other', 'other']);

        const done = await setup(home, ...wordsOf((await setup(home)).shown.next));
        const last = await setup(home, '--test', ...wordsOf(done.shown.next));
        expect([last.code, last.shown.bypasses]).toEqual([EXIT.ok, []]);
        // A call is made without a terminal only if it was asked for.
        expect([done.shown.trials, last.shown.trials?.find(({ server }) => server === 'other-2')]).toEqual([
          undefined,
          expect.objectContaining({ verdict: 'allow', ok: true }) as object,
        ]);
        expect(rest).toHaveLength(2);
        expect(home.read('project/policies/setup-rules.yaml')).toContain(
          'message: This call may change something at the server notes; a person looks first.',
        );
        expect(last.shown.agent?.hidden['other-2']).toContain('trigger-long-running-operation');
        expect(home.read(CURSOR) + home.read(DESKTOP)).not.toContain('notes-server');
        expect(home.read(CURSOR) + home.read(DESKTOP)).not.toContain(KEY);

        expect((await home.run(['setup', '--undo'])).code).toBe(EXIT.ok);
        const after = home.snapshot();
        for (const name of [CURSOR, DESKTOP]) expect(after[name]).toBe(before[name]);
        expect(existsSync(home.file('project/servers'))).toBe(false);
        expect(home.read('project/tollgate.yaml')).toBe('# mine\nversion: 1\n\nlimits: {servers: 40} # enough\n');
      });
    },
  );

  it('leaves files alone that are links or no JSON, and says so', async () => {
    await atClients(async (home) => {
      home.write('real.json', JSON.stringify({ mcpServers: { linked: entry() } }));
      mkdirSync(home.file('.codeium/windsurf'), { recursive: true });
      symlinkSync(home.file('real.json'), home.file('.codeium/windsurf/mcp_config.json'));
      home.write(DESKTOP, '{"mcpServers": ');
      const { shown } = await setup(home, '--dry-run');
      expect(shown.unread).toEqual([
        { file: expect.stringContaining('claude_desktop_config.json') as string, why: expect.any(String) as string },
        {
          file: expect.stringContaining('mcp_config.json') as string,
          why: expect.stringContaining('is a link') as string,
        },
      ]);
      expect(shown.servers.map(({ name }) => name)).toEqual(['notes', 'other']);
    });
  });

  it('names an entry that only the client can read as a bypass, and writes nothing without a server', async () => {
    await atHome([], async (home) => {
      home.write(CURSOR, '{"mcpServers": {"odd": {"command": "node", "args": "x.js"}, "empty": {}}}');
      const before = home.snapshot();
      const { code, shown } = await setup(home);
      expect([code, shown.servers, shown.stays.map(({ name }) => name)]).toEqual([EXIT.ok, [], ['odd', 'empty']]);
      expect(shown.bypasses?.map(({ name }) => name)).toEqual(['odd']);
      expect(home.snapshot()).toEqual(before);
    });
  });

  it('writes nothing if there is no server and no configuration', async () => {
    await atHome([], async (home) => {
      home.write(CURSOR, '{}');
      const folder = home.file('elsewhere');
      mkdirSync(folder);
      const before = home.snapshot();
      expect(await home.run(['setup'], { cwd: folder })).toMatchObject({
        code: EXIT.ok,
        err: 'There is nothing to set up, and nothing was written.\n',
      });
      expect(home.snapshot()).toEqual(before);
    });
  });

  inFull('repeats owner and configuration in the command that continues', async () => {
    await atClients(async (home) => {
      home.write('project/tollgate.yaml', 'version: 1\nprincipals: [{id: me, role: dev, stdio: true, owner: true}]\n');
      const { shown } = await setup(home, '--as', 'me', '--config', './tollgate.yaml');
      expect(shown.next).toBe(`tollgate setup --config ./tollgate.yaml --as me --yes-to ${shown.plan}`);
      const { code, shown: started } = await setup(home, ...wordsOf(shown.next));
      expect([code, started.next]).toEqual([EXIT.approval, expect.stringContaining('--as me --yes-to') as string]);
    });
  });

  it('says what to do if no client has a file', async () => {
    await atHome([], async (home) => {
      expect(await home.run(['setup'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('tollgate connect') as string,
      });
      expect(await home.run(['setup', '--undo'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('nothing to undo') as string,
      });
      expect((await home.run(['setup', '--undo', 'cursr'])).err).toContain('"cursor"');
    });
  });
});

describe('setup at a terminal that is left' + verifies('FH-03'), () => {
  inFull('changes no client at any question, and the next run continues', async () => {
    await atClients(async (home) => {
      home.write(DESKTOP, '{}');
      const before = home.read(CURSOR);
      // The second server is all that is left to decide in the last run.
      const runs = [
        ['Do this?'],
        ['Do this?', 'policy?'],
        ['Do this?', 'policy?', 'policy?'],
        ['Do this?', 'policy?', 'Write these files?'],
      ];
      for (const questions of runs) {
        const { code, said } = await answered(home, [...questions.slice(1).map(() => 'y'), '\u0003'], questions);
        expect([code, said], said).toEqual([EXIT.unexpected, expect.stringContaining('CANCELLED') as string]);
        const isStarted = questions.length > 1;
        expect(said.replace(/\s+/g, ' ')).toContain(
          isStarted ? 'What it has done until now stays' : 'so nothing was done',
        );
        if (isStarted) expect(said.replace(/\s+/g, ' ')).toContain('Continue with `tollgate setup`');
        expect(home.read(CURSOR)).toBe(before);
      }
      // Both servers were approved by then, so only the plan and the files are left to ask about.
      const { code, said } = await answered(home, ['y', 'y'], ['Do this?', 'Write these files?']);
      expect([code, said], said).toEqual([EXIT.ok, expect.stringContaining('Nothing bypasses Tollgate') as string]);
    });
  });

  it('withdraws the start of a declined server, whose entry stays', async () => {
    await atClients(async (home) => {
      home.write(DESKTOP, '{}');
      const { said } = await answered(
        home,
        ['y', 'n', 'y', 'y'],
        ['Do this?', 'policy?', 'policy?', 'Write these files?'],
      );
      expect(said).toContain('1 server approved, 1 declined.');
      expect(said).toContain('notes, in ~/.cursor/mcp.json: you declined it; remove it there too');
      expect((await home.run(['servers', '--json'])).out).toMatch(/"other"/);
      expect(Object.keys(dataOf<{ mcpServers: object }>(home.read(CURSOR)).mcpServers)).toEqual(['notes', 'tollgate']);
    });
  });
});

/** Runs setup at a terminal, and types a key when a question appears. */
async function answered(
  home: Home,
  keys: readonly string[],
  questions: readonly string[],
): Promise<{ readonly code: number; readonly said: string }> {
  const project = { home: home.project.home, folder: home.project.folder };
  const running = start(project, ['setup'], { env: home.env, isTTY: true });
  Object.assign(running.stdin, { isTTY: true });
  let read = 0;
  for (const [index, key] of keys.entries()) {
    const question = questions[index] ?? '';
    await expect.poll(() => running.said.err.replace(/\s+/g, ' ').indexOf(question, read)).toBeGreaterThanOrEqual(0);
    read = running.said.err.replace(/\s+/g, ' ').indexOf(question, read) + question.length;
    running.stdin.write(key);
  }
  const { code, out, err } = await running.ended;
  return { code, said: out + err };
}
