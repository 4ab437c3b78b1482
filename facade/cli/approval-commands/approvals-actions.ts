/**
 * Runs `approvals list`, `show`, `approve` and `deny`. Only an owner sees and decides requests, and approves only what
 * was shown.
 */
import { isObject } from '../../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ApprovalScope } from '../../../policies/port.ts';
import type { AuditEntry } from '../../audit/audit-entry.ts';
import type { Config } from '../../config/config.ts';
import { approvalText } from '../../consent/approvals/approval-text.ts';
import { approveRequest, type Decider, denyRequest, refuseOver } from '../../consent/approvals/approval-verdict.ts';
import { awaitedRequests } from '../../consent/approvals/approval-wait.ts';
import {
  type Approval,
  ApprovalStore,
  approvalEntry,
  type StoredApproval,
} from '../../consent/approvals/call-approval.ts';
import type { LoopTerms } from '../../consent/approvals/loop-approval.ts';
import { KillSwitch } from '../../consent/switch/kill-switch.ts';
import {
  type ConnectionProposal,
  declineProposal,
  openProposals,
  proposedName,
} from '../../internal-servers/connection-proposals.ts';
import { Redactor } from '../../output/redactor.ts';
import { registerSecrets } from '../../runtime/shared-services.ts';
import type { State } from '../../state/state-port.ts';
import { type OwnerOptions, readDecider } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { withDecisions } from '../command-state.ts';
import { readTime } from '../durations.ts';
import { json, plural, printable, printList, printResult } from '../print.ts';
import { askYes, isInteractive } from '../terminal-prompt.ts';
import { inRows } from '../terminal-rows.ts';
import {
  APPROVAL_COLUMNS,
  approvalData,
  approvalRow,
  findProposal,
  notByApproval,
  proposalData,
  proposalText,
} from './approval-view.ts';

/** The least number of digits of the binding that `--yes` must name. */
const MIN_HASH = 12;
/** The next step for an owner who asked for the call. */
const OWN = 'Approve it at a terminal, or let another owner approve it with --as.';

/** Prints the requests that wait and those that were decided. Throws CONFIG_INVALID, IDENTITY, STATE_FAILED. */
export async function runApprovalList(options: OwnerOptions, io: Io): Promise<number> {
  return withApprovals(options, io, async ({ config, store, record, redactor, now, state }) => {
    const awaited = await awaitedRequests(state);
    const items = (await store.sweep(now, (item) => record(approvalEntry(item, 'expired')))).map(({ item }) => item);
    const pending = items.filter((item) => item.state === 'pending').length;
    const proposals = openProposals(state, config);
    printList(
      { io, options },
      {
        data: {
          approvals: items.map((item) => ({ ...approvalData(item, redactor), awaited: awaited.has(item.id) })),
          proposals: proposals.map((one) => proposalData(one, { redactor, config: options.config })),
        },
        columns: APPROVAL_COLUMNS,
        rows: items.map((item) => approvalRow(item, { redactor, awaited, now })),
        empty: proposals.length === 0 ? 'Nothing waits for approval.' : 'No call waits for approval.',
        summary:
          pending === 0
            ? 'Nothing waits for a decision.'
            : `${plural(pending, 'request')} to decide. Read one completely: tollgate approvals show ID`,
      },
    );
    if (options.json !== true)
      for (const one of proposals) io.stdout(inRows(io, proposalText(one, { redactor, now, config: options.config })));
    return EXIT.ok;
  });
}

/**
 * Prints one request with all its arguments. Throws USAGE for an unknown id or one that fits several requests, else as
 * `runApprovalList`.
 */
export async function runApprovalShow(
  options: OwnerOptions & { readonly id: string; readonly all?: true },
  io: Io,
): Promise<number> {
  return withApprovals(options, io, async ({ config, state, store, redactor, now }) => {
    const proposal = findProposal(openProposals(state, config), options.id);
    if (proposal !== undefined) {
      const view = { redactor, now, config: options.config };
      io.stdout(options.json === true ? json(proposalData(proposal, view)) : inRows(io, proposalText(proposal, view)));
      return EXIT.ok;
    }
    const { item } = await findOne(store, options.id, now);
    io.stdout(
      options.json === true
        ? json(approvalData(item, redactor))
        : inRows(io, approvalText(item, { redactor, now, isWhole: options.all === true })),
    );
    if (options.json !== true && item.state === 'pending')
      io.stderr(`Decide: tollgate approvals approve ${item.id}, or: tollgate approvals deny ${item.id}\n`);
    return EXIT.ok;
  });
}

