/** Tests profiles: the built-in ones, the defaults of the others, and stacked profiles. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { eagerServers, mergeProfiles } from '../../facade/config/profiles.ts';
import { verifies } from '../verifies.ts';
import { withProject } from './project.ts';

const YAML = `
servers: {a: {command: x, mapping: server-filesystem}, b: {command: x}, c: {command: x}}
expose: {primitives: {read: a, bash: workspace}, tools: [c.x, b.*]}
profiles:
  one: {servers: [a, b, c], budgets: [{id: n, scope: run, calls: 1}], caps: {bytes: 2000, lines: 5}}
  two: {servers: [b, c], expose: {tools: [{tool: b.x, name: bx, description: two}]}, caps: {bytes: 3000},
    budgets: [{id: n, scope: run, calls: 2}, {id: m, scope: run, calls: 3}], schemaProfile: flat, plan: true}
  three: {servers: [c], expose: {primitives: {}, tools: [{tool: b.x, name: bx, description: three}]}}
`.replace('three: {servers: [c]', 'three: {servers: [b, c]');

describe('profiles', () => {
  it(
    'have two built-in ones: default without external servers, harbor with the limits of Harbor' +
      verifies('HA-21', 'HB-05'),
    () => {
      withProject((project) => {
        const { profiles, budgets, caps } = project.config('servers: {a: {command: x}}');
        expect([...profiles.keys()]).toEqual(['default', 'harbor']);
        expect(profiles.get('default')).toMatchObject({ servers: [], budgets: [] });
        expect(profiles.get('harbor')).toMatchObject({
          servers: [],
          budgets: [
            { scope: 'run', calls: 5, when: {} },
            { scope: 'origin', concurrent: 2, when: {} },
          ],
          caps: { timeoutMs: 30_000 },
        });
        expect({ budgets, concurrent: caps.concurrent }).toEqual({ budgets: [], concurrent: 16 });
      });
    },
  );

  it('let the person at the client approve only if all stacked profiles say so' + verifies('PR-T05'), () => {
    withProject((project) => {
      const config = project.config('profiles: {a: {approvals: caller}, b: {approvals: caller}, c: {}}');
      const merged = (...names: readonly string[]): string => mergeProfiles(config, names).approvals;
      expect([merged('a'), merged('a', 'b'), merged('a', 'c'), merged()]).toEqual([
        'caller',
        'caller',
        'owner',
        'owner',
      ]);
    });
  });

  it('use the expose of the file by default, without the tools of servers that they do not reach', () => {
    withProject((project) => {
      const { profiles } = project.config(YAML);
      expect(profiles.get('one')).toMatchObject({
        servers: ['a', 'b', 'c'],
        primitives: { read: [{ server: 'a' }], bash: [{ server: 'workspace' }] },
        expose: [
          { tool: 'c.x', pins: {} },
          { tool: 'b.*', pins: {} },
        ],
      });
      // A profile reaches the servers of its primitives.
      expect(profiles.get('default')).toMatchObject({ servers: ['a'], expose: [] });
      expect(profiles.get('two')?.primitives).toEqual({
        read: [{ server: 'workspace' }],
        write: [{ server: 'workspace' }],
        edit: [{ server: 'workspace' }],
        bash: [{ server: 'workspace' }],
      });
      expect(profiles.get('three')?.primitives).toEqual({});
    });
  });

  it('replace a built-in one of the same name', () => {
    withProject((project) => {
      const { profiles } = project.config(
        'servers: {a: {command: x}}\nprofiles: {default: {servers: [a]}, harbor: {}}',
      );
      expect(profiles.get('default')?.servers).toEqual(['a']);
      expect(profiles.get('harbor')?.budgets).toEqual([]);
    });
  });

  it('unite the servers of stacked profiles, and take later settings' + verifies('HA-21'), () => {
    withProject((project) => {
      const config = project.config(YAML);
      expect(mergeProfiles(config, ['one', 'two', 'three'])).toEqual({
        name: 'one+two+three',
        servers: ['a', 'b', 'c'],
        primitives: {
          read: [{ server: 'workspace' }],
          write: [{ server: 'workspace' }],
          edit: [{ server: 'workspace' }],
          bash: [{ server: 'workspace' }],
        },
        expose: [
          { tool: 'c.x', pins: {} },
          { tool: 'b.*', pins: {} },
          { tool: 'b.x', name: 'bx', description: 'three', pins: {} },
        ],
        resources: [],
        prompts: [],
        budgets: [
          { id: 'n', scope: 'run', calls: 2, when: {} },
          { id: 'm', scope: 'run', calls: 3, when: {} },
        ],
        search: false,
        promote: 0,
        caps: { bytes: 3000, lines: 5 },
        code: {},
        lifetimes: {},
        starts: {},
        schemaProfile: 'flat',
        plan: true,
        grants: 'optional',
        approvals: 'owner',
        host: false,
      });
      expect(mergeProfiles(config, [])).toEqual(config.profiles.get('default'));
      expect(() => mergeProfiles(config, ['one', 'toString'])).toThrow('There is no profile "toString"');
    });
  });

  it('check names under starts and lifetimes, and start an eager server if one of them wants it', () => {
    withProject((project) => {
      const { problems } = project.load(
        'version: 1\nprofiles: {one: {starts: {nobody: eager}, lifetimes: {nothing: keep-alive}}}\n',
      );
      expect(problems.map(({ message }) => message).sort()).toEqual([
        expect.stringContaining('server "nobody" is not under servers'),
        expect.stringContaining('server "nothing" is not under servers'),
      ]);
      const eager = (profiles: string): readonly string[] =>
        eagerServers(
          project.config(
            `version: 1\nservers: {a: {command: x, start: eager}, b: {command: x}}\nprofiles: {${profiles}}\n`,
          ),
        );
      expect([
        eager(''),
        eager('one: {servers: [a]}'),
        eager('one: {servers: [a], starts: {a: lazy}}'),
        eager('one: {servers: [a], starts: {a: lazy}}, two: {servers: [a]}'),
      ]).toEqual([['a'], ['a'], [], ['a']]);
    });
  });

  it('can be stacked in any grouping, and twice without effect', () => {
    withProject((project) => {
      const config = project.config(YAML);
      const names = fc.array(fc.constantFrom('one', 'two', 'three', 'harbor', 'default'), {
        minLength: 1,
        maxLength: 4,
      });
      fc.assert(
        fc.property(names, names, (left, right) => {
          const stacked = mergeProfiles(config, [...left, ...right]);
          const [a, b] = [mergeProfiles(config, left), mergeProfiles(config, right)];
          const twice = mergeProfiles(
            {
              profiles: new Map([
                ['a', a],
                ['b', b],
              ]),
            },
            ['a', 'b'],
          );
          expect({ ...twice, name: '' }).toEqual({ ...stacked, name: '' });
          expect(new Set(stacked.servers)).toEqual(new Set([...a.servers, ...b.servers]));
          expect({ ...mergeProfiles(config, [...left, ...left]), name: '' }).toEqual({ ...a, name: '' });
        }),
      );
    });
  });
});
