/** Runs `tollgate audit session` and `tollgate audit reindex`. */
import { groupByChain, listPartsOf } from '../../audit/chain-lines.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json, plural, printable } from '../print.ts';
import { type LogOptions, warnOfChanges, withReader } from './audit-command.ts';
import { timelineText } from './audit-view.ts';

/** Prints what happened in a session, in order. Exit code 1 if there is none. Throws USAGE, STATE_FAILED. */
export function runAuditSession(options: LogOptions & { readonly id: string }, io: Io): Promise<number> {
  return withReader(options, io, (reader) => {
    const timeline = reader.timeline(options.id);
    if (timeline === undefined) {
      io.stderr(`There is no session with the id ${printable(options.id)}.\n`);
      return EXIT.unexpected;
    }
    const { events, isCut, isClockBack, session } = timeline;
    const data = events.map(({ found, intent }) => ({ ...found.record, ...(intent && { intent: intent.record }) }));
    io.stdout(options.json === true ? json({ session, events: data }) : timelineText(io, timeline));
    if (isCut) io.stderr('The session is longer: these are its newest records.\n');
    if (isClockBack) io.stderr('The clock went back meanwhile. Events are in the order in which they were written.\n');
    warnOfChanges(
      io,
      events.map(({ found }) => found),
    );
    return EXIT.ok;
  });
}

/** Bytes between two lines of progress on a terminal. */
const PROGRESS_BYTES = 16 * 1024 * 1024;

/** Makes the index again from the chain files. Throws USAGE, STATE_FAILED. */
export function runAuditReindex(options: LogOptions, io: Io): Promise<number> {
  return withReader(options, io, (reader, { folders }) => {
    let [bytes, shown] = [0, 0];
    reader.rebuild((more) => {
      bytes += more;
      if (!io.isTTY || bytes - shown < PROGRESS_BYTES) return;
      shown = bytes;
      io.stderr(`\r${(bytes / 1e6).toFixed(0)} MB indexed`);
    });
    if (shown > 0) io.stderr('\r');
    const files = listPartsOf(folders);
    const chains = [...groupByChain(files)].length;
    const done = { files: files.length, chains, bytes };
    io.stdout(
      options.json === true
        ? json(done)
        : `indexed ${plural(chains, 'chain')} in ${plural(files.length, 'file')}, ${(bytes / 1e6).toFixed(1)} MB\n`,
    );
    return EXIT.ok;
  });
}
