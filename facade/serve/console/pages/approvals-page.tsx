/** The pages of approvals: what waits, and one request with the exact bytes that would be sent. */
import type { JSX } from 'preact';
import { useRoute } from 'preact-iso/router';
import type { CommandAnswer } from './console-client.tsx';
import { commandData, request, runCommand, useLoaded } from './console-client.tsx';
import {
  Act,
  Badge,
  counted,
  Difference,
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

interface Asked {
  readonly id: string;
  readonly state: string;
  readonly scope: string;
  readonly widest: string;
  readonly principal: { readonly id: string; readonly origin: string };
  readonly server: string;
  readonly tool: string;
  readonly verb: string;
  readonly arguments: string;
  readonly concealed: number;
  readonly reasons: readonly {
    readonly id: string;
    readonly message?: string;
    readonly file?: string;
    readonly line?: number;
  }[];
  readonly session: string;
  readonly run: string;
  readonly call: string;
  readonly binding: string;
  readonly asked: string;
  readonly expires: string;
  readonly awaited?: boolean;
  readonly coderun?: Readonly<Record<string, unknown>> & { readonly code?: string; readonly proposal?: LoopProposal };
  readonly decided?: { readonly by: string; readonly at: string; readonly reason?: string };
}

interface LoopProposal {
  readonly max: number;
  readonly where: unknown;
  readonly withinMs: number;
}

interface Proposal {
  readonly id: string;
  readonly principal: string;
  readonly service: string;
  readonly reason: string;
  readonly command: string;
}

interface Plan {
  readonly run: string;
  readonly principal?: string | { readonly id: string };
  readonly approved?: unknown;
}

/** Digits of the binding by which a request is approved. */
const BINDING_DIGITS = 64;

/** The page at `/approvals`. */
export function ApprovalsPage(): JSX.Element {
  const calls = useLoaded('approvals', () =>
    commandData<{ approvals: readonly Asked[]; proposals: readonly Proposal[] }>('approvals'),
  );
  const plans = useLoaded('plans', () => commandData<{ plans: readonly Plan[] }>('plans'));
  return (
    <>
      <h1>Approvals</h1>
      <Shown loaded={calls}>
        {({ approvals, proposals }) => (
          <>
            <VirtualTable
              label="Calls that need approval"
              rows={approvals}
              keyOf={({ id }) => id}
              href={({ id }) => `/approvals/${encodeURIComponent(id)}`}
              empty="No call waits for approval."
              columns={[
                { name: 'Call', cell: ({ server, tool }) => <Foreign text={`${server}.${tool}`} /> },
                { name: 'State', cell: ({ state }) => <Badge word={state} /> },
                { name: 'Principal', cell: ({ principal }) => <Foreign text={principal.id} /> },
                { name: 'Arguments', cell: (row) => <Foreign text={row.arguments.slice(0, 80)} />, isWide: true },
                { name: 'Rule', cell: ({ reasons }) => reasons.map(({ id }) => id).join(', '), isWide: true },
                { name: 'Expires', cell: ({ expires }) => <Time iso={expires} /> },
              ]}
            />
            {proposals.length > 0 && (
              <Section title="Services that agents want">
                <ul class="items">
                  {proposals.map(({ id, principal, service, reason, command }) => (
                    <li key={id}>
                      <strong>
                        <Foreign text={service} />
                      </strong>
                      , wanted by <Foreign text={principal} />
                      <p>
                        The agent wrote: <Foreign text={reason} />
                      </p>
                      <p>
                        In a terminal: <code>{visible(command)}</code>
                      </p>
                      <Act
                        label="Decline"
                        title={`Decline ${visible(service)}?`}
                        command={() => ({ name: 'deny', parameters: { id } })}
                        done={calls.reload}
                      />
                    </li>
                  ))}
                </ul>
              </Section>
            )}
          </>
        )}
      </Shown>
      <Section title="Plans">
        <Shown loaded={plans}>
          {({ plans: rows }) => (
            <ul class="items">
              {rows.length === 0 && <li class="quiet">No run is in plan mode.</li>}
              {rows.map((plan) => (
                <li key={plan.run}>
                  <Json value={plan} />
                  <div class="buttons">
                    <Act
                      label="Approve the plan"
                      title={`Let run ${visible(plan.run)} do more than read?`}
                      command={() => ({ name: 'plan-approve', parameters: { run: plan.run } })}
                      done={plans.reload}
                    >
                      <p>Rules still decide on each call. The approval ends with the run, and after a day at most.</p>
                    </Act>
                    <Act
                      label="Revoke"
                      title={`Revoke the plan of ${visible(plan.run)}?`}
                      command={() => ({ name: 'plan-revoke', parameters: { run: plan.run } })}
                      done={plans.reload}
                      isDanger
                    />
                  </div>
                </li>
              ))}
            </ul>
          )}
        </Shown>
      </Section>
    </>
  );
}

/** The page at `/approvals/ID`. */
export function ApprovalPage(): JSX.Element {
  const { id = '' } = useRoute().params;
  const loaded = useLoaded(id, () => commandData<Asked>('approval', { id }));
  return (
    <>
      <h1>
        Approval <code>{id}</code>
      </h1>
      <Shown loaded={loaded}>{(asked) => <Request asked={asked} reload={loaded.reload} />}</Shown>
    </>
  );
}

function Request({ asked, reload }: { readonly asked: Asked; readonly reload: () => void }): JSX.Element {
  const before = useLoaded(`${asked.id} before`, (signal) => approvedBefore(asked, signal));
  return (
    <>
      <Facts
        facts={{
          State: <Badge word={asked.state} />,
          Call: <Foreign text={`${asked.server}.${asked.tool} (${asked.verb})`} />,
          Principal: <Foreign text={`${asked.principal.id}, from ${asked.principal.origin}`} />,
          Asked: <Time iso={asked.asked} />,
          Expires: <Time iso={asked.expires} />,
          Session: <a href={`/sessions/${encodeURIComponent(asked.session)}`}>{asked.session}</a>,
          'The call': <a href={`/calls/${encodeURIComponent(asked.call)}`}>{asked.call}</a>,
          Binding: <code>{asked.binding}</code>,
          Secrets:
            asked.concealed > 0 ? `${counted(asked.concealed, 'text')} of the arguments, shown as ***` : undefined,
        }}
      />
      <Section title="Rules that ask">
        <ul>
          {asked.reasons.map(({ id, message, file, line }) => (
            <li key={id}>
              <strong>{id}</strong> {message !== undefined && <Foreign text={message} />}{' '}
              {file !== undefined && <span class="quiet">{`${file}:${line ?? ''}`}</span>}
            </li>
          ))}
        </ul>
      </Section>
      <Section title="What would be sent, byte for byte">
        <Json value={asked.arguments} />
      </Section>
      <Section title="Compared with what was approved before">
        {before.data?.args === undefined ? (
          <p class="quiet">{before.data?.why ?? 'Looking …'}</p>
        ) : (
          <Difference before={JSON.stringify(before.data.args, null, 2)} after={pretty(asked.arguments)} />
        )}
      </Section>
      {asked.coderun !== undefined && (
        <Section title="The code that asks">
          <Preformatted>{visible(asked.coderun.code ?? '')}</Preformatted>
          <Json value={{ ...asked.coderun, code: undefined }} />
        </Section>
      )}
      {asked.state === 'pending' && <Decision asked={asked} reload={reload} />}
      {asked.state === 'approved' && (
        <Act
          label="Withdraw"
          title="Withdraw this approval?"
          command={() => ({ name: 'deny', parameters: { id: asked.id } })}
          done={reload}
          isDanger
        />
      )}
    </>
  );
}

/** The arguments of the last call of this tool that an approval covered, or why they are not known. */
async function approvedBefore(
  { server, tool, call }: Asked,
  signal: AbortSignal,
): Promise<{ readonly args?: unknown; readonly why?: string }> {
  const query = new URLSearchParams({ tool: `${server}.${tool}`, outcome: 'allow' }).toString();
  const { records } = await request<{ readonly records: readonly { id?: string; consent?: string }[] }>(
    `records?${query}`,
    undefined,
    signal,
  );
  const earlier = records.find(({ id, consent }) => consent !== undefined && id !== call);
  if (earlier?.id === undefined) return { why: 'None of the last calls of this tool was approved by a person.' };
  const { data } = await runCommand<{ readonly args?: unknown }>('recorded', { id: earlier.id }, [0, 1, 3]);
  return data?.args === undefined
    ? { why: 'The arguments of the earlier call are not recorded. Set audit.facts: full to compare them.' }
    : { args: data.args };
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function Decision({ asked, reload }: { readonly asked: Asked; readonly reload: () => void }): JSX.Element {
  const proposal = asked.coderun?.proposal;
  const scopes = ['call', 'group', 'server'].slice(0, ['call', 'group', 'server'].indexOf(asked.widest) + 1);
  const approve = (form: FormData): Promise<CommandAnswer<unknown>> =>
    request<CommandAnswer<unknown>>('approve', {
      id: asked.id,
      binding: asked.binding.slice(0, BINDING_DIGITS),
      scope: String(form.get('scope') ?? 'call'),
      ...(form.get('loop') === 'on' && {
        loop: { max: Number(form.get('max')), where: String(form.get('where')), within: String(form.get('within')) },
      }),
    });
  const shown = (form: FormData): string => {
    const option = (name: string, field = name): string => ` --${name}=${terminalWord(String(form.get(field)))}`;
    const isLoop = form.get('loop') === 'on';
    const covers = isLoop
      ? ` --loop${['max', 'where', 'within'].map((name) => option(name)).join('')}`
      : option('for', 'scope');
    return `tollgate approvals approve --yes=${asked.binding.slice(0, 12)}${covers} ${asked.id}`;
  };
  return (
    <div class="buttons">
      <Act label="Approve" title="Let this call run?" act={approve} shows={shown} done={reload}>
        <p>
          <Foreign text={`${asked.principal.id} calls ${asked.server}.${asked.tool} with exactly the bytes shown.`} />
        </p>
        <label>
          It covers{' '}
          <select name="scope">
            {scopes.map((scope) => (
              <option key={scope} value={scope}>
                {scope === 'call' ? 'this call, once' : `calls of this ${scope} in this run`}
              </option>
            ))}
          </select>
        </label>
        {proposal !== undefined && (
          <fieldset>
            <legend>
              <label>
                <input type="checkbox" name="loop" /> the loop of the code instead
              </label>
            </legend>
            <label>
              at most <input type="number" name="max" min={1} value={proposal.max} /> calls
            </label>
            <label>
              within <input name="within" value={`${Math.round(proposal.withinMs / 1000)}s`} size={8} />
            </label>
            <label>
              arguments <input name="where" value={JSON.stringify(proposal.where)} />
            </label>
          </fieldset>
        )}
      </Act>
      <Act
        label="Deny"
        title="Refuse this call?"
        command={(form) => {
          const reason = String(form.get('reason'));
          return { name: 'deny', parameters: { id: asked.id, ...(reason !== '' && { reason }) } };
        }}
        done={reload}
        isDanger
      >
        <label>
          What the caller is told <input name="reason" />
        </label>
      </Act>
    </div>
  );
}
