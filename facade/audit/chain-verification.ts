/** Proves from the bytes of the chain files that the logs are unchanged. */
import { dirname, join } from 'node:path';
import {
  type Archive,
  type ChainStart,
  type Digest,
  digestFile,
  type FoundManifest,
  isSameArchive,
  MANIFEST,
  readArchiveManifest,
} from './archive-manifest.ts';
import { type AuditRecord, checkSeal, NO_HASH, parseChainFileName, parseRecord } from './audit-chain.ts';
import { type ChainLine, type ChainPart, groupByChain, isWriterAlive, listParts, readLines } from './chain-lines.ts';
import { TORN } from './chain-recovery.ts';
import { SeenHeads } from './proof/chain-heads.ts';
import { type AuditProof, ProofCheck, type ProofEvidence } from './proof/proof-verification.ts';

/**
 * The first fault of a chain, or of a part of the evidence. `seq`: the first record that cannot be trusted. `unproven`:
 * the number of records of the chain from there on, this one included.
 */
export interface AuditFault {
  readonly file: string;
  readonly seq?: number;
  readonly unproven?: number;
  readonly what: string;
}

/**
 * The chain of one process. `open`: its writer is alive; `closed`: it ended normally; `ended`: it was killed, or its
 * end was cut off.
 */
export interface ChainReport {
  readonly chain: string;
  readonly files: number;
  readonly records: number;
  /** The first record that is here; absent for 1. Records before it are archived. */
  readonly from?: number;
  readonly head: string;
  /** ISO time of the last record that is proven. */
  readonly until?: string;
  readonly state: 'open' | 'closed' | 'ended';
}

/** What `verify` found. A broken chain is listed up to its fault. */
export interface AuditVerdict {
  readonly ok: boolean;
  readonly records: number;
  readonly chains: readonly ChainReport[];
  readonly faults: readonly AuditFault[];
  /** What is signed. */
  readonly proof: AuditProof;
  /** Where older records were moved. `verified`: this archive was given, and read with the rest. */
  readonly archives?: readonly (Archive & { readonly verified: boolean })[];
}

/** What is verified besides the log. `digest`: by the key of its state folder; without it no manifest is accepted. */
export interface VerifyOptions {
  readonly archives?: readonly string[];
  readonly digest?: Digest;
  readonly proof?: ProofEvidence;
}

/**
 * Reads every chain file and finds edits, deletions, reorders, repeats and torn ends, and compares all with the signed
 * tree. A chain whose first files are archived continues from the manifest. If records that are not signed yet were cut
 * off, only a later chain that saw them, or someone who stored the head, can notice: `expectHeads`. Starts again if
 * files are archived meanwhile.
 */
export function verifyAudit(
  folder: string,
  expectHeads: readonly string[] = [],
  options: VerifyOptions = {},
): AuditVerdict {
  for (;;) {
    const { seal } = readArchiveManifest(folder, options.digest);
    const isMoved = (): boolean => readArchiveManifest(folder, options.digest).seal !== seal;
    try {
      const verdict = verifyOnce(folder, expectHeads, options);
      if (!isMoved()) return verdict;
    } catch (thrown) {
      if ((thrown as NodeJS.ErrnoException).code !== 'ENOENT' || !isMoved()) throw thrown;
    }
  }
}

function verifyOnce(
  folder: string,
  expectHeads: readonly string[],
  { archives = [], digest, proof: evidence = {} }: VerifyOptions,
): AuditVerdict {
  const folders = [folder, ...archives].map((path): Folder => ({ path, ...readArchiveManifest(path, digest) }));
  const missing = new Set(expectHeads);
  const starts = new Map(
    folders.flatMap(({ manifest }) => manifest.starts.map((start) => [start.file, start] as const)),
  );
  for (const { head } of starts.values()) missing.delete(head);
  const check = new ProofCheck(folder, evidence);
  try {
    const parts = partsOf(folders);
    const seen = new SeenHeads(parts);
    const read = readChains(parts, { folders, starts, missing, check, seen });
    return verdictOf(read, { folders, starts, missing, check, seen }, parts);
  } finally {
    check.close();
  }
}

function verdictOf(
  read: ReturnType<typeof readChains>,
  { folders, starts, missing, check, seen }: Evidence,
  parts: readonly ChainPart[],
): AuditVerdict {
  const moved = new Set(folders.flatMap(({ manifest }) => manifest.moved ?? []));
  const isArchive = (folders[0]?.manifest.held.length ?? 0) > 0;
  const files = { present: new Set(parts.map(({ name }) => name)), moved, broken: read.broken, isArchive };
  const { proof, faults: unsigned } = check.finish(files);
  const faults = [
    ...faultsOf(folders),
    ...lostStarts(starts, parts),
    ...read.faults,
    ...unsigned,
    ...(isArchive ? [] : seen.missing(read.chains, files)),
    ...[...missing].map((head) => ({
      file: '',
      what: `the expected head ${head.slice(0, 200)} is in no chain: records were cut off, or archived`,
    })),
  ];
  const known = archivesOf(folders);
  return {
    ok: faults.length === 0,
    records: read.chains.reduce((sum, chain) => sum + chain.records, 0),
    chains: read.chains,
    faults,
    proof: { ...proof, complete: proof.complete && faults.length === 0 },
    ...(known.length > 0 && { archives: known }),
  };
}

