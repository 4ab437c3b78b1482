/** Asks the log from a process that lives long: a worker thread reads index and files, so no question blocks calls. */
import { Worker } from 'node:worker_threads';
import { type ErrorCode, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { threadFile } from '../../../catalogs/programs/own-code.ts';
import type { AuditReader } from './audit-reader.ts';

/** The questions of a reader whose answers are data. */
export type AuditQuestion =
  | 'page'
  | 'find'
  | 'unknown'
  | 'running'
  | 'stats'
  | 'overview'
  | 'ruleHits'
  | 'values'
  | 'timeline';

/** The same questions, answered later. Each rejects with what the reader throws. */
export type AuditSearch = {
  readonly [Question in AuditQuestion]: (
    ...args: Parameters<AuditReader[Question]>
  ) => Promise<ReturnType<AuditReader[Question]>>;
} & { close(): Promise<void> };

/** Where the log and its index are, as absolute paths. */
export interface SearchPlaces {
  readonly folder: string;
  readonly index: string;
  /** Gets what the answers lack, one sentence each. */
  readonly tell?: (what: string) => void;
}

/** A question on its way to the thread. */
export interface AskedQuestion {
  readonly id: number;
  readonly question: AuditQuestion;
  readonly args: readonly unknown[];
}

/**
 * Ends the thread, between two questions. `terminate` may come in the middle of a call of the database, whose native
 * code then ends the process.
 */
export const SEARCH_END = 'end';
export type SearchEnd = typeof SEARCH_END;

/** What the thread sends: an answer, an error by its code, or a sentence about what answers lack. */
export type SearchMessage =
  | { readonly id: number; readonly answer: unknown }
  | { readonly id: number; readonly code: ErrorCode; readonly detail: string; readonly next: string }
  | { readonly tell: string };

interface Waiting {
  readonly resolve: (answer: never) => void;
  readonly reject: (error: TollgateError) => void;
}

/** Opens a search. Its thread starts with the first question, and again after a failure. */
export function openAuditSearch(places: SearchPlaces): AuditSearch {
  const thread = new SearchThread(places);
  const ask =
    <Question extends AuditQuestion>(question: Question): AuditSearch[Question] =>
    (...args: readonly unknown[]) =>
      thread.ask(question, args) as never;
  return {
    page: ask('page'),
    find: ask('find'),
    unknown: ask('unknown'),
    running: ask('running'),
    overview: ask('overview'),
    ruleHits: ask('ruleHits'),
    stats: ask('stats'),
    values: ask('values'),
    timeline: ask('timeline'),
    close: () => thread.close(),
  };
}

class SearchThread {
  readonly #places: SearchPlaces;
  readonly #waiting = new Map<number, Waiting>();
  #worker: Worker | undefined;
  #last = 0;

  constructor(places: SearchPlaces) {
    this.#places = places;
  }

  ask(question: AuditQuestion, args: readonly unknown[]): Promise<never> {
    const worker = (this.#worker ??= this.#start());
    const id = (this.#last += 1);
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      worker.ref();
      worker.postMessage({ id, question, args } satisfies AskedQuestion);
    });
  }

  async close(): Promise<void> {
    const worker = this.#worker;
    this.#end(worker);
    if (worker === undefined) return;
    const ended = new Promise((resolve) => worker.once('exit', resolve));
    worker.ref();
    worker.postMessage(SEARCH_END satisfies SearchEnd);
    await ended;
  }

  #start(): Worker {
    const { folder, index } = this.#places;
    // The thread may not print to stdout, because MCP uses it.
    const worker = new Worker(threadFile('audit-search-thread'), {
      workerData: { folder, index },
      env: {},
      execArgv: [],
      stdout: true,
      stderr: true,
    });
    worker.on('message', (message: SearchMessage) => this.#receive(message));
    worker.once('error', () => this.#end(worker));
    worker.once('exit', () => this.#end(worker));
    worker.unref();
    return worker;
  }

  #receive(message: SearchMessage): void {
    if ('tell' in message) return this.#places.tell?.(message.tell);
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (this.#waiting.size === 0) this.#worker?.unref();
    if ('code' in message) waiting?.reject(new TollgateError(message.code, message));
    else waiting?.resolve(message.answer as never);
  }

  #end(worker: Worker | undefined): void {
    if (worker === undefined || this.#worker !== worker) return;
    this.#worker = undefined;
    const ended = new TollgateError('STATE_FAILED', { detail: 'The thread that reads the audit log has ended.' });
    for (const { reject } of this.#waiting.values()) reject(ended);
    this.#waiting.clear();
  }
}
