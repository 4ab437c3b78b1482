/**
 * Moves old chain files to an archive. Compressed copies are on the disk and under a manifest before anything is
 * removed.
 * Files that a living process may write are not moved, and a broken log is refused.
 */
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import { join } from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { tryLock } from '../state/process-mark.ts';
import {
  type Archive,
  type ArchivedFile,
  type ArchiveManifest,
  archiveSeal,
  type ChainStart,
  type Digest,
  digestFile,
  isSameArchive,
  readArchiveManifest,
  syncFolder,
  writeArchiveManifest,
} from './archive-manifest.ts';
import { checkSeal, parseRecord } from './audit-chain.ts';
import { type ChainPart, groupByChain, isWriterAlive, listParts, readLines } from './chain-lines.ts';
import { TORN } from './chain-recovery.ts';
import { type AuditVerdict, verifyAudit } from './chain-verification.ts';
import { writeCompressed } from './compressed-file.ts';

/** What to move. `before`: ISO time; files whose last record is older are moved. */
export interface ArchiveRequest {
  /** The folder of the log. */
  readonly folder: string;
  /** Absolute; made with mode 0700 if it is missing. */
  readonly to: string;
  readonly before: string;
  readonly digest: Digest;
  readonly now: number;
  /** Returns false for a file of these bytes that must stay. Absent: none. */
  readonly mayLeave?: ((name: string, bytes: number) => boolean) | undefined;
  /** Called before anything is moved: what cannot be recorded is not done. */
  readonly record: (moved: { readonly files: number; readonly records: number }) => void;
}

/** What was moved. */
export interface ArchiveResult {
  readonly files: number;
  readonly records: number;
}

/** A file that is moved, and the state of its chain at its end. */
interface Leaving {
  readonly part: ChainPart;
  readonly end: End;
}

/** The last record of a file, the number of its records, and the torn ends that they name. */
interface End {
  readonly seq: number;
  readonly head: string;
  readonly ts: string;
  readonly records: number;
  readonly torn: readonly string[];
}

/** Locked while something is archived. */
const LOCK = 'archive.lock';

/**
 * Moves whole files of the log, oldest first in each chain. An interrupted move leaves every record in at least one
 * place, and the next move completes it. If the log is broken, it returns the verdict and moves nothing. Throws USAGE,
 * STATE_FAILED, and what `record` throws.
 */
export function archiveAudit(request: ArchiveRequest): ArchiveResult | AuditVerdict {
  return guard(() => {
    return locked(request.folder, () => {
      const verdict = verifyAudit(request.folder, [], { digest: request.digest });
      if (!verdict.ok) return verdict;
      const kept = settle(request);
      const leaving = [...groupByChain(listParts(request.folder))].flatMap((parts) => leavingOf(parts, request));
      const moved = { files: leaving.length, records: leaving.reduce((sum, { end }) => sum + end.records, 0) };
      if (leaving.length === 0) return moved;
      request.record(moved);
      move(request, leaving, kept);
      return moved;
    });
  });
}

/**
 * Returns the oldest files of a chain, up to the first that is too young or may still be written: the newest one of a
 * living process.
 */
function leavingOf(
  parts: readonly ChainPart[],
  { before, mayLeave }: Pick<ArchiveRequest, 'before' | 'mayLeave'>,
): readonly Leaving[] {
  const leaving: Leaving[] = [];
  for (const part of parts) {
    if (part === parts.at(-1) && isWriterAlive(part)) break;
    const end = endOf(part);
    if (end === undefined || end.ts >= before) break;
    if (mayLeave?.(part.name, fs.statSync(part.path).size) === false) break;
    leaving.push({ part, end });
  }
  return leaving;
}

/** Undefined for a file without a complete record. */
function endOf(part: ChainPart): End | undefined {
  let end: End | undefined;
  const torn: string[] = [];
  let records = 0;
  for (const { bytes, whole } of readLines(part.path)) {
    const record = whole ? parseRecord(bytes) : undefined;
    if (record === undefined) return undefined;
    if (record.type === 'recovered') torn.push(`${record.file}${TORN}`);
    records += 1;
    end = { seq: record.seq, head: checkSeal(bytes) ?? '', ts: record.ts, records, torn };
  }
  return end;
}

