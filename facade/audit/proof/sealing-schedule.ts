/**
 * Decides when this process seals the log: after a number of records or a time, in a thread, and once more when the
 * process ends. It reports what could not be signed, each thing once.
 */
import type { KeyObject } from 'node:crypto';
import { Worker } from 'node:worker_threads';
import { asTollgateError } from '../../../catalogs/errors/error-table.ts';
import { threadFile } from '../../../catalogs/programs/own-code.ts';
import type { ProofEntry } from '../audit-entry.ts';
import { type AuditLog, appendQuietly } from '../audit-log.ts';
import type { HeadPublisher } from '../fleet/published-heads.ts';
import { withTree } from './audit-tree.ts';
import { type SealResult, sealLog } from './log-sealing.ts';
import type { SigningConfig, WitnessConfig } from './signing-key.ts';
import { beginTree } from './tree-beginning.ts';
import { askWitness } from './witness.ts';

/** What a process seals, and with what. */
export interface SealingSettings {
  /** The folder of the log. */
  readonly folder: string;
  readonly signing: SigningConfig;
  /** Agents write here, so no file of the witness may be here. */
  readonly workspace: string;
  readonly audit: AuditLog;
  /** Of a fleet: the checkpoints name it. */
  readonly replica?: string | undefined;
  /** Publishes the checkpoints of a fleet. */
  readonly heads?: HeadPublisher | undefined;
  /** Reads the key when it is needed first. */
  readonly key: () => Promise<KeyObject>;
  /** One line for the person who started this process. */
  readonly tell: (line: string) => void;
}

/** What the thread is started with. `pem`: the private key. */
export interface SealData {
  readonly folder: string;
  readonly pem: string;
  readonly budgetMs: number;
  readonly replica?: string | undefined;
}

/** What the thread answers. */
export type SealAnswer = { readonly result: SealResult } | { readonly refused: string };

/** How often it is checked whether a checkpoint is due, ms. */
const TICK_MS = 1000;
/** How long one thread takes records in, ms. The next one continues. */
const THREAD_MS = 60_000;
/** How long the end of a process may be delayed by taking records in, ms. */
const CLOSE_MS = 2000;
/** Heap of the thread. A round holds a few megabytes. */
const HEAP_MB = 256;

/** The sealing of one process. */
export class SealingSchedule {
  readonly #settings: SealingSettings;
  readonly #timer: NodeJS.Timeout;
  readonly #said = new Set<string>();
  readonly #stop = new AbortController();
  /** The note that the witness confirmed last. */
  #shown = '';
  #key: Promise<KeyObject> | undefined;
  #last: { readonly at: number; readonly records: number };
  #running: Promise<void> | undefined;

  /** Begins the tree of the log, if it has none. */
  constructor(settings: SealingSettings) {
    this.#settings = settings;
    this.#begin();
    this.#last = { at: performance.now(), records: settings.audit.records };
    this.#timer = setInterval(() => this.#tick(), TICK_MS).unref();
  }

  /** Seals now, in a thread. Never rejects. */
  seal(): Promise<void> {
    return (this.#running ??= this.#seal().finally(() => (this.#running = undefined)));
  }

  /** Ends the schedule. Call it before the log is closed. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#stop.abort();
    await this.#running;
  }

  /** Seals what is there when the log is closed, in this thread. The witness gets it from the next process. */
  async finish(): Promise<void> {
    const { folder, replica, heads } = this.#settings;
    try {
      const key = await this.#readKey();
      sealLog({ folder, key, budgetMs: CLOSE_MS, now: Date.now(), replica });
      await heads?.finish(key);
    } catch (thrown) {
      this.#say(asTollgateError(thrown).message);
    }
  }

  #tick(): void {
    const { signing, audit } = this.#settings;
    const { at, records } = this.#last;
    const isDue = performance.now() - at >= signing.withinMs || audit.records - records >= signing.every;
    if (isDue) void this.seal();
  }

  async #seal(): Promise<void> {
    this.#last = { at: performance.now(), records: this.#settings.audit.records };
    try {
      const { folder, replica, heads } = this.#settings;
      const key = await this.#readKey();
      const pem = key.export({ format: 'pem', type: 'pkcs8' }).toString();
      this.#begin();
      const answer = await runThread({ folder, pem, budgetMs: THREAD_MS, replica });
      heads?.publish(key);
      if ('refused' in answer) this.#record({ event: 'refused', reason: answer.refused }, answer.refused);
      else await this.#settle(answer.result);
    } catch (thrown) {
      const reason = asTollgateError(thrown).message;
      this.#record({ event: 'refused', reason }, reason);
    }
  }

  async #settle({ withheld }: SealResult): Promise<void> {
    for (const { file, what } of withheld)
      this.#record({ event: 'withheld', file, reason: what }, `${file}: ${what}; its new records are not signed`);
    const { witness } = this.#settings.signing;
    if (witness === undefined || this.#stop.signal.aborted) return;
    const failure = await this.#showLast(witness);
    if (failure !== undefined && !this.#stop.signal.aborted)
      this.#record({ event: 'unwitnessed', reason: failure }, `the witness ${failure}`);
  }

  /** Shows the last checkpoint to the witness, once. Returns why it does not count, if it does not. */
  async #showLast(witness: WitnessConfig): Promise<string | undefined> {
    const { folder, workspace } = this.#settings;
    const last = withTree(folder, (tree) => tree.last);
    if (last === undefined || last.cosignature !== '' || last.note === this.#shown) return undefined;
    const answer = await askWitness(witness, last.note, { workspace, signal: this.#stop.signal });
    if ('failed' in answer) return answer.failed;
    this.#shown = last.note;
    const { cosignature } = answer;
    if (cosignature !== undefined) withTree(folder, (tree) => tree.cosign(last.size, cosignature));
    return undefined;
  }

  #begin(): void {
    const { folder, audit } = this.#settings;
    try {
      beginTree(folder, (entry) => appendQuietly(audit, entry));
    } catch (thrown) {
      const reason = asTollgateError(thrown).message;
      this.#record({ event: 'refused', reason }, reason);
    }
  }

  #readKey(): Promise<KeyObject> {
    this.#key ??= this.#settings.key().catch((thrown: unknown) => {
      this.#key = undefined;
      throw thrown;
    });
    return this.#key;
  }

  /** Records what could not be done, once for each reason. */
  #record(entry: Pick<ProofEntry, 'event' | 'file' | 'reason'>, line: string): void {
    if (this.#said.has(line)) return;
    appendQuietly(this.#settings.audit, { type: 'proof', outcome: 'error', ...entry });
    this.#say(line);
  }

  #say(line: string): void {
    if (this.#said.has(line)) return;
    this.#said.add(line);
    this.#settings.tell(`The audit log is not signed completely: ${line}`);
  }
}

/** Runs the thread. A thread that ends without an answer has failed. */
function runThread(workerData: SealData): Promise<SealAnswer> {
  return new Promise((resolve) => {
    // The thread may not print to stdout, because MCP uses it.
    const thread = new Worker(threadFile('seal-thread'), {
      workerData,
      env: {},
      execArgv: [],
      stdout: true,
      stderr: true,
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB },
    });
    thread.unref();
    thread.once('message', resolve);
    thread.once('error', (error) => resolve({ refused: `its thread failed (${error.message})` }));
    thread.once('exit', () => resolve({ refused: 'its thread ended' }));
  });
}