/**
 * Approves a request after it was shown: by an answer at the terminal, or by the hash of what was shown. Throws as
 * `runApprovalShow`, and AUDIT_FAILED.
 */
export async function runApproveCall(options: VerdictOptions, io: Io): Promise<number> {
  return withApprovals(options, io, async ({ config, store, redactor, now, decider, state }) => {
    const proposal = findProposal(openProposals(state, config), options.id);
    if (proposal !== undefined) throw notByApproval(proposal, options.config);
    const stored = await findOne(store, options.id, now);
    const { item } = stored;
    refuseOver(item);
    if (options.yes === undefined) io.stderr(inRows(io, approvalText(item, { redactor, now, isWhole: true })));
    if (item.state === 'pending' && !(await awaitedRequests(state)).has(item.id))
      io.stderr(
        'No call waits for this approval any more: the caller has gone, or was told to ask again. ' +
          'The call is made only if the caller repeats it.\n',
      );
    const stopped = new KillSwitch(state).refusalOf(item.binding.effect.server);
    if (stopped !== undefined) io.stderr(`It cannot run now: ${stopped.message}\n`);
    if (!(await isConfirmed({ options, item, by: decider.by }, io))) {
      io.stderr('Nothing was decided.\n');
      return EXIT.refused;
    }
    const { expireMs } = config.approvals;
    const loop = loopOf(item, options);
    const approved = await approveRequest(store, stored, {
      ...decider,
      now: Date.now(),
      scope: options.for ?? 'call',
      expireMs,
      ...(loop !== undefined && { loop }),
    });
    const what =
      approved.loop !== undefined
        ? `Run ${approved.asking?.id} may make ${plural(approved.loop.max, 'such call')}`
        : approved.scope === 'call'
          ? 'This call may be made once'
          : `${item.binding.principal.id} may make calls of this ${approved.scope} in this run`;
    printResult(
      { io, options },
      approvalData(approved, redactor),
      `Approved: ${what}, until ${new Date(approved.loop?.until ?? approved.expires).toISOString()}. ` +
        `Withdraw it with: tollgate approvals deny ${item.id}`,
    );
    return EXIT.ok;
  });
}

/**
 * Denies a request, or withdraws an approval. It asks no question, because it opens nothing. Throws as
 * `runApproveCall`.
 */
export async function runDeny(options: VerdictOptions, io: Io): Promise<number> {
  return withApprovals(options, io, async ({ config, state, store, redactor, now, decider }) => {
    const proposal = findProposal(openProposals(state, config), options.id);
    if (proposal !== undefined) return decline(proposal, { options, state, decider }, io);
    const stored = await findOne(store, options.id, now);
    const denied = await denyRequest(store, stored, {
      ...decider,
      expireMs: config.approvals.expireMs,
      ...(options.reason === undefined ? {} : { reason: options.reason }),
    });
    const after =
      stored.item.scope === 'call'
        ? `this call is refused until ${new Date(denied.expires).toISOString()}`
        : 'the calls that it covered ask again';
    printResult({ io, options }, approvalData(denied, redactor), `Denied: ${after}.`);
    return EXIT.ok;
  });
}

/** Records the decision first: what cannot be recorded is not declined. */
async function decline(
  proposal: ConnectionProposal,
  { options, state, decider }: { readonly options: VerdictOptions } & Pick<ApprovalContext, 'state' | 'decider'>,
  io: Io,
): Promise<number> {
  const { id, principal, service } = proposal;
  const { by, now, record } = decider;
  record({
    type: 'approval',
    event: 'proposal-declined',
    id,
    outcome: 'deny',
    principal,
    server: proposedName(service),
    by,
  });
  const { reason } = options;
  await declineProposal(state, proposal, { by, at: now, ...(reason !== undefined && { reason }) });
  printResult(
    { io, options },
    { id, service, state: 'declined' },
    `Declined: ${service} is not proposed again by ${principal.id}.`,
  );
  return EXIT.ok;
}

/** What each of these commands works with. */
export interface ApprovalContext {
  readonly config: Config;
  readonly state: State;
  readonly store: ApprovalStore;
  readonly redactor: Redactor;
  readonly now: number;
  readonly record: (entry: AuditEntry) => void;
  readonly decider: Decider;
}

/**
 * Opens state, audit log and requests for an owner, and closes them. Throws CONFIG_INVALID, IDENTITY, STATE_FAILED, and
 * what `work` throws.
 */
