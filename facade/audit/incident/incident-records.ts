/** Which records belong to an incident, and what they say about its policy, its approvals and its servers. */
import type { AuditRecord } from '../audit-chain.ts';
import { type AuditFilter, clausesOf, meets } from '../index/audit-filter.ts';
import type { IndexedRecord } from '../index/audit-index.ts';
import type { AuditReader } from '../index/audit-reader.ts';
import { termsOf } from '../index/record-terms.ts';

/** What to collect. `since` and `until`: ISO times, inclusive and exclusive; `session`: a whole id. */
export interface IncidentScope {
  readonly since: string;
  readonly until: string;
  readonly principal?: string;
  readonly session?: string;
}

/** A record of an incident. `isOwn`: of the calls and sessions themselves, not of what happened around them. */
export interface IncidentRecord {
  readonly found: IndexedRecord;
  readonly isOwn: boolean;
}

/** What changes what every principal can do, or happened to the servers and to Tollgate itself. */
const AROUND = [
  'server',
  'consent',
  'config',
  'switch',
  'upgrade',
  'setup',
  'process',
  'proof',
  'recovered',
  'opened',
  'continued',
  'closed',
] as const satisfies readonly AuditRecord['type'][];
const DECIDED = ['approval', 'grant'] as const;

/** Returns the filter of the records of the calls and sessions. */
export function ownFilter({ since, until, principal, session }: IncidentScope): AuditFilter {
  return {
    since,
    until,
    ...(principal !== undefined && { principal }),
    ...(session !== undefined && { session }),
  };
}

/**
 * Yields the records of an incident, each once, the oldest first: those of the calls and sessions, then those around
 * them merged by time. Approvals that the calls used and that were given at another time follow at the end, as far as
 * `facts` has their ids. The caller passes each record to `facts`.
 */
export function* incidentRecords(
  reader: AuditReader,
  scope: IncidentScope,
  facts: IncidentFacts,
): Generator<IncidentRecord> {
  const own = ownFilter(scope);
  const { since, until, principal, session } = scope;
  if (principal === undefined && session === undefined) {
    for (const found of reader.all(own)) yield { found, isOwn: true };
  } else {
    const clauses = clausesOf(own);
    const isOwn = ({ record }: IndexedRecord): boolean => {
      const { own: terms, ofCall } = termsOf(record);
      const all = [...terms, ...ofCall].flatMap((group) => group.terms);
      return clauses.every((clause) => meets(all, clause));
    };
    const around = [
      ...AROUND.map((type): AuditFilter => ({ type, since, until })),
      // Approvals name no session. Those of its principal are taken.
      ...(session === undefined
        ? []
        : principalsOf(reader, session).flatMap((id) =>
            DECIDED.map((type): AuditFilter => ({ type, principal: id, since, until })),
          )),
    ];
    yield* merged([
      mapped(reader.all(own), (found) => ({ found, isOwn: true })),
      ...around.map((filter) =>
        mapped(reader.all(filter), (found) => (isOwn(found) ? undefined : { found, isOwn: false })),
      ),
    ]);
  }
  for (const approval of facts.consents)
    for (const type of DECIDED)
      for (const found of reader.all({ type, approval }))
        if (found.record.ts < since || found.record.ts >= until) yield { found, isOwn: false };
}

function* mapped(
  records: Iterable<IndexedRecord>,
  to: (found: IndexedRecord) => IncidentRecord | undefined,
): Generator<IncidentRecord> {
  for (const found of records) {
    const one = to(found);
    if (one !== undefined) yield one;
  }
}

/** Merges sources that are in the order of time. Only one record of each is in memory. */
function* merged(sources: readonly Iterator<IncidentRecord>[]): Generator<IncidentRecord> {
  const heads = sources.map((source) => source.next());
  for (;;) {
    let first = -1;
    for (const [at, head] of heads.entries()) {
      const least = heads[first];
      if (head.done !== true && (least === undefined || least.done === true || timeOf(head) < timeOf(least)))
        first = at;
    }
    const head = heads[first];
    const source = sources[first];
    if (head === undefined || head.done === true || source === undefined) return;
    yield head.value;
    heads[first] = source.next();
  }
}

