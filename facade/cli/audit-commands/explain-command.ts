/** Runs `tollgate explain`: all that is known of one call, on one screen. It makes no call. */
import type { Explanation } from '../../../policies/authoring/authoring-port.ts';
import type { IndexedRecord } from '../../audit/index/audit-index.ts';
import type { AuditReader } from '../../audit/index/audit-reader.ts';
import { isWhole } from '../../audit/recording/decision-recording.ts';
import { createConceal } from '../../audit/recording/recording-redaction.ts';
import type { Config } from '../../config/config.ts';
import { policyParts } from '../../runtime/policy-parts.ts';
import { readServerLog } from '../../runtime/servers/server-logs.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { explanationText } from '../policy-commands/policy-why-view.ts';
import { json, MAX_COLUMNS, paint, printable, wrapWords } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { warnOfChanges, withReader } from './audit-command.ts';
import { calledTool, factsOf, rowOf } from './audit-view.ts';
import { RECORDED_STATES, type RecordedArguments, recordedCall } from './recorded-call.ts';

/** Lines of the server log, and calls inside of the call, that are shown. */
const MAX_LINES = 20;
/** A server may write a moment after its answer. */
const LOG_MS = 1000;

/** What is known of a call. */
interface KnownCall {
  readonly records: readonly IndexedRecord[];
  readonly recorded: RecordedArguments;
  /** By the present policy; absent if the arguments are not there. */
  readonly why?: Explanation;
  readonly approvals: readonly IndexedRecord[];
  readonly inside: readonly IndexedRecord[];
  readonly log: readonly string[];
}

/** Exit code 1 if there is no call with this id. Throws USAGE, CONFIG_INVALID, STATE_FAILED. */
export function runExplain(options: CommonOptions & { readonly id: string }, io: Io, wiring: Wiring): Promise<number> {
  const config = readConfig(options, io);
  return withReader(options, io, async (reader) => {
    const records = reader.find(options.id);
    if (records.length === 0) {
      io.stderr(`There is no call with the id ${printable(options.id)}.\n`);
      return EXIT.unexpected;
    }
    const recorded = recordedCall(config, records);
    const explain = async (): Promise<Explanation | undefined> =>
      recorded.state === 'kept' && isWhole(recorded.recording)
        ? wiring.authoring.explain(policyParts(config, options), recorded.recording.input)
        : undefined;
    const why = await explain();
    const call: KnownCall = {
      records,
      recorded,
      ...(why !== undefined && { why: createConceal(config)({ ...why }) }),
      ...aroundOf(reader, records),
      log: logOf(config, records),
    };
    io.stdout(options.json === true ? json(dataOf(call)) : callText(io, call));
    if (why === undefined && recorded.state === 'none')
      io.stderr('Without recorded arguments, what would change the decision is not known. See audit.facts: full.\n');
    warnOfChanges(io, records);
    return EXIT.ok;
  });
}

/** Approvals that the call asked for or used, and calls that it made. */
function aroundOf(reader: AuditReader, records: readonly IndexedRecord[]): Pick<KnownCall, 'approvals' | 'inside'> {
  const first = records[0]?.record as { readonly id?: string } | undefined;
  const id = first?.id ?? '';
  const consents = new Set(records.flatMap(({ record }) => ('consent' in record ? [String(record.consent)] : [])));
  const asked = reader.page({ call: id, type: 'approval' }, { limit: MAX_LINES }).records;
  for (const { record } of asked) if ('id' in record) consents.add(String(record.id));
  const approvals = [...consents].flatMap(
    (approval) => reader.page({ approval, type: 'approval' }, { limit: MAX_LINES }).records,
  );
  const inside = reader.page({ parent: id, callsOnly: true }, { limit: MAX_LINES }).records;
  return { approvals: [...approvals].reverse(), inside: [...inside].reverse() };
}

/** The newest lines that the server of the call wrote during it. Calls at the same time share the log. */
function logOf(config: Config, records: readonly IndexedRecord[]): readonly string[] {
  const server = records.map(({ record }) => ('server' in record ? record.server : undefined)).find(Boolean);
  const [first, last] = [records[0]?.record.ts, records.at(-1)?.record.ts];
  if (typeof server !== 'string' || first === undefined || last === undefined || !config.servers.has(server)) return [];
  const until = new Date(Date.parse(last) + LOG_MS).toISOString();
  const lines = (readServerLog(config.state, server) ?? '').split('\n');
  return lines.filter((line) => line.slice(0, 24) >= first && line.slice(0, 24) <= until).slice(-MAX_LINES);
}

