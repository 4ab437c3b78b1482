/** Tests servers whose environment depends on the profile: their processes, what they tell, and the owner's consent. */

import { afterEach, describe, expect, it } from 'vitest';
import { inspectStart } from '../../adapters/stdio/start-inspection.ts';
import { startDifferences, startFacts, startHash } from '../../facade/consent/servers/start-facts.ts';
import { type Project, withProject } from '../config/project.ts';
import { approveAll } from '../consent/approve-servers.ts';
import { inFull } from '../harness/full-tests.ts';
import { tool } from '../properties/raw-facade.ts';
import { type ProtocolFacade, type ProtocolServer, startProtocol } from '../protocol/protocol-facade.ts';
import { verifies } from '../verifies.ts';

let facade: ProtocolFacade | undefined;
afterEach(async () => {
  await facade?.close();
  facade = undefined;
});

const SHOWN = '$ENV(ACCOUNT) $ENV(REGION) $ENV(KEPT) $PID';
const UPDATED = '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://a"}}';
const account = (settings: object = {}): ProtocolServer => ({
  capabilities: { tools: {}, resources: { subscribe: true } },
  answers: {
    'tools/list': { raw: `{"tools":[${JSON.stringify(tool('who'))},${JSON.stringify(tool('touch'))}]}` },
    'tools/call who': { raw: `{"content":[{"type":"text","text":"${SHOWN}"}]}` },
    'tools/call touch': { raw: '{"content":[]}', before: [UPDATED] },
    'resources/list': { raw: '{"resources":[{"uri":"test://$ENV(ACCOUNT)","name":"$ENV(ACCOUNT)"}]}' },
    'resources/read': { raw: '{"contents":[{"uri":"test://a","text":"$ENV(ACCOUNT)"}]}' },
    'resources/subscribe': { raw: '{}' },
  },
  settings: { semantics: { '*o*': 'read' }, env: { ACCOUNT: 'none', KEPT: 'kept' }, ...settings },
});
const exposed = { servers: ['s'], expose: { primitives: {}, tools: ['s.*'], resources: ['s'] } };
const REST = {
  profiles: {
    p: exposed,
    work: { ...exposed, env: { s: { ACCOUNT: 'work' } } },
    far: { ...exposed, env: { s: { REGION: 'far' } } },
    quiet: exposed,
  },
  principals: [
    { id: 'me', profiles: ['p'], stdio: true },
    { id: 'quiet', profiles: ['quiet'], stdio: true },
    { id: 'worker', profiles: ['work'], stdio: true },
    { id: 'other', profiles: ['work', 'quiet'], stdio: true },
    { id: 'both', profiles: ['work', 'far'], stdio: true },
  ],
  rules: [{ id: 'all', outcome: 'allow', when: { servers: ['s'] } }],
};
const WHO = { name: 's_who', arguments: {} };
const text = (message: Readonly<Record<string, unknown>>): string =>
  (message.result as { content: { text: string }[] }).content.map((one) => one.text).join('');
/** What the server says to a principal: its variables, and the id of its process. */
const asked = async (as: string): Promise<{ readonly says: string; readonly pid: string }> => {
  const client = await (facade as ProtocolFacade).connect({ as });
  const words = text(await client.request('tools/call', WHO)).split(' ');
  return { says: words.slice(0, 3).join(' '), pid: words[3] ?? '' };
};

