/** Tests that malformed and hostile messages of the corpus are refused, in both directions. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { UpstreamCall } from '../../adapters/port.ts';
import type { Connection, ConnectionEvents } from '../../adapters/rpc/connection.ts';
import { LineReader } from '../../adapters/rpc/framing.ts';
import { readMessage } from '../../adapters/rpc/message-parser.ts';
import { UpstreamSession } from '../../adapters/supervisor/upstream-session.ts';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import { readCases, requireKnown } from './corpus.ts';

interface WireCase {
  readonly id: string;
  readonly direction: 'client->facade' | 'server->facade';
  readonly raw: string;
  readonly expected: string;
  readonly code: string;
  readonly note: string;
}

const cases = readCases<WireCase>('attacks/wire_cases.json', ['direction', 'raw', 'expected', 'code', 'note']);
requireKnown('attacks/wire_cases.json', cases, { field: 'direction', known: ['client->facade', 'server->facade'] });
const toUs = cases.filter((wire) => wire.direction === 'client->facade');
const fromServers = cases.filter((wire) => wire.direction === 'server->facade');

/** The corpus writes bytes as \xNN and large texts as <<N MiB>>. */
function bytesOf({ raw }: WireCase): Buffer {
  const grown = raw.replace(/<<(\d+) MiB>>/, (_mark, size: string) => 'x'.repeat(Number(size) * 1024 * 1024));
  if (!/\\x[0-9a-f]{2}/.test(grown)) return Buffer.from(grown);
  return Buffer.from(
    grown.replace(/\\x([0-9a-f]{2})/g, (_mark, hex: string) => String.fromCharCode(Number.parseInt(hex, 16))),
    'latin1',
  );
}

/** Returns the answer of the facade to a line, with a limit of 4 MiB, as the corpus expects. */
function answerTo(line: Buffer): { code: string; argsText?: string; exact?: boolean } {
  let answer: { code: string; argsText?: string; exact?: boolean } = { code: 'nothing' };
  const reader = new LineReader({
    maxBytes: 4 * 1024 * 1024,
    onLine: (bytes) => {
      const message = readMessage(bytes, 'client');
      if (message.kind === 'invalid') answer = { code: message.error.code };
      else
        answer = {
          code: '',
          ...(message.kind === 'request' && message.args !== undefined
            ? { argsText: message.args.text, exact: message.args.exact }
            : {}),
        };
    },
    onBad: () => (answer = { code: 'WIRE_SIZE' }),
  });
  reader.push(line);
  reader.end();
  return answer;
}

describe('from client to facade', () => {
  it('every case says whether it is refused or accepted', () => {
    for (const { id, expected } of toUs) expect(expected, id).toMatch(/^(reject|accept)/);
  });

  it.each(toUs.filter((wire) => wire.expected.startsWith('reject')).map((wire) => [wire.id, wire.note, wire] as const))(
    '%s is refused: %s',
    (_id, _note, wire) => {
      expect(answerTo(bytesOf(wire)).code).toBe(wire.code);
    },
  );

  it.each(toUs.filter((wire) => wire.expected.startsWith('accept')).map((wire) => [wire.id, wire.note, wire] as const))(
    '%s is accepted without loss: %s',
    (_id, _note, wire) => {
      const answer = answerTo(bytesOf(wire));
      expect(answer.code).toBe('');
      const text = /"arguments":(.*)\}\}$/.exec(wire.raw)?.[1];
      expect(answer.argsText).toBe(text);
      // The parsed value is complete, or it is marked that only the text is.
      expect(answer.exact === false || JSON.stringify(JSON.parse(text ?? '')) === text).toBe(true);
      expect(({} as Record<string, unknown>).x).toBeUndefined();
    },
  );
});

/** Connects a server in memory that answers the first call with the lines of a case. */
class Scripted implements Connection {
  readonly sent: { id?: unknown; method?: string; error?: { code: number; data?: unknown } }[] = [];
  private readonly lines: readonly string[];
  private events: ConnectionEvents | undefined;

  constructor(lines: readonly string[]) {
    this.lines = lines;
  }

  async start(events: ConnectionEvents): Promise<void> {
    this.events = events;
  }

  send(text: string): void {
    const message = JSON.parse(text) as Scripted['sent'][number];
    this.sent.push(message);
    if (message.method === 'server/discover')
      this.say(`{"jsonrpc":"2.0","id":${String(message.id)},"error":{"code":-32601,"message":"unknown"}}`);
    if (message.method === 'initialize')
      this.say(`{"jsonrpc":"2.0","id":${String(message.id)},"result":{"protocolVersion":"2025-11-25"}}`);
    if (message.method === 'tools/call')
      for (const line of this.lines)
        this.say(
          line.replace('"id":1,', `"id":${String(message.id)},`).replace('"id":1}', `"id":${String(message.id)}}`),
        );
  }

  backlog(): number {
    return 0;
  }

  useProtocolVersion(): void {}

  async close(): Promise<void> {}

  killNow(): void {}

  private say(line: string): void {
    this.events?.onMessage(readMessage(Buffer.from(line), 'server'));
  }
}

describe('from server to facade', () => {
  it.each(fromServers.map((wire) => [wire.id, wire.note, wire] as const))('%s: %s', async (_id, _note, wire) => {
    const [, line = '', times = '1'] = /^(.*?)(?: x(\d+))?$/s.exec(wire.raw) ?? [];
    const connection = new Scripted(Array<string>(Number(times)).fill(line));
    let changed = 0;
    const session = new UpstreamSession('scripted', () => connection, {
      onToolsChanged: () => changed++,
      onBad: () => {},
      onClosed: () => {},
    });
    await session.open(1000);
    const outcome = await session.call(callOf(), { id: undefined, scope: 'test' }).then(
      (result) => result,
      (thrown: unknown) => (thrown as TollgateError).code,
    );
    const refusedRequests = connection.sent
      .filter((message) => message.error !== undefined)
      .map((message) => (message.error?.data as { code: string }).code);
    if (wire.code === 'UPSTREAM_FLOOD') {
      await sleep(250);
      expect(changed).toBe(1);
    } else if (wire.code === 'OUTPUT_URI_SCHEME') {
      // Links in a result are checked when the result is shaped. The wire passes them on completely.
      expect(outcome).toMatchObject({ text: JSON.stringify((JSON.parse(line) as { result: unknown }).result) });
    } else {
      expect([outcome, ...refusedRequests]).toContain(wire.code);
    }
    await session.close();
  });
});

function callOf(): UpstreamCall {
  return {
    tool: 't',
    args: { text: '{}', value: {}, exact: true },
    scope: 's',
    signal: new AbortController().signal,
    timeoutMs: 300,
    hardTimeoutMs: 300,
  };
}
