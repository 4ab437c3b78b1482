/** The counters of the HTTP listener: statuses, connections, ended sessions. No label comes from a client. */
import type { ServerResponse } from 'node:http';
import { metricFamily } from '../../runtime/metrics/prometheus-text.ts';
import type { SessionTable } from './http-sessions.ts';
import type { Sockets } from './sockets.ts';

/** Counts responses by status. */
export class HttpMetrics {
  readonly #responses = new Map<number, number>();

  /** Counts a response once it has ended, or its client has disconnected. */
  begin(response: ServerResponse): void {
    response.once('close', () => {
      if (response.headersSent)
        this.#responses.set(response.statusCode, (this.#responses.get(response.statusCode) ?? 0) + 1);
    });
  }

  /** Returns the lines of /metrics. */
  lines({ size, turnedAway }: Sockets, { evicted }: SessionTable): readonly string[] {
    return [
      ...metricFamily(
        'tollgate_http_responses_total',
        ['counter', 'Responses by status.'],
        [...this.#responses]
          .sort(([one], [other]) => one - other)
          .map(([status, count]) => [`status="${status}"`, count]),
      ),
      ...metricFamily('tollgate_http_connections', ['gauge', 'Open connections of clients.'], [['', size]]),
      ...metricFamily(
        'tollgate_http_connections_turned_away_total',
        [
          'counter',
          'Connections beyond listen.maxConnections: evicted to make room, or refused because there was none.',
        ],
        Object.entries(turnedAway).map(([how, count]) => [`how="${how}"`, count]),
      ),
      ...metricFamily(
        'tollgate_http_sessions_evicted_total',
        ['counter', 'Idle sessions that were ended to make room.'],
        [['', evicted]],
      ),
    ];
  }
}
