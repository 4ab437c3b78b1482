/** The pages of servers: their state, and one server with its consent, its tools, what changed, and its log. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { useRoute } from 'preact-iso/router';
import type { CommandAnswer } from './console-client.tsx';
import { commandData, runCommand, useLoaded } from './console-client.tsx';
import {
  Act,
  Badge,
  Difference,
  Facts,
  Foreign,
  Json,
  Preformatted,
  Problem,
  Section,
  Shown,
  visible,
} from './page-parts.tsx';
import { VirtualTable } from './virtual-table.tsx';

interface ServerRow {
  readonly name: string;
  readonly consent: string;
  readonly state: string;
  readonly tools: number;
  readonly pending: number;
  readonly bytes: number;
  readonly version: string;
  readonly reason: string;
  readonly processes: readonly { readonly pid: number; readonly state: string; readonly reason?: string }[];
  readonly quarantined: readonly { readonly tool: string; readonly reason: string }[];
}

interface ServerList {
  readonly servers: readonly ServerRow[];
  readonly requests: readonly { readonly server: string; readonly principal: string }[];
}

/** Exit code of a list in which a server cannot be used. The list is complete. */
const UNUSABLE = 5;
/** Exit code of a question that a person must answer. */
const TO_DECIDE = 7;

function loadServers(): Promise<ServerList> {
  return commandData<ServerList>('servers', {}, [0, UNUSABLE]);
}

/** The page at `/servers`. */
export function ServersPage(): JSX.Element {
  const loaded = useLoaded('servers', loadServers);
  return (
    <>
      <h1>Servers</h1>
      <Shown loaded={loaded}>
        {({ servers, requests }) => (
          <>
            {requests.map(({ server, principal }) => (
              <p key={`${server} ${principal}`}>
                An agent of <Foreign text={principal} /> asks for{' '}
                <a href={`/servers/${encodeURIComponent(server)}`}>{server}</a>.
              </p>
            ))}
            <VirtualTable
              label="Servers"
              rows={servers}
              keyOf={({ name }) => name}
              href={({ name }) => `/servers/${encodeURIComponent(name)}`}
              empty="There are no servers."
              columns={[
                { name: 'Server', cell: ({ name }) => name },
                { name: 'Consent', cell: ({ consent }) => <Badge word={consent} /> },
                { name: 'State', cell: ({ state }) => <Badge word={state} /> },
                { name: 'Tools', cell: ({ tools }) => tools },
                { name: 'Waiting', cell: ({ pending }) => pending || '' },
                { name: 'Quarantined', cell: ({ quarantined }) => quarantined.length || '', isWide: true },
                { name: 'Version', cell: ({ version }) => <Foreign text={version} />, isWide: true },
                { name: 'Why', cell: ({ reason }) => <Foreign text={reason} />, isWide: true },
              ]}
            />
          </>
        )}
      </Shown>
    </>
  );
}

/** The page at `/servers/NAME`. */
export function ServerPage(): JSX.Element {
  const { name = '' } = useRoute().params;
  const list = useLoaded(`list ${name}`, loadServers);
  const info = useLoaded(`info ${name}`, () => commandData<Record<string, unknown>>('server', { name }));
  const log = useLoaded(`log ${name}`, () => commandData<{ lines: readonly string[] }>('server-log', { log: name }));
  const reload = (): void => {
    for (const one of [list, info, log]) one.reload();
  };
  const row = list.data?.servers.find((one) => one.name === name);
  return (
    <>
      <h1>
        Server <Foreign text={name} />
      </h1>
      {row !== undefined && (
        <Facts
          facts={{
            State: <Badge word={row.state} />,
            Why: row.reason && <Foreign text={row.reason} />,
            Consent: <Badge word={row.consent} />,
            Version: row.version && <Foreign text={row.version} />,
            Tools: row.tools,
            Processes: row.processes.map(({ pid, state }) => `${pid} (${state})`).join(', '),
            Calls: <a href={`/calls?server=${encodeURIComponent(name)}`}>search its calls</a>,
          }}
        />
      )}
      <div class="buttons">
        <Act
          label="Restart"
          title={`Restart ${name}?`}
          act={() => runCommand('server-restart', { name })}
          done={reload}
        >
          <p>Every running Tollgate ends the processes of the server and starts them again. Its running calls fail.</p>
        </Act>
        <Act label="Kill" title={`Kill ${name}?`} act={() => runCommand('kill', { name })} done={reload} isDanger>
          <p>The server ends at once, in every Tollgate, and does not start again until the kill is lifted.</p>
        </Act>
        <Act
          label="Lift the kill"
          title={`Let ${name} run again?`}
          act={() => runCommand('kill-lift', { name })}
          done={reload}
        />
        <Act
          label="Disable"
          title={`Disable ${name}?`}
          act={() => runCommand('server-disable', { name })}
          done={reload}
          isDanger
        />
        <Act label="Enable" title={`Enable ${name}?`} act={() => runCommand('server-enable', { name })} done={reload} />
        <Act
          label="Revoke"
          title={`Withdraw the approval of ${name}?`}
          act={() => runCommand('server-revoke', { name })}
          done={reload}
          isDanger
        />
      </div>
      {row !== undefined && row.quarantined.length > 0 && (
        <Section title="Quarantined tools">
          <ul>
            {row.quarantined.map(({ tool, reason }) => (
              <li key={tool}>
                <Foreign text={tool} />: <Foreign text={reason} />
              </li>
            ))}
          </ul>
        </Section>
      )}
      <Section title="Consent">
        <Shown loaded={info}>{(data) => <Json value={data} />}</Shown>
        <Review name={name} done={reload} />
      </Section>
      <Section title="Log">
        <Shown loaded={log}>
          {({ lines }) =>
            lines.length === 0 ? (
              <p class="quiet">It has written nothing to stderr.</p>
            ) : (
              <Preformatted>{lines.map(visible).join('\n')}</Preformatted>
            )
          }
        </Shown>
      </Section>
    </>
  );
}

