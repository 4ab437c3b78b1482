/** The sources of the list: each asks one part of Tollgate what needs attention, and starts and changes nothing. */
import { statfsSync } from 'node:fs';
import { plural } from '../../catalogs/text/readable-text.ts';
import { type ProofStatus, proofStatus } from '../audit/proof/proof-status.ts';
import { type BudgetState, readBudgetStates, shareOf } from '../budget/budget-report.ts';
import type { ClientRoots } from '../clients/client-places.ts';
import type { Config, ServerConfig } from '../config/config.ts';
import { listNames } from '../config/config-problems.ts';
import { ApprovalStore } from '../consent/approvals/call-approval.ts';
import { listPlans } from '../consent/plan-mode.ts';
import type { ConsentStore } from '../consent/servers/consent-store.ts';
import { consentStateOf } from '../consent/servers/consent-store.ts';
import type { PendingItem } from '../consent/servers/pending-tools.ts';
import { changedStartRefusal } from '../consent/servers/server-refusals.ts';
import { changedNames, changeWords, type StartChangeNotes, startChanges } from '../consent/servers/start-changes.ts';
import type { StartFacts } from '../consent/servers/start-facts.ts';
import { KillSwitch } from '../consent/switch/kill-switch.ts';
import { Suspensions } from '../consent/switch/suspensions.ts';
import { openProposals } from '../internal-servers/connection-proposals.ts';
import { listRequests } from '../internal-servers/enable-requests.ts';
import { readReports } from '../runtime/servers/server-reports.ts';
import type { State } from '../state/state-port.ts';
import type { AttentionSource, FoundItem } from './attention-list.ts';
import { cheapFindings } from './cheap-findings.ts';
import type { DoctorFinding } from './doctor-findings.ts';
import { readTroubles, type Trouble, unusedRules } from './troubles.ts';

/** What the sources ask. */
export interface AttentionParts {
  readonly config: Config;
  readonly state: State;
  readonly consents: {
    readonly store: Pick<ConsentStore, 'get' | 'disabledBy'>;
    readonly tools: { pending(server: string): PendingItem | undefined };
    readonly changes: Pick<StartChangeNotes, 'get'>;
    factsOf(settings: ServerConfig): Promise<StartFacts>;
  };
  /**
   * Reads the files of every approved server, to find those that changed. Absent: only of servers whose change was
   * noted, because a process that serves agents lists often.
   */
  readonly readsFiles?: true;
  /** Where clients have their files. Absent: these are not read. */
  readonly roots?: ClientRoots;
  readonly now: () => number;
}

type FactsOf = (server: ServerConfig) => Promise<StartFacts>;
type ServerParts = AttentionParts & { readonly factsOf: FactsOf };

/** Returns all sources. */
export function attentionSources(parts: AttentionParts): readonly AttentionSource[] {
  const { state, config, now, consents } = parts;
  const factsOf = keepForAWhile((server: ServerConfig) => consents.factsOf(server), now);
  return [
    { name: 'calls that wait', find: () => waitingCalls(state, now()) },
    { name: 'plans', find: () => waitingPlans(parts) },
    { name: 'requests of agents', find: () => agentRequests(parts) },
    { name: 'servers', find: () => troubledServers({ ...parts, factsOf }) },
    { name: 'stops', find: () => stopsOf(state) },
    { name: 'budgets', find: async () => (await readBudgetStates(parts)).filter(isLow).map(lowBudget) },
    { name: 'troubles', find: () => readTroubles(state, now()).map(troubleItem) },
    {
      name: 'proof of the audit log',
      find: () => proofItems(proofStatus(config), config.audit.signing.every),
    },
    { name: 'disk', find: () => diskItems(config.state) },
    { name: 'files', find: () => cheapFindings(config, { now: now(), roots: parts.roots }).flatMap(findingItem) },
    { name: 'rules', find: () => unusedItem(unusedRules(state, now())) },
  ];
}

/** A person who watches the list makes it often, and files are read at most this often, ms. */
const READ_MS = 5_000;

function keepForAWhile(read: FactsOf, now: () => number): FactsOf {
  const kept = new WeakMap<ServerConfig, { readonly at: number; readonly facts: Promise<StartFacts> }>();
  return (server) => {
    const known = kept.get(server);
    if (known !== undefined && Math.abs(now() - known.at) < READ_MS) return known.facts;
    const facts = read(server);
    kept.set(server, { at: now(), facts });
    return facts;
  };
}

async function waitingCalls(state: State, now: number): Promise<readonly FoundItem[]> {
  const stored = await new ApprovalStore(state).list();
  return stored
    .filter(({ item }) => item.state === 'pending' && item.expires > now)
    .map(({ item: { id, asked, binding, reasons, asking } }) => ({
      kind: 'approval',
      subject: id,
      from: binding.principal.id,
      title: `${binding.principal.id} asks for ${nameOf(binding.effect)}${asking === undefined ? '' : ' from code'}`,
      detail: reasons.map((reason) => `${reason.id}: ${reason.message}`).join('; '),
      next: `tollgate approvals show ${id}`,
      since: asked,
    }));
}

