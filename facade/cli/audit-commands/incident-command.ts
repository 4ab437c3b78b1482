/** Runs `tollgate incident`: one archive with the records of an incident, their proofs, and what explains them. */
import type { KeyObject } from 'node:crypto';
import { lstatSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { writeIncident } from '../../audit/incident/incident-bundle.ts';
import type { IncidentReport } from '../../audit/incident/incident-readme.ts';
import { type IncidentScope, ownFilter } from '../../audit/incident/incident-records.ts';
import { readAuditTime } from '../../audit/index/audit-filter.ts';
import type { AuditReader } from '../../audit/index/audit-reader.ts';
import { RecordProver } from '../../audit/proof/inclusion-proof.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import type { CommonOptions } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json, MAX_COLUMNS, plural, printable, wrapWords } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { existingFolder, type LogPlaces, usage, withReader } from './audit-command.ts';
import { logKey, requireConfig, sealNow } from './audit-proof-command.ts';
import { incidentDocuments, readRedaction } from './incident-documents.ts';

/** Options of `incident`. */
export interface IncidentOptions extends CommonOptions {
  readonly since?: string;
  readonly until?: string;
  readonly principal?: string;
  readonly session?: string;
  readonly out?: string;
}

/**
 * Writes the bundle. Exit code 1 if no record is selected, 8 if a record is not proven. Throws USAGE, CONFIG_INVALID,
 * CANCELLED, STATE_FAILED.
 */
export function runIncident(options: IncidentOptions, io: Io, wiring: Pick<Wiring, 'check'>): Promise<number> {
  const now = Date.now();
  return withReader(options, io, async (reader, places) => {
    const file = newFile(options.out ?? `incident-${stampOf(now)}.tar.gz`, io);
    const scope = scopeOf(options, { reader, now });
    if (scope === undefined || reader.page(ownFilter(scope), { limit: 1 }).records.length === 0) {
      io.stderr(`${wrapWords(printable(nothingText(options, reader)), MAX_COLUMNS, '  ')}\n`);
      return EXIT.unexpected;
    }
    const report = await write({ options, io, wiring, reader, places, scope, file });
    const { records, proven, notProven, missing, facts } = report;
    const open = records - proven;
    const told = options.out ?? report.file;
    io.stdout(
      options.json === true
        ? json({
            file,
            since: scope.since,
            until: scope.until,
            records,
            proven,
            notProven,
            changed: facts.changed,
            principals: [...facts.principals],
            sessions: facts.sessions.size,
            missing,
          })
        : `${printable(told)}: ${plural(records, 'record')}, ${proven} proven. Check it: python3 verify-audit.py ` +
            `${printable(told)}\n`,
    );
    if (open > 0)
      io.stderr(`${plural(open, 'record')} not proven: not signed yet, or changed. See tollgate audit verify\n`);
    if (options.json !== true)
      for (const sentence of missing) io.stderr(`${wrapWords(printable(`Missing: ${sentence}`), MAX_COLUMNS, '  ')}\n`);
    return open > 0 ? EXIT.unproven : EXIT.ok;
  });
}

interface Writing {
  readonly options: IncidentOptions;
  readonly io: Io;
  readonly wiring: Pick<Wiring, 'check'>;
  readonly reader: AuditReader;
  readonly places: LogPlaces;
  readonly scope: IncidentScope;
  readonly file: string;
}

/** How long nothing is shown, ms. */
const QUIET_MS = 1000;

async function write({ options, io, wiring, reader, places, scope, file }: Writing): Promise<IncidentReport> {
  const config = requireConfig(places);
  const key = await signed(places, io);
  const redaction = await readRedaction(config, io);
  const prover = new RecordProver(places.folder, key);
  const began = Date.now();
  let [isStopped, isShown] = [false, false];
  void io.stopped.then(() => (isStopped = true));
  try {
    return await writeIncident({
      reader,
      scope,
      file,
      prover,
      redact: (text) => redaction.redactor.redact(text).value,
      documents: (facts) =>
        incidentDocuments(
          { config, scope, redaction, check: wiring.check, ...(options.opa !== undefined && { opa: options.opa }) },
          facts,
        ),
      onProgress: (records) => {
        if (io.isTTY && Date.now() - began > QUIET_MS) {
          isShown = true;
          io.stderr(`\r${plural(records, 'record')}`);
        }
        return !isStopped;
      },
    });
  } catch (thrown) {
    throw asUsage(thrown, file);
  } finally {
    if (isShown) io.stderr('\r');
    prover.close();
  }
}

/**
 * Signs what is not signed yet, and returns the key of the log if it can be read. After an incident a bundle without
 * proofs is better than none, so a failure is only reported.
 */
async function signed(places: LogPlaces, io: Io): Promise<KeyObject | undefined> {
  const attempt = async <T>(work: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await work();
    } catch (thrown) {
      if (!(thrown instanceof TollgateError)) throw thrown;
      io.stderr(`${wrapWords(printable(`Nothing more was signed: ${thrown.message}`), MAX_COLUMNS, '  ')}\n`);
      return undefined;
    }
  };
  await attempt(() => sealNow(places, io));
  return attempt(() => logKey(places, io));
}

