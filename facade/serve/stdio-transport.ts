/**
 * Serves one client on a pair of pipes, for `tollgate run`. It never buffers without limit for a client that does not
 * read.
 */
import type { Readable, Writable } from 'node:stream';
import { LineReader, oneLine, oneLineOfBytes } from '../../adapters/rpc/framing.ts';
import { readMessage } from '../../adapters/rpc/message-parser.ts';
import type { WireText } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { andThen } from '../../catalogs/text/awaitable.ts';
import type { Principal } from '../../policies/port.ts';
import { type Drain, drained } from './drain.ts';
import type { Facade, SendMessage } from './facade-port.ts';
import type { Dispatch } from './legacy-dispatch.ts';
import { type ReplyId, refusalText } from './reply-text.ts';
import { MAX_RUNNING, openDispatch } from './session-dispatch.ts';

/** What one client on pipes needs. */
export interface StdioOptions extends Drain {
  readonly facade: Facade;
  readonly principal: Principal;
  readonly input: Readable;
  readonly output: Writable;
  /** Bytes of one message (catalogs/text/time-slices.ts). */
  readonly maxBytes: number;
  /**
   * Aborted to stop: later requests are refused. After the end of the input it leaves no more time to running calls.
   */
  readonly stop?: AbortSignal;
  /** Called with an unexpected error. */
  readonly onFault: (thrown: unknown) => void;
}

/** How long the client may take to read the last answers. */
const FLUSH_MS = 2000;

/**
 * Serves until the input ends, the output breaks or `stop` is aborted. Then it answers what still runs, and ends the
 * session. Never rejects.
 */
export async function serveStdio(options: StdioOptions): Promise<void> {
  const { facade, input, output } = options;
  const writer = new LineWriter(output, () => {
    regulate(input, writer, dispatch);
    if (!writer.full) dispatch.retell?.();
  });
  const session = facade.openSession(options.principal, 'stdio');
  const dispatch = openDispatch('both', {
    facade,
    session,
    notify: (text) => writer.write(text),
    onFault: options.onFault,
  });
  facade.onToolsChanged(() => dispatch.toolsChanged());
  facade.onNotice((notice, only) => {
    if (only === undefined || only === session) dispatch.notice(notice);
  });
  const reader = new LineReader({
    maxBytes: options.maxBytes,
    onLine: (line) => receive(line),
    onBad: (detail, edges) => writer.write(refusalText(idInEdges(edges), new TollgateError('WIRE_SIZE', { detail }))),
  });
  /** Progress and logs are not essential, so they are dropped, not queued, while the client does not read. */
  const sendProgress: SendMessage = (text, kind) => {
    if (kind !== 'request' && writer.full) return false;
    writer.write(text);
    return true;
  };
  const answer = (reply: WireText | undefined): void => {
    if (reply !== undefined) writer.write(reply);
    regulate(input, writer, dispatch);
  };
  const receive = (line: Buffer): void => {
    void andThen(dispatch.handle(readMessage(line, 'client'), sendProgress), answer);
  };
  const onData = (chunk: Buffer): void => {
    reader.push(chunk);
    regulate(input, writer, dispatch);
  };
  input.on('data', onData);
  const end = await ended(options);
  if (end === 'input') reader.end();
  // A client that only stopped writing may wait for answers. Only a signal shortens the wait.
  if (end !== 'output')
    await drained(Promise.race([dispatch.drain(), broken(output)]), {
      drainMs: options.drainMs,
      onUrge: end === 'input' ? atStop(options.stop) : options.onUrge,
    });
  await dispatch.close(
    end === 'output' ? 'The client disconnected while the call ran.' : 'Tollgate stopped while the call ran.',
  );
  input.off('data', onData);
  await writer.finish(end === 'output' ? 0 : FLUSH_MS);
  input.destroy();
}

/** Stops reading while the client does not read, or has too many requests running. */
function regulate(input: Readable, writer: LineWriter, dispatch: Dispatch): void {
  const wait = writer.full || dispatch.running >= MAX_RUNNING;
  if (wait === input.isPaused()) return;
  if (wait) input.pause();
  else input.resume();
}

