/** Writes the archive of an incident: records with their proofs, and documents that explain them, without secrets. */
import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { mapStrings } from '../../output/result-cleaning.ts';
import type { AuditReader } from '../index/audit-reader.ts';
import type { RecordProver } from '../proof/inclusion-proof.ts';
import { type IncidentReport, readmeText } from './incident-readme.ts';
import { IncidentFacts, type IncidentScope, incidentRecords } from './incident-records.ts';
import { type ArchiveMember, MAX_MEMBER_BYTES, writeArchive } from './tar-archive.ts';

/** What a bundle is made from. */
export interface IncidentParts {
  readonly reader: AuditReader;
  readonly scope: IncidentScope;
  /** The archive: a new file in a folder that exists. */
  readonly file: string;
  /** The prover of the log, after its last sealing. */
  readonly prover: RecordProver;
  /**
   * Returns the documents besides the records and their proofs, by name, and what is missing in them, one sentence
   * each.
   */
  readonly documents: (facts: IncidentFacts) => Promise<{
    readonly documents: Readonly<Record<string, unknown>>;
    readonly missing: readonly string[];
  }>;
  /** Removes secrets from a text. Everything passes through it, except the records and their proofs. */
  readonly redact: (text: string) => string;
  /** Gets the number of records from time to time. Returns false to stop. */
  readonly onProgress: (records: number) => boolean;
}

/** Records between two reports of progress. Signals are noticed then. */
const STEP = 1000;
/** Numbers of lines without a proof that are named. */
const MAX_NAMED = 100;
/** The folder in the archive. */
const INSIDE = 'incident';

/**
 * Writes the archive. Records go to a private folder next to it first, because a tar header holds the size of what
 * follows. Throws CANCELLED, USAGE, STATE_FAILED, and what node:fs throws; then there is no archive.
 */
export async function writeIncident(parts: IncidentParts): Promise<IncidentReport> {
  const { file, redact, prover } = parts;
  const scratch = mkdtempSync(join(dirname(file), '.incident-'));
  let isWritten = false;
  try {
    const facts = new IncidentFacts();
    const counts = await stage(parts, facts, scratch);
    const { documents, missing } = await parts.documents(facts);
    const report: IncidentReport = { file: basename(file), scope: parts.scope, facts, missing, ...counts };
    const { checkpoint, cosignature, key } = prover.head;
    const texts: Readonly<Record<string, string | undefined>> = {
      'README.txt': readmeText(report, Object.keys(documents)),
      'checkpoint.txt':
        checkpoint === undefined || cosignature === undefined ? checkpoint : `${checkpoint}${cosignature}\n`,
      'key.txt': key === undefined ? undefined : `${key}\n`,
      ...Object.fromEntries(
        Object.entries(documents).map(([name, value]) => [
          name,
          `${JSON.stringify(mapStrings(value, redact), null, 2)}\n`,
        ]),
      ),
    };
    const members: readonly ArchiveMember[] = [
      ...Object.entries(texts).flatMap(([name, text]) =>
        text === undefined ? [] : [{ name: `${INSIDE}/${name}`, text: redact(text) }],
      ),
      ...['records.jsonl', 'proofs.json'].map((name) => ({ name: `${INSIDE}/${name}`, file: join(scratch, name) })),
    ];
    isWritten = true;
    await writeArchive(file, members, Math.floor(Date.parse(parts.scope.until) / 1000));
    return report;
  } catch (thrown) {
    // A file that was there before is not ours.
    if (isWritten && (thrown as NodeJS.ErrnoException).code !== 'EEXIST') rmSync(file, { force: true });
    throw thrown;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

type Counts = Pick<IncidentReport, 'records' | 'proven' | 'notProven'>;

/** Writes records.jsonl and proofs.json, one record at a time. */
async function stage(parts: IncidentParts, facts: IncidentFacts, scratch: string): Promise<Counts> {
  const { reader, scope, prover, onProgress } = parts;
  const lines = new StagedFile(join(scratch, 'records.jsonl'));
  const proofs = new StagedFile(join(scratch, 'proofs.json'));
  let [records, proven] = [0, 0];
  const notProven: number[] = [];
  try {
    proofs.write(`${JSON.stringify(prover.head).slice(0, -1)},"records":[`);
    for (const one of incidentRecords(reader, scope, facts)) {
      facts.add(one);
      records += 1;
      lines.write(`${one.found.line}\n`);
      const proof = prover.prove(one.found);
      proofs.write(`${records === 1 ? '\n' : ',\n'}${JSON.stringify(proof)}`);
      if (proof !== null) proven += 1;
      else if (notProven.length < MAX_NAMED) notProven.push(records);
      if (records % STEP !== 0) continue;
      await setImmediate();
      if (!onProgress(records)) throw new TollgateError('CANCELLED', { detail: 'No bundle was written.' });
    }
    proofs.write('\n]}\n');
    return { records, proven, notProven };
  } finally {
    lines.close();
    proofs.close();
  }
}

const BUFFER_CHARS = 256 * 1024;

/** A file that grows in large pieces. */
class StagedFile {
  readonly #fd: number;
  #text = '';
  #bytes = 0;

  constructor(path: string) {
    this.#fd = openSync(path, 'wx', 0o600);
  }

  write(text: string): void {
    this.#text += text;
    if (this.#text.length >= BUFFER_CHARS) this.#flush();
  }

  close(): void {
    try {
      this.#flush();
    } finally {
      closeSync(this.#fd);
    }
  }

  #flush(): void {
    const bytes = Buffer.from(this.#text);
    this.#text = '';
    this.#bytes += bytes.length;
    if (this.#bytes > MAX_MEMBER_BYTES)
      throw new TollgateError('USAGE', {
        detail: 'A bundle holds at most 4 GiB of records.',
        next: 'Name a shorter time with --since and --until, or a --principal.',
      });
    for (let at = 0; at < bytes.length; ) at += writeSync(this.#fd, bytes, at);
  }
}