function timeOf({ value }: IteratorResult<IncidentRecord>): string {
  return (value as IncidentRecord).found.record.ts;
}

/** A session has one principal. More could be there only in records that were forged. */
const MAX_PRINCIPALS = 8;

function principalsOf(reader: AuditReader, session: string): readonly string[] {
  const ids = new Set<string>();
  for (const { record } of reader.page({ session }, { limit: 100 }).records) {
    const { principal } = record as unknown as Fields;
    if (typeof principal?.id === 'string') ids.add(principal.id);
  }
  return [...ids].slice(0, MAX_PRINCIPALS);
}

/** A rule and how often it fired. */
export interface FiredRule {
  readonly id: string;
  readonly file?: string;
  readonly line?: number;
  decided: number;
  shadow: number;
}

/** A revision of the policy, and the times of its first and last record. */
export interface UsedRevision {
  readonly revision: string;
  readonly first: string;
  last: string;
  records: number;
}

/** Any program can have written a record, so nothing is known of its fields. */
interface Fields {
  readonly type?: unknown;
  readonly id?: unknown;
  readonly consent?: unknown;
  readonly session?: unknown;
  readonly server?: unknown;
  readonly revision?: unknown;
  readonly principal?: { readonly id?: unknown };
  readonly reasons?: unknown;
  readonly shadow?: unknown;
}

/** Distinct values of each kind that are kept. The log of a hostile agent may have a million of them. */
const MAX_DISTINCT = 10_000;

/** What the records name, with a limit for each kind. */
export class IncidentFacts {
  readonly revisions = new Map<string, UsedRevision>();
  readonly rules = new Map<string, FiredRule>();
  readonly sessions = new Set<string>();
  readonly principals = new Set<string>();
  readonly servers = new Set<string>();
  /** Ids of approvals and grants that calls have used. */
  readonly consents = new Set<string>();
  /** Kinds of which there were more than are kept. */
  readonly cut = new Set<string>();
  own = 0;
  around = 0;
  changed = 0;

  add({ found: { record, intact }, isOwn }: IncidentRecord): void {
    if (isOwn) this.own += 1;
    else this.around += 1;
    if (!intact) this.changed += 1;
    const fields = record as unknown as Fields;
    if (isOwn) {
      this.#keep('sessions', fields.session);
      this.#keep('principals', fields.principal?.id);
      this.#keep('servers', fields.server);
      this.#keep('consents', fields.consent);
      this.#addRules(fields.reasons, 'decided');
      this.#addRules(fields.shadow, 'shadow');
    }
    if (typeof fields.revision === 'string') this.#addRevision(fields.revision, record.ts);
  }

  #keep(kind: 'sessions' | 'principals' | 'servers' | 'consents', value: unknown): void {
    if (typeof value === 'string' && value !== '' && this.#hasRoom(kind, this[kind], value)) this[kind].add(value);
  }

  #addRevision(revision: string, ts: string): void {
    if (!this.#hasRoom('revisions', this.revisions, revision)) return;
    const known = this.revisions.get(revision) ?? { revision, first: ts, last: ts, records: 0 };
    known.last = ts;
    known.records += 1;
    this.revisions.set(revision, known);
  }

  #addRules(reasons: unknown, how: 'decided' | 'shadow'): void {
    for (const reason of Array.isArray(reasons) ? reasons : []) {
      const { id, file, line } = (reason ?? {}) as Readonly<Record<string, unknown>>;
      const name = `${file} ${line} ${id}`;
      if (typeof id !== 'string' || !this.#hasRoom('rules', this.rules, name)) continue;
      const rule = this.rules.get(name) ?? {
        id,
        ...(typeof file === 'string' && { file }),
        ...(typeof line === 'number' && { line }),
        decided: 0,
        shadow: 0,
      };
      rule[how] += 1;
      this.rules.set(name, rule);
    }
  }

  #hasRoom(kind: string, known: { readonly size: number; has(value: string): boolean }, value: string): boolean {
    if (known.size < MAX_DISTINCT || known.has(value)) return true;
    this.cut.add(kind);
    return false;
  }
}