/** Resolves with what has ended: the client no longer writes, it no longer reads, or Tollgate is told to stop. */
function ended({ input, output, stop, onFault }: StdioOptions): Promise<'input' | 'output' | 'stop'> {
  return new Promise((resolve) => {
    const done = (): void => resolve('input');
    input.once('end', done).once('close', done);
    input.once('error', (thrown) => {
      onFault(thrown);
      done();
    });
    void broken(output).then(() => resolve('output'));
    stop?.addEventListener('abort', () => resolve('stop'), { once: true });
    if (stop?.aborted === true) resolve('stop');
  });
}

/** Resolves when the client no longer reads. */
function broken(output: Writable): Promise<void> {
  return new Promise((resolve) => {
    const broke = (): void => resolve();
    output.on('error', broke).once('close', broke);
  });
}

/** The first signal, which an impatient client sends. */
function atStop(stop: AbortSignal | undefined): NonNullable<Drain['onUrge']> {
  return (listener) => {
    stop?.addEventListener('abort', listener, { once: true });
    if (stop?.aborted === true) listener();
    return () => stop?.removeEventListener('abort', listener);
  };
}

/**
 * Returns the id of a message that is too large to be read, if it is first or last in the outermost object. Otherwise
 * the client would wait for its timeout.
 */
function idInEdges(edges: string): ReplyId {
  const id = '(-?(?:0|[1-9]\\d{0,14})|"[\\w-]{1,64}")';
  const version = '"jsonrpc":\\s*"2\\.0"';
  const found =
    new RegExp(`^\\{(?:${version},\\s*)?"id":\\s*${id}\\s*,`).exec(edges) ??
    new RegExp(`,\\s*"id":\\s*${id}(?:,\\s*${version})?\\s*\\}\\s*$`).exec(edges);
  return found?.[1] === undefined ? null : (JSON.parse(found[1]) as ReplyId);
}

/** Collects the messages that one read causes: under load one system call carries many replies. */
export class LineWriter {
  readonly #output: Writable;
  readonly #onChange: () => void;
  #queue: WireText[] = [];
  #full = false;

  /** `onChange` is called when `full` has changed. */
  constructor(output: Writable, onChange: () => void) {
    this.#output = output;
    this.#onChange = onChange;
  }

  /** The client does not read fast enough, so no more should be asked of it. */
  get full(): boolean {
    return this.#full;
  }

  write(message: WireText): void {
    this.#queue.push(message);
    if (this.#queue.length === 1) process.nextTick(() => this.#flush());
  }

  /** Writes the rest and waits, at most `graceMs`, until the output has taken it. Never rejects. */
  async finish(graceMs: number): Promise<void> {
    // Replies of calls that ended just now are still on their way through promises.
    await new Promise((resolve) => setImmediate(resolve));
    this.#flush();
    if (graceMs === 0 || this.#output.destroyed) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, graceMs);
      this.#output.write('', () => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  #flush(): void {
    const queue = this.#queue;
    this.#queue = [];
    if (queue.length === 0 || this.#output.destroyed) return;
    this.#output.cork();
    const isRoom = chunksOf(queue).map((chunk) => this.#output.write(chunk));
    this.#output.uncork();
    if (isRoom.at(-1) === true || this.#full) return;
    this.#setFull(true);
    this.#output.once('drain', () => this.#setFull(false));
  }

  #setFull(full: boolean): void {
    this.#full = full;
    this.#onChange();
  }
}

/** Returns the lines of messages in as few chunks as possible. Bytes are not copied: each is a chunk of its own. */
function chunksOf(messages: readonly WireText[]): readonly (string | Buffer)[] {
  const chunks: (string | Buffer)[] = [];
  let text = '';
  for (const message of messages) {
    for (const part of typeof message === 'string' ? [message] : message) {
      if (typeof part === 'string') text += oneLine(part);
      else {
        chunks.push(text, oneLineOfBytes(part));
        text = '';
      }
    }
    text += '\n';
  }
  chunks.push(text);
  return chunks;
}
