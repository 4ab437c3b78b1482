/** Tests the reports of refused requests: immediately, once a minute, and at the end of the connection. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type RefusedRequest, RefusedRequests } from '../../adapters/rpc/refused-requests.ts';
import { verifies } from '../verifies.ts';

describe('refused requests of a connection' + verifies('TR-82'), () => {
  let told: RefusedRequest[];
  let refused: RefusedRequests;
  const note = (method: string, times: number): void => {
    for (let at = 0; at < times; at++) refused.note(method);
  };

  beforeEach(() => {
    vi.useFakeTimers();
    told = [];
    refused = new RefusedRequests((one) => told.push(one));
  });
  afterEach(() => {
    refused.end();
    vi.useRealTimers();
  });

  it('are reported immediately, then as a count each minute, and immediately again after a quiet minute', () => {
    note('roots/list', 1001);
    expect(told).toEqual([{ method: 'roots/list', count: 1 }]);
    vi.advanceTimersByTime(59_999);
    expect(told).toHaveLength(1);
    vi.advanceTimersByTime(1);
    expect(told.slice(1)).toEqual([{ method: 'roots/list', count: 1000 }]);
    note('roots/list', 5);
    expect(told).toHaveLength(2);
    vi.advanceTimersByTime(60_000);
    expect(told.slice(2)).toEqual([{ method: 'roots/list', count: 5 }]);
    vi.advanceTimersByTime(60_000);
    note('roots/list', 1);
    expect(told.slice(3)).toEqual([{ method: 'roots/list', count: 1 }]);
  });

  it('are counted per method; all names that MCP does not define count as one', () => {
    for (let at = 0; at < 1000; at++) note(`evil/${at}`, 1);
    note('sampling/createMessage', 3);
    vi.advanceTimersByTime(60_000);
    expect(told).toEqual([
      { method: 'other', count: 1 },
      { method: 'sampling/createMessage', count: 1 },
      { method: 'other', count: 999 },
      { method: 'sampling/createMessage', count: 2 },
    ]);
  });

  it('are reported once at the end of the connection, and leave no timer', () => {
    note('elicitation/create', 8);
    refused.end();
    expect(told).toEqual([
      { method: 'elicitation/create', count: 1 },
      { method: 'elicitation/create', count: 7 },
    ]);
    refused.end();
    vi.advanceTimersByTime(120_000);
    expect(told).toHaveLength(2);
    expect(vi.getTimerCount()).toBe(0);
  });
});
