/** Attacks on the files that decide what an agent may do: through links, odd names, folders that do not exist yet, and edits on the disk. */
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { jailedShell } from '../../adapters/internal/jailed-shell.ts';
import { createWorkspace } from '../../adapters/internal/workspace.ts';
import { realPlaces } from '../../facade/config/control-files.ts';
import type { Config } from '../../facade/config/config.ts';
import { own, openWorkspace } from '../sandbox/plants.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const ALLOW_ALL = 'rules:\n  - {id: all, outcome: allow, when: {verbs: [read, write, destructive, execute]}}\n';

const done: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const undo of done.splice(0).reverse()) await undo();
});

/** A facade whose configuration lies in its workspace, and whose policy allows everything that the facade itself does not close. */
async function inWorkspace(policy: string, plant: (folder: string) => void): Promise<TestFacade> {
  const root = openWorkspace();
  done.push(() => rmSync(root, { recursive: true, force: true }));
  const [folder, state] = [path.join(root, 'project'), path.join(root, 'state')];
  mkdirSync(folder);
  plant(folder);
  const facade = await startFacade(`version: 1\nworkspace: .\nstate: ${state}\nprincipals:\n  - {id: agent, role: agent, profiles: [default]}\npolicies: [${policy}]\nexpose:\n  primitives: workspace\n`, { folder });
  done.push(() => facade.close());
  return facade;
}

const put = (folder: string, name: string, text: string): void => {
  mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
  writeFileSync(path.join(folder, name), text);
};

describe('a write to a control file', () => {
  const linked = (folder: string): void => {
    put(folder, 'cfg/real.yaml', ALLOW_ALL);
    put(folder, 'policies/.keep', '');
    symlinkSync('../cfg/real.yaml', path.join(folder, 'policies/rules.yaml'));
  };
  const folderLink = (folder: string): void => {
    put(folder, 'elsewhere/deep/rules.yaml', ALLOW_ALL);
    symlinkSync('elsewhere/deep', path.join(folder, 'policies'));
  };
  const inRego = (folder: string): void => {
    put(folder, 'rules.yaml', ALLOW_ALL);
    put(folder, '..policies/x.yaml', ALLOW_ALL);
  };
  it.each([
    ['a linked rules file', 'policies/rules.yaml', linked, ['cfg/real.yaml', 'policies/rules.yaml']],
    ['a linked folder of rules', 'policies/rules.yaml', folderLink, ['elsewhere/deep/rules.yaml', 'policies/rules.yaml']],
    ['a name that begins with two dots', '..policies/x.yaml', inRego, ['..policies/x.yaml']],
    ['servers that do not exist yet', 'rules.yaml', inRego, ['servers/evil.yaml']],
  ])('%s is refused under every name' + verifies('TR-30'), async (_, policy, plant, names) => {
    const facade = await inWorkspace(policy, plant);
    const session = facade.open('agent');
    for (const name of names) {
      const answer = await facade.call(session, 'write', { path: name, content: 'rules: []\n' });
      expect([name, answer.code, answer.text]).toEqual([name, 'DENIED', expect.stringContaining('control-files')]);
    }
    // The rule is not one that closes everything.
    expect((await facade.call(session, 'write', { path: 'notes.txt', content: 'x' })).code).toBe('');
  });
});

describe('a shell command in the sandbox', () => {
  const shellOver = (root: string, fixed: readonly string[]): ((command: string) => Promise<string>) => {
    const sandbox = { filesystem: { allowRead: [], allowWrite: [root], denyRead: [] }, network: { allowedDomains: [] }, limits: { memoryMb: 1024, processes: 128, fileMb: 64 } };
    const server = createWorkspace({ root, shell: jailedShell(() => ({ workspace: root, sandbox, hidden: [], fixed })) });
    done.push(() => server.stop());
    return async (command) => {
      const args = { command };
      const doc = await server.call({ tool: 'bash', args: { text: JSON.stringify(args), value: args, exact: true }, scope: 'a', timeoutMs: 20_000, hardTimeoutMs: 60_000, signal: new AbortController().signal });
      return (doc.value.content ?? []).map(({ text = '' }) => text).join('\n');
    };
  };

  it('cannot make servers/, nor a file in a folder that does not exist, and leaves no trace of the places' + verifies('TR-30'), async () => {
    const root = openWorkspace();
    done.push(() => rmSync(root, { recursive: true, force: true }));
    const bash = shellOver(root, [path.join(root, 'servers'), path.join(root, '.vscode', 'mcp.json')]);
    const text = await bash('echo x >servers/evil.yaml; rm -rf servers; mv servers away; mkdir -p servers/deep; echo x >.vscode/mcp.json; mv .vscode other; ls -A');
    expect(text).toMatch(/Read-only file system/);
    expect(text).toMatch(/Device or resource busy/);
    expect(existsSync(path.join(root, 'servers/evil.yaml'))).toBe(false);
    await expect.poll(() => existsSync(path.join(root, 'servers')) || existsSync(path.join(root, '.vscode'))).toBe(false);
  });

  it('runs, and cannot write the target, when a rules file is a link' + verifies('TR-30'), async () => {
    const root = openWorkspace();
    done.push(() => rmSync(root, { recursive: true, force: true }));
    put(root, 'cfg/real.yaml', ALLOW_ALL);
    put(root, 'policies/.keep', '');
    symlinkSync('../cfg/real.yaml', path.join(root, 'policies/rules.yaml'));
    for (const name of ['cfg', 'cfg/real.yaml', 'policies']) own(path.join(root, name));
    const facade = { controlFiles: [path.join(root, 'policies/rules.yaml'), path.join(root, 'cfg/real.yaml')] } as Pick<Config, 'controlFiles'>;
    expect(await shellOver(root, realPlaces(facade.controlFiles))('echo x >policies/rules.yaml; echo x >cfg/real.yaml; mv cfg away; cat cfg/real.yaml')).toMatch(/Read-only file system[^]*Read-only file system[^]*busy[^]*id: all/);
    expect(readFileSync(path.join(root, 'cfg/real.yaml'), 'utf8')).toBe(ALLOW_ALL);
  });
});