function nameOf({ server, tool }: { readonly server: string; readonly tool: string }): string {
  return `${server}.${tool}`;
}

async function waitingPlans({ state, now }: AttentionParts): Promise<readonly FoundItem[]> {
  return (await listPlans(state, now()))
    .filter((plan) => plan.state === 'pending')
    .map(({ run, principal, since }) => ({
      kind: 'plan',
      subject: run,
      from: principal,
      title: `${principal} waits with a plan`,
      detail: `Run ${run}`,
      next: 'tollgate plan list',
      since,
    }));
}

async function agentRequests({ state, config }: AttentionParts): Promise<readonly FoundItem[]> {
  const requests = (await listRequests(state)).filter(({ server }) => config.servers.has(server));
  return [
    ...requests.map(
      ({ server, principal, since }): FoundItem => ({
        kind: 'server-requested',
        subject: `${server}/${principal}`,
        from: principal,
        title: `${principal} asks to enable ${server}`,
        next: `tollgate servers info ${server}`,
        since,
      }),
    ),
    ...openProposals(state, config).map(
      ({ id, principal, service, since }): FoundItem => ({
        kind: 'service-proposed',
        subject: id,
        from: principal.id,
        title: `${principal.id} proposes to connect ${service}`,
        next: `tollgate approvals show ${id}`,
        since,
      }),
    ),
  ];
}

/** One item for each server that cannot be used as it is configured. The first reason counts. */
async function troubledServers(parts: ServerParts): Promise<readonly FoundItem[]> {
  const { state, config, consents } = parts;
  const reports = await readReports(state);
  const reached = new Set([...config.profiles.values()].flatMap(({ servers }) => servers));
  const found = [...config.servers].map(async ([server, settings]): Promise<readonly FoundItem[]> => {
    const next = `tollgate servers info ${server}`;
    const item = { subject: server, next };
    const off = consents.store.disabledBy(server);
    if (off !== undefined)
      return [
        { ...item, kind: 'server-disabled', title: `${server} is disabled by ${off.by}`, since: Date.parse(off.at) },
      ];
    const consent = consentStateOf(consents.store.get(server));
    if (consent !== 'approved' && consent !== 'any tools')
      return reached.has(server)
        ? [
            {
              ...item,
              kind: 'server-unapproved',
              title: `${server} is not approved (${consent})`,
              next: `tollgate approve ${server}`,
            },
          ]
        : [];
    const changed = await changedStart(parts, settings);
    if (changed !== undefined) return [changed];
    const pending = consents.tools.pending(server);
    const failed = reports.get(server)?.find((one) => one.state === 'disabled' || one.state === 'unavailable');
    return [
      ...(pending === undefined ? [] : [changedTools(server, pending)]),
      ...(failed === undefined
        ? []
        : [
            {
              ...item,
              kind: 'server-failed' as const,
              title:
                failed.state === 'disabled' ? `${server} was given up` : `${server} has ended, and is started again`,
              detail: failed.reason ?? '',
              next: `tollgate servers --log ${server}`,
            },
          ]),
    ];
  });
  return (await Promise.all(found)).flat();
}

/** Returns the item of a server whose start differs from the approved one. */
async function changedStart(
  { consents, readsFiles, factsOf }: ServerParts,
  settings: ServerConfig,
): Promise<FoundItem | undefined> {
  const server = settings.name;
  const { consent } = consents.store.get(server);
  const noted = consents.changes.get(server);
  const isNoted = noted !== undefined && noted.approved === consent?.hash;
  if (consent === undefined || (!isNoted && readsFiles !== true)) return undefined;
  const now = await factsOf(settings);
  if (changedStartRefusal(server, consent, now) === undefined) return undefined;
  const changes = startChanges(consent.facts, now);
  return {
    kind: 'server-changed',
    subject: server,
    title:
      changes.length === 0
        ? `${server} is not started, because an agent could change what it runs`
        : `${server} changed since it was approved: ${changedNames(changes)}`,
    detail: changes.map(changeWords).join('; '),
    next: `tollgate approve ${server}`,
    since: isNoted ? Date.parse(noted.since) : undefined,
  };
}

/** Names of tools are texts of the server, so only their numbers are told. */
function changedTools(server: string, { since, changed, added, removed, more = 0 }: PendingItem): FoundItem {
  const counts = [
    [changed.length, 'changed'],
    [added.length, 'added'],
    [removed.length, 'removed'],
    [more, 'more'],
  ] as const;
  const words = counts.filter(([count]) => count > 0).map(([count, word]) => `${count} ${word}`);
  return {
    kind: 'tools-changed',
    subject: server,
    title: `Tools of ${server} differ from what was approved: ${words.join(', ')}`,
    next: `tollgate approve ${server}`,
    since: Date.parse(since),
  };
}

