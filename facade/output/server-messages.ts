/** Guards the log messages that a server sends: their level, redacted and escaped data, a size and a rate. */
import { LOG_LEVELS, type LogLevel } from '../../adapters/port.ts';
import type { JsonDoc, JsonObject } from '../../adapters/rpc/wire-message.ts';
import { escapeHostile } from '../../catalogs/text/hostile-text.ts';
import type { ClientNotice } from '../serve/facade-port.ts';
import type { Redactor } from './redactor.ts';
import { mapStrings } from './result-cleaning.ts';

/** Bytes of the data that reach the client. */
const DATA_BYTES = 8_192;
/** UTF-16 units that are still read. Searching a longer message for secrets would cost too much. */
const READ_CHARS = 65_536;
/** Messages that pass at once; then one in each interval. */
const BURST = 50;
const INTERVAL_MS = 20;
const MAX_LOGGER = 128;

/** What was done to log messages, for the outcome record. `dropped`: not valid, or above the rate. */
export interface LogCounts {
  sent: number;
  dropped: number;
  redactions: number;
  escaped: number;
  cut: number;
}

/** How the messages of one server reach one client. */
export interface MessageRoute {
  readonly server: string;
  readonly redactor: Redactor;
  /** The least severe level that the client wants now. */
  readonly level: () => LogLevel;
  readonly send: (notice: ClientNotice) => void;
}

/** The log messages of one server to one client (MCP 2025-11-25, server/utilities/logging). */
export class ServerMessages {
  readonly counts: LogCounts = { sent: 0, dropped: 0, redactions: 0, escaped: 0, cut: 0 };
  readonly #route: MessageRoute;
  #room = BURST;
  #filledAt = performance.now();

  constructor(route: MessageRoute) {
    this.#route = route;
  }

  /** Takes the params of one notification. */
  readonly take = ({ text, value: { level, logger, data } }: JsonDoc<JsonObject>): void => {
    const severity = LOG_LEVELS.indexOf(level as LogLevel);
    if (severity >= 0 && severity < LOG_LEVELS.indexOf(this.#route.level())) return;
    if (severity < 0 || !this.#takeRoom()) {
      this.counts.dropped += 1;
      return;
    }
    const { server, send } = this.#route;
    const name = typeof logger === 'string' && logger !== '' ? `/${logger.slice(0, MAX_LOGGER)}` : '';
    this.counts.sent += 1;
    send({
      method: 'notifications/message',
      params: { level, logger: this.#clean(server + name), data: this.#dataOf(text, data) },
    });
  };

  #takeRoom(): boolean {
    const now = performance.now();
    const gained = Math.floor((now - this.#filledAt) / INTERVAL_MS);
    if (gained > 0) {
      this.#room = Math.min(BURST, this.#room + gained);
      this.#filledAt += gained * INTERVAL_MS;
    }
    if (this.#room === 0) return false;
    this.#room -= 1;
    return true;
  }

  #dataOf(text: string, data: unknown): unknown {
    if (text.length > READ_CHARS) return this.#leftOut(text.length);
    const clean = mapStrings(data, (part) => this.#clean(part));
    const size = Buffer.byteLength(JSON.stringify(clean) ?? '');
    return size <= DATA_BYTES ? clean : this.#leftOut(size);
  }

  #leftOut(size: number): string {
    this.counts.cut += 1;
    return `[tollgate: a message of ${size} bytes was left out]`;
  }

  #clean(text: string): string {
    const redacted = this.#route.redactor.redact(text);
    const escaped = escapeHostile(redacted.value);
    this.counts.redactions += redacted.count;
    this.counts.escaped += escaped.count;
    return escaped.text;
  }
}
