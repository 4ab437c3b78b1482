/** Tests stateless requests with a whole facade: resources that a client follows, and the approval of a person. */
import { PassThrough } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { principalForStdio } from '../../facade/config/stdio-identity.ts';
import { serveStdio } from '../../facade/serve/stdio-transport.ts';
import { tool } from '../properties/raw-facade.ts';
import { type ProtocolFacade, RESOURCES, startProtocol } from '../protocol/protocol-facade.ts';
import { until } from '../serve/fake-facade.ts';
import { verifies } from '../verifies.ts';
import { stateless } from './stateless-bench.ts';

type Json = Readonly<Record<string, unknown>>;

let facade: ProtocolFacade | undefined;
let close: (() => Promise<void>) | undefined;
afterEach(async () => {
  await close?.();
  await facade?.close();
});

/** Connects a client over pipes that never sends `initialize`. */
function connect({ assembled }: ProtocolFacade): { readonly got: readonly Json[]; send(message: Json): void } {
  const [input, output] = [new PassThrough(), new PassThrough()];
  const done = serveStdio({
    facade: assembled.gateway,
    principal: principalForStdio(assembled.config, { user: 'nobody-else', as: 'me' }),
    input,
    output,
    maxBytes: 64 << 20,
    drainMs: 1000,
    onFault: (thrown) => {
      throw thrown;
    },
  });
  const got: Json[] = [];
  let rest = '';
  output.setEncoding('utf8').on('data', (chunk: string) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    got.push(...lines.map((line) => JSON.parse(line) as Json));
  });
  close = () => {
    input.end();
    return done;
  };
  return { got, send: (message) => void input.write(`${JSON.stringify(message)}\n`) };
}

describe('a stream of notifications with a server' + verifies('PR-M13'), () => {
  it('follows the resources that the policy allows, tells changes, and ends the subscription', async () => {
    const updated = '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://a"}}';
    facade = await startProtocol(
      {
        docs: {
          capabilities: RESOURCES,
          answers: {
            'tools/list': { raw: JSON.stringify({ tools: [tool('act')] }) },
            'resources/subscribe': { raw: '{}' },
            'resources/unsubscribe': { raw: '{}' },
            'tools/call act': { before: [updated], raw: '{"content":[]}' },
          },
          settings: { semantics: { act: 'read' } },
        },
      },
      {
        profiles: { p: { servers: ['docs'], expose: { primitives: {}, tools: ['docs.*'], resources: ['docs'] } } },
        rules: [
          { id: 'tools', outcome: 'allow', when: { servers: ['docs'] } },
          { id: 'reads', outcome: 'allow', when: { kind: 'resource' } },
          { id: 'inside', outcome: 'deny', message: 'No.', when: { insideWorkspace: false } },
        ],
      },
    );
    const { got, send } = connect(facade);
    const resourceSubscriptions = ['docs+test://a', 'docs+file:///etc/passwd', 'mail+test://a'];
    send(stateless('s', 'subscriptions/listen', { notifications: { toolsListChanged: true, resourceSubscriptions } }));
    await until(() => got.length === 1);
    const _meta = { 'io.modelcontextprotocol/subscriptionId': 's' };
    expect(got[0]).toMatchObject({
      method: 'notifications/subscriptions/acknowledged',
      params: { notifications: { toolsListChanged: true, resourceSubscriptions: ['docs+test://a'] }, _meta },
    });
    const decided = facade.records().filter(({ kind }) => kind === 'resource');
    expect(decided.map(({ type, code }) => [type, code]).sort()).toEqual([
      ['decision', 'DENIED'],
      ['decision', 'UNKNOWN_RESOURCE'],
      ['intent', undefined],
      ['outcome', undefined],
    ]);
    send(stateless(2, 'tools/call', { name: 'docs_act', arguments: {} }));
    await until(() => got.some(({ method }) => method === 'notifications/resources/updated'));
    expect(got.find(({ method }) => method === 'notifications/resources/updated')).toMatchObject({
      params: { uri: 'docs+test://a', _meta },
    });
    send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 's' } });
    await until(() => facade?.got('docs').some(({ method }) => method === 'resources/unsubscribe') === true);
    expect(got.filter(({ id }) => id === 's')).toEqual([]);
  }, 60_000);
});
