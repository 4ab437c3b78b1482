/** The pages of calls: search, and the timeline of a session. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useLocation, useRoute } from 'preact-iso/router';
import { request, useLoaded } from './console-client.tsx';
import { Badge, counted, Foreign, Problem, Shown, Time } from './page-parts.tsx';
import { VirtualTable } from './virtual-table.tsx';

/** A record of the log; its fields are those of docs/audit.md. */
export interface CallRecord {
  readonly id?: string;
  readonly hash: string;
  readonly ts: string;
  readonly type: string;
  readonly exposed?: string;
  readonly server?: string;
  readonly tool?: string;
  readonly principal?: { readonly id: string } | string;
  readonly outcome?: string;
  readonly code?: string;
  /** Why a server was not asked. */
  readonly refusal?: string;
  readonly event?: string;
  readonly ms?: number;
  readonly session?: string;
  readonly reasons?: readonly { readonly id: string; readonly file?: string; readonly line?: number }[];
  readonly sizes?: Readonly<Record<string, number>>;
  readonly obligations?: { readonly budgets?: readonly string[] };
  readonly consent?: string;
  readonly by?: string;
  /** The user of the machine. */
  readonly user?: string;
  /** Of a refusal by a budget. */
  readonly budget?: string;
  readonly scope?: string;
  readonly unit?: string;
  readonly limit?: number;
  readonly left?: number;
  readonly resetsAt?: string;
  readonly facts?: Readonly<Record<string, readonly string[] | boolean>>;
}

interface RecordPage {
  readonly records: readonly CallRecord[];
  readonly next?: string;
  /** What was worked around, such as a damaged index. */
  readonly remarks?: readonly string[];
}

const FILTERS = [
  'principal',
  'server',
  'tool',
  'verb',
  'rule',
  'code',
  'outcome',
  'session',
  'run',
  'approval',
  'label',
  'path',
  'program',
  'host',
  'type',
  'since',
  'until',
] as const;
/** The filters that are always shown. The others come with `More filters`. */
const FIRST_FILTERS: readonly string[] = ['principal', 'server', 'tool', 'outcome', 'since'];
/** The types of the records of a call. All other records are events. */
const CALL_TYPES: readonly string[] = ['intent', 'outcome', 'decision', 'budget'];

/** Returns whether a record is one of a call. */
export function isOfCall({ type }: Pick<CallRecord, 'type'>): boolean {
  return CALL_TYPES.includes(type);
}

/** What became of a call. Other records have an event: that a person may suspend an agent is no outcome. */
export function Outcome({ record }: { readonly record: CallRecord }): JSX.Element {
  const { type, event, outcome } = record;
  return <Badge word={(isOfCall(record) ? outcome : event) ?? type} />;
}

/** What people expect of a search, and this one does not do. */
const TEXT_LIMIT =
  ' Words are searched in names, ids, paths, programs, hosts, rules and codes, by their beginning. Recorded arguments' +
  ' and results are not searched.';
/** How long typing rests before the search, ms. */
const TYPING_MS = 120;

/** Returns the id of the principal of a record, or an empty text. */
export function principalOf({ principal }: CallRecord): string {
  return typeof principal === 'string' ? principal : (principal?.id ?? '');
}

/** The page at `/calls`. Its address holds every filter. */
export function CallsPage(): JSX.Element {
  const { query, route } = useLocation();
  const [typed, setTyped] = useState(query.text ?? '');
  const [isWhole, setWhole] = useState(
    FILTERS.some((name) => query[name] !== undefined && !FIRST_FILTERS.includes(name)),
  );
  const timer = useRef<number | undefined>(undefined);
  const go = (change: Readonly<Record<string, string>>): void => {
    const next = Object.entries({ ...query, ...change }).filter(([, value]) => value !== '');
    route(`/calls${next.length === 0 ? '' : `?${new URLSearchParams(next).toString()}`}`, true);
  };
  const key = new URLSearchParams(query).toString();
  return (
    <>
      <h1>Calls</h1>
      <search>
        <form class="filters" onSubmit={(event) => event.preventDefault()}>
          <label>
            Search
            <input
              type="search"
              value={typed}
              onInput={(event) => {
                const { value } = event.currentTarget;
                setTyped(value);
                clearTimeout(timer.current);
                timer.current = window.setTimeout(() => go({ text: value }), TYPING_MS);
              }}
            />
          </label>
          {FILTERS.filter((name) => isWhole || FIRST_FILTERS.includes(name)).map((name) => (
            <label key={name}>
              {name}
              <input
                size={10}
                value={query[name] ?? ''}
                placeholder={name === 'since' ? '2h, yesterday' : ''}
                onChange={(event) => go({ [name]: event.currentTarget.value.trim() })}
              />
            </label>
          ))}
          <label>
            records
            <select value={query.all ?? ''} onChange={(event) => go({ all: event.currentTarget.value })}>
              <option value="">calls only</option>
              <option value="true">calls and other records</option>
            </select>
          </label>
          <button type="button" onClick={() => setWhole(!isWhole)} aria-expanded={isWhole}>
            {isWhole ? 'Fewer filters' : 'More filters'}
          </button>
        </form>
      </search>
      <Found query={key} />
    </>
  );
}

function recordPage({ id, session, hash }: CallRecord): string {
  if (id === undefined && session !== undefined) return `/sessions/${encodeURIComponent(session)}`;
  return `/calls/${encodeURIComponent(id ?? hash)}`;
}

