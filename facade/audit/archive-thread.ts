/** The thread that moves old files of the log to an archive. It records that in a chain of its own, and ends. */
import { parentPort, workerData } from 'node:worker_threads';
import { asTollgateError } from '../../catalogs/errors/error-table.ts';
import { openAudit } from './audit-log.ts';
import { archiveAudit } from './chain-archive.ts';
import { createDigest, readAuditKey } from './key-files.ts';
import { type ArchiveAnswer, type ArchiveTask, archiveFault } from './retention.ts';

const { folder, rotateBytes, replica, state, to, before } = workerData as ArchiveTask;

async function archive(): Promise<ArchiveAnswer> {
  const log = openAudit({ folder, rotateBytes, replica });
  try {
    const done = archiveAudit({
      folder,
      to,
      before,
      digest: createDigest(readAuditKey(state)),
      now: Date.now(),
      record: (moved) =>
        log.append({ type: 'setup', event: 'audit-archived', outcome: 'allow', by: 'audit.keep', before, ...moved }),
    });
    return 'faults' in done ? { fault: 'The log was changed, and only an unchanged log is archived.' } : done;
  } catch (thrown) {
    return asTollgateError(thrown).data.busy === true ? { busy: true } : archiveFault(thrown);
  } finally {
    await log.close();
  }
}

void archive().then((answer) => parentPort?.postMessage(answer));
