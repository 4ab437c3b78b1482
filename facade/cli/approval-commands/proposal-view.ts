/** Shows what agents propose to connect. All texts of agents are escaped, redacted, and marked as theirs. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { durationText } from '../../consent/approvals/approval-text.ts';
import type { ConnectionProposal } from '../../internal-servers/connection-proposals.ts';
import type { Redactor } from '../../output/redactor.ts';
import { printable } from '../print.ts';

/** Returns a proposal as lines, with the commands that decide it. */
export function proposalText(
  { id, principal, service, reason, since }: ConnectionProposal,
  { redactor, now }: { readonly redactor: Redactor; readonly now: number },
): string {
  const said = printable(JSON.stringify(redactor.redact(reason).value));
  return [
    `Proposal ${id}: an agent of ${printable(principal.id)} wants to connect a service (${durationText(now - since)} ago)`,
    `  service          ${printable(service)}`,
    `  the agent wrote  ${said}`,
    '                   No one has checked this text or the service.',
    `  connect it       ${commandOf(service)}`,
    `  decline it       tollgate approvals deny ${id}`,
    '',
  ].join('\n');
}

/** Returns a proposal as data. */
export function proposalData(
  { id, principal, service, reason, since }: ConnectionProposal,
  redactor: Redactor,
): Readonly<Record<string, string>> {
  const said = redactor.redact(reason).value;
  return {
    id,
    principal: principal.id,
    service,
    reason: said,
    since: new Date(since).toISOString(),
    command: commandOf(service),
  };
}

/** Finds a proposal by its id or the beginning of it. */
export function findProposal(proposals: readonly ConnectionProposal[], id: string): ConnectionProposal | undefined {
  const found = id.startsWith('p-') ? proposals.filter((one) => one.id.startsWith(id)) : [];
  return found.length === 1 ? found[0] : undefined;
}

/** Returns the refusal of an approval: only the person who runs `connect` agrees to what it installs. */
export function notByApproval({ id, service }: ConnectionProposal): TollgateError {
  return new TollgateError('USAGE', {
    detail: `${id} is a proposal to connect ${printable(service)}, and an approval connects nothing.`,
    next: `Run \`${commandOf(service)}\`, or decline it: tollgate approvals deny ${id}`,
  });
}

/** The form of a service has no character that a shell interprets (see PROPOSED_SERVICE in catalogs/servers). */
function commandOf(service: string): string {
  return `tollgate connect ${service}`;
}
