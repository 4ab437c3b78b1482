/**
 * Verifies the logs of several replicas together, and compares them with the heads that the replicas published. It
 * names each replica whose log is missing, was changed, lost its end, or is another one.
 */

import type { AuditVerdict, VerifyOptions } from '../chain-verification.ts';
import { verifyAudit } from '../chain-verification.ts';
import { withTree } from '../proof/audit-tree.ts';
import { rootOf } from '../proof/merkle-tree.ts';
import type { ProofEvidence } from '../proof/proof-verification.ts';
import { parseNote, parseVerifierKey, type VerifierKey } from '../proof/signed-note.ts';
import type { FoundHeads, PublishedHead } from './published-heads.ts';

/** The verified log of one replica. `replica`: the name of its folder if its records name none. */
export interface FleetLog {
  readonly replica: string;
  readonly folder: string;
  readonly verdict: AuditVerdict;
}

/**
 * What is wrong. `missing`: no folder has the published log; `short`: records are missing at its end; `forked`: it is
 * another one than was published; `changed`: it does not agree with itself; `head`: the head does not count.
 */
export interface FleetFinding {
  readonly kind: 'missing' | 'short' | 'forked' | 'changed' | 'head';
  readonly replica: string;
  readonly origin?: string;
  /** The number of records that are missing or not proven. */
  readonly records: number;
  /** ISO time of the last record that is proven; for a missing log, when its head was published. */
  readonly since?: string;
  readonly what: string;
  readonly next: string;
}

/** What the verification of a fleet found. */
export interface FleetVerdict {
  readonly ok: boolean;
  /** No finding, and every record of every log is signed with a known key. */
  readonly complete: boolean;
  readonly records: number;
  readonly logs: readonly FleetLog[];
  readonly findings: readonly FleetFinding[];
  /** The number of heads that were compared. */
  readonly heads: number;
  /** Replicas with a log that has no head. */
  readonly unpublished: readonly string[];
}

/** What a fleet is verified against. */
export interface FleetEvidence {
  readonly heads: FoundHeads;
  /** Keys that were kept elsewhere. They count instead of those in the heads. */
  readonly publicKeys: readonly VerifierKey[];
  /** The key of logs without another one, and what was kept elsewhere of any log. */
  readonly proof: ProofEvidence;
  readonly digest?: VerifyOptions['digest'] | undefined;
  readonly expectHeads: readonly string[];
}

/** Verifies the logs in some folders together. Throws what node:fs throws. */
export function verifyFleet(folders: readonly string[], evidence: FleetEvidence): FleetVerdict {
  const { heads, expectHeads } = evidence;
  const missing = new Set(expectHeads);
  const logs = folders.map((folder) => verifyOne(folder, evidence, missing));
  const best = bestByOrigin(logs);
  const changed = logs.flatMap((log) => changedOf(log));
  const compared = heads.heads.flatMap((head) => {
    const found = compare(head, best.get(head.checkpoint.origin), { logs, keys: evidence.publicKeys });
    // What a fork or a cut end has changed is one finding.
    return found === undefined ? [] : [found];
  });
  const findings = [
    ...compared,
    ...changed.filter(({ origin }) => compared.every((one) => one.kind === 'missing' || one.origin !== origin)),
    ...heads.faults.map(({ replica, what }) => damagedHead(replica, what)),
    ...[...missing].map(lostHead),
    ...lostCheckpoints(evidence.proof, best),
  ];
  const published = new Set(heads.heads.map(({ checkpoint }) => checkpoint.origin));
  return {
    ok: findings.length === 0,
    complete: findings.length === 0 && logs.length > 0 && logs.every(({ verdict }) => verdict.proof.complete),
    records: logs.reduce((sum, { verdict }) => sum + verdict.records, 0),
    logs,
    findings,
    heads: heads.heads.length,
    unpublished: logs.filter(({ verdict }) => !published.has(verdict.proof.origin ?? '')).map(({ replica }) => replica),
  };
}

function verifyOne(
  folder: string,
  { heads, publicKeys, proof, digest }: FleetEvidence,
  missing: Set<string>,
): FleetLog {
  const origin = originOf(folder);
  const head = heads.heads.find(({ checkpoint }) => checkpoint.origin === origin);
  const publicKey = publicKeys.find(({ name }) => name === origin) ?? parseVerifierKey(head?.key ?? '');
  const kept = new Map([...(proof.kept ?? [])].filter(([, note]) => originIn(note) === origin));
  const verdict = verifyAudit(folder, [], {
    proof: { ...proof, kept, ...(publicKey !== undefined && { publicKey }) },
    ...(digest !== undefined && { digest }),
  });
  for (const { head: hash } of verdict.chains) missing.delete(hash);
  return { replica: verdict.proof.replica ?? head?.replica ?? folder, folder, verdict };
}

/** Returns the name of the tree of a log. A tree that cannot be read has none, which is a fault of its log. */
export function originOf(folder: string): string | undefined {
  try {
    return withTree(folder, (tree) => tree.origin);
  } catch {
    return undefined;
  }
}

/** Of several copies of one log, the longest one counts. */
function bestByOrigin(logs: readonly FleetLog[]): ReadonlyMap<string, FleetLog> {
  const best = new Map<string, FleetLog>();
  for (const log of logs) {
    const { origin = '', signed } = log.verdict.proof;
    if (signed >= (best.get(origin)?.verdict.proof.signed ?? 0)) best.set(origin, log);
  }
  return best;
}

