/**
 * Tests the facts of a call (facade/call/lowering/call-effect.ts) and the resolution of its paths
 * (facade/call/lowering/workspace-files.ts).
 */
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Semantics } from '../../catalogs/tools/tool-definition.ts';
import { effectOf } from '../../facade/call/lowering/call-effect.ts';
import { WorkspaceFiles } from '../../facade/call/lowering/workspace-files.ts';
import { verifies } from '../verifies.ts';

let root: string;
beforeAll(() => {
  root = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-effect-')));
  mkdirSync(path.join(root, 'src'));
  symlinkSync('/etc', path.join(root, 'out'));
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

const facts = (semantics: Semantics, args: Record<string, unknown>) =>
  effectOf({ server: 's', tool: 't', semantics, args }, root);

describe('the effect of a call', () => {
  it('has the same facts for relative and absolute spellings of a path' + verifies('CY-18'), () => {
    const semantics: Semantics = { verb: 'read', paths: ['path'] };
    for (const spelled of ['src/a', './src//a', 'src/../src/a', path.join(root, 'src/a')]) {
      expect(facts(semantics, { path: spelled }).paths).toEqual([{ argument: 'path', path: 'src/a', inside: true }]);
    }
  });

  it('has the real path of a symbolic link', () => {
    expect(facts({ verb: 'read', paths: ['path'] }, { path: 'out/passwd' }).paths).toEqual([
      { argument: 'path', path: '/etc/passwd', inside: false },
    ]);
  });

  it('has every path of a list, also of nested lists', () => {
    expect(
      facts({ verb: 'write', paths: ['paths', 'other'] }, { paths: ['a', ['b']], other: null }).paths.map(
        (fact) => fact.path,
      ),
    ).toEqual(['a', 'b']);
  });

  it('has an unreadable fact for a value that is not a text: object-for-path, list-for-command', () => {
    const semantics: Semantics = { verb: 'execute', paths: ['path'], urls: ['url'], command: 'command' };
    for (const odd of [{ path: '.env' }, 7, true, [[{}]]]) {
      const { paths, urls, command } = facts(semantics, { path: odd, url: odd, command: odd });
      expect(paths).toEqual([{ argument: 'path', path: 'unresolved:', inside: false }]);
      expect(urls).toEqual([{ argument: 'url', url: '', host: '', address: '', scheme: '' }]);
      expect(command).toEqual({ text: '', opaque: true, words: [] });
    }
    expect(facts(semantics, { command: ['rm', '-rf', '/'] }).command?.opaque).toBe(true);
  });

  it('has the host of a URL only if every parser reads the same one', () => {
    const urls = facts(
      { verb: 'read', urls: ['url'] },
      { url: ['https://example.com:8443/x', 'http://a@b.example/', 'no url', 'http://0x7f.1/'] },
    ).urls;
    expect(urls.map((fact) => fact.host)).toEqual(['example.com', '', '', '']);
  });

  it('has the verb of the argument, or the more serious one for an unknown value', () => {
    const semantics: Semantics = {
      verb: 'execute',
      command: 'command',
      byArgument: { argument: 'action', verbs: { poll: 'read' } },
    };
    expect(facts(semantics, { action: 'poll' }).verb).toBe('read');
    for (const action of ['constructor', '__proto__', 'run', undefined, 4])
      expect(facts(semantics, { action }).verb).toBe('execute');
    expect(facts(semantics, { command: 'ls -l' }).command).toEqual({
      text: 'ls -l',
      opaque: false,
      words: [['ls', '-l']],
    });
    expect(facts(semantics, {}).command).toBeUndefined();
  });
});

describe('WorkspaceFiles', () => {
  it('resolves a call without a path synchronously, because every call would pay for a promise', async () => {
    const files = new WorkspaceFiles({ workspace: root, controlFiles: [], otherWorkspaces: { read: [], write: [] } });
    const semantics: Semantics = { verb: 'read', paths: ['path'] };
    const resolve = (args: Record<string, unknown>): ReturnType<WorkspaceFiles['resolve']> =>
      files.resolve({ server: 's', tool: 't', semantics, args });
    expect(resolve({})).toMatchObject({ effect: { verb: 'read', paths: [] } });
    const { effect, pathHandles: held } = await resolve({ path: 'src/a' });
    held.close();
    expect(effect.paths).toEqual([{ argument: 'path', path: 'src/a', inside: true }]);
  });
});
