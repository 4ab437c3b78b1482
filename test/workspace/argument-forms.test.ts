/** Owns the proof that other spellings of arguments are taken once and said, and that the server's contract holds. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PRIMITIVES, type Primitive } from '../../adapters/port.ts';
import { createWorkspace } from '../../adapters/primitives/workspace/workspace-server.ts';
import { normalizeArguments } from '../../catalogs/primitives/argument-spellings.ts';
import { ARGUMENT_SCHEMAS, checkArguments } from '../../catalogs/primitives/primitive-schemas.ts';
import { verifies } from '../verifies.ts';
import { makeBench } from './workspace-harness.ts';

describe('normalise', () => {
  it.each<readonly [string, Record<string, unknown>, Record<string, unknown>]>([
    ['read', { file_path: 'f' }, { path: 'f' }],
    ['read', { filePath: 'f', start_line: 5, end_line: 9 }, { path: 'f', offset: 5, limit: 5 }],
    ['read', { path: 'f', end_line: 9 }, { path: 'f', limit: 9 }],
    ['read', { path: 'f', action: null, offset: null }, { path: 'f' }],
    ['read', { action: 'list', dir_path: 'd' }, { action: 'list', path: 'd' }],
    ['read', { filename: 'f', path: 'f' }, { path: 'f' }],
    ['write', { file_path: 'f', file_text: 'x' }, { path: 'f', content: 'x' }],
    ['write', { path: 'f', text: 'x' }, { path: 'f', content: 'x' }],
    ['edit', { path: 'f', oldText: 'a', newText: 'b' }, { path: 'f', old_string: 'a', new_string: 'b' }],
    [
      'edit',
      { path: 'f', search: 'a', replace: 'b', replaceAll: true },
      { path: 'f', old_string: 'a', new_string: 'b', replace_all: true },
    ],
    [
      'edit',
      { path: 'f', old_str: 'a', new_str: 'b', expected_replacements: 1 },
      { path: 'f', old_string: 'a', new_string: 'b', replace_all: false },
    ],
    ['edit', { path: 'f', edits: [{ oldText: 'a', newText: 'b' }] }, { path: 'f', old_string: 'a', new_string: 'b' }],
    [
      'edit',
      {
        path: 'f',
        edits: [
          { old_str: 'a', new_str: 'b' },
          { before: 'c', after: 'd' },
        ],
      },
      { path: 'f', old_string: 'a', new_string: 'b', edits: [{ old_string: 'c', new_string: 'd' }] },
    ],
    ['edit', { path: 'f', edits: [] }, { path: 'f', edits: [] }],
    ['edit', { path: 'f', edits: ['x'] }, { path: 'f', edits: ['x'] }],
    ['bash', { cmd: 'ls', workdir: 'd', timeout: 30 }, { command: 'ls', cwd: 'd', timeout_ms: 30_000 }],
    ['bash', { command: 'ls', timeout: 30_000 }, { command: 'ls', timeout_ms: 30_000 }],
    ['bash', { action: 'send', pid: 7, chars: 'x' }, { action: 'send', session: '7', input: 'x' }],
    ['bash', { action: 'poll', sessionId: 's1' }, { action: 'poll', session: 's1' }],
    ['unknown', { file_path: 'f' }, { file_path: 'f' }],
  ])('%s %j', (primitive, args, wanted) => {
    expect(normalizeArguments(primitive, args).args).toEqual(wanted);
  });

  it('says every change, and the unit it took' + verifies('DC-03'), () => {
    expect(normalizeArguments('bash', { cmd: 'ls', timeout: 30 }).notes).toEqual([
      'cmd was taken as command',
      'timeout (30 s) was taken as timeout_ms',
    ]);
    expect(
      normalizeArguments('edit', { path: 'f', old_string: 'a', new_string: 'b', expected_replacements: 3 }).notes,
    ).toEqual(['expected_replacements (the number is not checked) was taken as replace_all']);
    expect(normalizeArguments('read', { path: 'f', limit: 3 }).notes).toEqual([]);
  });

  it.each<readonly [string, Record<string, unknown>]>([
    ['read', { path: 'a', file_path: 'b' }],
    ['read', { file_path: 'a', filename: 'b' }],
    ['read', { path: 'a', limit: 2, start_line: 1, end_line: 9 }],
    ['bash', { command: 'a', cmd: 'b' }],
    ['bash', { command: 'a', timeout: 5, timeout_ms: 6 }],
    ['edit', { path: 'f', edits: [{ path: 'g', old_string: 'a', new_string: 'b' }] }],
  ])('an alias beside its name with another value is refused: %s %j', (primitive, args) => {
    expect(() => normalizeArguments(primitive, args)).toThrow(
      expect.objectContaining({ code: 'ARGS_INVALID' }) as Error,
    );
  });

  it('changes nothing the second time, and keys of the prototype are only keys', () => {
    const key = fc.constantFrom(
      'path',
      'file_path',
      'cmd',
      'command',
      'start_line',
      'end_line',
      'timeout',
      'pid',
      'session',
      '__proto__',
      'constructor',
      'toString',
      'edits',
      'x',
    );
    fc.assert(
      fc.property(
        fc.constantFrom(...PRIMITIVES),
        fc.dictionary(key, fc.oneof(fc.string(), fc.integer({ min: 1 }), fc.constant(null))),
        (primitive, args) => {
          let once: ReturnType<typeof normalizeArguments>;
          try {
            once = normalizeArguments(primitive, args);
          } catch (error) {
            expect(error).toMatchObject({ code: 'ARGS_INVALID' });
            return;
          }
          expect(normalizeArguments(primitive, once.args)).toEqual({ args: once.args, notes: [] });
        },
      ),
    );
  });
});

describe('the arguments of the primitives', () => {
  it.each<readonly [string, Record<string, unknown>, string]>([
    ['read', {}, 'path is missing'],
    ['read', { path: 5 }, 'path must be a string'],
    ['read', { path: 'f', offset: 1.5 }, 'offset must be an integer'],
    ['read', { path: 'f', hidden: 'yes' }, 'hidden must be a boolean'],
    ['read', { path: 'f', action: 'delete' }, 'action has no such value'],
    ['read', { path: 'f', file_path: 'f' }, '"file_path" is not an argument of read'],
    ['read', { path: 'f', constructor: 1 }, '"constructor" is not an argument'],
    ['edit', { path: 'f', old_string: 'a', new_string: 'b', edits: 'x' }, 'edits must be a list'],
    ['edit', { path: 'f', old_string: 'a', new_string: 'b', edits: [null] }, 'edits must be a list'],
    [
      'edit',
      { path: 'f', old_string: 'a', new_string: 'b', edits: [{ old_string: 'x' }] },
      'new_string must be a string',
    ],
  ])('%s %j is refused', (primitive, args, why) => {
    expect(() => checkArguments(primitive, args)).toThrow(why);
  });

  it('an unknown tool is not supported', async () => {
    await expect(makeBench().call('delete', {})).rejects.toMatchObject({ code: 'NOT_SUPPORTED' });
  });
});

describe('the workspace server', () => {
  it(
    'lists the four tools with the published schemas and short descriptions' + verifies('DC-03', 'CY-05'),
    async () => {
      const tools = await makeBench().server.listTools();
      expect(tools.map((tool) => tool.name)).toEqual(['read', 'write', 'edit', 'bash']);
      for (const tool of tools) {
        expect(tool.inputSchema).toEqual(ARGUMENT_SCHEMAS.get(tool.name));
        expect(tool.description?.length).toBeLessThanOrEqual(1024);
      }
    },
  );

  it('lowers a primitive to itself, with what the policy must see' + verifies('CY-18'), () => {
    const { server } = makeBench();
    expect(server.lower('read', { file_path: 'f', action: null })).toEqual({
      tool: 'read',
      args: { path: 'f' },
      semantics: { verb: 'read', paths: ['path'] },
    });
    expect(server.lower('bash', { cmd: 'ls' })).toMatchObject({
      args: { command: 'ls' },
      semantics: {
        verb: 'execute',
        command: 'command',
        paths: ['cwd'],
        byArgument: { argument: 'action', verbs: { poll: 'read', list: 'read' } },
      },
    });
    expect(() => server.lower('write', { path: 'f' })).toThrow('content is missing');
    expect(() => server.lower('other' as Primitive, {})).toThrow(
      expect.objectContaining({ code: 'NOT_SUPPORTED' }) as Error,
    );
    expect([...server.serves().keys()]).toEqual([...PRIMITIVES]);
  });

  it('what was not lowered is not guessed at the call: an alias is refused, since the policy did not see it', async () => {
    const bench = makeBench({ f: 'x\n' });
    await expect(bench.call('read', { file_path: 'f' })).rejects.toMatchObject({ code: 'ARGS_INVALID' });
  });

  it('starts once, tells its health, and fails closed without a folder', async () => {
    const bench = makeBench();
    expect([bench.server.health().state, bench.server.info()]).toEqual(['idle', undefined]);
    expect(await bench.server.start()).toEqual(await bench.server.start());
    bench.server.onToolsChanged(() => undefined);
    expect([bench.server.health().state, bench.server.info()?.name]).toEqual(['healthy', 'tollgate-workspace']);
    await bench.server.stop();
    await bench.server.stop();
    expect(bench.server.health().state).toBe('idle');
    writeFileSync(path.join(bench.root, 'file'), '');
    for (const root of [path.join(bench.root, 'none'), path.join(bench.root, 'file')]) {
      const broken = createWorkspace({ root });
      await expect(
        broken.call({
          tool: 'read',
          args: { text: '{}', value: { path: '.' }, exact: true },
          scope: 'a',
          signal: new AbortController().signal,
          timeoutMs: 1,
          hardTimeoutMs: 1,
        }),
      ).rejects.toMatchObject({ code: 'INIT_FAILED' });
      expect(broken.health()).toMatchObject({ state: 'unavailable', reason: expect.any(String) });
    }
  });

  it('several edits in one call, all or none' + verifies('DC-03'), async () => {
    const bench = makeBench({ f: 'one\ntwo\n' });
    const { args } = bench.server.lower('edit', {
      path: 'f',
      edits: [
        { oldText: 'one', newText: '1' },
        { oldText: 'two', newText: '2' },
      ],
    });
    expect(await bench.text('edit', args)).toContain('lines 1, 2 (2 places)');
    expect(bench.get('f').toString()).toBe('1\n2\n');
    expect(await bench.failure('edit', { ...args, old_string: '1' })).toContain('nothing was changed');
    expect(bench.get('f').toString()).toBe('1\n2\n');
  });
});
