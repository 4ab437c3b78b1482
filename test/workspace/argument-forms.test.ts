/**
 * Tests that other spellings of arguments are accepted and reported, and that the workspace server keeps its contract.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { PRIMITIVES, type Primitive } from '../../adapters/port.ts';
import { createWorkspace } from '../../adapters/primitives/workspace/workspace-server.ts';
import { normalizeArguments } from '../../catalogs/primitives/argument-spellings.ts';
import { ARGUMENT_SCHEMAS, checkArguments } from '../../catalogs/primitives/primitive-schemas.ts';
import { verifies } from '../verifies.ts';
import { makeBench } from './workspace-harness.ts';

interface Case {
  readonly primitive: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly normalized: Readonly<Record<string, unknown>>;
  readonly refused: string;
}
const file = fileURLToPath(new URL('argument-cases.yaml', import.meta.url));
const CASES = parse(readFileSync(file, 'utf8')) as Readonly<Record<'normalize' | 'conflicts' | 'invalid', Case[]>>;

describe('normalizing arguments', () => {
  it.each(CASES.normalize)('renames the arguments of $primitive: $args', ({ primitive, args, normalized }) => {
    expect(normalizeArguments(primitive, args).args).toEqual(normalized);
  });

  it('reports every renamed argument, and the unit of a timeout' + verifies('DC-03'), () => {
    expect(normalizeArguments('bash', { cmd: 'ls', timeout: 30 }).notes).toEqual([
      'cmd was taken as command',
      'timeout (30 s) was taken as timeout_ms',
    ]);
    expect(
      normalizeArguments('edit', { path: 'f', old_string: 'a', new_string: 'b', expected_replacements: 3 }).notes,
    ).toEqual(['expected_replacements (the number is not checked) was taken as replace_all']);
    expect(normalizeArguments('read', { path: 'f', limit: 3 }).notes).toEqual([]);
  });

  it.each(CASES.conflicts)('refuses two spellings with different values: $primitive $args', ({ primitive, args }) => {
    expect(() => normalizeArguments(primitive, args)).toThrow(
      expect.objectContaining({ code: 'ARGS_INVALID' }) as Error,
    );
  });

  it('changes nothing when it runs again, also for names such as __proto__', () => {
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
  it.each(CASES.invalid)('are refused: $primitive $args', ({ primitive, args, refused }) => {
    expect(() => checkArguments(primitive, args)).toThrow(refused);
  });

  it('are not supported for an unknown tool', async () => {
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

  it('lowers a primitive to itself, with the facts that the policy needs' + verifies('CY-18'), () => {
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

  it('refuses another spelling at the call, because the policy did not see it', async () => {
    const bench = makeBench({ f: 'x\n' });
    await expect(bench.call('read', { file_path: 'f' })).rejects.toMatchObject({ code: 'ARGS_INVALID' });
  });

  it('starts once, reports its health, and refuses calls without a folder', async () => {
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

  it('applies several edits of one call, all or none' + verifies('DC-03'), async () => {
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
