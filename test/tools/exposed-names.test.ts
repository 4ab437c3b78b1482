import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type ExposableTool, exposedName, exposedNames, findExposed } from '../../catalogs/tools/exposed-names.ts';
import { verifies } from '../verifies.ts';

const LEGAL = /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/;

describe('names of exposed tools' + verifies('CY-04', 'PF-06', 'HA-22'), () => {
  it('are server_tool if that is legal', () => {
    expect(exposedName('github', 'create_issue')).toBe('github_create_issue');
    expect(exposedName('my-server', 'get-sum')).toBe('my-server_get-sum');
  });

  it('are otherwise a snake_case slug of at most 40 characters with a hash', () => {
    for (const tool of [
      'Dockerfile problems scanner',
      'github/git_commit',
      'a.b',
      'é',
      'x'.repeat(100),
      '../../etc',
      '__proto__ ',
    ]) {
      expect(exposedName('srv', tool)).toMatch(/^[a-z][a-z0-9_]{0,31}_[0-9a-f]{8}$/);
    }
    expect(exposedName('1srv', 'a b')).toMatch(LEGAL);
    expect(exposedName('srv', 'a.b')).not.toBe(exposedName('srv', 'a b'));
  });

  it('are the alias if it is legal, otherwise the slug', () => {
    const { names } = exposedNames([
      { server: 's', tool: 't', alias: 'deploy' },
      { server: 's', tool: 'u', alias: 'not legal' },
    ]);
    expect([...names.keys()]).toEqual(['deploy', 's_u']);
  });

  it('get a hash for all tools with the same name, except for an alias' + verifies('ST-90'), () => {
    const tools: ExposableTool[] = [
      { server: 'a', tool: 'pay' },
      { server: 'a', tool: 'Pay' },
      { server: 'a', tool: 'p' },
      { server: 'a-b', tool: 'c' },
      { server: 'a', tool: 'b_c' },
      { server: 'x', tool: 'y', alias: 'A-P' },
    ];
    const { names, nameOf, collisions } = exposedNames(tools);
    expect(collisions).toEqual([]);
    expect(names.size).toBe(tools.length);
    expect([...names].map(([name, { server, tool }]) => [name.replace(/_[0-9a-f]{8}$/, '_#'), server, tool])).toEqual([
      ['a_pay_#', 'a', 'pay'],
      ['a_pay_#', 'a', 'Pay'],
      ['a_p_#', 'a', 'p'],
      ['a_b_c_#', 'a-b', 'c'],
      ['a_b_c_#', 'a', 'b_c'],
      ['A-P', 'x', 'y'],
    ]);
    for (const tool of tools)
      expect(names.get(nameOf.get(tool) ?? '')).toEqual({ server: tool.server, tool: tool.tool });
    expect(new Map(exposedNames([...tools].reverse()).names)).toEqual(new Map(names));
  });

  it('are not taken by a tool that is called like the hashed name of another' + verifies('ST-90'), () => {
    const two = [
      { server: 'a-b', tool: 'c' },
      { server: 'a', tool: 'b_c' },
    ];
    const [taken = ''] = exposedNames(two).names.keys();
    const { names, collisions } = exposedNames([...two, { server: 'a', tool: taken.slice(2) }]);
    expect(collisions).toEqual([]);
    expect(names.get(taken)).toEqual({ server: 'a-b', tool: 'c' });
    expect(names.size).toBe(3);
  });

  it('are never a name that Tollgate uses itself' + verifies('ST-90'), () => {
    const { names, collisions } = exposedNames(
      [
        { server: 'read', tool: 'spill' },
        { server: 'a', tool: 'b', alias: 'read_spill' },
      ],
      ['read_spill'],
    );
    expect([...names.keys()]).toEqual([expect.stringMatching(/^read_spill_[0-9a-f]{8}$/)]);
    expect(collisions).toEqual([{ name: 'read_spill', tools: [{ server: 'a', tool: 'b' }] }]);
  });

  it('collide if aliases are equal except for case or signs, and then neither tool is shown', () => {
    const tools: ExposableTool[] = [
      { server: 'b', tool: 'x', alias: 'read_file' },
      { server: 'a', tool: 'y', alias: 'Read-File' },
      { server: 'a', tool: 'z' },
    ];
    const { names, collisions } = exposedNames(tools);
    expect([...names.keys()]).toEqual(['a_z']);
    expect(collisions).toEqual([
      {
        name: 'Read-File',
        tools: [
          { server: 'a', tool: 'y' },
          { server: 'b', tool: 'x' },
        ],
      },
    ]);
  });

  it('cannot be forged with the separator, because a server has no underscore', () => {
    const { names, collisions } = exposedNames([
      { server: 'evil', tool: 'server__read_file' },
      { server: 'server', tool: '_read_file' },
    ]);
    expect(collisions).toEqual([]);
    expect(names.get('server__read_file')).toEqual({ server: 'server', tool: '_read_file' });
  });

  it('have their collisions reported in one order', () => {
    const tools = [
      { server: 'b', tool: 'r', alias: 'two' },
      { server: 'c', tool: 'r', alias: 'two' },
      { server: 'a', tool: 'r', alias: 'one' },
      { server: 'd', tool: 'r', alias: 'one' },
    ];
    expect(exposedNames(tools).collisions.map(({ name }) => name)).toEqual(['one', 'two']);
    expect(exposedNames([...tools].reverse()).collisions).toEqual(exposedNames(tools).collisions);
  });

  it('are legal, reversible and the same for every order of the list', () => {
    const tool = fc.record({
      server: fc.stringMatching(/^[a-z][a-z0-9-]{0,12}$/),
      tool: fc.oneof(fc.string(), fc.stringMatching(/^[a-z_]{1,70}$/)),
    });
    fc.assert(
      fc.property(
        fc.uniqueArray(tool, { maxLength: 12, selector: ({ server, tool: name }) => `${server}\0${name}` }),
        fc.integer(),
        (tools, seed) => {
          const shuffled = [...tools].sort(
            (left, right) => ((left.tool.length * 31 + seed) % 7) - ((right.tool.length * 31 + seed) % 7),
          );
          const { names, collisions } = exposedNames(tools);
          expect(new Map(exposedNames(shuffled).names)).toEqual(names);
          expect(collisions).toEqual([]);
          expect(names.size).toBe(tools.length);
          for (const [name, target] of names) {
            expect(name).toMatch(LEGAL);
            const plain = exposedName(target.server, target.tool);
            const rivals = tools.filter(
              (other) =>
                exposedName(other.server, other.tool).toLowerCase().replaceAll('-', '_') ===
                plain.toLowerCase().replaceAll('-', '_'),
            );
            if (rivals.length === 1) expect(name).toBe(plain);
            else expect(name).toMatch(/_[0-9a-f]{8}$/);
          }
        },
      ),
    );
  });

  it('are found with hyphens and underscores swapped, if only one tool fits', () => {
    const names = new Map([
      ['a_b', 1],
      ['c-d', 2],
      ['c_d-e', 3],
      ['c-d_e', 4],
    ]);
    expect(findExposed(names, 'a_b')).toEqual({ name: 'a_b', value: 1 });
    expect(findExposed(names, 'a-b')).toEqual({ name: 'a_b', value: 1 });
    expect(findExposed(names, 'c_d')).toEqual({ name: 'c-d', value: 2 });
    expect(findExposed(names, 'c_d_e')).toBeUndefined();
    expect(findExposed(names, 'A_b')).toBeUndefined();
  });
});
