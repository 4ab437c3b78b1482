/** Tests facade/cut.ts: what becomes of calls and lists that are cut, by what cut them and how far they had come. */
import { describe, expect, it } from 'vitest';
import { Cancel } from '../../adapters/rpc/cancel.ts';
import { TollgateError } from '../../catalogs/errors.ts';
import { failureAfterCut, interrupted, isCut } from '../../facade/cut.ts';
import type { Exposures } from '../../facade/exposure.ts';
import { listTools } from '../../facade/list.ts';
import { Redactor } from '../../facade/output/redact.ts';
import { openSession } from '../../facade/session.ts';
import { verifies } from '../verifies.ts';
import { ALICE } from '../wire/fake.ts';

const aborted = (reason: Error): Cancel => {
  const cancel = new Cancel();
  cancel.abort(reason);
  return cancel;
};
const CANCELLED = new TollgateError('CANCELLED');

describe('a call that is cut', () => {
  it(
    'may have run once it was sent, has not run before, and is left alone where nothing cut it' + verifies('ST-21'),
    () => {
      const cut = aborted(interrupted('It ended.'));
      expect(failureAfterCut(CANCELLED, cut, 'unknown')).toMatchObject({
        code: 'INTERRUPTED',
        message: 'It ended.',
        data: { executed: 'unknown' },
        retryable: false,
      });
      expect(failureAfterCut(CANCELLED, cut, 'no')).toMatchObject({ code: 'SHUTTING_DOWN', retryable: true });
      const gone = new TollgateError('IDENTITY', { detail: 'The principal is gone.' });
      expect([
        failureAfterCut(CANCELLED, aborted(gone), 'unknown'),
        failureAfterCut(CANCELLED, aborted(gone), 'no'),
      ]).toMatchObject([{ code: 'INTERRUPTED' }, { code: 'IDENTITY' }]);
      const other = new TollgateError('TOOL_TIMEOUT');
      expect(failureAfterCut(other, cut, 'unknown')).toBe(other);
      const late = new TollgateError('TOOL_TIMEOUT', { detail: 'Its host gave it less.' });
      expect(failureAfterCut(CANCELLED, aborted(late), 'unknown')).toBe(late);
      for (const signal of [new Cancel(), aborted(CANCELLED)])
        expect([failureAfterCut(CANCELLED, signal, 'unknown'), isCut(signal)]).toEqual([CANCELLED, false]);
    },
  );
});

describe('a list that is cut' + verifies('ST-22'), () => {
  it('while it waits for servers is answered: it may be asked for again', async () => {
    const cancel = new Cancel();
    const exposures = { tableFor: () => new Promise(() => undefined) } as unknown as Exposures;
    const list = listTools(exposures, openSession(ALICE, 'stdio'), {
      redactor: new Redactor(),
      newId: () => 'id',
      basis: () => '',
      signal: cancel,
    });
    cancel.abort(interrupted('It ended.'));
    expect(await list).toMatchObject({
      kind: 'error',
      error: { code: -32008, data: { code: 'SHUTTING_DOWN', retryable: true } },
    });
  });
});
