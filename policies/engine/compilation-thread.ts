/** Compiles a large policy in a thread of its own, so that calls continue in the meantime. */
import { stat } from 'node:fs/promises';
import { setImmediate as letOthersRun } from 'node:timers/promises';
import { parentPort, Worker, workerData } from 'node:worker_threads';
import { asTollgateError, type ErrorCode, type Refusal, TollgateError } from '../../catalogs/errors/error-table.ts';
import type { PolicyParts } from './compiled-parts.ts';
import type { CompiledPolicy } from './compiled-policy.ts';
import { compileParts, loadPolicy } from './policy-loader.ts';
import { loadImage, readyParts, startReady } from './policy-start.ts';
import {
  flattenParts,
  flattenPolicy,
  reviveParts,
  revivePolicy,
  type TransferableParts,
  type TransferablePolicy,
} from './transferable-policy.ts';

/** The message that the thread sends at its end. */
type ThreadResult = { readonly policy: TransferablePolicy } | { readonly code: ErrorCode; readonly refusal: Refusal };

/**
 * Bytes of rules (about twenty rules) that justify a thread. For fewer, starting it costs this thread as much as
 * compiling.
 */
const LARGE = 4 * 1024;

/**
 * Does the same as `loadPolicy`, and throws the same. A large policy is compiled by a thread that runs `file`, which
 * must call `runCompilationThread`. If the thread fails, throws POLICY_INVALID.
 */
export async function loadPolicyInThread(parts: PolicyParts, file: string): Promise<CompiledPolicy> {
  if (!(await isLarge(parts))) return loadPolicy(parts);
  const result = await runThread(file, flattenParts(parts));
  if ('code' in result) throw new TollgateError(result.code, result.refusal);
  const ready = await revivePolicy(result.policy);
  const policy = await startReady(ready, { deadlineMs: parts.deadlineMs, image: result.policy.image });
  await letOthersRun();
  return policy;
}

/** Runs in the thread: compiles the parts that it was started with, and posts the result. */
export async function runCompilationThread(readYaml: PolicyParts['readYaml']): Promise<void> {
  const result = await compileParts(reviveParts(workerData as TransferableParts, readYaml))
    .then(readyParts)
    .then((ready): ThreadResult => ({ policy: flattenPolicy(ready, loadImage(ready)) }), refused);
  parentPort?.postMessage(result);
}

/** Rego and bundles always justify a thread. */
async function isLarge({ rules, sources }: PolicyParts): Promise<boolean> {
  if (sources.some(({ kind }) => kind !== 'yaml')) return true;
  const sizes = await Promise.all(
    sources.map((source) =>
      stat(source.path).then(
        ({ size }) => size,
        () => 0,
      ),
    ),
  );
  return [...sizes, JSON.stringify(rules).length].reduce((sum, size) => sum + size, 0) >= LARGE;
}

/** The cause is only for the log. Of a foreign error, only message and stack can be passed between threads. */
function refused(thrown: unknown): ThreadResult {
  const { code, message, next, data, cause } = asTollgateError(thrown);
  return {
    code,
    refusal: {
      detail: message,
      next,
      data,
      ...(cause instanceof Error ? { cause: Object.assign(new Error(cause.message), { stack: cause.stack }) } : {}),
    },
  };
}

function runThread(file: string, parts: TransferableParts): Promise<ThreadResult> {
  return new Promise((resolve, reject) => {
    // The output of the thread is dropped: stdout carries the MCP protocol.
    const thread = new Worker(file, { workerData: parts, execArgv: [], stdout: true, stderr: true });
    const fail = (cause?: unknown): void =>
      reject(
        new TollgateError('POLICY_INVALID', {
          detail: 'The policy could not be compiled: the compilation thread ended too early.',
          cause,
        }),
      );
    let result: ThreadResult | undefined;
    thread.once('message', (message: ThreadResult) => {
      result = message;
      // Open handles of a program that the thread started must not keep it running.
      void thread.terminate();
    });
    thread.once('error', fail);
    thread.once('exit', () => (result === undefined ? fail() : resolve(result)));
  });
}
