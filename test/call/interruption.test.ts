/**
 * Tests facade/call/refusal.ts: the answers of interrupted calls and lists, by the cause and by how far they had come.
 */
import { describe, expect, it } from 'vitest';
import { Cancellation } from '../../adapters/rpc/cancellation.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { openSession } from '../../facade/call/identify.ts';
import { failureAfterInterruption, interruptionError, isInterrupted } from '../../facade/call/refusal.ts';
import { listTools } from '../../facade/exposure/list-tools.ts';
import type { NameTables } from '../../facade/exposure/name-tables.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { ALICE } from '../serve/fake-facade.ts';
import { verifies } from '../verifies.ts';

const aborted = (reason: Error): Cancellation => {
  const cancel = new Cancellation();
  cancel.abort(reason);
  return cancel;
};
const CANCELLED = new TollgateError('CANCELLED');

describe('a call that is interrupted', () => {
  it(
    'may have run if it was sent, has not run otherwise, and keeps its own error without an interruption' +
      verifies('ST-21'),
    () => {
      const cut = aborted(interruptionError('It ended.'));
      expect(failureAfterInterruption(CANCELLED, cut, 'unknown')).toMatchObject({
        code: 'INTERRUPTED',
        message: 'It ended.',
        data: { executed: 'unknown' },
        retryable: false,
      });
      expect(failureAfterInterruption(CANCELLED, cut, 'no')).toMatchObject({ code: 'SHUTTING_DOWN', retryable: true });
      const gone = new TollgateError('IDENTITY', { detail: 'The principal is gone.' });
      expect([
        failureAfterInterruption(CANCELLED, aborted(gone), 'unknown'),
        failureAfterInterruption(CANCELLED, aborted(gone), 'no'),
      ]).toMatchObject([{ code: 'INTERRUPTED' }, { code: 'IDENTITY' }]);
      const other = new TollgateError('TOOL_TIMEOUT');
      expect(failureAfterInterruption(other, cut, 'unknown')).toBe(other);
      const late = new TollgateError('TOOL_TIMEOUT', { detail: 'Its host gave it less.' });
      expect(failureAfterInterruption(CANCELLED, aborted(late), 'unknown')).toBe(late);
      expect(failureAfterInterruption(CANCELLED, aborted(CANCELLED), 'no')).toMatchObject({
        code: 'CANCELLED',
        message: CANCELLED.message,
        next: 'Nothing was sent to a server.',
      });
      for (const signal of [new Cancellation(), aborted(CANCELLED)])
        expect([failureAfterInterruption(CANCELLED, signal, 'unknown'), isInterrupted(signal)]).toEqual([
          CANCELLED,
          false,
        ]);
    },
  );
});

describe('a list that is interrupted' + verifies('ST-22'), () => {
  it('while it waits for servers is answered, and the client may ask again', async () => {
    const cancel = new Cancellation();
    const exposures = { tableFor: () => new Promise(() => undefined) } as unknown as NameTables;
    const list = listTools(exposures, openSession(ALICE, 'stdio'), {
      redactor: new Redactor(),
      newId: () => 'id',
      basis: () => '',
      signal: cancel,
    });
    cancel.abort(interruptionError('It ended.'));
    expect(await list).toMatchObject({
      kind: 'error',
      error: { code: -32008, data: { code: 'SHUTTING_DOWN', retryable: true } },
    });
  });
});