/** Reads every chain. `broken`: the files of chains with a fault. */
function readChains(
  parts: readonly ChainPart[],
  evidence: Evidence,
): {
  readonly chains: readonly ChainReport[];
  readonly faults: readonly AuditFault[];
  readonly broken: ReadonlySet<string>;
} {
  const chains: ChainReport[] = [];
  const faults: AuditFault[] = [];
  const broken = new Set<string>();
  for (const own of groupByChain(parts)) {
    const walk = new ChainWalk(evidence);
    const fault = walk.follow(own);
    if (fault !== undefined) {
      faults.push({ ...fault, unproven: linesIn(own) - walk.records });
      for (const { name } of own) broken.add(name);
    }
    faults.push(...walk.lost);
    chains.push({
      chain: own[0]?.chain ?? '',
      files: own.length,
      records: walk.records,
      ...(walk.from !== 1 && { from: walk.from }),
      head: walk.head,
      ...(walk.until !== undefined && { until: walk.until }),
      state: stateOf(walk, own),
    });
  }
  return { chains, faults, broken };
}

function archivesOf(folders: readonly Folder[]): NonNullable<AuditVerdict['archives']> {
  const known = folders[0]?.manifest.archives.filter(({ files }) => files > 0) ?? [];
  return known.map(({ next: _, ...archive }) => ({
    ...archive,
    verified: folders.some(({ seal }) => seal === archive.seal),
  }));
}

/** A folder with its manifest: the log first, then archives. */
interface Folder extends FoundManifest {
  readonly path: string;
}

/**
 * Returns the files of all folders. A file that is being archived may be in two. In an archive, only the files in its
 * manifest count: others are copies of an interrupted move, and the originals may have gone to another archive since.
 */
function partsOf(folders: readonly Folder[]): readonly ChainPart[] {
  const found = folders.flatMap(({ path, manifest }, index) => {
    const leaving = new Set(manifest.leaving);
    const held = new Set(manifest.held.map(({ file }) => file));
    const isArchive = index > 0 || held.size > 0;
    return listParts(path).filter(({ name }) => (isArchive ? held.has(name) : !leaving.has(name)));
  });
  const byName = new Map(found.reverse().map((part) => [part.name, part] as const));
  return [...byName.values()].sort((a, b) => (a.chain === b.chain ? a.part - b.part : a.chain < b.chain ? -1 : 1));
}

/** Returns the faults of manifests, and of the files that archives contain. */
function faultsOf(folders: readonly Folder[]): AuditFault[] {
  const [log] = folders;
  return folders.flatMap((folder) => {
    const file = join(folder.path, MANIFEST);
    if (folder.fault !== undefined) return [{ file, what: folder.fault }];
    const isForeign =
      folder !== log &&
      log?.manifest.archives.every((archive) => !isSameArchive(archive, folder.path, folder.seal)) === true;
    const foreign = isForeign
      ? [
          {
            file,
            what:
              'the manifest of the log does not name this archive as it is: ' +
              'it is of another log, or an older copy',
          },
        ]
      : [];
    return [
      ...foreign,
      ...folder.manifest.held.flatMap((held) => {
        const found = digestFile(join(folder.path, held.file));
        const isSame = found?.bytes === held.bytes && found.sha256 === held.sha256;
        return isSame
          ? []
          : [
              {
                file: join(folder.path, held.file),
                what: found === undefined ? 'the archived file is missing' : 'the archived file was changed',
              },
            ];
      }),
    ];
  });
}

/** A chain that continues after its archived part has a file there. */
function lostStarts(starts: ReadonlyMap<string, ChainStart>, parts: readonly ChainPart[]): AuditFault[] {
  const names = new Set(parts.map(({ name }) => name));
  return [...starts.values()]
    .filter(({ file }) => !names.has(file))
    .map(({ file, seq }) => ({
      file,
      seq: seq + 1,
      what: 'the chain continues here after its archived part, and the file is missing',
    }));
}

function stateOf(walk: ChainWalk, parts: readonly ChainPart[]): ChainReport['state'] {
  if (walk.last === 'closed') return 'closed';
  const end = parts.at(-1);
  return end !== undefined && isWriterAlive(end) ? 'open' : 'ended';
}

/** What a chain is verified against. */
interface Evidence {
  readonly folders: readonly Folder[];
  readonly starts: ReadonlyMap<string, ChainStart>;
  readonly missing: Set<string>;
  readonly check: ProofCheck;
  readonly seen: SeenHeads;
}

