/** Owns the compiling of a large policy in a thread of its own, so that calls go on meanwhile; refuses the policy when the thread fails. */
import { stat } from 'node:fs/promises';
import { setImmediate as turn } from 'node:timers/promises';
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

/** What the thread says at its end. */
type Said = { readonly policy: TransferablePolicy } | { readonly code: ErrorCode; readonly refusal: Refusal };

/** Bytes of rules from which a thread pays off: some twenty rules. Its start, and what it gives back, hold this thread as long as fewer. */
const LARGE = 4 * 1024;

/**
 * As `loadPolicy`, and throws the same; a large policy is compiled by the thread that runs `file`, which calls `compileApart`.
 * A thread that fails is POLICY_INVALID.
 */
export async function loadPolicyInThread(parts: PolicyParts, file: string): Promise<CompiledPolicy> {
  if (!(await isLarge(parts))) return loadPolicy(parts);
  const said = await runThread(file, flattenParts(parts));
  if ('code' in said) throw new TollgateError(said.code, said.refusal);
  const ready = await revivePolicy(said.policy);
  const policy = await startReady(ready, { deadlineMs: parts.deadlineMs, image: said.policy.image });
  await turn();
  return policy;
}

/** Inside of the thread: compiles what it was started with, and ends. */
export async function runCompilationThread(readYaml: PolicyParts['readYaml']): Promise<void> {
  const said = await compileParts(reviveParts(workerData as TransferableParts, readYaml))
    .then(readyParts)
    .then((ready): Said => ({ policy: flattenPolicy(ready, loadImage(ready)) }), refused);
  parentPort?.postMessage(said);
}

/** Rego and bundles are always worth it. */
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

/** The cause is for the log; of an error that is not ours only what any error has can cross. */
function refused(thrown: unknown): Said {
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

function runThread(file: string, parts: TransferableParts): Promise<Said> {
  return new Promise((resolve, reject) => {
    // What the thread prints stays here: stdout belongs to the wire.
    const thread = new Worker(file, { workerData: parts, execArgv: [], stdout: true, stderr: true });
    const fail = (cause?: unknown): void =>
      reject(
        new TollgateError('POLICY_INVALID', {
          detail: 'The policy could not be compiled: its thread ended before it was done.',
          cause,
        }),
      );
    let said: Said | undefined;
    thread.once('message', (message: Said) => {
      said = message;
      // Whatever a program that was started left open must not keep it.
      void thread.terminate();
    });
    thread.once('error', fail);
    thread.once('exit', () => (said === undefined ? fail() : resolve(said)));
  });
}