export async function withApprovals(
  options: OwnerOptions,
  io: Io,
  work: (context: ApprovalContext) => Promise<number>,
): Promise<number> {
  const { config, by } = readDecider(options, 'decides about calls', io);
  const redactor = new Redactor();
  registerSecrets(redactor, config);
  const now = Date.now();
  return withDecisions(config, io, ({ state, append: record }) =>
    work({ config, state, store: new ApprovalStore(state), redactor, now, record, decider: { by, now, record } }),
  );
}

/** Finds a request by its id, or by the beginning of it if that fits no other id. */
async function findOne(store: ApprovalStore, id: string, now: number): Promise<StoredApproval> {
  const live = (await store.list()).filter(({ item }) => item.expires > now);
  const found = live.filter(({ item }) => item.id.startsWith(id));
  const [one] = found;
  if (one !== undefined && found.length === 1) return one;
  const detail =
    found.length === 0
      ? `There is no approval ${JSON.stringify(printable(id.slice(0, 40)))}: it may have been used, or it has expired.`
      : `${id} is the beginning of ${found.length} approvals.`;
  throw new TollgateError('USAGE', { detail, next: '`tollgate approvals list` shows all of them.' });
}

/**
 * Returns whether a person has seen the request and agrees. An agent that can run commands must not approve its own
 * request.
 */
async function isConfirmed(
  { options, item, by }: { readonly options: VerdictOptions; readonly item: Approval; readonly by: string },
  io: Io,
): Promise<boolean> {
  const isOwn = by === item.binding.principal.id;
  if (options.yes === undefined) {
    if (isInteractive(io)) return askYes(io, `Approve this ${options.for ?? 'call'}?`);
    throw new TollgateError('APPROVAL_REQUIRED', {
      detail: 'There is no terminal to ask at, so nothing was decided.',
      next: isOwn ? OWN : `Name what you approve: --yes ${item.hash.slice(0, MIN_HASH)}`,
    });
  }
  if (isOwn && !isInteractive(io))
    throw new TollgateError('IDENTITY', {
      detail: `${by} asks for this call, and may approve its own calls only at a terminal.`,
      next: OWN,
    });
  if (!new RegExp(`^[0-9a-f]{${MIN_HASH},64}$`).test(options.yes) || !item.hash.startsWith(options.yes)) {
    throw new TollgateError('USAGE', {
      detail: `--yes does not name the binding of ${item.id}.`,
      next:
        `Read the request with \`tollgate approvals show ${item.id}\`, ` +
        `and give --yes the first ${MIN_HASH} digits or more of its binding.`,
    });
  }
  return true;
}

/** Returns the terms of a loop: those that were shown, changed by the options. Throws USAGE. */
function loopOf({ id, asking }: Approval, { loop, max, where, within }: VerdictOptions): LoopTerms | undefined {
  if (loop !== true) {
    if (max === undefined && where === undefined && within === undefined) return undefined;
    throw new TollgateError('USAGE', { detail: '--max, --where and --within belong to --loop.', next: 'Add --loop.' });
  }
  const proposal = asking?.shown?.proposal ?? { max: 0, where: {}, withinMs: 0 };
  const terms: LoopTerms = {
    max: max ?? proposal.max,
    where: where === undefined ? proposal.where : readSchema(where),
    withinMs: within === undefined ? proposal.withinMs : readTime(within, '--within'),
  };
  if (asking?.shown !== undefined && terms.max === 0)
    throw new TollgateError('USAGE', {
      detail: `The dry run of ${id} found no call that a loop could cover.`,
      next: 'Give --max and --where, or approve this call alone.',
    });
  return terms;
}

function readSchema(text: string): LoopTerms['where'] {
  const problem = { next: `Give JSON, such as --where '{"properties": {"repo": {"const": "docs"}}}'.` };
  try {
    const value: unknown = JSON.parse(text);
    if (isObject(value)) return value;
  } catch (cause) {
    throw new TollgateError('USAGE', { detail: '--where is not JSON.', ...problem, cause });
  }
  throw new TollgateError('USAGE', { detail: '--where is not an object.', ...problem });
}

/** Options of `approve` and `deny`. */
export interface VerdictOptions extends OwnerOptions {
  readonly id: string;
  readonly loop?: true;
  readonly max?: number;
  readonly where?: string;
  readonly within?: string;
  readonly for?: ApprovalScope;
  readonly reason?: string;
  readonly yes?: string;
}
