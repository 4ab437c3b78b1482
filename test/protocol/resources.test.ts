/** Tests resources of servers: names, lists, reads, templates, subscriptions, and spills that are read as resources. */
import { afterEach, describe, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { type ProtocolFacade, RESOURCES, startProtocol } from './protocol-facade.ts';

let facade: ProtocolFacade | undefined;
afterEach(async () => {
  await facade?.close();
  facade = undefined;
});

const DOCS = {
  capabilities: RESOURCES,
  answers: {
    'resources/list': { raw: '{"resources":[{"uri":"test://a","name":"a","size":3},{"name":"broken"}]}' },
    'resources/templates/list': { raw: '{"resourceTemplates":[{"uriTemplate":"test://{id}","name":"t"}]}' },
    'resources/read test://a': {
      raw: '{"contents":[{"uri":"test://a","mimeType":"text/plain","text":"alpha","n":12345678901234567890}]}',
    },
    'resources/read': { error: '{"code":-32002,"message":"no such resource"}' },
    'resources/subscribe': { raw: '{}' },
    'resources/unsubscribe': { raw: '{}' },
  },
};
const READS = [{ id: 'reads', outcome: 'allow', when: { kind: 'resource' } }];
const profile = (more: object) => ({ p: { servers: ['docs'], expose: { primitives: {}, ...more } } });

describe('resources', () => {
  it('are listed under the name of their server, and read byte for byte' + verifies('HA-26', 'PR-01'), async () => {
    facade = await startProtocol({ docs: DOCS }, { profiles: profile({ resources: ['docs'] }), rules: READS });
    const client = await facade.connect();
    expect(client.hello.capabilities).toMatchObject({ resources: { subscribe: true, listChanged: true } });
    expect((await client.request('resources/list')).result).toEqual({
      resources: [{ uri: 'docs+test://a', name: 'a', size: 3 }],
    });
    expect((await client.request('resources/templates/list')).result).toMatchObject({
      resourceTemplates: [{ uriTemplate: 'docs+test://{id}', name: 't', _meta: { 'tollgate/verdict': 'maybe' } }],
    });
    await client.request('resources/read', { uri: 'docs+test://a' });
    expect(client.lastLine()).toContain('"text":"alpha","n":12345678901234567890');
    expect(JSON.parse(client.lastLine())).toMatchObject({
      result: { contents: [{ uri: 'docs+test://a' }], _meta: { 'tollgate/provenance': { server: 'docs' } } },
    });
    expect(facade.callRecords().slice(-2)).toMatchObject([
      { type: 'intent', kind: 'resource', exposed: 'resources/read', server: 'docs', verb: 'read' },
      { type: 'outcome', kind: 'resource', executed: 'yes' },
    ]);
    expect(JSON.stringify(facade.records())).not.toContain('test://a');
  });

  it('keep their own URIs where one server serves them', async () => {
    const own = { docs: { ...DOCS, settings: { uri: 'own' } } };
    facade = await startProtocol(own, { profiles: profile({ resources: ['docs'] }), rules: READS });
    const client = await facade.connect();
    expect((await client.request('resources/list')).result).toMatchObject({ resources: [{ uri: 'test://a' }] });
    expect((await client.request('resources/read', { uri: 'test://a' })).result).toMatchObject({
      contents: [{ uri: 'test://a' }],
    });
  });

  it("pass a server's own error", async () => {
    facade = await startProtocol({ docs: DOCS }, { profiles: profile({ resources: ['docs'] }), rules: READS });
    const client = await facade.connect();
    expect((await client.request('resources/read', { uri: 'docs+test://x' })).error).toEqual({
      code: -32002,
      message: 'no such resource',
    });
  });

  it(
    'are unknown without exposure, without a rule, and to an allow that names no kind' + verifies('PR-02'),
    async () => {
      const unknown = { code: -32002, data: { code: 'UNKNOWN_RESOURCE' } };
      for (const [expose, rules] of [
        [{}, READS],
        [{ resources: ['docs'] }, []],
        [{ resources: ['docs'] }, [{ id: 'all', outcome: 'allow', when: { servers: ['docs'] } }]],
      ] as const) {
        facade = await startProtocol({ docs: DOCS }, { profiles: profile(expose), rules });
        const client = await facade.connect();
        expect((await client.request('resources/list')).result).toEqual({ resources: [] });
        expect((await client.request('resources/read', { uri: 'docs+test://a' })).error).toMatchObject(unknown);
        expect(facade.got('docs').map(({ method }) => method)).not.toContain('resources/read');
        await facade.close();
        facade = undefined;
      }
    },
  );

  it.each(['prefixed', 'own'])(
    'are refused with the rule that hides them, in the log (%s)' + verifies('AD-13', 'AD-112'),
    async (uri) => {
      const docs = { docs: { ...DOCS, settings: { uri } } };
      const rules = [...READS, { id: 'closed', outcome: 'deny', message: 'Closed.', when: { servers: ['docs'] } }];
      facade = await startProtocol(docs, { profiles: profile({ resources: ['docs'] }), rules });
      const client = await facade.connect();
      const asked = uri === 'own' ? 'test://a' : 'docs+test://a';
      expect((await client.request('resources/read', { uri: asked })).error).toMatchObject({ code: -32002 });
      expect(facade.callRecords().at(-1)).toMatchObject({
        type: 'decision',
        outcome: 'deny',
        code: 'UNKNOWN_RESOURCE',
        server: 'docs',
        reasons: [{ id: 'closed' }],
      });
    },
  );

  it('are refused by a rule on paths, like a tool' + verifies('PR-03'), async () => {
    const rules = [...READS, { id: 'no-env', outcome: 'deny', message: 'Closed.', when: { paths: ['**/.env'] } }];
    facade = await startProtocol({ docs: DOCS }, { profiles: profile({ resources: ['docs'] }), rules });
    const client = await facade.connect();
    const uri = `docs+file://${facade.folder}/workspace/.env`;
    expect((await client.request('resources/read', { uri })).error).toMatchObject({
      code: -32011,
      data: { code: 'DENIED', reasons: [{ id: 'no-env' }] },
    });
  });

  it('can be followed, and each notification is decided again' + verifies('PR-04'), async () => {
    facade = await startProtocol({ docs: DOCS }, { profiles: profile({ resources: ['docs'] }), rules: READS });
    const client = await facade.connect();
    const other = await facade.connect();
    expect((await client.request('resources/subscribe', { uri: 'docs+test://a' })).result).toEqual({});
    const updated = '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://a"}}';
    facade.rescript('docs', {
      ...DOCS,
      answers: { ...DOCS.answers, 'resources/read test://b': { before: [updated], raw: '{"contents":[]}' } },
    });
    await client.request('resources/read', { uri: 'docs+test://b' });
    await expect
      .poll(() => client.received)
      .toEqual([{ jsonrpc: '2.0', method: 'notifications/resources/updated', params: { uri: 'docs+test://a' } }]);
    expect(other.received).toEqual([]);
    expect((await client.request('resources/unsubscribe', { uri: 'docs+test://a' })).result).toEqual({});
    expect(facade.got('docs').map(({ method }) => method)).toEqual(
      expect.arrayContaining(['resources/subscribe', 'resources/unsubscribe']),
    );
  });

  it('read spills of their own run, and of no other' + verifies('PR-05'), async () => {
    const long = JSON.stringify({ contents: [{ uri: 'test://a', text: 'line\n'.repeat(3000) }] });
    const server = { ...DOCS, answers: { ...DOCS.answers, 'resources/read test://a': { raw: long } } };
    facade = await startProtocol({ docs: server }, { profiles: profile({ resources: ['docs'] }), rules: READS });
    const client = await facade.connect();
    const { result } = (await client.request('resources/read', { uri: 'docs+test://a' })) as {
      result: { contents: { text: string; uri: string }[] };
    };
    const notice = result.contents.at(-1)?.text ?? '';
    expect(notice).toMatch(/Next: resources\/read uri="spill:\/\/[0-9a-f]{32}\?offset=2001"/);
    const uri = /"(spill:[^"]+)"/.exec(notice)?.[1] ?? '';
    expect((await client.request('resources/read', { uri })).result).toMatchObject({
      contents: [{ uri, text: 'line\n'.repeat(1000) }, {}],
    });
    const other = await facade.connect();
    expect((await other.request('resources/read', { uri })).error).toMatchObject({ code: -32602 });
    expect((await client.request('resources/list')).result).not.toMatchObject({ resources: [{ uri }] });
  });
});