function stopsOf(state: State): readonly FoundItem[] {
  const kills = new KillSwitch(state).list().map(
    ({ server, since, by }): FoundItem => ({
      kind: server === undefined ? 'switched-off' : 'server-killed',
      subject: server ?? '',
      title: server === undefined ? `Everything is switched off by ${by}` : `${server} was killed by ${by}`,
      next: 'tollgate kill',
      since: Date.parse(since),
    }),
  );
  const suspensions = new Suspensions(state).list().map(
    ({ principal, since, until, by }): FoundItem => ({
      kind: 'suspended',
      subject: principal,
      title: `${principal} is suspended by ${by}${until === undefined ? '' : ` until ${until}`}`,
      next: 'tollgate suspend',
      since: Date.parse(since),
    }),
  );
  return [...kills, ...suspensions];
}

/** The part of a budget from which on it is nearly spent. */
const LOW = 0.9;

function isLow(budget: BudgetState): boolean {
  return shareOf(budget) >= LOW;
}

function lowBudget(budget: BudgetState): FoundItem {
  const { budget: id, scope, key, unit, spent, limit, left, returns } = budget;
  return {
    kind: left === 0 ? 'budget-spent' : 'budget-low',
    subject: `${id} ${scope} ${unit} ${key}`,
    from: key,
    title: `Budget ${id} of ${key}: ${spent} of ${limit} ${unit} are spent`,
    detail: returns === undefined ? `It is full again when its ${scope} ends.` : `It is full again at ${returns}.`,
    next: 'tollgate budgets',
  };
}

const TROUBLES = {
  'policy-failed': [
    'The policy could not decide, so calls were refused',
    'tollgate audit list --outcome error --since 2h',
  ],
  'reload-refused': ['A changed configuration was refused; the earlier one is in force', 'tollgate check'],
  'notices-failed': ['The webhook does not take notices; look at its address in tollgate.yaml', 'tollgate check'],
  'audit-failed': ['Records could not be written, so calls were refused', 'tollgate audit verify'],
  'heads-failed': ['A replica cannot publish the head of its audit log', 'tollgate audit list --type proof'],
} as const satisfies Readonly<Record<Trouble['kind'], readonly [string, string]>>;

function troubleItem({ kind, since, last, code }: Trouble): FoundItem {
  const [title, next] = TROUBLES[kind];
  return { kind, subject: kind, title, detail: `${code}, last at ${new Date(last).toISOString()}`, next, since };
}

/** `most`: so many records may follow a checkpoint until the next one is signed. */
function proofItems({ unsigned, last, keyInState, fault }: ProofStatus, most: number): readonly FoundItem[] {
  const item = { subject: 'audit', next: 'tollgate audit verify' };
  const signed = last === undefined ? 'nothing is signed' : `signed until ${last.at}`;
  return [
    ...(fault === undefined
      ? []
      : [{ ...item, kind: 'audit-fault' as const, title: 'The audit log is damaged', detail: fault }]),
    ...(unsigned <= most
      ? []
      : [
          {
            ...item,
            kind: 'audit-unproven' as const,
            title: `${plural(unsigned, 'record')} of the audit log are not proven: ${signed}`,
            since: last === undefined ? undefined : Date.parse(last.at),
          },
        ]),
    ...(keyInState
      ? [
          {
            ...item,
            kind: 'key-exposed' as const,
            title: 'The key of the audit log is in the state folder, next to the log',
          },
        ]
      : []),
  ];
}

/** Free space below which a disk is nearly full: bytes, and part of the disk. */
const [MIN_FREE, MIN_SHARE] = [256 * 1024 * 1024, 0.02];

function diskItems(folder: string): readonly FoundItem[] {
  const { bavail, blocks, bsize } = statfsSync(folder);
  const free = bavail * bsize;
  if (free >= MIN_FREE && (bavail >= blocks * MIN_SHARE || free >= 40 * MIN_FREE)) return [];
  return [
    {
      kind: 'disk-full',
      subject: 'state',
      title: `The disk of the state folder has ${Math.floor(free / 1_048_576)} MiB left; without space nothing runs`,
      next: 'tollgate audit archive --help',
    },
  ];
}

function findingItem({ id, state, name, seen, repair }: DoctorFinding): readonly FoundItem[] {
  if (state === 'ok') return [];
  const kind = state === 'missing' ? 'finding-missing' : 'finding-weak';
  // Those can be found more than once.
  const subject = id === 'bypass' || id === 'unusable-server' ? `${id} ${name}` : id;
  return [{ kind, subject, title: `${name}: ${seen}`, next: repair ? 'tollgate doctor --fix' : 'tollgate doctor' }];
}

function unusedItem(unused: ReturnType<typeof unusedRules>): readonly FoundItem[] {
  if (unused === undefined) return [];
  const { ids, since } = unused;
  const title = `${plural(ids.length, 'rule')} decided no call in a week or more`;
  return [
    { kind: 'rules-unused', subject: 'rules', title, detail: listNames(ids), next: 'tollgate policy suggest', since },
  ];
}
