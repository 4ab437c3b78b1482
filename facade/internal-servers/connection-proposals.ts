/**
 * Stores what agents propose to connect, for an owner to decide. A proposal is a text: it installs, contacts and
 * changes nothing. All proposals of one principal are one row, so that several processes keep the limit together.
 */
import { randomBytes } from 'node:crypto';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { AuditPrincipal } from '../audit/audit-entry.ts';
import type { Config } from '../config/config.ts';
import type { State } from '../state/state-port.ts';

/** Proposals of one principal that may wait for an owner. */
export const MAX_OPEN = 3;
/** Declined proposals of one principal that are kept, so that the same one is not made again. */
const MAX_DECLINED = 20;

/** A proposal. `since`: ms since 1970. */
export interface ConnectionProposal {
  /** `p-` and 8 hexadecimal digits. */
  readonly id: string;
  readonly principal: AuditPrincipal;
  /** A known server or an https address, of a form that a shell reads as one word. */
  readonly service: string;
  /** Text of the agent, up to 500 characters. It is shown to the owner only, as what an agent said. */
  readonly reason: string;
  readonly since: number;
  readonly declined?: { readonly by: string; readonly at: number; readonly reason?: string };
}

/** A proposal as it is stored: this one, or the one that the principal made before, which may be declined. */
export interface ProposalAnswer {
  readonly proposal: ConnectionProposal;
  readonly isNew: boolean;
}

const SPACE = 'proposals';

/**
 * Stores a proposal, unless the principal has made it before. `isAnswered`: whether a proposal no longer waits, because
 * the service is connected. Throws BUDGET_EXCEEDED if too many wait, and STATE_FAILED.
 */
export async function propose(
  state: State,
  { principal, service, reason, since }: Omit<ConnectionProposal, 'id' | 'declined'>,
  isAnswered: (service: string) => boolean,
): Promise<ProposalAnswer> {
  const proposal = { id: `p-${randomBytes(4).toString('hex')}`, principal, service, reason, since };
  let found: ConnectionProposal | undefined;
  await change(state, principal.id, (all) => {
    const kept = all.filter((one) => !isAnswered(one.service));
    found = kept.find((one) => one.service === service);
    if (found !== undefined) return kept;
    if (kept.filter(({ declined }) => declined === undefined).length >= MAX_OPEN)
      throw new TollgateError('BUDGET_EXCEEDED', {
        detail: `${MAX_OPEN} of your proposals wait for a person, and no more are taken.`,
        next: 'Continue without this service. Ask the user to look at: tollgate approvals list',
      });
    return [...kept, proposal];
  });
  return { proposal: found ?? proposal, isNew: found === undefined };
}

/** Returns the proposals that wait for an owner, the oldest first. Throws STATE_FAILED. */
export function openProposals(state: State, config: Pick<Config, 'servers'>): readonly ConnectionProposal[] {
  return [...state.list(SPACE).values()]
    .flatMap(parsed)
    .filter(({ service, declined }) => declined === undefined && !isConnected(config, service))
    .sort((one, other) => one.since - other.since);
}

/** Declines a proposal. Returns false if it does not wait any more. Throws STATE_FAILED. */
export async function declineProposal(
  state: State,
  { id, principal }: ConnectionProposal,
  declined: NonNullable<ConnectionProposal['declined']>,
): Promise<boolean> {
  let isDone = false;
  await change(state, principal.id, (all) => {
    isDone = all.some((one) => one.id === id && one.declined === undefined);
    const next = all.map((one) => (one.id === id && one.declined === undefined ? { ...one, declined } : one));
    const old = next.filter((one) => one.declined !== undefined).slice(0, -MAX_DECLINED);
    return next.filter((one) => !old.includes(one));
  });
  return isDone;
}

/** Returns whether a server of the configuration has the name or the address of a service. */
export function isConnected({ servers }: Pick<Config, 'servers'>, service: string): boolean {
  const address = (text: string): string => text.replace(/\/$/, '');
  return (
    servers.has(service) ||
    [...servers.values()].some(({ url }) => url !== undefined && address(url) === address(service))
  );
}

/** Returns how records name a service: a known name, or the host of an address. */
export function proposedName(service: string): string {
  return URL.canParse(service) ? new URL(service).hostname : service;
}

/** Replaces the row of a principal. Tries again if another process has changed it meanwhile. */
async function change(
  state: State,
  principal: string,
  next: (all: readonly ConnectionProposal[]) => readonly ConnectionProposal[],
): Promise<void> {
  for (;;) {
    await state.refresh();
    const from = state.get(SPACE, principal);
    const to = JSON.stringify(next(from === undefined ? [] : parsed(from)));
    if (from === to || (await state.swap(SPACE, principal, { ...(from !== undefined && { from }), to }))) return;
  }
}

function parsed(row: string): readonly ConnectionProposal[] {
  return JSON.parse(row) as readonly ConnectionProposal[];
}
