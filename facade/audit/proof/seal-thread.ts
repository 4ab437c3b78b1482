/** The thread that seals the log once, and ends: records are hashed without delaying calls. */
import { createPrivateKey } from 'node:crypto';
import { parentPort, workerData } from 'node:worker_threads';
import { asTollgateError } from '../../../catalogs/errors/error-table.ts';
import { sealLog } from './log-sealing.ts';
import type { SealAnswer, SealData } from './sealing-schedule.ts';

function seal({ pem, ...data }: SealData): SealAnswer {
  try {
    return { result: sealLog({ ...data, key: createPrivateKey(pem), now: Date.now() }) };
  } catch (thrown) {
    return { refused: asTollgateError(thrown).message };
  }
}

parentPort?.postMessage(seal(workerData as SealData));
