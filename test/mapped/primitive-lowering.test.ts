/** Owns the tests of lowering: the policy sees what will really be called, without any call. */
import { describe, expect, it } from 'vitest';
import type { Primitive, ServerAdapter } from '../../adapters/port.ts';
import { createMappedBackend } from '../../adapters/primitives/mapped/mapped-backend.ts';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import { loadMapping, MAPPINGS } from '../../catalogs/primitives/primitive-mapping.ts';

const ROOT = '/work/space';
const refuse = (): never => {
  throw new Error('lowering must not call');
};
const inner = (name: string): ServerAdapter => ({
  name,
  start: refuse,
  listTools: refuse,
  call: refuse,
  health: () => ({ state: 'idle', restarts: 0, badLines: 0 }),
  info: () => undefined,
  onToolsChanged: refuse,
  stop: refuse,
});
const mapped = (id: string) => createMappedBackend({ inner: inner(id), mapping: loadMapping(id), root: ROOT });
const codeOf = (act: () => unknown): string => {
  try {
    act();
  } catch (error) {
    return (error as TollgateError).code;
  }
  return 'none';
};

describe('lowering to desktop-commander', () => {
  const backend = mapped('desktop-commander');

  it('gives the main tool with the arguments that are sent', () => {
    expect(backend.lower('read', { path: 'a.txt', offset: 3 })).toEqual({
      tool: 'read_file',
      args: { path: `${ROOT}/a.txt`, offset: 2, length: 2000 },
      semantics: { verb: 'read', paths: ['path'] },
    });
    expect(backend.lower('write', { path: 'a.txt', content: 'x', mode: 'append' }).args).toEqual({
      path: `${ROOT}/a.txt`,
      content: 'x',
      mode: 'append',
    });
    expect(backend.lower('write', { path: 'a.txt', content: 'x' }).args).toMatchObject({ mode: 'rewrite' });
    expect(backend.lower('edit', { path: 'a.txt', old_string: 'a', new_string: 'b' }).args).toEqual({
      file_path: `${ROOT}/a.txt`,
      old_string: 'a',
      new_string: 'b',
      expected_replacements: 1,
    });
  });

  it('shows the policy the command as the caller gave it, without marks', () => {
    const { tool, args, semantics } = backend.lower('bash', { command: 'ls -l', cwd: 'sub' });
    expect(tool).toBe('start_process');
    expect(args).toMatchObject({ command: 'ls -l', cwd: `${ROOT}/sub` });
    expect(semantics).toEqual({ verb: 'execute', command: 'command', paths: ['cwd'] });
    expect(backend.lower('bash', { action: 'send', session: 's1', input: 'rm -r x' })).toMatchObject({
      tool: 'interact_with_process',
      args: { input: 'rm -r x' },
      semantics: { verb: 'execute', command: 'input' },
    });
  });

  it('takes the other spellings that models use', () => {
    expect(backend.lower('read', { file_path: 'a.txt' }).args).toMatchObject({ path: `${ROOT}/a.txt` });
  });

  it.each([
    ['context around matches', 'read', { action: 'search', path: '.', pattern: 'x', context: 2 }],
    ['a separator in a glob', 'read', { action: 'search', path: '.', pattern: 'x', glob: 'a|b' }],
    [
      'several edits at once',
      'edit',
      { path: 'a', old_string: 'a', new_string: 'b', edits: [{ old_string: 'c', new_string: 'd' }] },
    ],
    ['carriage returns in new text', 'edit', { path: 'a', old_string: 'a', new_string: 'b\r\n' }],
    ['the end of stdin', 'bash', { action: 'send', session: 's1', input: 'x', eof: true }],
    ['input without a line end', 'bash', { action: 'send', session: 's1', input: 'x', raw: true }],
  ] as const)('refuses %s, since the backend cannot do it', (_name, primitive, args) => {
    expect(codeOf(() => backend.lower(primitive, args))).toBe('NOT_SUPPORTED');
  });

  it('sends raw input that ends with a line end', () => {
    expect(backend.lower('bash', { action: 'send', session: 's1', input: 'x\n', raw: true }).args).toMatchObject({
      input: 'x\n',
    });
  });

  it.each([
    ['read', { action: 'search', path: '.' }],
    ['read', { action: 'search', path: '.', pattern: 'a\nb' }],
    ['bash', {}],
    ['bash', { command: '  ' }],
    ['bash', { command: 'a\0b' }],
    ['bash', { command: 'ls', timeout_ms: 0 }],
    ['bash', { command: 'ls', timeout_ms: 700_000 }],
    ['bash', { action: 'send', session: 's1' }],
    ['read', { path: 'a', unknown: 1 }],
  ] as const)('refuses %s with %j', (primitive, args) => {
    expect(codeOf(() => backend.lower(primitive, args))).toBe('ARGS_INVALID');
  });
});

