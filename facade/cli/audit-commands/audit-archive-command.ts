/**
 * Runs `tollgate audit archive`: moves old files of the log to another folder. It refuses a folder that an agent may
 * write.
 */
import path from 'node:path';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { openAudit } from '../../audit/audit-log.ts';
import { archiveAudit } from '../../audit/chain-archive.ts';
import { readExported } from '../../audit/export/audit-export.ts';
import { targetName } from '../../audit/export/export-target.ts';
import { readAuditTime } from '../../audit/index/audit-filter.ts';
import { createDigest, readAuditKey } from '../../audit/key-files.ts';
import type { Config } from '../../config/config.ts';
import { realPath } from '../../config/reading/text-files.ts';
import { writableFolders } from '../../config/servers/helper-program-settings.ts';
import { type CommonOptions, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json, plural, printable } from '../print.ts';
import { usage } from './audit-command.ts';
import { faultAdvice, verdictText } from './audit-view.ts';

/**
 * Moves the files. Exit code 3 if the log is broken; then nothing is moved. Throws USAGE, STATE_FAILED, AUDIT_FAILED.
 */
export async function runAuditArchive(
  options: CommonOptions & { readonly before: string; readonly to: string },
  io: Io,
): Promise<number> {
  const config = readForOwner(options, io);
  const before = readAuditTime(options.before);
  const to = targetFolder(options.to, io, config);
  const { export: exported } = config.audit;
  const audit = openAudit(config.audit);
  try {
    const done = archiveAudit({
      folder: config.audit.folder,
      to,
      before,
      digest: createDigest(readAuditKey(config.state)),
      now: Date.now(),
      mayLeave: exported && (await readExported(config.state, targetName(exported))),
      record: (moved) =>
        audit.append({ type: 'setup', event: 'audit-archived', outcome: 'allow', by: io.user, before, ...moved }),
    });
    if ('faults' in done) {
      io.stdout(options.json === true ? json(done) : verdictText(io, { verdict: done, isWhole: false }));
      io.stderr('Nothing was moved, because the log was changed. Only an unchanged log is archived.\n');
      if (options.json !== true) io.stderr(faultAdvice(done, config.audit.folder));
      return EXIT.refused;
    }
    io.stdout(
      options.json === true
        ? json({ ...done, before, to })
        : `${summaryOf(done, before)}${done.files === 0 ? '' : ` to ${printable(to)}`}\n`,
    );
    return EXIT.ok;
  } finally {
    await audit.close();
  }
}

function summaryOf({ files, records }: { readonly files: number; readonly records: number }, before: string): string {
  if (files === 0) return `nothing moved: no closed file has only records from before ${before}`;
  return `moved ${plural(files, 'file')} with ${plural(records, 'record')} from before ${before}`;
}

/** Returns the target folder. An agent that may write it could change the archive. Throws USAGE. */
function targetFolder(place: string, io: Io, config: Config): string {
  const to = realPath(path.resolve(io.cwd, place));
  if (to === config.audit.folder || isPathWithin(config.audit.folder, to))
    throw usage(`${place} is the folder of the log, or contains it; name another folder`);
  const open = writableFolders(config).find((folder) => isPathWithin(to, realPath(folder)));
  if (open !== undefined) throw usage(`${place} is in ${open}, which agents may write; name a folder outside of it`);
  return to;
}
