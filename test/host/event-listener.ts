/** A host that listens to events, for tests. It keeps the events in order. */
import { expect } from 'vitest';
import { type HostBench, TOKENS } from './host-bench.ts';

export interface Heard {
  readonly key: string;
  readonly event: string;
  readonly server: string;
  readonly id: string;
  readonly [fact: string]: unknown;
}

/** One listening host. */
export class Listener {
  readonly heard: Heard[] = [];
  readonly ended: Promise<void>;
  readonly #abort = new AbortController();
  #text = '';

  private constructor(body: ReadableStream<Uint8Array>) {
    this.ended = this.#read(body).catch(() => undefined);
  }

  static async open(bench: HostBench, after?: string): Promise<Listener> {
    const response = await fetch(`${bench.url}/host/v1/events`, {
      headers: { authorization: `Bearer ${TOKENS.host}`, ...(after !== undefined && { 'last-event-id': after }) },
    });
    expect([response.status, response.headers.get('content-type')]).toEqual([200, 'text/event-stream']);
    return new Listener(response.body as ReadableStream<Uint8Array>);
  }

  get words(): readonly string[] {
    return this.heard.map(({ event }) => event);
  }

  stop(): void {
    this.#abort.abort();
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    const reader = body.getReader();
    this.#abort.signal.addEventListener('abort', () => void reader.cancel());
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
      this.#text += decoder.decode(chunk.value, { stream: true });
      for (let end = this.#text.indexOf('\n\n'); end >= 0; end = this.#text.indexOf('\n\n')) {
        const block = this.#text.slice(0, end);
        this.#text = this.#text.slice(end + 2);
        const [, key, data] = /^id: (\S+)\nevent: message\ndata: (.*)$/.exec(block) ?? [];
        if (data !== undefined) this.heard.push({ key, ...JSON.parse(data) } as Heard);
      }
    }
  }
}