describe('lowering to server-filesystem', () => {
  const backend = mapped('server-filesystem');

  it('never lowers to its edit tool, which guesses', () => {
    const tools = [...backend.serves().values()].flat().map(({ tool }) => tool);
    expect(tools).not.toContain('edit_file');
    expect(backend.lower('edit', { path: 'a', old_string: 'a', new_string: 'b' })).toEqual({
      tool: 'write_file',
      args: { path: `${ROOT}/a`, old_string: 'a', new_string: 'b' },
      semantics: { verb: 'write', paths: ['path'] },
    });
  });

  it('serves no bash and says what is missing', () => {
    expect([...backend.serves().keys()]).toEqual(['read', 'write', 'edit']);
    expect(() => backend.lower('bash', { command: 'ls' })).toThrow('no shell');
    expect(codeOf(() => backend.lower('read', { action: 'search', path: '.', pattern: 'x' }))).toBe('NOT_SUPPORTED');
  });
});

describe.each(MAPPINGS)('one effect on %s, whichever way it came', (id) => {
  const backend = mapped(id);
  const mapping = loadMapping(id);

  it('a file that is read or written has the verb and the path of the tool passed through', () => {
    const calls: readonly [Primitive, Readonly<Record<string, unknown>>][] = [
      ['read', { path: 'a' }],
      ['read', { path: 'a', action: 'list' }],
      ['read', { path: 'a', action: 'stat' }],
      ['read', { path: 'a', action: 'find', pattern: '*' }],
      ['write', { path: 'a', content: 'x' }],
      ['edit', { path: 'a', old_string: 'x', new_string: 'y' }],
    ];
    for (const [primitive, args] of calls) {
      const lowered = backend.lower(primitive, args);
      const passed = mapping.tools.get(lowered.tool);
      expect(passed?.verb).toBe(lowered.semantics.verb);
      expect(passed?.paths).toEqual(lowered.semantics.paths);
      for (const name of lowered.semantics.paths ?? []) expect(lowered.args[name]).toBe(`${ROOT}/a`);
    }
  });

  it('a path that leads out is shown to the policy as where it leads', () => {
    expect(Object.values(backend.lower('read', { path: '../../etc/passwd' }).args)).toContain('/etc/passwd');
    expect(Object.values(backend.lower('read', { path: 'file:///etc/passwd' }).args)).toContain('/etc/passwd');
    expect(Object.values(backend.lower('read', { path: 'file://host/x' }).args)).toContain(`${ROOT}/file:/host/x`);
  });

  it('answers for its server, and keeps quiet about tools that are not its own', () => {
    expect(backend.name).toBe(id);
    expect(backend.health().state).toBe('idle');
    expect(backend.info()).toBeUndefined();
    backend.onToolsChanged(() => undefined);
  });

  it('knows the four primitives only', async () => {
    const call = {
      tool: 'move',
      args: { text: '{}', value: {}, exact: true },
      scope: 's',
      signal: new AbortController().signal,
      timeoutMs: 1,
      hardTimeoutMs: 1,
    };
    await expect(backend.call(call)).rejects.toMatchObject({ code: 'UNKNOWN_TOOL' });
  });
});
