/** The page of one record: a call with everything that is known of it, or another event of the log. */
import type { ComponentChildren, JSX } from 'preact';
import { useRoute } from 'preact-iso/router';
import { type CallRecord, isOfCall, Outcome, principalOf, Timeline } from './calls-page.tsx';
import { commandData, useLoaded } from './console-client.tsx';
import {
  AgentLink,
  Badge,
  bytesText,
  Facts,
  Foreign,
  Json,
  Preformatted,
  Section,
  Shown,
  Time,
  terminalWord,
  visible,
} from './page-parts.tsx';
import { VirtualTable } from './virtual-table.tsx';

/** A rule as it was decided. `conditions`: of each, what it reads and whether it holds. */
interface RuleMatch {
  readonly id: string;
  readonly outcome: string;
  readonly mode: string;
  readonly file: string;
  readonly line: number;
  readonly fired: boolean;
  readonly conditions: readonly { readonly field: string; readonly written: unknown; readonly holds: boolean }[];
}

/** The answer of `tollgate explain`. */
interface CallExplanation {
  readonly records: readonly CallRecord[];
  readonly recorded: string;
  readonly args?: unknown;
  readonly why?: {
    readonly decision: { readonly outcome: string };
    readonly rules: readonly RuleMatch[];
    readonly flips: readonly { readonly outcome: string; readonly changes: readonly { readonly text: string }[] }[];
  };
  readonly approvals: readonly CallRecord[];
  readonly inside: readonly CallRecord[];
  readonly log: readonly string[];
}

/** What is shown in the place of recorded arguments. */
const NOT_RECORDED: Readonly<Record<string, string>> = {
  none: 'They are not recorded. Set audit.facts: full to keep them, encrypted.',
  early: 'They are not recorded: the call ended before the policy decided, or came before audit.facts was full.',
  deleted: 'The log has the digest of a recording that is no longer there.',
  changed: 'CHANGED: the recording is not what the log has the digest of, so it is not shown.',
};

/** The page at `/calls/ID`. */
export function CallPage(): JSX.Element {
  const { id = '' } = useRoute().params;
  const loaded = useLoaded(id, () => commandData<CallExplanation>('explain', { id }));
  const event = loaded.data?.records.find((record) => !isOfCall(record));
  const isCall = loaded.data?.records.some(isOfCall) ?? true;
  return (
    <>
      <h1>
        {isCall || event === undefined ? 'Call' : titleOf(event)} <code>{id.slice(0, SHOWN_DIGITS)}</code>
      </h1>
      <Shown loaded={loaded}>{(data) => (isCall ? <OneCall data={data} /> : <Events data={data} />)}</Shown>
    </>
  );
}

/** The length of a decision id. Hashes are cut to it. */
const SHOWN_DIGITS = 36;

const TITLES: Readonly<Record<string, string>> = {
  approval: 'Approval',
  grant: 'Grant',
  consent: 'Consent to a server',
  server: 'Event of a server',
  config: 'Configuration',
  session: 'Session',
  task: 'Task',
  upgrade: 'Capability',
  setup: 'Change of the setup',
  proof: 'Signed tree of the log',
  process: 'Process',
};

function titleOf({ type, principal }: CallRecord): string {
  if (type === 'switch') return principal === undefined ? 'Switch' : 'Suspension';
  return TITLES[type] ?? `Record: ${type}`;
}

/** Records that are no call, each with its own fields. */
function Events({ data: { records } }: { readonly data: CallExplanation }): JSX.Element {
  return (
    <>
      {records.map((record) => (
        <Section key={record.hash} title={[record.type, record.event].filter(Boolean).join(' ')}>
          <Facts facts={eventFacts(record)} />
        </Section>
      ))}
      <AsInTheLog records={records} />
    </>
  );
}

/** Fields that prove the record. They are in `Records, as they are in the log`. */
const CHAIN_FIELDS: ReadonlySet<string> = new Set(['v', 'seq', 'prev', 'hash', 'type', 'event']);
/** Fields that are shown by another name. */
const FIELD_NAMES: Readonly<Record<string, string>> = { ts: 'When', by: 'By', user: 'User of the machine' };
/** Fields with a page of their own. */
const FIELD_PAGES: Readonly<Record<string, string>> = {
  server: '/servers/',
  session: '/sessions/',
  call: '/calls/',
};