/** Returns undefined if there is no such session. Throws USAGE. */
function scopeOf(
  { since, until, principal, session }: IncidentOptions,
  { reader, now }: { readonly reader: AuditReader; readonly now: number },
): IncidentScope | undefined {
  if (since === undefined && session === undefined)
    throw usage('Name the time with --since, or a session with --session');
  const whole = session === undefined ? undefined : reader.timeline(session)?.session;
  if (session !== undefined && whole === undefined) return undefined;
  const times = {
    since: since === undefined ? new Date(0).toISOString() : readAuditTime(since, now),
    until: until === undefined ? new Date(now).toISOString() : readAuditTime(until, now),
  };
  if (times.since >= times.until) throw usage(`--since ${times.since} is not before --until ${times.until}`);
  return { ...times, ...(principal !== undefined && { principal }), ...(whole !== undefined && { session: whole }) };
}

/** Says why there is nothing. A mistyped principal must not look like a quiet one. */
function nothingText({ principal, session }: IncidentOptions, reader: AuditReader): string {
  if (session !== undefined && reader.timeline(session) === undefined)
    return `There is no session with the id ${session}.`;
  if (principal !== undefined && reader.page({ principal }, { limit: 1 }).records.length === 0) {
    const known = reader.values('principal', '');
    const said = `No record has the principal ${quote(principal)}`;
    return known.length === 0 ? `${said}.` : `${said}; ${didYouMean(principal.replaceAll('*', ''), known)}`;
  }
  return 'There is no record of this time. Nothing was written.';
}

/** Returns the absolute path. Throws USAGE if it exists, or if its folder does not. */
function newFile(out: string, io: Io): string {
  const file = path.resolve(io.cwd, out);
  existingFolder(path.dirname(file));
  if (lstatSync(file, { throwIfNoEntry: false }) !== undefined) throw exists(out);
  return file;
}

function exists(file: string): TollgateError {
  return new TollgateError('USAGE', {
    detail: `${printable(file)} exists, and is not replaced.`,
    next: 'Name another file with --out.',
  });
}

/** The file system refuses the archive: another place helps. */
function asUsage(thrown: unknown, file: string): unknown {
  const { code, syscall } = thrown as NodeJS.ErrnoException;
  if (thrown instanceof TollgateError || syscall === undefined) return thrown;
  if (code === 'EEXIST') return exists(file);
  return new TollgateError('USAGE', {
    detail: `${printable(file)} cannot be written: ${code}.`,
    next: 'Name another place with --out.',
    cause: thrown,
  });
}

function stampOf(now: number): string {
  return new Date(now).toISOString().replace(/[-:.]/g, '');
}
