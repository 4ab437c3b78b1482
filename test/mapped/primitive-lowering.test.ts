/** Tests lowering to mapped servers: the policy sees the tool and arguments of the call, and nothing is called. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import type { Primitive, ServerAdapter } from '../../adapters/port.ts';
import { createMappedBackend } from '../../adapters/primitives/mapped/mapped-backend.ts';
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
/** One lowering, see lowering-cases.yaml. */
interface Case {
  readonly name: string;
  readonly backend: string;
  readonly primitive: Primitive;
  readonly given: Readonly<Record<string, unknown>>;
  readonly tool?: string;
  readonly args?: Readonly<Record<string, unknown>>;
  readonly semantics?: object;
  readonly code?: string;
  readonly says?: string;
}
const file = fileURLToPath(new URL('lowering-cases.yaml', import.meta.url));
const CASES = parse(readFileSync(file, 'utf8')) as readonly Case[];

describe('a primitive on a mapped server', () => {
  it.each(CASES.filter(({ code }) => code === undefined))('$backend is lowered with $name', (lowering) => {
    const { backend, primitive, given, tool, args, semantics } = lowering;
    expect(mapped(backend).lower(primitive, given)).toEqual({ tool, args, semantics });
  });

  it.each(CASES.filter(({ code }) => code !== undefined))('$backend refuses $name: $code', (refusal) => {
    const { backend, primitive, given, code, says = '' } = refusal;
    expect(() => mapped(backend).lower(primitive, given)).toThrow(
      expect.objectContaining({ code, message: expect.stringContaining(says) as unknown }) as Error,
    );
  });

  it('never uses the edit tool of server-filesystem, which guesses', () => {
    const backend = mapped('server-filesystem');
    const tools = [...backend.serves().values()].flat().map(({ tool }) => tool);
    expect(tools).not.toContain('edit_file');
    expect(backend.lower('edit', { path: 'a', old_string: 'a', new_string: 'b' })).toEqual({
      tool: 'write_file',
      args: { path: `${ROOT}/a`, old_string: 'a', new_string: 'b' },
      semantics: { verb: 'write', paths: ['path'] },
    });
  });

  it('does not include bash on server-filesystem', () => {
    expect([...mapped('server-filesystem').serves().keys()]).toEqual(['read', 'write', 'edit']);
  });
});

describe.each(MAPPINGS)('the effect of a primitive on %s', (id) => {
  const backend = mapped(id);
  const mapping = loadMapping(id);

  it('has the verb and paths of the tool when it is called directly', () => {
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

  it('contains the absolute path of a path that leads outside', () => {
    expect(Object.values(backend.lower('read', { path: '../../etc/passwd' }).args)).toContain('/etc/passwd');
    expect(Object.values(backend.lower('read', { path: 'file:///etc/passwd' }).args)).toContain('/etc/passwd');
    expect(Object.values(backend.lower('read', { path: 'file://host/x' }).args)).toContain(`${ROOT}/file:/host/x`);
  });

  it('comes from a backend with the name and health of its server', () => {
    expect(backend.name).toBe(id);
    expect(backend.health().state).toBe('idle');
    expect(backend.info()).toBeUndefined();
    backend.onToolsChanged(() => undefined);
  });

  it('exists for the four primitives only', async () => {
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