function eventFacts(record: CallRecord): Readonly<Record<string, ComponentChildren>> {
  const shown = Object.entries(record).filter(
    ([name]) => !CHAIN_FIELDS.has(name) && !(name === 'outcome' && isAct(record)),
  );
  return Object.fromEntries(
    shown.map(([name, value]) => {
      const title = FIELD_NAMES[name] ?? `${name.slice(0, 1).toUpperCase()}${name.slice(1)}`;
      return [title, fieldOf(record, name, value)] as const;
    }),
  );
}

/** The event says what a person did. The outcome would read like that of a call. */
function isAct({ event }: CallRecord): boolean {
  return event !== undefined;
}

function fieldOf(record: CallRecord, name: string, value: unknown): ComponentChildren {
  if (name === 'principal') return <AgentLink id={principalOf(record)} />;
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  if (/^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(text)) return <Time iso={text} />;
  const page = name === 'id' && record.type === 'approval' ? '/approvals/' : FIELD_PAGES[name];
  if (page === undefined) return <Foreign text={text} />;
  return (
    <a href={`${page}${encodeURIComponent(text)}`}>
      <Foreign text={text} />
    </a>
  );
}

function OneCall({ data }: { readonly data: CallExplanation }): JSX.Element {
  const { records, recorded, args, approvals, inside, log } = data;
  const call = Object.assign({}, ...records) as CallRecord;
  return (
    <>
      <CallFacts call={call} />
      {call.budget !== undefined && <BudgetRefusal call={call} />}
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
              <a href={`/calls?rule=${encodeURIComponent(id)}`}>
                <Foreign text={id} />
              </a>{' '}
              {file !== undefined && <Place file={file} line={line} />}
            </li>
          ))}
        </ul>
      </Section>
      <WhatWouldChange call={call} why={data.why} />
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
      <AsInTheLog records={records} />
    </>
  );
}

function AsInTheLog({ records }: { readonly records: readonly CallRecord[] }): JSX.Element {
  return (
    <details>
      <summary>Records, as they are in the log</summary>
      <Json value={records} />
    </details>
  );
}

/** The place of a rule, as a link to the editor. */
function Place({ file, line }: { readonly file: string; readonly line?: number | undefined }): JSX.Element {
  return (
    <a href={`/policy?source=${encodeURIComponent(file)}&line=${line ?? 1}`}>
      <Foreign text={`${file}:${line ?? ''}`} />
    </a>
  );
}

function BudgetRefusal({ call }: { readonly call: CallRecord }): JSX.Element {
  const { budget = '', scope = '', unit = '', limit = 0, left = 0 } = call;
  return (
    <Section title="The budget that refused it">
      <Facts
        facts={{
          Budget: <Foreign text={budget} />,
          Of: scope === 'principal' ? <AgentLink id={principalOf(call)} /> : `its ${scope}`,
          Spent: `${limit - left} of ${limit} ${unit} before this call`,
          Returns: returnOf(call),
        }}
      />
    </Section>
  );
}

function returnOf({ resetsAt, scope = '' }: CallRecord): ComponentChildren {
  return resetsAt === undefined ? `with a new ${scope}` : <Time iso={resetsAt} />;
}

/** What a person can do about a refusal that is not of a rule, by its code: words, and the command. */
const REMEDIES: Readonly<Record<string, (call: CallRecord) => readonly [string, string]>> = {
  SUSPENDED: (call) => ['An owner lets the principal call again:', `resume ${terminalWord(principalOf(call))}`],
  BUDGET_EXCEEDED: (call) => ['An owner makes the budget full again:', resetOf(call)],
  RATE_LIMITED: () => ['It is possible when running calls have ended. To see what is used up:', 'budgets'],
  PIN_MISMATCH: approvalOf,
  SERVER_UNAVAILABLE: approvalOf,
  SWITCHED_OFF: () => ['Something is switched off or killed. To see what, and to lift it:', 'kill'],
};

function approvalOf({ server = '', refusal }: CallRecord): readonly [string, string] {
  const isToReview = refusal?.includes('changed') === true || refusal === 'unapproved';
  return isToReview
    ? ['An owner reviews the server, and agrees or not:', `approve ${terminalWord(server)}`]
    : ['To see what is wrong with the server:', `servers info ${terminalWord(server)}`];
}

