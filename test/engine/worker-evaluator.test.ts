import { describe, expect, it } from 'vitest';
import { ENTRYPOINTS, readLibrary } from '../../policies/engine/policy-library.ts';
import { WorkerEvaluator } from '../../policies/engine/workers/worker-evaluator.ts';
import { TIMED_OUT, WorkerHandle } from '../../policies/engine/workers/worker-handle.ts';

const question = { entrypoint: ENTRYPOINTS.patterns, input: '{"patterns":["(", "a"]}', time: '', deadlineMs: 5000 };
const workers = (
  wasm: Uint8Array,
  data = '{}',
  entrypoints: readonly string[] = [ENTRYPOINTS.patterns],
): WorkerEvaluator => new WorkerEvaluator({ wasm, data, entrypoints, limits: {} });

/** Seconds of work. */
const RUNAWAY = JSON.stringify({ patterns: Array.from({ length: 4000 }, (_, number) => `[a-z]{900}${number}`) });

describe('a worker', () => {
  it('stops a query after its processor time and not earlier, also the first query', async () => {
    const had = [0, 20, 49.9, 50];
    const parts = { wasm: readLibrary().wasm, data: '{}', entrypoints: [ENTRYPOINTS.patterns], limits: {} };
    const worker = new WorkerHandle(parts, () => ({ ms: () => had.shift(), close: () => undefined }));
    await worker.ready;
    expect(await worker.ask({ ...question, input: RUNAWAY, deadlineMs: 50 })).toEqual({ failed: TIMED_OUT });
    expect([had, worker.dead, worker.free]).toEqual([[], true, false]);
    worker.stop();
  });

  it('is ready after its warm-up queries, if there are any, and never if these do not end', async () => {
    const parts = { wasm: readLibrary().wasm, data: '{}', entrypoints: [ENTRYPOINTS.patterns], limits: {} };
    const [warm, stuck] = [
      new WorkerHandle({ ...parts, warmUp: [{ ...question, input: '{}' }, question] }),
      new WorkerHandle({ ...parts, warmUp: [{ ...question, input: RUNAWAY, deadlineMs: 1 }] }),
    ];
    expect([warm.free, await warm.ready, warm.free]).toEqual([false, undefined, true]);
    await expect(stuck.ready).rejects.toThrow('cannot decide an empty call in time');
    for (const worker of [warm, stuck]) worker.stop();
  });
});

describe('the workers of user Rego', () => {
  it('answer a query of another principal before the rest of ten endless ones', async () => {
    const some = workers(readLibrary().wasm);
    await some.start();
    const order: string[] = [];
    const note = (name: string) => () => void order.push(name);
    const runaways = Array.from({ length: 10 }, () =>
      some
        .evaluate({ ...question, input: RUNAWAY, deadlineMs: 50, principal: 'mallory' })
        .then(note('answered'), note('refused')),
    );
    await some.evaluate({ ...question, principal: 'mia' }).then(note('innocent'));
    expect(order.length).toBeLessThan(4);
    some.close();
    await Promise.all(runaways);
    expect(order.filter((name) => name !== 'innocent')).toEqual(Array.from({ length: 10 }, () => 'refused'));
  });

  it('answer many queries in order', async () => {
    const some = workers(readLibrary().wasm);
    await some.start();
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, number) => some.evaluate({ ...question, input: `{"patterns":["(${number}"]}` })),
    );
    expect(answers).toEqual(Array.from({ length: 50 }, (_, number) => ({ broken: [`(${number}`] })));
    some.close();
  });

  it.each([
    [
      'is not WebAssembly',
      Uint8Array.from([1, 2, 3]),
      '{}',
      [ENTRYPOINTS.patterns],
      'The compiled policy cannot be loaded.',
    ],
    [
      'has other entry points',
      readLibrary().wasm,
      '{}',
      ['policy/main'],
      'The compiled policy has no entry point policy/main.',
    ],
    ['gets broken data', readLibrary().wasm, '{', [ENTRYPOINTS.patterns], 'The compiled policy cannot be loaded.'],
  ])('do not start with a module that %s', async (_name, wasm, data, entrypoints, message) => {
    await expect(workers(wasm, data, entrypoints).start()).rejects.toMatchObject({ code: 'POLICY_INVALID', message });
  });

  it('refuse each query to a module that never loaded, and do not hang', async () => {
    const broken = workers(Uint8Array.from([0]));
    await expect(broken.evaluate(question)).rejects.toMatchObject({ code: 'POLICY_FAILED' });
    await expect(broken.evaluate(question)).rejects.toMatchObject({ code: 'POLICY_FAILED' });
    broken.close();
  });

  it('continue after an impossible deadline, and after an invalid query', async () => {
    const some = workers(readLibrary().wasm);
    await some.start();
    await expect(some.evaluate({ ...question, input: '[]' })).rejects.toMatchObject({
      code: 'POLICY_FAILED',
      message: 'The input of the policy is not an object.',
    });
    const hasty = await Promise.allSettled(
      Array.from({ length: 5 }, () => some.evaluate({ ...question, deadlineMs: 0 })),
    );
    for (const answer of hasty)
      if (answer.status === 'rejected') expect(answer.reason).toMatchObject({ code: 'POLICY_FAILED' });
    expect(await some.evaluate(question)).toEqual({ broken: ['('] });
    some.close();
    some.close();
  });
});