/** Reads one chain as far as it can be trusted. */
class ChainWalk {
  readonly #evidence: Evidence;
  /** Parts of the evidence that this chain names, and that are missing. */
  readonly lost: AuditFault[] = [];
  seq = 0;
  head = NO_HASH;
  last = '';
  /** The first record, and the number of records read. */
  from = 1;
  records = 0;
  /** ISO time of the last record. */
  until: string | undefined;

  constructor(evidence: Evidence) {
    this.#evidence = evidence;
  }

  follow(parts: readonly ChainPart[]): AuditFault | undefined {
    let before = '';
    for (const part of parts) {
      const fault = this.#begin(part, before);
      if (fault !== undefined) return fault;
      before = this.#evidence.starts.get(part.name)?.before ?? before;
      const what = this.#readPart(part, before, part === parts.at(-1));
      if (what !== undefined) return { file: part.name, seq: this.seq + 1, what };
      before = part.name;
    }
    return undefined;
  }

  #readPart(part: ChainPart, before: string, isLast: boolean): string | undefined {
    let isFirst = true;
    for (const line of readLines(part.path)) {
      const what = isUnfinished(line, part, isLast)
        ? undefined
        : this.#step(line, { part, before: isFirst ? before : undefined });
      if (what !== undefined) return what;
      isFirst = false;
    }
    return isFirst && !isLast ? 'the file is empty, but the chain continues after it' : undefined;
  }

  /** If the file before is archived, the manifest replaces it. If it is here too, both must agree. */
  #begin(part: ChainPart, before: string): AuditFault | undefined {
    const start = this.#evidence.starts.get(part.name);
    if (start === undefined) return undefined;
    if (start.before === before) {
      return start.seq === this.seq && start.head === this.head
        ? undefined
        : { file: before, seq: this.seq + 1, what: 'the file does not end where it ended when it was archived' };
    }
    if (before === '') this.from = start.seq + 1;
    this.seq = start.seq;
    this.head = start.head;
    this.last = '';
    return undefined;
  }

  /** Reads one record, and returns its fault. `before` is given for the first record of a file: the file before it. */
  #step(line: ChainLine, at: { readonly part: ChainPart; readonly before: string | undefined }): string | undefined {
    if (!line.whole) return 'half a record at the end of the file: the next start cuts it';
    const hash = checkSeal(line.bytes);
    if (hash === undefined) return 'the record was changed: its hash does not match';
    const record = parseRecord(line.bytes);
    if (record === undefined) return 'the line has a correct hash, but it is no record';
    if (this.last === 'closed') return 'there is a record after the end of the chain';
    if (record.seq !== this.seq + 1)
      return (
        `record ${record.seq} is in the place of record ${this.seq + 1}: ` +
        'records are missing, repeated or out of order'
      );
    if (record.prev !== this.head) return 'the record does not follow the one before it';
    const what = at.before === undefined ? undefined : checkFirst(record, { chain: at.part.chain, before: at.before });
    const unlike = what ?? this.#evidence.seen.check(at.part.chain, record.seq, hash);
    const found = unlike ?? this.#evidence.check.take(at.part.name, line.bytes, record);
    if (found !== undefined) return found;
    if (record.type === 'recovered') this.#checkTorn(record, at.part);
    this.seq = record.seq;
    this.head = hash;
    this.last = record.type;
    this.until = record.ts;
    this.records += 1;
    this.#evidence.missing.delete(hash);
    return undefined;
  }

  #checkTorn(record: { readonly file: string; readonly digest: string; readonly seq: number }, part: ChainPart): void {
    const places = [dirname(part.path), ...this.#evidence.folders.map(({ path }) => path)];
    const isThere =
      parseChainFileName(record.file) !== undefined &&
      places.some((folder) => digestFile(join(folder, `${record.file}${TORN}`))?.sha256 === record.digest);
    if (!isThere)
      this.lost.push({
        file: part.name,
        seq: record.seq,
        what: `the torn end of ${record.file} is not what was cut`,
      });
  }
}

function linesIn(parts: readonly ChainPart[]): number {
  let count = 0;
  for (const { path } of parts) for (const _ of readLines(path)) count += 1;
  return count;
}

/** A record that is being written at this moment is no fault. */
function isUnfinished(line: ChainLine, part: ChainPart, isLast: boolean): boolean {
  return !line.whole && isLast && isWriterAlive(part);
}

/** Files belong to one chain in one order, whatever their names. */
function checkFirst(
  record: AuditRecord,
  expected: { readonly chain: string; readonly before: string },
): string | undefined {
  if (record.type !== 'opened' && record.type !== 'continued')
    return 'the file does not begin with the first record of a file';
  if (record.chain !== expected.chain) return `the file belongs to chain ${record.chain}`;
  const before = record.type === 'continued' ? record.before : '';
  return before === expected.before ? undefined : `the file before this one, ${before}, is missing`;
}