/**
 * Returns the manifest of the archive. It must be the one that the log knows, because files added to an older copy
 * would make its gaps look intended. Completes an interrupted move. Throws USAGE.
 */
function settle({ folder, to, before, digest, now }: ArchiveRequest): ArchiveManifest {
  const refused = (what: string): TollgateError =>
    new TollgateError('USAGE', {
      detail: `${to} cannot be added to: ${what}.`,
      next: 'Bring the archive back, or name another folder with --to.',
    });
  const kept = readArchiveManifest(to, digest);
  if (kept.fault !== undefined) throw refused(kept.fault);
  const { manifest } = readArchiveManifest(folder, digest);
  const known = manifest.archives.find((archive) =>
    kept.seal === '' ? archive.folder === to : isSameArchive(archive, to, kept.seal),
  );
  if (kept.seal !== '' && known === undefined)
    throw refused('it holds an archive of another log, or an older copy of one');
  if (kept.seal === '' && known !== undefined && known.seal !== '')
    throw refused('it held an archive, and its manifest is gone');
  const finished = removeLeaving(folder, manifest, digest);
  // Named before the folder is made. Otherwise verify would report the folder of an interrupted or empty move as a
  // foreign one.
  if (known === undefined)
    writeArchiveManifest(
      folder,
      naming(finished, { folder: to, seal: '', at: new Date(now).toISOString(), before, files: 0, records: 0 }),
      digest,
    );
  fs.mkdirSync(to, { recursive: true, mode: 0o700 });
  if (known?.next !== undefined && known.next === kept.seal)
    writeArchiveManifest(
      folder,
      naming(
        { ...finished, archives: finished.archives.filter((one) => one !== known) },
        { ...known, folder: to, ...countsOf(kept.manifest), seal: kept.seal, next: undefined },
      ),
      digest,
    );
  return kept.manifest;
}

/** Removes what was moved, and updates the manifest. */
function removeLeaving(folder: string, manifest: ArchiveManifest, digest: Digest): ArchiveManifest {
  if (manifest.leaving.length === 0) return manifest;
  // Torn ends are small, and another record may name them too, so they stay, and a copy is in the archive.
  for (const name of manifest.leaving) fs.rmSync(join(folder, name), { force: true });
  syncFolder(folder);
  const finished = { ...manifest, leaving: [] };
  writeArchiveManifest(folder, finished, digest);
  return finished;
}

/**
 * Returns the manifest with the entry of one archive replaced. The owner may have moved another archive that was in
 * this folder before.
 */
function naming(
  manifest: ArchiveManifest,
  archive: Omit<Archive, 'next'> & { readonly next?: string | undefined },
): ArchiveManifest {
  const isSame = (one: Archive): boolean =>
    one.seal === '' ? one.folder === archive.folder : one.seal === archive.seal;
  const { next, ...rest } = archive;
  return {
    ...manifest,
    archives: [...manifest.archives.filter((one) => !isSame(one)), { ...rest, ...(next !== undefined && { next }) }],
  };
}

function countsOf({ held }: ArchiveManifest): Pick<Archive, 'files' | 'records'> {
  const files = held.filter(({ records }) => records > 0);
  return { files: files.length, records: files.reduce((sum, { records }) => sum + records, 0) };
}

/**
 * Copies the files, then writes what the log expects of the archive, the archive's manifest and the log's, then
 * removes the files. Each step is on the disk before the next.
 */
