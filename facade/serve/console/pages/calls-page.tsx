/** The pages of calls: search, one call with everything that is known of it, and the timeline of a session. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useLocation, useRoute } from 'preact-iso/router';
import { commandData, request, useLoaded } from './console-client.tsx';
import {
  Badge,
  bytesText,
  Facts,
  Foreign,
  Json,
  Preformatted,
  Problem,
  Section,
  Shown,
  Time,
  visible,
} from './page-parts.tsx';
import { VirtualTable } from './virtual-table.tsx';

/** A record of the log; its fields are those of docs/audit.md. */
interface CallRecord {
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
  readonly event?: string;
  readonly ms?: number;
  readonly session?: string;
  readonly reasons?: readonly { readonly id: string; readonly file?: string; readonly line?: number }[];
  readonly sizes?: Readonly<Record<string, number>>;
  readonly obligations?: { readonly budgets?: readonly string[] };
  readonly consent?: string;
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
/** How long typing rests before the search, ms. */
const TYPING_MS = 120;

function principalOf({ principal }: CallRecord): string {
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
      .catch((thrown: Error) => latest.current === wanted && setError(thrown))
      .finally(() => latest.current === wanted && setBusy(false));
  };
  useEffect(() => {
    latest.current = query;
    load();
  }, [query]);
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
        {isBusy ? 'Searching …' : `${records.length}${next === undefined ? '' : ' newest'} records`}
      </p>
      {(records.length > 0 || !isBusy) && (
        <VirtualTable
          label="Calls"
          rows={records}
          keyOf={({ hash }) => hash}
          href={({ id, session, hash }) =>
            id !== undefined
              ? `/calls/${encodeURIComponent(id)}`
              : session !== undefined
                ? `/sessions/${encodeURIComponent(session)}`
                : `/calls/${encodeURIComponent(hash)}`
          }
          onEnd={() => !isBusy && next !== undefined && load(next)}
          empty="No record has all of this."
          columns={[
            { name: 'Time', cell: ({ ts }) => <Time iso={ts} /> },
            { name: 'Outcome', cell: ({ outcome, type }) => <Badge word={outcome ?? type} /> },
            {
              name: 'What',
              cell: ({ exposed, type, event, server }) => (
                <Foreign text={exposed ?? [type, server, event].filter(Boolean).join(' ')} />
              ),
            },
            { name: 'Principal', cell: (row) => <Foreign text={principalOf(row)} /> },
            {
              name: 'Where',
              cell: ({ facts }) => (
                <Foreign
                  text={[facts?.programs, facts?.paths, facts?.hosts]
                    .flat()
                    .filter((name) => typeof name === 'string')
                    .join(' ')}
                />
              ),
              isWide: true,
            },
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
    </>
  );
}

/** The answer of `tollgate explain`. */
interface CallExplanation {
  readonly records: readonly CallRecord[];
  readonly recorded: string;
  readonly args?: unknown;
  readonly why?: {
    readonly rules: unknown;
    readonly flips: readonly { readonly outcome: string; readonly changes: readonly { readonly text: string }[] }[];
  };
  readonly approvals: readonly CallRecord[];
  readonly inside: readonly CallRecord[];
  readonly log: readonly string[];
}

/** What is shown in the place of recorded arguments. */
const NOT_RECORDED: Readonly<Record<string, string>> = {
  none: 'They are not recorded. Set audit.facts: full to keep them, encrypted.',
  deleted: 'The log has the digest of a recording that is no longer there.',
  changed: 'CHANGED: the recording is not what the log has the digest of, so it is not shown.',
};

/** The page at `/calls/ID`. */
export function CallPage(): JSX.Element {
  const { id = '' } = useRoute().params;
  const loaded = useLoaded(id, () => commandData<CallExplanation>('explain', { id }));
  return (
    <>
      <h1>
        Call <code>{id}</code>
      </h1>
      <Shown loaded={loaded}>{(data) => <OneCall data={data} />}</Shown>
    </>
  );
}

function OneCall({ data }: { readonly data: CallExplanation }): JSX.Element {
  const { records, recorded, args, why, approvals, inside, log } = data;
  const call = Object.assign({}, ...records) as CallRecord;
  return (
    <>
      <CallFacts call={call} />
      {call.facts !== undefined && (
        <Section title="What it touched">
          <Facts
            facts={Object.fromEntries(
              Object.entries(call.facts).map(([kind, names]) => [
                kind,
                <Foreign key={kind} text={Array.isArray(names) ? names.join('\n') : String(names)} />,
              ]),
            )}
          />
        </Section>
      )}
      <Section title="Arguments">
        {recorded === 'kept' ? <Json value={args} /> : <p class="quiet">{NOT_RECORDED[recorded] ?? recorded}</p>}
      </Section>
      <Section title="Rules that fired">
        {(call.reasons ?? []).length === 0 && <p class="quiet">None is recorded.</p>}
        <ul>
          {(call.reasons ?? []).map(({ id, file, line }) => (
            <li key={id}>
              <a href={`/calls?rule=${encodeURIComponent(id)}`}>{id}</a>{' '}
              {file !== undefined && (
                <a href={`/policy?source=${encodeURIComponent(file)}&line=${line ?? 1}`}>{`${file}:${line ?? ''}`}</a>
              )}
            </li>
          ))}
        </ul>
      </Section>
      {why !== undefined && (
        <Section title="What would change it, by the present policy">
          {why.flips.length === 0 && <p class="quiet">No small change of the call would.</p>}
          {why.flips.map(({ outcome, changes }, at) => (
            <div key={at}>
              <Badge word={outcome} /> if <Foreign text={changes.map(({ text }) => text).join(', and ')} />
            </div>
          ))}
          <details>
            <summary>Every rule that matched or came near</summary>
            <Json value={why.rules} />
          </details>
        </Section>
      )}
      {approvals.length > 0 && (
        <Section title="Approvals">
          <Timeline entries={approvals} hrefOf={({ id }) => `/approvals/${encodeURIComponent(id ?? '')}`} />
        </Section>
      )}
      {inside.length > 0 && (
        <Section title="Calls that it made">
          <Timeline entries={inside} hrefOf={({ id }) => `/calls/${encodeURIComponent(id ?? '')}`} />
        </Section>
      )}
      {log.length > 0 && (
        <Section title="What its server wrote at that time">
          <Preformatted>{log.map(visible).join('\n')}</Preformatted>
        </Section>
      )}
      <details>
        <summary>Records, as they are in the log</summary>
        <Json value={records} />
      </details>
    </>
  );
}

function CallFacts({ call }: { readonly call: CallRecord }): JSX.Element {
  const { server, session, sizes = {}, obligations, ms } = call;
  return (
    <Facts
      facts={{
        When: <Time iso={call.ts} />,
        Tool: <Foreign text={call.exposed ?? ''} />,
        Server: server !== undefined && <a href={`/servers/${encodeURIComponent(server)}`}>{server}</a>,
        Principal: (
          <a href={`/calls?principal=${encodeURIComponent(principalOf(call))}`}>
            <Foreign text={principalOf(call)} />
          </a>
        ),
        Session: session !== undefined && <a href={`/sessions/${encodeURIComponent(session)}`}>{session}</a>,
        Outcome: <Badge word={call.outcome ?? ''} />,
        Code: call.code,
        Time: ms === undefined ? undefined : `${ms} ms`,
        Budgets: obligations?.budgets?.join(', '),
        Output: Object.entries(sizes)
          .map(([name, bytes]) => `${name} ${bytesText(bytes)}`)
          .join(', '),
      }}
    />
  );
}

/** Records in order, each with its time and what it is. */
function Timeline({
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
            <Time iso={entry.ts} /> <Badge word={entry.outcome ?? entry.type} />{' '}
            {href === undefined ? name : <a href={href}>{name}</a>}{' '}
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
