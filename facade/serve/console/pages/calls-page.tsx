/** The pages of calls: search, one call with everything that is known of it, and the timeline of a session. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useLocation, useRoute } from 'preact-iso/router';
import { commandData, request, useLoaded } from './console-client.tsx';
import { Badge, bytesText, Facts, Foreign, Json, Problem, Section, Shown, Time } from './page-parts.tsx';
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
  readonly sizes?: { readonly sent?: number };
  readonly facts?: Readonly<Record<string, readonly string[]>>;
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
  'command',
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
              <option value="true">all records</option>
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
            id !== undefined ? `/calls/${id}` : session !== undefined ? `/sessions/${session}` : `/calls/${hash}`
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
                  text={Object.values(facts ?? {})
                    .flat()
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
interface Explanation {
  readonly records: readonly CallRecord[];
  readonly [part: string]: unknown;
}

/** The page at `/calls/ID`. */
export function CallPage(): JSX.Element {
  const { id = '' } = useRoute().params;
  const loaded = useLoaded(id, () => commandData<Explanation>('explain', { id }));
  return (
    <>
      <h1>
        Call <code>{id}</code>
      </h1>
      <Shown loaded={loaded}>{(data) => <OneCall data={data} />}</Shown>
    </>
  );
}

function OneCall({ data }: { readonly data: Explanation }): JSX.Element {
  const { records, ...parts } = data;
  const merged = Object.assign({}, ...records) as CallRecord;
  return (
    <>
      <Facts
        facts={{
          When: <Time iso={merged.ts} />,
          Tool: <Foreign text={merged.exposed ?? ''} />,
          Server: merged.server !== undefined && <a href={`/servers/${merged.server}`}>{merged.server}</a>,
          Principal: (
            <a href={`/calls?principal=${encodeURIComponent(principalOf(merged))}`}>
              <Foreign text={principalOf(merged)} />
            </a>
          ),
          Session: merged.session !== undefined && <a href={`/sessions/${merged.session}`}>{merged.session}</a>,
          Outcome: <Badge word={merged.outcome ?? ''} />,
          Code: merged.code,
          Time: merged.ms === undefined ? undefined : `${merged.ms} ms`,
          Sent: merged.sizes?.sent === undefined ? undefined : bytesText(merged.sizes.sent),
        }}
      />
      {merged.facts !== undefined && (
        <Section title="What it touched">
          <Facts
            facts={Object.fromEntries(
              Object.entries(merged.facts).map(([kind, names]) => [kind, <Foreign text={names.join('\n')} />]),
            )}
          />
        </Section>
      )}
      <Section title="Rules that fired">
        {(merged.reasons ?? []).length === 0 && <p class="quiet">None is recorded.</p>}
        <ul>
          {(merged.reasons ?? []).map(({ id, file, line }) => (
            <li key={id}>
              <a href={`/calls?rule=${encodeURIComponent(id)}`}>{id}</a>{' '}
              {file !== undefined && (
                <a href={`/policy?source=${encodeURIComponent(file)}&line=${line ?? 1}`}>{`${file}:${line ?? ''}`}</a>
              )}
            </li>
          ))}
        </ul>
      </Section>
      {Object.entries(parts)
        .filter(([, value]) => value !== null && value !== undefined)
        .map(([name, value]) => (
          <Section key={name} title={titleOf(name)}>
            <Json value={value} />
          </Section>
        ))}
      <Section title="Records">
        <Json value={records} />
      </Section>
    </>
  );
}

/** Returns the name of a member as a heading: `wouldChange` becomes `Would change`. */
function titleOf(name: string): string {
  const words = name.replace(/([a-z])([A-Z])/g, '$1 $2').toLowerCase();
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}`;
}

/** The page at `/sessions/ID`: everything that happened in a session, in order. */
export function SessionPage(): JSX.Element {
  const { id = '' } = useRoute().params;
  const loaded = useLoaded(id, (signal) =>
    request<{ readonly entries: readonly CallRecord[] }>(`session?id=${encodeURIComponent(id)}`, undefined, signal),
  );
  return (
    <>
      <h1>
        Session <code>{id}</code>
      </h1>
      <Shown loaded={loaded}>
        {({ entries }) => (
          <ol class="timeline">
            {entries.map((entry) => (
              <li key={entry.hash}>
                <Time iso={entry.ts} /> <Badge word={entry.outcome ?? entry.type} />{' '}
                {entry.id === undefined ? (
                  <Foreign text={[entry.type, entry.server, entry.event].filter(Boolean).join(' ')} />
                ) : (
                  <a href={`/calls/${entry.id}`}>
                    <Foreign text={entry.exposed ?? [entry.type, entry.event].filter(Boolean).join(' ')} />
                  </a>
                )}{' '}
                <span class="quiet">
                  <Foreign
                    text={[
                      entry.code,
                      ...(entry.reasons ?? []).map((reason) => reason.id),
                      ...Object.values(entry.facts ?? {}).flat(),
                    ]
                      .filter(Boolean)
                      .join(' ')}
                  />
                </span>
              </li>
            ))}
          </ol>
        )}
      </Shown>
    </>
  );
}