interface ToolReview {
  readonly name: string;
  readonly state?: string;
  readonly semantics?: unknown;
  readonly changes?: readonly {
    readonly field: string;
    readonly old: readonly string[];
    readonly new: readonly string[];
  }[];
  readonly definition: unknown;
}

/** What `tollgate approve NAME --json` shows. */
interface ConsentReview {
  readonly start?: {
    readonly hash: string;
    readonly approved: boolean;
    readonly changed?: unknown;
    readonly facts: unknown;
    readonly remarks?: unknown;
  };
  readonly tools?: {
    readonly hash: string;
    readonly tools: readonly ToolReview[];
    readonly removed?: readonly string[];
  };
  readonly approved: boolean;
}

/** The two questions of an approval. Each is answered with the hash of what is shown. */
function Review({ name, done }: { readonly name: string; readonly done: () => void }): JSX.Element {
  const [review, setReview] = useState<ConsentReview>();
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const look = (): void => {
    setBusy(true);
    setError(undefined);
    runCommand<ConsentReview>('server-approve', { name }, [0, TO_DECIDE])
      .then(({ data }) => setReview(data))
      .catch(setError)
      .finally(() => setBusy(false));
  };
  const agree = async (hashes: readonly string[]): Promise<CommandAnswer<unknown>> => {
    const answer = await runCommand<ConsentReview>('server-approve', { name, yes: hashes }, [0, TO_DECIDE]);
    setReview(answer.data);
    return answer;
  };
  const { start, tools } = review ?? {};
  return (
    <>
      <div class="buttons">
        <button type="button" onClick={look} disabled={isBusy}>
          {isBusy ? 'Looking …' : 'Review what it starts and offers'}
        </button>
      </div>
      {error !== undefined && <Problem error={error} />}
      {review?.approved === true && <p role="status">It is approved, and nothing has changed.</p>}
      {start !== undefined && (
        <Section title="What would start">
          <Json value={start} />
          {!start.approved && tools === undefined && (
            <Act
              label="Approve the start"
              title={`Let ${name} start as shown?`}
              act={() => agree([start.hash])}
              done={done}
            >
              <p>
                Hash of what is shown: <code>{start.hash}</code>
              </p>
            </Act>
          )}
        </Section>
      )}
      {tools !== undefined && (
        <Section title="Its tools">
          {(tools.removed ?? []).length > 0 && <p>Removed: {tools.removed?.map(visible).join(', ')}</p>}
          {tools.tools.map((tool) => (
            <details key={tool.name} open={tool.state !== undefined}>
              <summary>
                <Foreign text={tool.name} /> {tool.state !== undefined && <Badge word={tool.state} />}
              </summary>
              <Changes changes={tool.changes} />
              <Json value={tool.definition} />
            </details>
          ))}
          {review?.approved !== true && start !== undefined && (
            <Act
              label="Approve the tools"
              title={`Let agents use these tools of ${name}?`}
              act={() => agree([start.hash, tools.hash])}
              done={done}
            >
              <p>
                Hash of what is shown: <code>{tools.hash}</code>
              </p>
            </Act>
          )}
        </Section>
      )}
    </>
  );
}

/** The fields of a definition that changed, before and after. */
function Changes({ changes = [] }: { readonly changes: ToolReview['changes'] }): JSX.Element {
  return (
    <>
      {changes.map(({ field, old, new: now }) => (
        <div key={field}>
          <h3>{visible(field)}</h3>
          <Difference before={old.join('\n')} after={now.join('\n')} />
        </div>
      ))}
    </>
  );
}
