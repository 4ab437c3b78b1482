/** Tests `tollgate setup` with packages, registries and files that fail: the others are set up, and a run continues. */

import { chownSync, existsSync, readdirSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { dataOf, start } from '../cli/terminal.ts';
import { atHome, type Home } from '../clients/home.ts';
import { inFull } from '../harness/full-tests.ts';
import { LocalRegistry, PROGRAM } from '../packages/local-registry.ts';
import { verifies } from '../verifies.ts';

const CURSOR = '.cursor/mcp.json';
const DESKTOP = '.config/Claude/claude_desktop_config.json';
const WINDSURF = '.codeium/windsurf/mcp_config.json';
const registry = new LocalRegistry();
const npx = (name: string) => ({ command: 'npx', args: ['-y', name] });

/** The parts of the output of `--json` that are compared. */
interface Ended {
  readonly plan: string;
  readonly next?: string;
  readonly stays: readonly { readonly name: string; readonly why: string }[];
  readonly failed?: readonly { readonly name: string; readonly why: string }[];
  readonly approved?: readonly string[];
  readonly unwritten?: readonly string[];
  readonly bypasses?: readonly { readonly name: string }[];
}

beforeAll(async () => {
  await registry.open();
  const files = { 'run.cjs': PROGRAM, 'one.cjs': PROGRAM, 'two.cjs': PROGRAM };
  const of = (name: string, more = {}) => ({ name, version: '1.0.0', bin: 'run.cjs', ...more });
  registry.npm(of('good'), files);
  registry.npm(of('twins', { bin: { one: 'one.cjs', two: 'two.cjs' } }), files);
  registry.npm(of('scripted', { scripts: { install: 'echo ran > ran' } }), files);
  registry.npm(of('forged'), files, `sha512-${'A'.repeat(86)}==`);
});
afterAll(() => registry.close());

async function setup(home: Home, ...words: string[]): Promise<{ readonly code: number; readonly shown: Ended }> {
  const { code, out, err } = await home.run(['setup', '--json', ...words]);
  if (out === '') throw new Error(err);
  return { code, shown: dataOf<Ended>(out) };
}

const wordsOf = (next = ''): string[] => next.replace(/^tollgate setup /, '').split(' ');

async function atRegistry(address: string, work: (home: Home) => Promise<void>): Promise<void> {
  await atHome([], async (home) => {
    if (process.getuid?.() === 0) chownSync(home.file('project'), 65_534, 65_534);
    Object.assign(home.env, registry.environment(home.file('cache')), { npm_config_registry: address });
    await work(home);
  });
}

/** Agrees to the plan, then to each server. Returns the last run. */
async function agreeToAll(home: Home): ReturnType<typeof setup> {
  const planned = await setup(home);
  const started = await setup(home, ...wordsOf(planned.shown.next));
  return started.shown.next === undefined ? started : setup(home, ...wordsOf(started.shown.next));
}

describe('servers that cannot be set up' + verifies('FH-09'), () => {
  inFull(
    'leaves them in their file, sets up the others, and continues once the registry is correct',
    async () => {
      await atRegistry(registry.address, async (home) => {
        const names = ['good', 'twins', 'scripted', 'forged', 'gone@9.9.9'];
        home.write(CURSOR, JSON.stringify({ mcpServers: Object.fromEntries(names.map((name) => [name, npx(name)])) }));
        const { code, shown } = await agreeToAll(home);
        expect([code, shown.approved]).toEqual([EXIT.server, ['good', 'scripted']]);
        expect(shown.stays.map(({ name }) => name)).toEqual(['twins', 'gone@9.9.9']);
        expect(shown.stays[0]?.why).toContain('several programs: one, two');
        expect(shown.failed).toEqual([{ name: 'forged', why: expect.stringMatching(/forged/) as string }]);
        const left = Object.keys(dataOf<{ mcpServers: object }>(home.read(CURSOR)).mcpServers);
        expect(left).toEqual(['twins', 'forged', 'gone@9.9.9', 'tollgate']);
        expect(shown.bypasses?.map(({ name }) => name)).toEqual(['twins', 'forged', 'gone@9.9.9']);
        expect(existsSync(home.file('project/servers/forged.yaml'))).toBe(false);
        const installed = readdirSync(home.file('.local'), { recursive: true, encoding: 'utf8' });
        expect(installed.some((name) => /packages\/good\//.test(name))).toBe(true);
        expect(installed.filter((name) => /packages\/forged|node_modules\/scripted\/ran$/.test(name))).toEqual([]);

        registry.npm({ name: 'forged', version: '1.0.0', bin: 'run.cjs' }, { 'run.cjs': PROGRAM });
        const next = await agreeToAll(home);
        expect(next.shown.approved).toContain('forged');
        expect(home.read(CURSOR)).not.toContain('"forged"');
      });
    },
    120_000,
  );

  it('writes nothing without a registry, and says how to continue', async () => {
    await atRegistry('http://127.0.0.1:9', async (home) => {
      home.write(CURSOR, JSON.stringify({ mcpServers: { good: npx('good') } }));
      unlinkSync(home.file('project/tollgate.yaml'));
      const before = home.snapshot();
      const { code, out, err } = await home.run(['setup']);
      expect([code, out]).toEqual([EXIT.server, expect.stringContaining('its package cannot be pinned') as string]);
      expect(err).toContain('To continue:\n  tollgate setup\n');
      const after = home.snapshot();
      for (const name of Object.keys(after).filter((one) => !one.startsWith('cache')))
        expect(after[name]).toBe(before[name]);
    });
  }, 120_000);

  inFull(
    'writes the other files if one became a link, or was changed, while the question stood',
    async () => {
      await atRegistry(registry.address, async (home) => {
        const text = JSON.stringify({ mcpServers: { good: npx('good') } });
        for (const file of [CURSOR, WINDSURF, DESKTOP]) home.write(file, text);
        home.write('real.json', text);
        const running = start({ home: home.project.home, folder: home.project.folder }, ['setup'], {
          env: home.env,
          isTTY: true,
        });
        Object.assign(running.stdin, { isTTY: true });
        for (const question of ['Do this?', 'policy?', 'Write these files?']) {
          await expect.poll(() => running.said.err, { timeout: 60_000 }).toContain(question);
          if (question.startsWith('Write')) {
            unlinkSync(home.file(CURSOR));
            symlinkSync(home.file('real.json'), home.file(CURSOR));
            writeFileSync(home.file(DESKTOP), `${text} `);
          }
          running.stdin.write('y');
        }
        const { code, err } = await running.ended;
        expect([code, err], err).toEqual([EXIT.approval, expect.stringMatching(/Not changed: .*is a link/) as string]);
        expect(err).toMatch(/Not changed: .*claude_desktop_config.json was changed meanwhile/);
        expect([home.read('real.json'), home.read(DESKTOP)]).toEqual([text, `${text} `]);
        expect(home.read(WINDSURF)).not.toContain('npx');
        expect(err).toContain('Still to agree to:\n  tollgate setup --yes-to ');
      });
    },
    120_000,
  );
});
