/** The page of agents: who may call, what they may use up, what they were granted, and who is suspended. */
import type { JSX } from 'preact';
import { commandData, request, runCommand, useLoaded } from './console-client.tsx';
import { Act, Badge, Foreign, Json, Section, Shown, Time } from './page-parts.tsx';
import { VirtualTable } from './virtual-table.tsx';

/** A principal of the configuration, with its suspension. */
interface PrincipalRow {
  readonly id: string;
  readonly role?: string;
  readonly profiles: readonly string[];
  readonly owner?: boolean;
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

/** The page at `/agents`. */
export function AgentsPage(): JSX.Element {
  const principals = useLoaded('principals', (signal) =>
    request<{ readonly principals: readonly PrincipalRow[] }>('principals', undefined, signal),
  );
  const grants = useLoaded('grants', () => commandData<{ readonly grants: readonly GrantRow[] }>('grants'));
  const labels = useLoaded('labels', () => commandData<{ readonly labels: readonly unknown[] }>('labels'));
  return (
    <>
      <h1>Agents</h1>
      <Section title="Principals">
        <Shown loaded={principals}>
          {({ principals: rows }) => (
            <ul class="items">
              {rows.map((row) => (
                <li key={row.id} class={row.suspended === undefined ? '' : 'bad'}>
                  <strong>
                    <a href={`/calls?principal=${encodeURIComponent(row.id)}`}>
                      <Foreign text={row.id} />
                    </a>
                  </strong>{' '}
                  {row.owner === true && <Badge word="owner" />}{' '}
                  {row.suspended !== undefined && <Badge word="suspended" />}
                  <div class="quiet">
                    <Foreign text={[row.role, `profiles ${row.profiles.join(', ')}`].filter(Boolean).join(', ')} />
                    {row.suspended !== undefined && (
                      <>
                        , suspended by <Foreign text={row.suspended.by} /> <Time iso={row.suspended.since} />
                        {row.suspended.until !== undefined && (
                          <>
                            {' '}
                            until <Time iso={row.suspended.until} />
                          </>
                        )}
                      </>
                    )}
                  </div>
                  <div class="buttons">
                    {row.suspended === undefined ? (
                      <Act
                        label="Suspend"
                        title={`Suspend ${row.id}?`}
                        isDanger
                        act={(form) => {
                          const time = String(form.get('for'));
                          return runCommand('suspend', { principal: row.id, ...(time !== '' && { for: time }) });
                        }}
                        done={principals.reload}
                      >
                        <p>
                          Every call of this principal is refused within a second, in every Tollgate. It is told why.
                        </p>
                        <label>
                          For <input name="for" placeholder="2h; empty: until it is resumed" />
                        </label>
                      </Act>
                    ) : (
                      <Act
                        label="Resume"
                        title={`Let ${row.id} call again?`}
                        act={() => runCommand('resume', { principal: row.id })}
                        done={principals.reload}
                      />
                    )}
                  </div>
                </li>
              ))}
            </ul>
          )}
        </Shown>
      </Section>
      <Budgets />
      <Section title="Grants">
        <Shown loaded={grants}>
          {({ grants: rows }) => (
            <ul class="items">
              {rows.length === 0 && <li class="quiet">There are no grants.</li>}
              {rows.map((grant) => (
                <li key={grant.id}>
                  <Badge word={grant.kind} /> <Foreign text={`${grant.scope} for ${grant.origin} (${grant.profile})`} />
                  <div class="buttons">
                    <Act
                      label="Revoke"
                      title="Withdraw this grant?"
                      act={() => runCommand('grant-revoke', { id: grant.id })}
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
      <Section title="Sticky labels">
        <Shown loaded={labels}>
          {({ labels: rows }) => (rows.length === 0 ? <p class="quiet">No one has any.</p> : <Json value={rows} />)}
        </Shown>
      </Section>
    </>
  );
}

function Budgets(): JSX.Element {
  const budgets = useLoaded('budgets', () => commandData<{ readonly budgets: readonly BudgetRow[] }>('budgets'));
  return (
    <Section title="Budgets">
      <Shown loaded={budgets}>
        {({ budgets: rows }) => (
          <VirtualTable
            label="Budgets"
            rows={rows}
            keyOf={({ budget, scope, key, unit }) => [budget, scope, key, unit].join(' ')}
            empty="No budget has been used."
            columns={[
              { name: 'Budget', cell: ({ budget }) => <Foreign text={budget} /> },
              { name: 'Of', cell: ({ scope, key }) => <Foreign text={`${scope} ${key}`} /> },
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
                    act={() => runCommand('budget-reset', { budget, key })}
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
