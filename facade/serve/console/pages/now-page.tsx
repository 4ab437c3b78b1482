/** The page Now: what needs attention, what runs, and how it goes. */
import type { JSX } from 'preact';
import { useStream } from './console-client.tsx';
import { Badge, bytesText, countText, Foreign, Section, Time, withTimes } from './page-parts.tsx';
import { TimeChart } from './time-chart.tsx';
import { VirtualTable } from './virtual-table.tsx';

/** An entry of the list of what needs attention. `page`: where it can be reviewed. */
interface AttentionRow {
  readonly id: string;
  readonly kind: string;
  /** 1 is the most serious. */
  readonly rank: number;
  readonly title: string;
  readonly detail?: string;
  readonly next?: string;
  readonly page?: string;
  readonly since?: string;
}

/** What the console shows now. */
interface NowState {
  readonly attention: readonly AttentionRow[];
  readonly running: readonly { id: string; ts: string; exposed: string; principal: string; server?: string }[];
  readonly servers: readonly { name: string; state: string; reason?: string; tools?: number }[];
  readonly series: {
    readonly times: readonly number[];
    readonly outcomes: Readonly<Record<string, readonly number[]>>;
  };
  readonly tools: readonly { name: string; count: number; errors: number; p50?: number; p95?: number }[];
  readonly kept: { readonly shown: number; readonly without: number };
}

const COLOURS: Readonly<Record<string, string>> = { allow: '--good', ask: '--warn', deny: '--bad', error: '--quiet' };

/** The page at `/`. */
export function NowPage(): JSX.Element {
  const now = useStream<NowState>('now');
  if (now === undefined) return <p class="quiet">Loading …</p>;
  const lines = Object.entries(now.series.outcomes).map(([name, values]) => ({
    name,
    colour: COLOURS[name] ?? '--accent',
    values,
  }));
  return (
    <>
      <h1>Now</h1>
      <Section title="Needs attention">
        {now.attention.length === 0 && <p class="quiet">Nothing needs you.</p>}
        <ul class="items">
          {now.attention.map(({ id, kind, rank, title, detail, next, page, since }) => (
            <li key={id} class={rank <= 1 ? 'bad' : rank <= 3 ? 'warn' : ''}>
              <Badge word={kind} />{' '}
              <strong>
                <Foreign text={withTimes(title)} />
              </strong>{' '}
              {since !== undefined && <Time iso={since} />}
              {detail !== undefined && detail !== '' && (
                <div class="quiet">
                  <Foreign text={withTimes(detail)} />
                </div>
              )}
              {page !== undefined && (
                <div>
                  <a href={page}>Review</a>
                </div>
              )}
              {page === undefined && next !== undefined && (
                <div>
                  <code>{next}</code>
                </div>
              )}
            </li>
          ))}
        </ul>
      </Section>
      <div class="columns">
        <Section title="Calls by outcome, last hour">
          <TimeChart label="per minute, UTC" times={now.series.times} lines={lines} />
        </Section>
        <Section title="Running calls">
          <VirtualTable
            label="Running calls"
            rows={now.running}
            keyOf={({ id }) => id}
            href={({ id }) => `/calls/${encodeURIComponent(id)}`}
            empty="No call runs."
            columns={[
              { name: 'Tool', cell: ({ exposed }) => <Foreign text={exposed} />, shrinks: true },
              { name: 'Principal', cell: ({ principal }) => <Foreign text={principal} /> },
              { name: 'Since', cell: ({ ts }) => <Time iso={ts} /> },
            ]}
          />
        </Section>
        <Section title="Servers">
          <VirtualTable
            label="Servers"
            rows={now.servers}
            keyOf={({ name }) => name}
            href={({ name }) => `/servers/${encodeURIComponent(name)}`}
            empty="There are no servers."
            columns={[
              { name: 'Server', cell: ({ name }) => <Foreign text={name} /> },
              { name: 'State', cell: ({ state }) => <Badge word={state} /> },
              { name: 'Tools', cell: ({ tools }) => tools ?? '' },
              { name: 'Why', cell: ({ reason }) => <Foreign text={reason ?? ''} />, isWide: true },
            ]}
          />
        </Section>
        <Section title="Tools, last hour">
          <VirtualTable
            label="Tools, last hour"
            rows={now.tools}
            keyOf={({ name }) => name}
            href={({ name }) => `/calls?tool=${encodeURIComponent(name)}`}
            empty="No call in the last hour."
            columns={[
              { name: 'Tool', cell: ({ name }) => <Foreign text={name} />, shrinks: true },
              { name: 'Calls', cell: ({ count }) => countText(count) },
              { name: 'Failed', cell: ({ errors }) => countText(errors) },
              { name: 'Median', cell: ({ p50 }) => (p50 === undefined ? '' : `${Math.round(p50)} ms`) },
              { name: '95 %', cell: ({ p95 }) => (p95 === undefined ? '' : `${Math.round(p95)} ms`) },
            ]}
          />
        </Section>
      </div>
      <p>{keptText(now.kept)}</p>
    </>
  );
}

function keptText({ shown, without }: NowState['kept']): string {
  if (without > shown) return `Tollgate kept ${bytesText(without - shown)} of ${bytesText(without)} from models.`;
  if (shown > 0) return `Models were shown ${bytesText(shown)}.`;
  return 'No agent has had a session here yet, so there is no count of what models were shown.';
}