function move(
  { folder, to, before, digest, now }: ArchiveRequest,
  leaving: readonly Leaving[],
  kept: ArchiveManifest,
): void {
  const { manifest } = readArchiveManifest(folder, digest);
  const held = new Map(kept.held.map((one) => [one.file, one]));
  for (const { part, end } of leaving) {
    for (const name of [part.name, ...end.torn])
      held.set(name, copy(name, { folder, to, records: name === part.name ? end.records : 0 }));
  }
  syncFolder(to);
  const names = new Set(leaving.map(({ part }) => part.name));
  const atStart = manifest.starts.filter(({ file, before: prior }) => names.has(file) && !held.has(prior));
  const after: ArchiveManifest = {
    id: randomUUID(),
    ...kept,
    starts: merged(kept.starts, atStart),
    held: [...held.values()],
  };
  const [seal, next] = [kept.held.length === 0 ? '' : archiveSeal(kept, digest), archiveSeal(after, digest)];
  const archive = { folder: to, at: new Date(now).toISOString(), before };
  writeArchiveManifest(folder, naming(manifest, { ...archive, ...countsOf(kept), seal, next }), digest);
  writeArchiveManifest(to, after, digest);
  const starts = merged(
    manifest.starts.filter(({ file }) => !names.has(file)),
    startsOf(folder, leaving),
  );
  const others = manifest.archives.filter((one) => one.seal === '' || one.seal !== seal);
  const moved: ArchiveManifest = {
    ...naming({ ...manifest, archives: others }, { ...archive, ...countsOf(after), seal: next }),
    starts,
    leaving: [...names],
    moved: [...new Set([...(manifest.moved ?? []), ...names])],
  };
  writeArchiveManifest(folder, moved, digest);
  removeLeaving(folder, moved, digest);
}

function merged(starts: readonly ChainStart[], more: readonly ChainStart[]): readonly ChainStart[] {
  return [...new Map([...starts, ...more].map((start) => [start.file, start])).values()];
}

/** Returns where chains continue of which a part stays. */
function startsOf(folder: string, leaving: readonly Leaving[]): readonly ChainStart[] {
  const ends = new Map(leaving.map(({ part, end }) => [part.chain, { before: part.name, end }]));
  return [...groupByChain(listParts(folder))].flatMap((parts) => {
    const last = ends.get(parts[0]?.chain ?? '');
    const next = last === undefined ? undefined : parts[parts.findIndex(({ name }) => name === last.before) + 1];
    return last === undefined || next === undefined
      ? []
      : [{ file: next.name, before: last.before, seq: last.end.seq, head: last.end.head }];
  });
}

/** Accepts an existing copy of an interrupted move. Another file with this name is not overwritten. */
function copy(
  name: string,
  { folder, to, records }: { readonly folder: string; readonly to: string; readonly records: number },
): ArchivedFile {
  const [from, target] = [join(folder, name), join(to, name)];
  const source = digestFile(from);
  const found = digestFile(target);
  if (source === undefined)
    throw new TollgateError('STATE_FAILED', {
      detail: `${name} vanished from the log while it was being archived.`,
      next: 'Run `tollgate audit verify`.',
      retryable: false,
    });
  if (found !== undefined && found.sha256 !== source.sha256)
    throw new TollgateError('USAGE', {
      detail: `${to} holds another file called ${name}.`,
      next: 'Name another folder with --to.',
    });
  if (found === undefined) {
    writeCompressed(from, target);
    if (digestFile(target)?.sha256 !== source.sha256) throw new Error('the copy differs from its original');
  }
  return { file: name, ...source, records };
}

/** Two moves at once would each write a manifest without the files of the other. */
function locked<T>(folder: string, work: () => T): T {
  const lock = tryLock(join(folder, LOCK));
  if (lock === 'busy')
    throw new TollgateError('STATE_FAILED', {
      detail: 'Another process archives this log.',
      next: 'Wait until it has ended.',
      data: { busy: true },
    });
  if (lock === 'none')
    throw new TollgateError('STATE_FAILED', {
      detail: `The file ${LOCK} in the folder of the log cannot be locked.`,
      next: 'Free the disk, or remove this file.',
      retryable: false,
    });
  try {
    return work();
  } finally {
    lock.close();
  }
}

function guard<T>(work: () => T): T {
  try {
    return work();
  } catch (cause) {
    if (cause instanceof TollgateError) throw cause;
    const { code } = cause as NodeJS.ErrnoException;
    const reason = code === undefined ? '' : ` (${code})`;
    throw new TollgateError('STATE_FAILED', {
      detail: `The log could not be archived${reason}: no record was lost, and what was not moved is in the log.`,
      next: `Correct the folder of the archive, then run it again.`,
      cause,
    });
  }
}
