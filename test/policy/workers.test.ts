import { describe, expect, it } from 'vitest';
import { ENTRYPOINTS, readLibrary } from '../../policies/library.ts';
import { WorkerEvaluator } from '../../policies/workers.ts';

const question = { entrypoint: ENTRYPOINTS.patterns, input: '{"patterns":["(", "a"]}', time: '', deadlineMs: 5000 };
const workers = (wasm: Uint8Array, data = '{}', entrypoints: readonly string[] = [ENTRYPOINTS.patterns]): WorkerEvaluator => new WorkerEvaluator({ wasm, data, entrypoints, limits: {} });

describe('the workers of user Rego', () => {
  it('answer in order, many questions at once', async () => {
    const some = workers(readLibrary().wasm);
    await some.start();
    const answers = await Promise.all(Array.from({ length: 50 }, (_, number) => some.evaluate({ ...question, input: `{"patterns":["(${number}"]}` })));
    expect(answers).toEqual(Array.from({ length: 50 }, (_, number) => ({ broken: [`(${number}`] })));
    some.close();
  });

  it.each([
    ['is no wasm', Uint8Array.from([1, 2, 3]), '{}', [ENTRYPOINTS.patterns], 'The compiled policy cannot be loaded.'],
    ['has other entry points', readLibrary().wasm, '{}', ['policy/main'], 'The compiled policy has no entry point policy/main.'],
    ['gets broken data', readLibrary().wasm, '{', [ENTRYPOINTS.patterns], 'The compiled policy cannot be loaded.'],
  ])('do not start with a module that %s', async (_name, wasm, data, entrypoints, message) => {
    await expect(workers(wasm, data, entrypoints).start()).rejects.toMatchObject({ code: 'POLICY_INVALID', message });
  });

  it('refuse each question of a module that never loaded, and do not hang', async () => {
    const broken = workers(Uint8Array.from([0]));
    await expect(broken.evaluate(question)).rejects.toMatchObject({ code: 'POLICY_FAILED' });
    await expect(broken.evaluate(question)).rejects.toMatchObject({ code: 'POLICY_FAILED' });
    broken.close();
  });

  it('go on after a deadline that nothing could meet, and after a bad question', async () => {
    const some = workers(readLibrary().wasm);
    await some.start();
    await expect(some.evaluate({ ...question, input: '[]' })).rejects.toMatchObject({ code: 'POLICY_FAILED', message: 'The input of the policy is not an object.' });
    const hasty = await Promise.allSettled(Array.from({ length: 5 }, () => some.evaluate({ ...question, deadlineMs: 0 })));
    for (const answer of hasty) if (answer.status === 'rejected') expect(answer.reason).toMatchObject({ code: 'POLICY_FAILED' });
    expect(await some.evaluate(question)).toEqual({ broken: ['('] });
    some.close();
    some.close();
  });
});
