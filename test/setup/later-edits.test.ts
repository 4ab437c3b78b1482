/** Tests undo after the owner has edited what setup wrote: everything is checked first, and later edits stay. */
import { chownSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { dataOf } from '../cli/terminal.ts';
import { atHome, type Home } from '../clients/home.ts';
import { verifies } from '../verifies.ts';

const SERVER = path.resolve('test/fixtures/notes-server.mjs');
const CURSOR = '.cursor/mcp.json';
const CONFIG = 'project/tollgate.yaml';
const RULES = 'project/policies/setup-rules.yaml';
const FILE = 'project/servers/notes.yaml';
const BUDGET = 'budgets: [{id: few, scope: run, calls: 5, when: {server: notes}}]\n';
const OWN_RULE = '  - {id: mine, outcome: deny, when: {servers: [workspace], verbs: [execute]}}\n';

/** Sets up one server with a key, and agrees to everything. */
async function setUp(home: Home): Promise<void> {
  if (process.getuid?.() === 0) chownSync(home.file('project'), 65_534, 65_534);
  const entry = { command: process.execPath, args: [SERVER], env: { API_KEY: 'sk-proj-Zx81kPq02LmVt77' } };
  home.write(CURSOR, JSON.stringify({ mcpServers: { notes: entry } }));
  let words: string[] = [];
  for (let runs = 0; runs < 3; runs += 1) {
    const { code, out } = await home.run(['setup', '--json', ...words]);
    if (code === EXIT.ok) return;
    words = (dataOf<{ next?: string }>(out).next ?? '').replace(/^tollgate setup /, '').split(' ');
  }
  throw new Error(`setup did not end: ${words.join(' ')}`);
}

it(
  'undoes a setup after edits of its files, and refuses while lines of the owner need its servers' + verifies('FH-05'),
  async () => {
    await atHome([], async (home) => {
      const before = home.read(CONFIG);
      await setUp(home);
      const all = `# later\n${home.read(CONFIG)}`;
      home.write(CONFIG, `${all}${BUDGET}`);
      const place = `tollgate.yaml:${all.split('\n').length}:${BUDGET.indexOf('notes') + 1}: server "notes"`;
      home.write(RULES, `${home.read(RULES)}${OWN_RULE}`);
      home.write(FILE, `${home.read(FILE)}lifetime: ephemeral\n`);
      const edited = home.snapshot();
      for (const words of [
        ['setup', '--undo'],
        ['connect', '--undo', 'notes'],
      ]) {
        const { code, err } = await home.run(words);
        expect([code, err]).toEqual([EXIT.usage, expect.stringContaining(place) as string]);
        expect(err).toMatch(/Nothing was undone: these lines .* Correct them, and run: tollgate /);
        expect(home.snapshot()).toEqual(edited);
      }
      expect((await home.run(['secret', 'list'])).out).toContain('notes.API_KEY');

      home.write(CONFIG, all);
      const { code, err } = await home.run(['setup', '--undo']);
      expect(code, err).toBe(EXIT.ok);
      expect(err).toContain('Restored, with later edits of others: ~/.cursor/mcp.json, ');
      expect(err).toContain('No longer connected: notes.\nRemoved from the vault: notes.API_KEY.');
      expect(err).toContain('Your edits of removed servers are in: servers/notes.yaml.old.');
      expect(err).toMatch(
        /The configuration stays: tollgate.yaml\nNot in force: .* accept them with: tollgate reload\n$/,
      );
      // The rule of the owner stays in force.
      expect(home.read(CONFIG).trimEnd()).toBe(`# later\n${before}\npolicies:\n  - policies/setup-rules.yaml`);
      expect(home.read(RULES)).toMatch(new RegExp(`^rules:\n${OWN_RULE.replace(/[[\]{}]/g, '\\$&')}$`, 'm'));
      expect(home.read(`${FILE}.old`)).toContain('lifetime: ephemeral');
      expect([home.read(CURSOR).includes('notes'), home.exists(FILE)]).toEqual([true, false]);
      expect((await home.run(['check'])).err).not.toContain('INVALID');
      const secrets = dataOf<object[]>((await home.run(['secret', 'list', '--json'])).out);
      expect(secrets).toMatchObject([{ name: 'notes.API_KEY', missing: true }]);
    });
  },
);