/** Other scopes have keys that are not in the record, so all counters are reset. */
function resetOf(call: CallRecord): string {
  const key = call.scope === 'principal' ? ` ${terminalWord(principalOf(call))}` : '';
  return `budgets reset ${terminalWord(call.budget ?? '')}${key}`;
}

function WhatWouldChange({
  call,
  why,
}: {
  readonly call: CallRecord;
  readonly why: CallExplanation['why'];
}): JSX.Element | null {
  const remedy = REMEDIES[call.code ?? '']?.(call);
  if (remedy === undefined && why === undefined) return null;
  return (
    <Section title="What would change it, by the present policy">
      {call.budget !== undefined && <p>The budget is full again: {returnOf(call)}.</p>}
      {remedy !== undefined && (
        <p>
          {remedy[0]} <code>{`tollgate ${remedy[1]}`}</code>
        </p>
      )}
      {why?.flips.map(({ outcome, changes }, at) => (
        <div key={at}>
          <Badge word={outcome} /> if <Foreign text={changes.map(({ text }) => text).join(', and ')} />
        </div>
      ))}
      {why !== undefined && why.flips.length === 0 && (
        <p class="quiet">
          {why.decision.outcome === 'allow'
            ? 'The rules allow this call.'
            : 'No small change of the call or of a rule would.'}
        </p>
      )}
      {why !== undefined && why.rules.length > 0 && <RuleTable rules={why.rules} />}
    </Section>
  );
}

function RuleTable({ rules }: { readonly rules: readonly RuleMatch[] }): JSX.Element {
  return (
    <details>
      <summary>Every rule that matched or came near</summary>
      <VirtualTable
        label="Rules that matched or came near"
        rows={rules}
        keyOf={({ id, file, line }) => `${file} ${line} ${id}`}
        empty="None."
        columns={[
          { name: 'Rule', cell: ({ id }) => <Foreign text={id} /> },
          { name: 'Effect', cell: ({ outcome }) => <Badge word={outcome} /> },
          {
            name: 'Matched',
            cell: ({ fired, mode }) => `${fired ? 'yes' : 'no'}${mode === 'enforce' ? '' : ` (${mode})`}`,
          },
          { name: 'Where', cell: ({ file, line }) => <Place file={file} line={line} /> },
          { name: 'Does not hold', cell: (rule) => <Foreign text={missedBy(rule)} />, isWide: true },
        ]}
      />
    </details>
  );
}

/** The conditions that do not hold, as they are written. */
function missedBy({ conditions }: RuleMatch): string {
  const missed = conditions.filter(({ holds }) => !holds);
  return missed.map(({ field, written }) => `${field}: ${[written].flat().map(wordOf).join(', ')}`).join('; ');
}

function wordOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** How far around a call other calls are searched, ms. */
const AROUND_MS = 5 * 60_000;

function around(call: CallRecord): string {
  const at = new Date(call.ts).getTime();
  const limits = Number.isNaN(at)
    ? {}
    : { since: new Date(at - AROUND_MS).toISOString(), until: new Date(at + AROUND_MS).toISOString() };
  return new URLSearchParams({ principal: principalOf(call), ...limits }).toString();
}

function CallFacts({ call }: { readonly call: CallRecord }): JSX.Element {
  const { server, session, sizes = {}, obligations, ms } = call;
  return (
    <Facts
      facts={{
        When: <Time iso={call.ts} />,
        Tool: <Foreign text={call.exposed ?? ''} />,
        Server: server !== undefined && (
          <a href={`/servers/${encodeURIComponent(server)}`}>
            <Foreign text={server} />
          </a>
        ),
        Principal: <AgentLink id={principalOf(call)} />,
        'Called by hand': call.by !== undefined && (
          <Foreign text={[call.by, call.user].filter(Boolean).join(', user ')} />
        ),
        Session: session !== undefined && <a href={`/sessions/${encodeURIComponent(session)}`}>{session}</a>,
        Around: <a href={`/calls?${around(call)}`}>other calls of this principal around this time</a>,
        Outcome: <Outcome record={call} />,
        Code: call.refusal === undefined ? call.code : `${call.code} (${call.refusal})`,
        Time: ms === undefined ? undefined : `${ms} ms`,
        Budgets: obligations?.budgets?.join(', '),
        Output: Object.entries(sizes)
          .map(([name, bytes]) => `${name} ${bytesText(bytes)}`)
          .join(', '),
      }}
    />
  );
}