function dataOf({ records, recorded, why, approvals, inside, log }: KnownCall): unknown {
  const plain = (found: readonly IndexedRecord[]): unknown => found.map(({ record }) => record);
  return {
    records: plain(records),
    recorded: recorded.state,
    ...(recorded.state === 'kept' && { args: recorded.args }),
    ...(why !== undefined && { why }),
    approvals: plain(approvals),
    inside: plain(inside),
    log,
  };
}

function callText(io: Pick<Io, 'isTTY'>, call: KnownCall): string {
  const { records, recorded, why, approvals, inside, log } = call;
  const first = records[0] as IndexedRecord;
  const fields = Object.assign({}, ...records.map(({ record }) => record)) as Readonly<Record<string, unknown>>;
  const last = records.at(-1) ?? first;
  const [time, outcome, , , ms, , reasons] = rowOf(last).map(plainCell);
  const tool = calledTool(last);
  const { principal, session, run, by, budget, scope, limit, left, sizes, obligations } = fields as {
    readonly principal?: { readonly id: string; readonly role: string };
    readonly sizes?: Readonly<Record<string, number>>;
    readonly obligations?: { readonly budgets?: readonly string[] };
  } & Readonly<Record<string, unknown>>;
  const who = [
    `${principal?.id ?? '?'} (${principal?.role ?? '?'})`,
    by && `by ${by}`,
    `session ${session}`,
    `run ${run}`,
  ];
  const budgets = [
    ...(obligations?.budgets ?? []),
    ...(budget === undefined ? [] : [`${budget} (${scope}) refused the call: limit ${limit}, left ${left}`]),
  ];
  const output = Object.entries({ ...sizes, redactions: fields.redactions, escaped: fields.escaped })
    .filter(([, count]) => typeof count === 'number' && count > 0)
    .map(([name, count]) => `${name} ${count}`);
  const args = recorded.state === 'kept' ? JSON.stringify(recorded.args) : RECORDED_STATES[recorded.state];
  const events = (found: readonly IndexedRecord[]): string[] =>
    found.map((one) => rowOf(one).map(plainCell).filter(Boolean).join('  '));
  return [
    paint(io, 'bold', printable(`${outcome}  ${tool}`)) + printable(`  ${time}${ms === '' ? '' : `  ${ms} ms`}`),
    ...section(io, 'Who', [who.filter(Boolean).join(' · ')]),
    ...section(io, 'Asked', [
      ...[factsOf(first)].filter(Boolean),
      `arguments ${cut(args ?? 'too large to be recorded')}`,
    ]),
    ...section(io, 'Decided', [
      reasons === '' ? 'by no rule: the call ended before or after the policy' : (reasons ?? ''),
    ]),
    ...(why === undefined
      ? []
      : ['', 'By the present policy', explanationText(io, { call: String(tool) }, why).trimEnd()]),
    ...section(io, 'Approvals', events(approvals)),
    ...section(io, 'Budgets', budgets),
    ...section(
      io,
      'Output, bytes',
      output.length === 0 ? [] : [output.join(', ') + (fields.cut === true ? ', cut' : '')],
    ),
    ...section(io, 'Calls that it made', events(inside)),
    ...section(io, 'Server log of this time', log),
    '',
  ].join('\n');
}

function plainCell(cell: string | { readonly text: string }): string {
  return typeof cell === 'string' ? cell : cell.text;
}

/** Characters of the arguments that are shown. `audit show --args` shows all. */
const MAX_ARGS = 2000;

function cut(text: string): string {
  return text.length <= MAX_ARGS ? text : `${text.slice(0, MAX_ARGS)}… (${text.length} characters)`;
}

function section(io: Pick<Io, 'isTTY'>, title: string, lines: readonly string[]): readonly string[] {
  if (lines.length === 0) return [];
  return [
    '',
    paint(io, 'dim', title),
    ...lines.map((line) => wrapWords(`  ${printable(line)}`, MAX_COLUMNS, '      ')),
  ];
}
