/**
 * Tests DesktopCommander in a sandbox through a whole facade: behind the primitives, and as tools.
 * Covers: adapters/sandbox.
 */
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { own } from './probe-targets.ts';

const SCRIPT = path.join(
  import.meta.dirname,
  '..',
  'servers',
  'node_modules',
  '@wonderwhy-er/desktop-commander/dist/index.js',
);
let folder: string;
let facade: TestFacade;

beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-desktop-'));
  chmodSync(folder, 0o755);
  mkdirSync(path.join(folder, 'workspace'));
  own(path.join(folder, 'workspace'));
  writeFileSync(path.join(folder, 'secret'), 'the secret', { mode: 0o644 });
  facade = await startFacade(
    `version: 1
workspace: ./workspace
state: ./state
servers:
  desktop:
    command: ${JSON.stringify(process.execPath)}
    args: [${JSON.stringify(SCRIPT)}]
    mapping: desktop-commander
    connectTimeoutMs: 60000
principals: [{id: wrapped, stdio: true, profiles: [wrapped]}, {id: group, stdio: true, profiles: [group]}]
profiles:
  wrapped: {expose: {primitives: desktop}}
  group: {servers: [desktop], expose: {primitives: workspace, tools: ["desktop.*"]}}
rules:
  - {id: all, outcome: allow, when: {}}
  - {id: echo, outcome: allow, when: {tools: [desktop.start_process], commands: [echo]}}
`,
    { folder },
  );
}, 90_000);
afterAll(async () => {
  await facade.close();
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

describe('DesktopCommander behind the primitives' + verifies('CY-06'), () => {
  it('reads, writes, edits and runs commands in the workspace, and sees nothing outside of it', async () => {
    const session = facade.open('wrapped');
    expect((await facade.list(session)).map(({ name }) => name).sort()).toEqual(['bash', 'edit', 'read', 'write']);
    expect((await facade.call(session, 'write', { path: 'notes.txt', content: 'hello\n' })).code).toBe('');
    expect(
      (await facade.call(session, 'edit', { path: 'notes.txt', old_string: 'hello', new_string: 'good day' })).code,
    ).toBe('');
    expect((await facade.call(session, 'read', { path: 'notes.txt' })).text).toContain('good day');
    expect(readFileSync(path.join(folder, 'workspace', 'notes.txt'), 'utf8')).toBe('good day\n');
    const { text } = await facade.call(session, 'bash', {
      command: `cat notes.txt; cat ${folder}/secret; ls ${folder}/state; touch /usr/x; ls ${folder}`,
    });
    expect(text).toMatch(/good day\n/);
    expect(text).not.toContain('the secret');
    expect(text).toMatch(/Read-only file system/);
    expect(text).not.toMatch(/tollgate\.yaml|libsql|audit/);
    expect(facade.records().find(({ type, exposed }) => type === 'outcome' && exposed === 'bash')).toMatchObject({
      server: 'desktop',
      tool: 'start_process',
    });
  });
});

describe('DesktopCommander exposed as tools' + verifies('CY-07'), () => {
  it('lists tools that match a pattern, and high-risk tools with their risk only if a rule names them', async () => {
    const tools = new Map(
      (await facade.list(facade.open('group'))).map((tool) => [tool.name, String(tool.description)]),
    );
    expect([...tools.keys()]).toEqual(
      expect.arrayContaining(['read', 'desktop_read_file', 'desktop_list_directory', 'desktop_start_process']),
    );
    for (const name of ['interact_with_process', 'set_config_value', 'kill_process', 'force_terminate'])
      expect([...tools.keys()]).not.toContain(`desktop_${name}`);
    expect(tools.get('desktop_start_process')).toMatch(/^\[runs code\] /);
  });

  it('runs a high-risk tool only with arguments that its rule allows', async () => {
    const session = facade.open('group');
    // It may answer that a short command has ended before it has read the output.
    await expect
      .poll(
        async () =>
          (await facade.call(session, 'desktop_start_process', { command: 'echo ran-here', timeout_ms: 3000 })).text,
        { timeout: 40_000 },
      )
      .toContain('ran-here');
    const refused = await facade.call(session, 'desktop_start_process', { command: 'touch made', timeout_ms: 3000 });
    expect([refused.code, existsSync(path.join(folder, 'workspace', 'made'))]).toEqual(['DENIED', false]);
    expect(refused.text).toContain('only a rule that names it');
    expect((await facade.call(session, 'desktop_set_config_value', { key: 'blockedCommands', value: [] })).code).toBe(
      'UNKNOWN_TOOL',
    );
    expect((await facade.call(session, 'desktop_read_file', { path: path.join(folder, 'secret') })).text).not.toContain(
      'the secret',
    );
  });
});