function changedOf({ replica, folder, verdict }: FleetLog): readonly FleetFinding[] {
  const { faults, chains, proof } = verdict;
  if (faults.length === 0) return [];
  const unproven = faults.reduce((sum, fault) => sum + (fault.unproven ?? 0), 0);
  // Behind the first fault of a chain, nothing is read.
  const records = Math.max(unproven, proof.signed - proof.read - proof.notRead);
  const files = new Set(faults.map(({ file }) => file.split('.')[0]));
  const ends = chains.filter(({ chain }) => files.has(chain)).map(({ until }) => until);
  const since = ends.sort()[0] ?? proof.until;
  const many = records === 1 ? 'is missing or was changed' : 'are missing or were changed';
  const count = records === 0 ? 'its log was changed' : `${counted(records)} of its log ${many}`;
  return [
    {
      kind: 'changed',
      replica,
      ...(proof.origin !== undefined && { origin: proof.origin }),
      records,
      ...(since !== undefined && { since }),
      what: `${count}${since === undefined ? '' : `, from after ${clock(since)} on`}`,
      next: `Copy ${folder} before you change anything. tollgate audit verify --folder ${folder} names each fault`,
    },
  ];
}

/** Compares a head with the log of the same tree. */
function compare(
  head: PublishedHead,
  log: FleetLog | undefined,
  { logs, keys }: { readonly logs: readonly FleetLog[]; readonly keys: readonly VerifierKey[] },
): FleetFinding | undefined {
  const { replica, checkpoint, at } = head;
  const { origin, size } = checkpoint;
  const key = keys.find(({ name }) => name === origin);
  if (key !== undefined && key.text !== head.key)
    return damagedHead(replica, `it is signed with another key than the one that was named for ${origin}`, origin);
  if (log === undefined)
    return missingLog(
      head,
      logs.find((one) => one.replica === replica),
    );
  const { signed, unsigned, until } = log.verdict.proof;
  const found = { replica, origin, ...(until !== undefined && { since: until }) };
  const published = `it had published ${counted(size)} by ${clock(at)}`;
  if (size > signed) {
    const records = Math.max(0, size - signed - unsigned);
    const last = until === undefined ? '' : `; the last one here is of ${clock(until)}`;
    const lost = records === 0 ? 'the signatures at the end of its log are missing' : `${lack(records)} at its end`;
    const what = `${lost}: ${published}, and ${signed.toLocaleString('en')} are signed here${last}`;
    return { ...found, kind: 'short', records, what, next: `${COLLECT}. ${READ_SIEM}` };
  }
  if (rootAt(log.folder, size) === checkpoint.root) return undefined;
  const what = `its log is not the one that it published (a fork): ${published}, and they were others`;
  return { ...found, kind: 'forked', records: size, what, next: `${COPY_BOTH}. ${READ_SIEM}` };
}

function missingLog({ replica, checkpoint, at, ended }: PublishedHead, other: FleetLog | undefined): FleetFinding {
  const { origin, size } = checkpoint;
  const state = ended === true ? 'and ended normally' : 'and did not say that it ended';
  const published = `it had published ${counted(size)} by ${clock(at)} ${state}`;
  const another =
    other === undefined
      ? ''
      : `; ${other.folder} is another log of the same name, begun later or written by someone else`;
  const what = `its log is missing: ${published}${another}`;
  const next = `${COLLECT}. ${READ_SIEM}. If it is lost, record that: tollgate audit retire ${replica} --lost`;
  return { kind: 'missing', replica, origin, records: size, since: at, what, next };
}

const COLLECT = 'Collect the folder of its log again, and verify again';
const READ_SIEM = 'The records are in the SIEM, if you export them';
const COPY_BOTH = 'Copy the folder, and stop the replica: its log was written again with its own key';

function damagedHead(replica: string, what: string, origin?: string): FleetFinding {
  return {
    kind: 'head',
    replica,
    ...(origin !== undefined && { origin }),
    records: 0,
    what: `its head does not count: ${what}`,
    next: 'Find out who can write the shared state. Compare the log with a checkpoint that was kept elsewhere',
  };
}

function originIn(note: string): string | undefined {
  return parseNote(note)?.checkpoint.origin;
}

/** A checkpoint that was kept of a log that is not here. */
function lostCheckpoints(
  { kept = new Map<string, string>() }: ProofEvidence,
  best: ReadonlyMap<string, FleetLog>,
): readonly FleetFinding[] {
  return [...kept].flatMap(([file, note]): readonly FleetFinding[] => {
    const { origin = '', size = 0, replica = file } = parseNote(note)?.checkpoint ?? {};
    if (best.has(origin)) return [];
    const what =
      origin === '' ? `${file} is no checkpoint` : `the log of ${counted(size)} that ${file} is of is missing`;
    return [{ kind: 'missing', replica, ...(origin !== '' && { origin }), records: size, what, next: COLLECT }];
  });
}

function lostHead(hash: string): FleetFinding {
  const what = `the expected head ${hash.slice(0, 200)} is the end of no chain of these logs`;
  return { kind: 'short', replica: '', records: 0, what, next: COLLECT };
}

function lack(records: number): string {
  return `${counted(records)} ${records === 1 ? 'is' : 'are'} missing`;
}

function counted(records: number): string {
  return `${records.toLocaleString('en')} record${records === 1 ? '' : 's'}`;
}

function clock(iso: string): string {
  return `${iso.slice(0, 19).replace('T', ' ')} UTC`;
}

/** Returns the root of the first records of a log; undefined for a tree that cannot be read. */
function rootAt(folder: string, size: number): string | undefined {
  try {
    return withTree(folder, (tree) => rootOf(size, tree.node).toString('base64'));
  } catch {
    return undefined;
  }
}
