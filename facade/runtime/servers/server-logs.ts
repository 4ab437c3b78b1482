/** Logs what servers write to stderr: one private log per server, redacted and of limited size. */
import { appendFileSync, mkdirSync, readFileSync, renameSync, statSync } from 'node:fs';
import path from 'node:path';
import { escapeHostile } from '../../../catalogs/text/hostile-text.ts';
import type { Redactor } from '../../output/redactor.ts';

/** Bytes after which a new log begins. The log before it is kept, so a server takes at most twice this. */
const MAX_BYTES = 1024 * 1024;

/** The logs of a state folder. All its processes append complete lines to them. */
export class ServerLogs {
  readonly #folder: string;
  readonly #redactor: Redactor;
  readonly #onFault: (thrown: unknown) => void;
  readonly #maxBytes: number;
  /** Server → bytes of its log as far as known here. */
  readonly #sizes = new Map<string, number>();
  #failing = false;

  /** `onFault` is called once when lines cannot be written, for example on a full disk; nothing else stops. */
  constructor(parts: { state: string; redactor: Redactor; onFault: (thrown: unknown) => void; maxBytes?: number }) {
    this.#folder = path.join(parts.state, 'logs');
    this.#redactor = parts.redactor;
    this.#onFault = parts.onFault;
    this.#maxBytes = parts.maxBytes ?? MAX_BYTES;
  }

  /** Appends one line. Redacts secrets, and escapes control characters, so that they cannot control a terminal. */
  write(server: string, line: string): void {
    const { text: safe } = escapeHostile(this.#redactor.redact(line).value);
    const text = `${new Date().toISOString()} ${process.pid} ${safe}\n`;
    try {
      this.#append(server, text);
      this.#failing = false;
    } catch (thrown) {
      if (!this.#failing) this.#onFault(thrown);
      this.#failing = true;
    }
  }

  #append(server: string, text: string): void {
    const file = logFile(this.#folder, server);
    const known = this.#sizes.get(server);
    if (known === undefined) mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    // Other processes append too, so the size is read at the start, and again when it seems to exceed the limit.
    const size = known === undefined || known > this.#maxBytes ? sizeOf(file) : known;
    if (size > this.#maxBytes) renameSync(file, `${file}.1`);
    appendFileSync(file, text, { mode: 0o600 });
    this.#sizes.set(server, (size > this.#maxBytes ? 0 : size) + Buffer.byteLength(text));
  }
}

/** Returns the stored stderr of a server, oldest first; undefined if there is none. */
export function readServerLog(state: string, server: string): string | undefined {
  const file = logFile(path.join(state, 'logs'), server);
  const parts = [`${file}.1`, file].map(readIfThere);
  return parts.every((part) => part === undefined) ? undefined : parts.join('');
}

function logFile(folder: string, server: string): string {
  return path.join(folder, `${server}.log`);
}

function sizeOf(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.size ?? 0;
}

function readIfThere(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw thrown;
  }
}
