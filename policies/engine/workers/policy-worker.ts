/** The program of a policy worker: one module, which answers one query after the other. */
import { type MessagePort, workerData } from 'node:worker_threads';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { ownThread } from '../../../catalogs/text/thread-clock.ts';
import { WasmPolicy } from '../wasm/wasm-policy.ts';
import type { PolicyQuery, WorkerAnswer, WorkerParts } from './worker-handle.ts';

const { port, ...parts } = workerData as WorkerParts & { readonly port: MessagePort };

function answer(run: () => Readonly<Record<string, unknown>>, more: Pick<WorkerAnswer, 'thread'> = {}): void {
  let message: WorkerAnswer;
  try {
    message = { result: run(), ...more };
  } catch (thrown) {
    message = { failed: thrown instanceof TollgateError ? thrown.message : 'The policy cannot be evaluated.' };
  }
  port.postMessage(message);
}

let policy: WasmPolicy | undefined;
answer(
  () => {
    policy = new WasmPolicy(parts.wasm, parts.data, parts);
    return {};
  },
  { thread: ownThread() },
);
port.on('message', ({ entrypoint, input, time }: PolicyQuery) =>
  answer(() => policy?.evaluate(entrypoint, input, time) ?? {}),
);