function foundText(count: number, isMore: boolean): string {
  return isMore ? `${counted(count, 'newest record')}; scroll for more` : counted(count, 'record');
}

/** Returns what a call touched: programs, paths and hosts. */
export function whereOf({ facts }: CallRecord): string {
  return [facts?.programs, facts?.paths, facts?.hosts]
    .flat()
    .filter((name) => typeof name === 'string')
    .join(' ');
}

function Found({ query }: { readonly query: string }): JSX.Element {
  const [pages, setPages] = useState<readonly RecordPage[]>([]);
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(true);
  const latest = useRef('');
  const load = (before?: string): void => {
    setBusy(true);
    const wanted = query;
    request<RecordPage>(`records?${query}${before === undefined ? '' : `&before=${encodeURIComponent(before)}`}`)
      .then((page) => {
        if (latest.current !== wanted) return;
        setPages((known) => (before === undefined ? [page] : [...known, page]));
        setError(undefined);
      })
      .catch((thrown: Error) => {
        if (latest.current !== wanted) return;
        // Rows of another search would look like the answer.
        if (before === undefined) setPages([]);
        setError(thrown);
      })
      .finally(() => latest.current === wanted && setBusy(false));
  };
  useEffect(() => {
    latest.current = query;
    load();
  }, [query]);
  const isText = new URLSearchParams(query).has('text');
  const records = useMemo(() => pages.flatMap((page) => page.records), [pages]);
  const next = pages.at(-1)?.next;
  return (
    <>
      {error !== undefined && <Problem error={error} />}
      {pages[0]?.remarks?.map((remark) => (
        <p key={remark} class="quiet" role="status">
          {remark}
        </p>
      ))}
      <p class="quiet" role="status">
        {isBusy ? 'Searching …' : error === undefined && foundText(records.length, next !== undefined)}
      </p>
      {(records.length > 0 || (!isBusy && error === undefined)) && (
        <VirtualTable
          label="Calls"
          rows={records}
          keyOf={({ hash }) => hash}
          href={recordPage}
          onEnd={() => !isBusy && next !== undefined && load(next)}
          empty={`No record has all of this.${isText ? TEXT_LIMIT : ''}`}
          columns={[
            { name: 'Time', cell: ({ ts }) => <Time iso={ts} /> },
            { name: 'Outcome', cell: (record) => <Outcome record={record} /> },
            {
              name: 'What',
              cell: ({ exposed, type, event, server }) => (
                <Foreign text={exposed ?? [type, server, event].filter(Boolean).join(' ')} />
              ),
            },
            { name: 'Principal', cell: (row) => <Foreign text={principalOf(row)} /> },
            { name: 'Where', cell: (record) => <Foreign text={whereOf(record)} />, isWide: true },
            {
              name: 'Why',
              cell: ({ code, reasons }) => (
                <Foreign text={[code, ...(reasons ?? []).map(({ id }) => id)].filter(Boolean).join(' ')} />
              ),
              isWide: true,
            },
            { name: 'ms', cell: ({ ms }) => (ms === undefined ? '' : Math.round(ms)), isWide: true },
          ]}
        />
      )}
      {next !== undefined && (
        <div class="buttons">
          <button type="button" onClick={() => load(next)} disabled={isBusy}>
            Load older records
          </button>
        </div>
      )}
    </>
  );
}

/** Records in order, each with its time and what it is. */
export function Timeline({
  entries,
  hrefOf,
}: {
  readonly entries: readonly CallRecord[];
  readonly hrefOf: (entry: CallRecord) => string | undefined;
}): JSX.Element {
  return (
    <ol class="timeline">
      {entries.map((entry) => {
        const words = [entry.type, entry.server, entry.event].filter(Boolean).join(' ');
        const href = hrefOf(entry);
        const name = <Foreign text={entry.exposed ?? words} />;
        const more = [
          entry.code,
          ...(entry.reasons ?? []).map(({ id }) => id),
          ...Object.values(entry.facts ?? {}).flat(),
        ];
        return (
          <li key={entry.hash}>
            <Time iso={entry.ts} /> <Outcome record={entry} /> {href === undefined ? name : <a href={href}>{name}</a>}{' '}
            <span class="quiet">
              <Foreign text={more.filter(Boolean).join(' ')} />
            </span>
          </li>
        );
      })}
    </ol>
  );
}

/** The page at `/sessions/ID`: everything that happened in a session, in order. */
export function SessionPage(): JSX.Element {
  const { id = '' } = useRoute().params;
  const loaded = useLoaded(id, (signal) =>
    request<{ readonly entries: readonly CallRecord[]; readonly isCut: boolean; readonly isClockBack: boolean }>(
      `session?id=${encodeURIComponent(id)}`,
      undefined,
      signal,
    ),
  );
  return (
    <>
      <h1>
        Session <code>{id}</code>
      </h1>
      <Shown loaded={loaded}>
        {({ entries, isCut, isClockBack }) => (
          <>
            {isCut && <p class="quiet">Only the newest events are shown.</p>}
            {isClockBack && <p class="quiet">The clock of the machine went back meanwhile.</p>}
            <Timeline entries={entries} hrefOf={({ id, type }) => (id === undefined ? undefined : linkOf(type, id))} />
          </>
        )}
      </Shown>
    </>
  );
}

function linkOf(type: string, id: string): string {
  return type === 'approval' ? `/approvals/${encodeURIComponent(id)}` : `/calls/${encodeURIComponent(id)}`;
}
