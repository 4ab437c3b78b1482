/** Tests that Cancellation behaves like a real AbortSignal. */
import { describe, expect, it } from 'vitest';
import { abortable, abortSignalOf, Cancellation } from '../../adapters/rpc/cancellation.ts';

const reason = new Error('given up');

describe('Cancellation', () => {
  it('before the work began leaves no unhandled rejection, which would end the process', async () => {
    const unheard: unknown[] = [];
    const note = (thrown: unknown): number => unheard.push(thrown);
    process.on('unhandledRejection', note);
    const cancel = new Cancellation();
    cancel.abort(reason);
    await expect(abortable(Promise.reject(new Error('was stopped')), cancel)).rejects.toMatchObject({
      code: 'CANCELLED',
    });
    await new Promise((resolve) => setImmediate(resolve));
    process.off('unhandledRejection', note);
    expect(unheard).toEqual([]);
  });

  it('calls each listener once, with the first reason', () => {
    const cancel = new Cancellation();
    const told: string[] = [];
    const left = (): number => told.push('left');
    const later = (): number => told.push('later');
    cancel.addEventListener('abort', () => {
      told.push('first');
      cancel.removeEventListener('abort', later);
    });
    cancel.addEventListener('abort', left);
    cancel.addEventListener('abort', later);
    cancel.addEventListener('abort', () => told.push('second'));
    cancel.removeEventListener('abort', left);
    cancel.removeEventListener('abort', left);
    expect(cancel.aborted).toBe(false);
    cancel.abort(reason);
    cancel.abort(new Error('again'));
    cancel.addEventListener('abort', () => told.push('late'));
    expect({ told, aborted: cancel.aborted, reason: cancel.reason }).toEqual({
      told: ['first', 'second'],
      aborted: true,
      reason,
    });
  });

  it('converts to a real AbortSignal, before and after the abort', () => {
    const cancel = new Cancellation();
    const early = abortSignalOf(cancel);
    expect(early.aborted).toBe(false);
    cancel.abort(reason);
    for (const signal of [early, abortSignalOf(cancel)])
      expect([signal instanceof AbortSignal, signal.aborted, signal.reason]).toEqual([true, true, reason]);
    expect(abortSignalOf(early)).toBe(early);
  });
});
