/** The pages of servers: their state, and one server with its consent, its actions and its log. */
import type { JSX } from 'preact';
import { useRoute } from 'preact-iso/router';
import { commandData, useLoaded } from './console-client.tsx';
import { Act, Badge, Facts, Foreign, Preformatted, Section, Shown, visible } from './page-parts.tsx';
import { Consent, type ConsentInfo, Review } from './server-consent.tsx';
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
  readonly killed: boolean;
  readonly disabled: boolean;
  readonly processes: readonly { readonly pid: number; readonly state: string; readonly reason?: string }[];
  readonly quarantined: readonly { readonly tool: string; readonly reason: string }[];
}

interface ServerList {
  readonly servers: readonly ServerRow[];
  readonly requests: readonly { readonly server: string; readonly principal: string }[];
}

/** Exit code of a list in which a server cannot be used. The list is complete. */
const UNUSABLE = 5;

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
  const info = useLoaded(`info ${name}`, () => commandData<ConsentInfo>('server', { name }));
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
      {row !== undefined && <Actions row={row} done={reload} />}
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
      {(row === undefined || !isOwn(row)) && (
        <Section title="Consent">
          <Shown loaded={info}>{(data) => <Consent info={data} />}</Shown>
          <Review name={name} done={reload} />
        </Section>
      )}
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

/** One action: what it does, in which states it makes sense, and the command that does it. */
interface ServerAction {
  readonly label: string;
  readonly about: string;
  readonly question: (name: string) => string;
  readonly command: 'server-restart' | 'kill' | 'kill-lift' | 'server-disable' | 'server-enable' | 'server-revoke';
  readonly isFor: (row: ServerRow) => boolean;
  readonly isDanger?: boolean;
}

/** Servers that are part of Tollgate need no consent. They can only be killed. */
function isOwn({ consent }: ServerRow): boolean {
  return consent === 'not needed';
}

function isRunning({ processes }: ServerRow): boolean {
  return processes.some(({ state }) => state === 'healthy' || state === 'degraded');
}

const ACTIONS: readonly ServerAction[] = [
  {
    label: 'Restart',
    about: 'Ends its processes and starts them again. Running calls fail, and nothing else changes.',
    question: (name) => `Restart ${name}?`,
    command: 'server-restart',
    isFor: (row) => !isOwn(row) && !row.killed && !row.disabled && row.processes.length > 0,
  },
  {
    label: 'Kill',
    about: 'For emergencies: ends it at once, in every Tollgate, until the kill is lifted. Its approval stays.',
    question: (name) => `Kill ${name}?`,
    command: 'kill',
    isFor: (row) => !row.killed && (isOwn(row) || isRunning(row)),
    isDanger: true,
  },
  {
    label: 'Lift the kill',
    about: 'Ends the kill: the next call may start it again.',
    question: (name) => `Let ${name} run again?`,
    command: 'kill-lift',
    isFor: ({ killed }) => killed,
  },
  {
    label: 'Disable',
    about: 'Takes it out of use until an owner enables it. Its approval stays, so nothing is reviewed again.',
    question: (name) => `Disable ${name}?`,
    command: 'server-disable',
    isFor: (row) => !isOwn(row) && !row.disabled,
    isDanger: true,
  },
  {
    label: 'Enable',
    about: 'Lets it be used again. It starts only if it is still as it was approved.',
    question: (name) => `Enable ${name}?`,
    command: 'server-enable',
    isFor: ({ disabled }) => disabled,
  },
  {
    label: 'Revoke',
    about: 'Withdraws the approval: it runs only after a new review of what it starts and offers.',
    question: (name) => `Withdraw the approval of ${name}?`,
    command: 'server-revoke',
    isFor: (row) => !isOwn(row) && row.consent !== 'unapproved',
    isDanger: true,
  },
];

/** The actions that make sense in the present state, each with what it does. */
function Actions({ row, done }: { readonly row: ServerRow; readonly done: () => void }): JSX.Element {
  return (
    <ul class="actions" aria-label="Actions">
      {ACTIONS.filter(({ isFor }) => isFor(row)).map(({ label, about, question, command, isDanger = false }) => (
        <li key={label}>
          <Act
            label={label}
            title={question(row.name)}
            command={() => ({ name: command, parameters: { name: row.name } })}
            done={done}
            isDanger={isDanger}
          >
            <p>{about}</p>
          </Act>
          <span class="quiet">{about}</span>
        </li>
      ))}
    </ul>
  );
}
