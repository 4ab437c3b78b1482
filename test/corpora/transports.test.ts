/** Tests stdio and HTTP with the recorded hostile messages. Each case has the expected answer. */
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { serveStdio } from '../../facade/serve/stdio-transport.ts';
import { ALICE, FakeFacade, initialize, noFault } from '../serve/fake-facade.ts';
import { listen } from '../serve/http-bench.ts';
import { readCases } from './corpus.ts';

interface WireCase {
  readonly id: string;
  readonly direction: string;
  readonly raw: string;
  readonly expected: string;
  readonly code: string;
  readonly note: string;
}

const cases = readCases<WireCase>('attacks/wire_cases.json', ['direction', 'raw', 'expected', 'code', 'note']);
const fromClients = cases.filter(({ direction }) => direction === 'client->facade');
const MAX_BYTES = 2 << 20;

/** The corpus writes characters that JSON cannot contain as signs. */
function bytes(raw: string): Buffer {
  const grown = raw.replace(/<<(\d+) MiB>>/, (_mark, size: string) => 'x'.repeat(Number(size) << 20));
  return /\\x[0-9a-f]{2}/.test(grown)
    ? Buffer.from(
        grown.replace(/\\x(..)/g, (_sign, hex: string) => String.fromCharCode(parseInt(hex, 16))),
        'latin1',
      )
    : Buffer.from(grown);
}

interface Reply {
  readonly id: unknown;
  readonly result?: unknown;
  readonly error?: { readonly data?: { readonly code?: unknown } };
}

async function overPipes(body: Buffer): Promise<{ readonly reply: Reply | undefined; readonly facade: FakeFacade }> {
  const facade = new FakeFacade();
  const [input, output] = [new PassThrough(), new PassThrough()];
  let seen = '';
  output.on('data', (chunk: Buffer) => (seen += chunk.toString()));
  const done = serveStdio({
    facade,
    principal: ALICE,
    input,
    output,
    maxBytes: MAX_BYTES,
    drainMs: 2000,
    onFault: noFault,
  });
  input.write(`${JSON.stringify(initialize('hello'))}\n`);
  input.end(Buffer.concat([body, Buffer.from('\n')]));
  await done;
  const replies = seen
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Reply);
  return { reply: replies.find(({ id }) => id !== 'hello'), facade };
}

async function overHttp(body: Buffer): Promise<{ readonly reply: Reply; readonly facade: FakeFacade }> {
  const { facade, ask, session, server } = await listen({ listen: { maxBodyBytes: MAX_BYTES } });
  const { text } = await ask({ headers: { 'mcp-session-id': await session() }, body });
  await server.close();
  return { reply: JSON.parse(text) as Reply, facade };
}

describe.each([
  ['pipes', overPipes],
  ['HTTP', overHttp],
])('messages of hostile clients over %s', (name, send) => {
  it('are in the corpus', () => expect(fromClients).not.toEqual([]));

  it.each(fromClients.map((one) => [`${one.id} ${one.note}`, one] as const))(
    '%s',
    async (_name, { raw, expected, code }) => {
      const { reply, facade } = await send(bytes(raw));
      if (expected.startsWith('accept')) {
        expect(reply).toHaveProperty('result');
        expect(raw).toContain(facade.calls[0]?.request.args.text);
        return;
      }
      expect(reply?.error?.data?.code).toBe(name === 'HTTP' && code === 'WIRE_SIZE' ? 'HTTP_BODY_TOO_LARGE' : code);
      expect(facade.calls).toHaveLength(0);
    },
  );
});
