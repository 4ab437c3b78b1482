/**
 * Shows requests for approval in a list, and as data; and what agents propose to connect. Texts of agents are redacted,
 * and in a terminal escaped.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { durationText } from '../../consent/approvals/approval-text.ts';
import type { Approval } from '../../consent/approvals/call-approval.ts';
import type { ConnectionProposal } from '../../internal-servers/connection-proposals.ts';
import type { Redactor } from '../../output/redactor.ts';
import { mapStrings } from '../../output/result-cleaning.ts';
import { DEFAULT_CONFIG } from '../config-file.ts';
import { type Cell, commandLine, printable } from '../print.ts';

const STATE_COLOURS = { pending: 'yellow', approved: 'green', denied: 'red', withdrawn: 'dim' } as const;
/** Characters of the arguments in a list. They are enough to tell requests apart. */
const BEGINNING = 60;

/** How a list is shown. `awaited`: ids of the requests that a call waits for. */
export interface ListView {
  readonly redactor: Redactor;
  readonly awaited: ReadonlySet<string>;
  readonly now: number;
}

/** The columns of `approvals list`. */
export const APPROVAL_COLUMNS = ['ID', 'STATE', 'PRINCIPAL', 'CALL', 'RULE', 'EXPIRES'] as const;

/** Returns the row of a request, for APPROVAL_COLUMNS. */
export function approvalRow(item: Approval, { redactor, awaited, now }: ListView): readonly Cell[] {
  const { principal, effect } = item.binding;
  const caller = awaited.has(item.id) ? ', caller waits' : ', caller has gone';
  const wider = item.loop === undefined ? item.scope : 'loop';
  const scope = wider === 'call' ? '' : ` for this ${wider}`;
  return [
    item.id,
    { text: `${item.state}${item.state === 'pending' ? caller : scope}`, colour: STATE_COLOURS[item.state] },
    principal.id,
    `${effect.server}.${effect.tool} ${beginningOf(item, redactor)}`,
    item.reasons.map(({ id }) => id).join(', '),
    `in ${durationText(item.expires - now)}`,
  ];
}

/**
 * Returns the beginning of the arguments. The text is redacted before it is cut, because half a secret would not be
 * recognised.
 */
export function beginningOf({ argsText }: Approval, redactor: Redactor): string {
  const text = redactor.redact(argsText).value.replaceAll('[redacted]', '***');
  return printable(text.length > BEGINNING ? `${text.slice(0, BEGINNING)}…` : text);
}

/** Returns a request as data, with the arguments as the exact text that will be sent. */
export function approvalData(item: Approval, redactor: Redactor): Readonly<Record<string, unknown>> {
  const {
    id,
    state,
    scope,
    widest,
    binding,
    hash,
    reasons,
    session,
    run,
    call,
    uses,
    concealed,
    decided,
    asking,
    loop,
  } = item;
  const data = {
    id,
    state,
    scope,
    widest,
    principal: binding.principal,
    server: binding.effect.server,
    tool: binding.effect.tool,
    verb: binding.effect.verb,
    effect: binding.effect,
    arguments: item.argsText,
    concealed,
    reasons,
    session,
    run,
    call,
    uses,
    binding: hash,
    asked: new Date(item.asked).toISOString(),
    expires: new Date(item.expires).toISOString(),
    ...(asking !== undefined && { coderun: { id: asking.id, again: asking.again, ...asking.shown } }),
    ...(loop !== undefined && { loop: { ...loop, until: new Date(loop.until).toISOString() } }),
    ...(decided === undefined ? {} : { decided: { ...decided, at: new Date(decided.at).toISOString() } }),
  };
  return mapStrings(data, (text) => redactor.redact(text).value) as typeof data;
}

/** Returns a proposal as lines, with the commands that decide it. */
export function proposalText(
  { id, principal, service, reason, since }: ConnectionProposal,
  { redactor, now, config }: { readonly redactor: Redactor; readonly now: number; readonly config: string },
): string {
  const said = printable(JSON.stringify(redactor.redact(reason).value));
  const age = durationText(now - since);
  return [
    `Proposal ${id}: an agent of ${printable(principal.id)} wants to connect a service (${age} ago)`,
    `  service          ${printable(service)}`,
    `  the agent wrote  ${said}`,
    '                   No one has checked this text or the service.',
    `  connect it       ${connectCommand(service, config)}`,
    `  decline it       ${commandLine(['tollgate', 'approvals', 'deny', id, ...configWords(config)])}`,
    '',
  ].join('\n');
}

/** Returns a proposal as data. */
export function proposalData(
  { id, principal, service, reason, since }: ConnectionProposal,
  { redactor, config }: { readonly redactor: Redactor; readonly config: string },
): Readonly<Record<string, string>> {
  const said = redactor.redact(reason).value;
  return {
    id,
    principal: principal.id,
    service,
    reason: said,
    since: new Date(since).toISOString(),
    command: connectCommand(service, config),
  };
}

/** Finds a proposal by its id or the beginning of it. */
export function findProposal(proposals: readonly ConnectionProposal[], id: string): ConnectionProposal | undefined {
  const found = id.startsWith('p-') ? proposals.filter((one) => one.id.startsWith(id)) : [];
  return found.length === 1 ? found[0] : undefined;
}

/** Returns the refusal of an approval: only the person who runs `connect` agrees to what it installs. */
export function notByApproval({ id, service }: ConnectionProposal, config: string): TollgateError {
  return new TollgateError('USAGE', {
    detail: `${id} is a proposal to connect ${printable(service)}, and an approval connects nothing.`,
    next: `Run \`${connectCommand(service, config)}\`, or decline it: tollgate approvals deny ${id}`,
  });
}

/** The form of a service has no character that a shell interprets (see PROPOSED_SERVICE in catalogs/servers). */
function connectCommand(service: string, config: string): string {
  return commandLine(['tollgate', 'connect', service, ...configWords(config)]);
}

/** Commands name the configuration as the owner did, unless it is the default. */
function configWords(config: string): readonly string[] {
  return config === DEFAULT_CONFIG ? [] : ['--config', config];
}
