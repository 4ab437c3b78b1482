/** The pages of agents: who may call, what they may use up, what they were granted, and who is suspended. */
import type { JSX } from 'preact';
import { useRoute } from 'preact-iso/router';
import { type CallRecord, Outcome, whereOf } from './calls-page.tsx';
import { commandData, type Loaded, request, useLoaded } from './console-client.tsx';
import { Act, AgentLink, Badge, Facts, Foreign, Json, Section, Shown, Time } from './page-parts.tsx';
import { VirtualTable } from './virtual-table.tsx';

/** A principal of the configuration, or another one that is suspended, with its suspension. */
interface PrincipalRow {
  readonly id: string;
  readonly role?: string;
  readonly profiles?: readonly string[];
  readonly owner?: boolean;
  /** Where its calls come from. Grants are for an origin. */
  readonly origin?: string;
  /** It opened this console. */
  readonly isYou?: boolean;
  readonly suspended?: { readonly since: string; readonly until?: string; readonly by: string };
}

interface BudgetRow {
  readonly budget: string;
  readonly scope: string;
  readonly key: string;
  readonly unit: string;
  readonly limit?: number;
  readonly spent: number;
  readonly left?: number;
  readonly returns?: string;
}

interface GrantRow {
  readonly id: string;
  readonly origin: string;
  readonly profile: string;
  readonly scope: string;
  readonly kind: string;
}

function usePrincipals(): Loaded<readonly PrincipalRow[]> {
  return useLoaded('principals', async (signal) => {
    const { principals } = await request<{ readonly principals: readonly PrincipalRow[] }>(
      'principals',
      undefined,
      signal,
    );
    return principals;
  });
}

/** The page at `/agents`. */
export function AgentsPage(): JSX.Element {
  const principals = usePrincipals();
  const labels = useLoaded('labels', () => commandData<{ readonly labels: readonly unknown[] }>('labels'));
  return (
    <>
      <h1>Agents</h1>
      <Section title="Principals">
        <Shown loaded={principals}>
          {(rows) => (
            <ul class="items">
              {rows.map((row) => (
                <li key={row.id} class={row.suspended === undefined ? '' : 'bad'}>
                  <strong>
                    <AgentLink id={row.id} />
                  </strong>{' '}
                  {row.owner === true && <Badge word="owner" />}{' '}
                  {row.suspended !== undefined && <Badge word="suspended" />}
                  <div class="quiet">
                    <Foreign text={[row.role, profilesOf(row)].filter(Boolean).join(', ')} />
                    {row.suspended !== undefined && (
                      <>
                        , <SuspendedBy suspension={row.suspended} />
                      </>
                    )}
                  </div>
                  <Stop row={row} done={principals.reload} />
                </li>
              ))}
            </ul>
          )}
        </Shown>
      </Section>
      <Budgets of={() => true} />
      <Grants of={() => true} />
      <Section title="Sticky labels">
        <Shown loaded={labels}>
          {({ labels: rows }) => (rows.length === 0 ? <p class="quiet">No one has any.</p> : <Json value={rows} />)}
        </Shown>
      </Section>
    </>
  );
}

function profilesOf({ profiles = [] }: PrincipalRow): string {
  return profiles.length === 0 ? 'no profile' : `profiles ${profiles.join(', ')}`;
}

function SuspendedBy({
  suspension: { by, since, until },
}: {
  readonly suspension: NonNullable<PrincipalRow['suspended']>;
}): JSX.Element {
  return (
    <>
      suspended by <Foreign text={by} /> since <Time iso={since} />
      {until === undefined ? (
        ', until someone resumes it'
      ) : (
        <>
          {' '}
          until <Time iso={until} />
        </>
      )}
    </>
  );
}

/** Suspends a principal, or lets it call again. */
function Stop({ row: { id, isYou, suspended }, done }: { row: PrincipalRow; done: () => void }): JSX.Element {
  return (
    <div class="buttons">
      {suspended === undefined ? (
        <Act
          label="Suspend"
          title={`Suspend ${id}?`}
          isDanger
          command={(form) => {
            const time = String(form.get('for')).trim();
            return { name: 'suspend', parameters: { principal: id, ...(time !== '' && { for: time }) } };
          }}
          done={done}
        >
          {isYou === true && (
            <p class="problem">
              <strong>This is you.</strong> Your own calls are refused too. You can resume yourself here.
            </p>
          )}
          <p>Every call of this principal is refused within a second, in every Tollgate. It is told why.</p>
          <label>
            For how long, such as 30m, 2h or 7d. Empty: until someone resumes it. <input name="for" size={8} />
          </label>
        </Act>
      ) : (
        <Act
          label="Resume"
          title={`Let ${id} call again?`}
          command={() => ({ name: 'resume', parameters: { principal: id } })}
          done={done}
        />
      )}
    </div>
  );
}

