/** The thread that answers questions about the log, one after the other. */
import { parentPort, workerData } from 'node:worker_threads';
import { asTollgateError } from '../../../catalogs/errors/error-table.ts';
import { openAuditReader } from './audit-reader.ts';
import {
  type AskedQuestion,
  SEARCH_END,
  type SearchEnd,
  type SearchMessage,
  type SearchPlaces,
} from './audit-search.ts';

const { folder, index } = workerData as SearchPlaces;
const send = (message: SearchMessage): void => parentPort?.postMessage(message);
const open = (): ReturnType<typeof openAuditReader> => openAuditReader(folder, index, (tell) => send({ tell }));
let reader: ReturnType<typeof openAuditReader> | undefined;

parentPort?.on('message', (message: AskedQuestion | SearchEnd) => {
  if (message === SEARCH_END) process.exit();
  const { id, question, args } = message;
  try {
    reader ??= open();
    const ask = reader[question] as (...given: readonly unknown[]) => unknown;
    send({ id, answer: ask(...args) });
  } catch (thrown) {
    const { code, message: detail, next } = asTollgateError(thrown);
    send({ id, code, detail, next });
  }
});