describe('a server with another environment for a profile', () => {
  inFull(
    'has a process for each environment, which no session with another one uses' + verifies('HA-33', 'FH-50'),
    async () => {
      facade = await startProtocol({ s: account() }, REST);
      const [own, quiet, work, other, both] = [
        await asked('me'),
        await asked('quiet'),
        await asked('worker'),
        await asked('other'),
        await asked('both'),
      ];
      expect([own, work, both].map(({ says }) => says)).toEqual(['none  kept', 'work  kept', 'work far kept']);
      expect([quiet, other]).toEqual([own, work]);
      expect(new Set([own.pid, work.pid, both.pid]).size).toBe(3);
      expect(facade.assembled.gateway.health({ id: 'me', profiles: ['p'] } as never)).toEqual({ s: 'healthy' });
    },
  );

  it('keeps resources and their notifications apart' + verifies('FH-50'), async () => {
    facade = await startProtocol(
      { s: account() },
      {
        ...REST,
        rules: [...REST.rules, { id: 'reads', outcome: 'allow', when: { kind: 'resource' } }],
      },
    );
    const [own, work] = [await facade.connect(), await facade.connect({ as: 'worker' })];
    for (const [client, name] of [
      [own, 'none'],
      [work, 'work'],
    ] as const) {
      expect((await client.request('resources/list')).result).toMatchObject({ resources: [{ name }] });
      expect((await client.request('resources/read', { uri: 's+test://a' })).result).toMatchObject({
        contents: [{ text: name }],
      });
      await client.request('resources/subscribe', { uri: 's+test://a' });
    }
    await work.request('tools/call', { name: 's_touch', arguments: {} });
    await expect.poll(() => work.received.length).toBe(1);
    expect(own.received).toEqual([]);
  });

  inFull('also gives each session its own process where it says so' + verifies('FH-50'), async () => {
    facade = await startProtocol({ s: account({ process: 'session' }) }, REST);
    const [own, work, again] = [await asked('me'), await asked('worker'), await asked('worker')];
    expect([own, work, again].map(({ says }) => says)).toEqual(['none  kept', 'work  kept', 'work  kept']);
    expect(new Set([own.pid, work.pid, again.pid]).size).toBe(3);
  });

  it('calls only tools that are defined there as they were approved' + verifies('FH-51'), async () => {
    const server = account();
    const described = '{"name":"who","description":"For $ENV(ACCOUNT).","inputSchema":{"type":"object"}}';
    facade = await startProtocol(
      { s: { ...server, answers: { ...server.answers, 'tools/list': { raw: `{"tools":[${described}]}` } } } },
      REST,
    );
    const approved = { name: 'who', description: 'For none.', inputSchema: { type: 'object' as const } };
    await approveAll(facade.assembled.config, ['s'], [approved]);
    expect((await asked('me')).says).toBe('none  kept');
    const client = await facade.connect({ as: 'worker' });
    expect(JSON.stringify(await client.request('tools/call', WHO))).toContain('PIN_MISMATCH');
  });

  it('is approved with all its environments, and every change of one needs a new approval' + verifies('FH-51'), () =>
    withProject(async (project) => {
      project.write('one.js', '');
      const hashOf = async (env: string): Promise<{ hash: string; facts: Awaited<ReturnType<typeof startFacts>> }> => {
        const server = project
          .config(`version: 1\nservers: {s: {command: node, args: [a.js]}}\nprofiles: {work: {${env}}}\n`)
          .servers.get('s');
        if (server === undefined) throw new Error('no server');
        const facts = await startFacts(server, {
          folder: project.folder,
          inspect: inspectStart,
          digest: (t) => `#${t.length}:${t.slice(-3)}`,
        });
        return { hash: startHash(facts), facts };
      };
      const [none, empty, a, b, file] = [
        await hashOf('plan: true'),
        await hashOf('env: {s: {}}'),
        await hashOf('env: {s: {A: one}}'),
        await hashOf('env: {s: {A: two}}'),
        await hashOf('env: {s: {A: one.js}}'),
      ];
      expect(empty.hash).toBe(none.hash);
      expect(new Set([none.hash, a.hash, b.hash, file.hash]).size).toBe(4);
      expect(startDifferences(a.facts, b.facts)).toEqual(['environments.work.env.A']);
      project.write('one.js', 'changed');
      expect((await hashOf('env: {s: {A: one.js}}')).hash).not.toBe(file.hash);
    }),
  );

  it('gets secrets at its start' + verifies('FH-52'), async () => {
    process.env.TOKEN_OF_WORK = 'a-token-of-nineteen';
    try {
      const work = { ...REST.profiles.work, env: { s: { ACCOUNT: 'is-${secret:work}' } } };
      const secrets = { work: { env: 'TOKEN_OF_WORK' } };
      facade = await startProtocol({ s: account() }, { ...REST, secrets, profiles: { ...REST.profiles, work } });
      expect([(await asked('worker')).says, (await asked('me')).says]).toEqual(['is-[redacted]  kept', 'none  kept']);
    } finally {
      delete process.env.TOKEN_OF_WORK;
    }
  });

  it('may only be a program, and gets no variable that loads other code' + verifies('FH-52'), () => {
    withProject((project: Project) => {
      const messages = (servers: string, env: string): readonly string[] =>
        project
          .load(`version: 1\nservers: {${servers}}\nprofiles: {work: {env: {${env}}}}\n`)
          .problems.map(({ message }) => message);
      expect(messages('s: {url: "https://a.example/mcp"}', 's: {A: b}')).toEqual([
        expect.stringContaining('server "s" is not a program that Tollgate starts'),
      ]);
      expect(messages('s: {command: x}', 'knowledge: {A: b}')).toEqual([
        expect.stringContaining('server "knowledge" is not a program'),
      ]);
      expect(messages('s: {command: x}', 't: {A: b}')).toEqual([
        expect.stringContaining('server "t" is not under servers'),
      ]);
      expect(messages('s: {command: x}', 's: {NODE_OPTIONS: b, PATH: c, "A B": d}')).toEqual([
        expect.stringContaining('NODE_OPTIONS loads foreign code'),
        expect.stringContaining('PATH decides'),
        expect.stringContaining('"A B" has an illegal name'),
      ]);
    });
  });
});