/** The page at `/agents/ID`: what one principal may still do, what it did, and its suspension. */
export function AgentPage(): JSX.Element {
  const { id = '' } = useRoute().params;
  const principals = usePrincipals();
  return (
    <>
      <h1>
        Agent <Foreign text={id} />
      </h1>
      <Shown loaded={principals}>
        {(rows) => {
          const known = rows.find((one) => one.id === id);
          const row: PrincipalRow = known ?? { id };
          return (
            <>
              <Facts
                facts={{
                  State:
                    row.suspended === undefined ? (
                      known === undefined ? (
                        'not in tollgate.yaml'
                      ) : (
                        'not suspended'
                      )
                    ) : (
                      <SuspendedBy suspension={row.suspended} />
                    ),
                  Role: [row.role, row.owner === true && 'owner', row.isYou === true && 'you']
                    .filter(Boolean)
                    .join(', '),
                  Profiles: row.profiles !== undefined && <Foreign text={row.profiles.join(', ') || 'none'} />,
                }}
              />
              <Stop row={row} done={principals.reload} />
              <Budgets of={({ scope, key }) => scope === 'principal' && key === id} />
              <Grants of={({ origin }) => origin === (row.origin ?? id)} />
            </>
          );
        }}
      </Shown>
      <RecentCalls principal={id} />
    </>
  );
}

/** Calls that the page of an agent shows. */
const RECENT = 20;

function RecentCalls({ principal }: { readonly principal: string }): JSX.Element {
  const query = new URLSearchParams({ principal }).toString();
  const calls = useLoaded(`calls of ${principal}`, (signal) =>
    request<{ readonly records: readonly CallRecord[] }>(`records?${query}`, undefined, signal),
  );
  return (
    <Section title="Recent calls">
      <Shown loaded={calls}>
        {({ records }) => (
          <VirtualTable
            label="Recent calls"
            rows={records.slice(0, RECENT)}
            keyOf={({ hash }) => hash}
            href={({ id, hash }) => `/calls/${encodeURIComponent(id ?? hash)}`}
            empty="It has made no call."
            columns={[
              { name: 'Time', cell: ({ ts }) => <Time iso={ts} /> },
              { name: 'Outcome', cell: (record) => <Outcome record={record} /> },
              { name: 'Tool', cell: ({ exposed = '' }) => <Foreign text={exposed} /> },
              { name: 'Where', cell: (record) => <Foreign text={whereOf(record)} />, isWide: true },
              { name: 'Code', cell: ({ code = '' }) => code, isWide: true },
            ]}
          />
        )}
      </Shown>
      <p>
        <a href={`/calls?${query}`}>All its calls</a>
      </p>
    </Section>
  );
}

function Grants({ of }: { readonly of: (grant: GrantRow) => boolean }): JSX.Element {
  const grants = useLoaded('grants', () => commandData<{ readonly grants: readonly GrantRow[] }>('grants'));
  return (
    <Section title="Grants">
      <Shown loaded={grants}>
        {({ grants: all }) => (
          <ul class="items">
            {!all.some(of) && <li class="quiet">There are no grants.</li>}
            {all.filter(of).map((grant) => (
              <li key={grant.id}>
                <Badge word={grant.kind} /> <Foreign text={`${grant.scope} for ${grant.origin} (${grant.profile})`} />
                <div class="buttons">
                  <Act
                    label="Revoke"
                    title="Withdraw this grant?"
                    command={() => ({ name: 'grant-revoke', parameters: { id: grant.id } })}
                    done={grants.reload}
                    isDanger
                  />
                </div>
              </li>
            ))}
          </ul>
        )}
      </Shown>
    </Section>
  );
}

function Budgets({ of }: { readonly of: (budget: BudgetRow) => boolean }): JSX.Element {
  const budgets = useLoaded('budgets', () => commandData<{ readonly budgets: readonly BudgetRow[] }>('budgets'));
  return (
    <Section title="Budgets">
      <Shown loaded={budgets}>
        {({ budgets: rows }) => (
          <VirtualTable
            label="Budgets"
            rows={rows.filter(of)}
            keyOf={({ budget, scope, key, unit }) => [budget, scope, key, unit].join(' ')}
            empty="No budget has been used."
            columns={[
              { name: 'Budget', cell: ({ budget }) => <Foreign text={budget} /> },
              {
                name: 'Of',
                cell: ({ scope, key }) =>
                  scope === 'principal' ? <AgentLink id={key} /> : <Foreign text={`${scope} ${key}`} />,
              },
              {
                name: 'Spent',
                cell: ({ spent, limit, unit }) => `${spent}${limit === undefined ? '' : ` of ${limit}`} ${unit}`,
              },
              { name: 'Left', cell: ({ left }) => left ?? '' },
              {
                name: 'Returns',
                cell: ({ returns, scope }) => (returns === undefined ? `with its ${scope}` : <Time iso={returns} />),
              },
              {
                name: 'Reset',
                cell: ({ budget, key }) => (
                  <Act
                    label="Reset"
                    title={`Make ${budget} of ${key} full again?`}
                    command={() => ({ name: 'budget-reset', parameters: { budget, key } })}
                    done={budgets.reload}
                  />
                ),
              },
            ]}
          />
        )}
      </Shown>
    </Section>
  );
}
