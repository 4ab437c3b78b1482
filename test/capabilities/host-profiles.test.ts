/**
 * Tests host profiles: capabilities of the machine itself are off, hidden and not started until an owner adds them, and
 * cannot be mixed with other servers.
 * Covers: facade/consent.
 */
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { cli, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { startedIn } from '../process/child.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const project = new Project();
afterEach(() => project.remove());

const DIRECT = 'command: node, isolation: direct';

describe('the configuration of a host profile' + verifies('CY-09'), () => {
  it.each([
    [
      'a server in a sandbox',
      `servers: {a: {command: node}}\nprofiles: {desk: {host: true, servers: [a]}}`,
      'server "a" does not run with isolation: direct',
    ],
    [
      'a remote server',
      `servers: {a: {url: "https://a.example/mcp"}}\nprofiles: {desk: {host: true, servers: [a]}}`,
      'server "a" does not run with isolation: direct',
    ],
    [
      'a server that joins by itself',
      `servers: {a: {command: node, profiles: [desk]}}\nprofiles: {desk: {host: true}}`,
      'server "a" does not run with isolation: direct',
    ],
    [
      'a server that ships with Tollgate',
      `profiles: {desk: {host: true, servers: [knowledge]}}`,
      'server "knowledge" does not run with isolation: direct',
    ],
    [
      'primitives',
      `servers: {a: {${DIRECT}}}\nprofiles: {desk: {host: true, servers: [a], expose: {primitives: workspace}}}`,
      'a host profile has no primitives',
    ],
    [
      'another profile with the same server',
      `servers: {a: {${DIRECT}}}\nprofiles: {desk: {host: true, servers: [a]}, more: {servers: [a]}}`,
      'server "a" is in a host profile too',
    ],
    [
      'the default profile with its primitives',
      `servers: {a: {${DIRECT}, mapping: desktop-commander}}
expose: {primitives: a}
profiles: {desk: {host: true, servers: [a], expose: {}}}`,
      'server "a" is in a host profile too',
    ],
    [
      'a principal with two profiles',
      `servers: {a: {${DIRECT}}}
principals: [{id: me, profiles: [default, desk]}]
profiles: {desk: {host: true, servers: [a]}}`,
      'profile "desk" is a host profile, and the principal has other profiles too',
    ],
  ])('refuses %s', (_name, yaml, message) => {
    const { problems } = project.load(`version: 1\n${yaml}\n`);
    expect(problems.map((problem) => problem.message).join('\n')).toContain(message);
  });

  it('accepts direct servers in one profile, without primitives', () => {
    const { profiles } = project.config(
      `version: 1
servers: {a: {${DIRECT}}, b: {command: node}}
principals: [{id: me, profiles: [desk]}]
profiles: {desk: {host: true, servers: [a]}, default: {servers: [b]}}
`,
    );
    expect(profiles.get('desk')).toMatchObject({ host: true, primitives: {}, servers: ['a'] });
    expect(profiles.get('default')).toMatchObject({ host: false });
  });
});

describe('the desktop capability' + verifies('CY-09'), () => {
  let facade: TestFacade | undefined;
  afterEach(async () => facade?.close());

  it('is hidden, and its server does not start, until an owner adds it', async () => {
    const starts = path.join(project.folder, 'starts');
    const config = `version: 1
workspace: ./workspace
state: ./state
servers:
  screen: ${server(['chaos.mjs', 'ok'], `env: {CHAOS_STARTS: ${JSON.stringify(starts)}}, semantics: {echo: read}`)}
principals: [{id: me, profiles: [desk], stdio: true}, {id: safe, stdio: true}, {id: admin, stdio: true, owner: true}]
profiles: {desk: {host: true, servers: [screen], expose: {tools: ["screen.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`;
    facade = await startFacade(config, { folder: project.folder });
    const session = facade.open('me');
    expect(await facade.list(session)).toEqual([]);
    expect((await facade.call(session, 'screen_echo', {})).code).toBe('UNKNOWN_TOOL');
    expect(startedIn(starts)).toEqual([]);

    const run = (...argv: readonly string[]): ReturnType<typeof cli> => cli(project, ['upgrades', ...argv]);
    expect(await run('enable', 'desktop', '--profile', 'default', '--as', 'admin')).toMatchObject({
      code: 2,
      err: expect.stringContaining('There is no host profile "default"'),
    });
    expect((await run('enable', 'desktop', '--as', 'admin')).err).toMatch(
      /^On: The desktop of this machine, for every profile; 200 calls/,
    );
    expect((await facade.list(session)).map(({ name }) => name)).toContain('screen_echo');
    expect((await facade.call(session, 'screen_echo', {})).code).toBe('');
    expect((await facade.list(facade.open('safe'))).map(({ name }) => name)).toEqual(['read', 'write', 'edit', 'bash']);
    expect(facade.records().find(({ type }) => type === 'intent')).toMatchObject({
      obligations: { budgets: ['upgrade:desktop'] },
    });

    await run('disable', 'desktop', '--as', 'admin');
    expect((await facade.call(session, 'screen_echo', {})).code).toBe('UNKNOWN_TOOL');
    expect(await facade.list(session)).toEqual([]);
    expect((await run('list')).out).toMatch(/desktop +off +The desktop of this machine +1 call, \d+ B\n/);
  });
});
