/** Owns one client on a pair of pipes, for `tollgate run`; refuses to buffer without bound for a client that does not read. */
import type { Readable, Writable } from 'node:stream';
import { LineReader } from '../../adapters/rpc/framing.ts';
import { readMessage } from '../../adapters/rpc/json.ts';
import { TollgateError } from '../../catalogs/errors.ts';
import type { Principal } from '../../policies/port.ts';
import type { Facade } from '../facade.ts';
import { MAX_RUNNING, openDispatch, type Dispatch } from './dispatch.ts';
import { LineWriter } from './lines.ts';
import { refusalText, type ReplyId } from './reply.ts';

/** What one client on pipes needs. */
export interface StdioOptions {
  readonly facade: Facade;
  readonly principal: Principal;
  readonly input: Readable;
  readonly output: Writable;
  /** Bytes of one message (catalogs/sizes.ts). */
  readonly maxBytes: number;
  /** How long running calls may go on after the input has ended. Default 2,000 ms. */
  readonly graceMs?: number;
  /** Aborted to stop as if the input had ended. */
  readonly stop?: AbortSignal;
  /** Told of what should not happen: a throw that is not ours. */
  readonly onFault: (thrown: unknown) => void;
}

/** Serves until the input ends, the output breaks or `stop` is aborted, then ends the session. Never rejects. */
export async function serveStdio(options: StdioOptions): Promise<void> {
  const { facade, input, output, graceMs = 2000 } = options;
  const writer = new LineWriter(output, () => regulate(input, writer, dispatch));
  const session = facade.openSession(options.principal, 'stdio');
  const dispatch = openDispatch('legacy', { facade, session, notify: (text) => writer.write(text), onFault: options.onFault });
  facade.onToolsChanged(() => dispatch.toolsChanged());
  const reader = new LineReader({
    maxBytes: options.maxBytes,
    onLine: (line) => void receive(line),
    onBad: (detail, edges) => writer.write(refusalText(idInEdges(edges), new TollgateError('WIRE_SIZE', { detail }))),
  });
  /** Progress is advice: it is dropped, not queued, while the client does not read. */
  const sendProgress = (text: string): void => {
    if (!writer.full) writer.write(text);
  };
  const receive = async (line: Buffer): Promise<void> => {
    const reply = await dispatch.handle(readMessage(line, 'client'), sendProgress);
    if (reply !== undefined) writer.write(reply);
    regulate(input, writer, dispatch);
  };
  const onData = (chunk: Buffer): void => {
    reader.push(chunk);
    regulate(input, writer, dispatch);
  };
  input.on('data', onData);
  const broken = await ended(options);
  input.off('data', onData);
  if (!broken) reader.end();
  await dispatch.close(broken ? 0 : graceMs);
  await writer.finish(broken ? 0 : graceMs);
  input.destroy();
}

/** Stops reading while the client does not read, or has too many requests running. */
function regulate(input: Readable, writer: LineWriter, dispatch: Dispatch): void {
  const wait = writer.full || dispatch.running >= MAX_RUNNING;
  if (wait === input.isPaused()) return;
  if (wait) input.pause();
  else input.resume();
}

/** Resolves when the client is gone: true when it no longer reads, false when it only stopped writing. */
function ended({ input, output, stop, onFault }: StdioOptions): Promise<boolean> {
  return new Promise((resolve) => {
    const done = (): void => resolve(false);
    const broke = (): void => resolve(true);
    input.once('end', done).once('close', done);
    input.once('error', (thrown) => {
      onFault(thrown);
      done();
    });
    output.on('error', broke).once('close', broke);
    stop?.addEventListener('abort', done, { once: true });
    if (stop?.aborted === true) done();
  });
}

/** The id of a message too large to be read, where it stands first or last in the outermost object; else the client would wait for its timeout. */
function idInEdges(edges: string): ReplyId {
  const id = '(-?(?:0|[1-9]\\d{0,14})|"[\\w-]{1,64}")';
  const version = '"jsonrpc":\\s*"2\\.0"';
  const found = new RegExp(`^\\{(?:${version},\\s*)?"id":\\s*${id}\\s*,`).exec(edges) ?? new RegExp(`,\\s*"id":\\s*${id}(?:,\\s*${version})?\\s*\\}\\s*$`).exec(edges);
  return found?.[1] === undefined ? null : (JSON.parse(found[1]) as ReplyId);
}
