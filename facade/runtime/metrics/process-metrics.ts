/** Measures this process: build, CPU time, memory, open files and the delay of its event loop. */
import { readdirSync, readFileSync } from 'node:fs';
import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks';
import { VERSION } from '../../serve/version.ts';
import { metricFamily, singleMetric } from './prometheus-text.ts';

/** How often the delay is measured, ms. Node adds this to each measured delay. */
const RESOLUTION_MS = 20;
/** The reported delays are those of the last one to two windows, ms. */
const WINDOW_MS = 60_000;
const PERCENTILES = [50, 99, 100] as const;

/** Measures until `close`. */
export class ProcessMetrics {
  readonly #delay: IntervalHistogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  readonly #timer: NodeJS.Timeout;
  /** Seconds by percentile, of the window before. */
  #before: readonly number[] = [];

  constructor() {
    this.#delay.enable();
    this.#timer = setInterval(() => {
      this.#before = this.#delays();
      this.#delay.reset();
    }, WINDOW_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#delay.disable();
  }

  /** The lines of /metrics. */
  lines(): readonly string[] {
    const { user, system } = process.cpuUsage();
    const { rss, heapUsed, heapTotal } = process.memoryUsage();
    const delays = this.#delays();
    const gauge = (name: string, help: string, value: number | undefined): readonly string[] =>
      value === undefined ? [] : singleMetric(name, ['gauge', help], value);
    return [
      ...metricFamily(
        'tollgate_build_info',
        ['gauge', '1, with the versions of Tollgate and Node.js.'],
        [[`version="${VERSION}",node="${process.versions.node}"`, 1]],
      ),
      ...metricFamily(
        'tollgate_event_loop_delay_seconds',
        ['gauge', 'How late timers fire, over the last one to two minutes; percentile 100 is the longest delay.'],
        PERCENTILES.map((percentile, at) => [
          `percentile="${percentile}"`,
          Math.max(delays[at] ?? 0, this.#before[at] ?? 0),
        ]),
      ),
      ...singleMetric(
        'process_cpu_seconds_total',
        ['counter', 'CPU time of this process, without its servers.'],
        (user + system) / 1e6,
      ),
      ...gauge('process_resident_memory_bytes', 'Memory of this process, without its servers.', rss),
      ...gauge('nodejs_heap_size_used_bytes', 'Used heap of JavaScript.', heapUsed),
      ...gauge('nodejs_heap_size_total_bytes', 'Heap of JavaScript.', heapTotal),
      ...gauge(
        'process_start_time_seconds',
        'When this process began, since 1970.',
        Math.round((Date.now() / 1000 - process.uptime()) * 1000) / 1000,
      ),
      ...gauge('process_open_fds', 'Open files, sockets included.', openFiles()),
      ...gauge('process_max_fds', 'Limit of open files.', maxFiles()),
    ];
  }

  #delays(): readonly number[] {
    return PERCENTILES.map((percentile) =>
      this.#delay.count === 0 ? 0 : Math.max(0, this.#delay.percentile(percentile) / 1e9 - RESOLUTION_MS / 1000),
    );
  }
}

/** Returns the number of open files; undefined if the system does not tell. */
function openFiles(): number | undefined {
  try {
    // Without the file descriptor that reads the folder.
    return readdirSync('/proc/self/fd').length - 1;
  } catch {
    return undefined;
  }
}

function maxFiles(): number | undefined {
  try {
    const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1')) ?? [];
    return soft === undefined ? undefined : Number(soft);
  } catch {
    return undefined;
  }
}
