/**
 * Runs `policy suggest`: prints rules that would allow what owners approved by hand again and again, for review. It
 * changes no policy and starts no server.
 */

import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { stringify } from 'yaml';
import type { JudgedRecording, OwnerVerdict, Suggestion } from '../../../policies/authoring/authoring-port.ts';
import type { ConsentEntry } from '../../audit/audit-entry.ts';
import { AUDIT_INDEX } from '../../audit/index/audit-index.ts';
import { openAuditReader } from '../../audit/index/audit-reader.ts';
import { createConceal } from '../../audit/recording/recording-redaction.ts';
import type { Config } from '../../config/config.ts';
import { policyParts } from '../../runtime/policy-parts.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json, MAX_COLUMNS, plural, printable, wrapWords } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { noTraffic, readTraffic, shortDecisionId } from './recorded-traffic.ts';

/** Options of `policy suggest`. */
export interface SuggestOptions extends CommonOptions {
  /** How often owners must have approved. */
  readonly min: number;
  readonly since?: string;
}

/**
 * Exit code 0, also without a suggestion; 1 if nothing is recorded. Throws USAGE, what the load of the policy throws,
 * and STATE_FAILED if the key of the recordings is missing.
 */
export async function runSuggest(options: SuggestOptions, io: Io, { authoring }: Wiring): Promise<number> {
  const config = readConfig(options, io);
  const verdicts = readVerdicts(config);
  const conceal = createConceal(config);
  const traffics: ReturnType<typeof readTraffic>[] = [];
  const secret = new Set<string>();
  const calls = function* (): Generator<JudgedRecording> {
    const traffic = readTraffic(config, options.since, io);
    traffics.push(traffic);
    for (const recording of traffic.recordings) {
      const { id, input, decision } = recording;
      const verdict = decision?.outcome === 'ask' ? verdicts.get(id) : undefined;
      // No rule may name a secret, so such a call counts as one that no one decided on.
      const isNameable = verdict?.outcome !== 'approved' || isDeepStrictEqual(conceal(input.effect), input.effect);
      if (!isNameable) secret.add(id);
      yield verdict === undefined || !isNameable ? recording : { ...recording, verdict };
    }
  };
  const report = await authoring.suggest(policyParts(config, options), { calls, min: options.min });
  const unreadable = traffics[0]?.tell() ?? 0;
  if (report.calls === 0) {
    io.stderr(unreadable > 0 ? 'No recording could be read.\n' : noTraffic(config));
    return EXIT.unexpected;
  }
  const shown = conceal(report.suggestions);
  const unsuggested = [
    ...conceal(report.unsuggested),
    ...(secret.size < options.min
      ? []
      : [{ what: 'calls with a secret', approved: secret.size, why: 'no rule may name a secret' }]),
  ];
  if (options.json === true) io.stdout(json({ ...report, unreadable, suggestions: shown, unsuggested }));
  else if (shown.length > 0) io.stdout(suggestionsText(shown));
  for (const { what, approved, why } of unsuggested)
    io.stderr(message(`Not suggested: ${printable(what)}, approved ${plural(approved, 'time')}: ${printable(why)}.`));
  if (report.skipped > 0)
    io.stderr(message(`Not checked: ${plural(report.skipped, 'call')} that could not be decided again.`));
  io.stderr(message(summary(options.min, { ...report, suggestions: shown })));
  return EXIT.ok;
}

function summary(
  min: number,
  {
    calls,
    approved,
    suggestions,
  }: { readonly calls: number; readonly approved: number; readonly suggestions: readonly unknown[] },
): string {
  const read = `Of ${plural(calls, 'recorded call')}, owners approved ${approved} by hand.`;
  return suggestions.length === 0
    ? `${read} Nothing that could be suggested was approved ${plural(min, 'time')}.`
    : `${read} ${plural(suggestions.length, 'suggestion')}, verified by replay. Nothing was changed.`;
}

function message(text: string): string {
  return `${wrapWords(text, MAX_COLUMNS, '  ')}\n`;
}

/**
 * Returns how owners decided, by decision id. Approvals of more than one call, and those of the person at the client,
 * do not count: no owner looked at these calls.
 */
function readVerdicts(config: Config): ReadonlyMap<string, OwnerVerdict> {
  const verdicts = new Map<string, OwnerVerdict>();
  const asked = new Map<string, string>();
  const reader = openAuditReader(config.audit.folder, join(config.state, AUDIT_INDEX));
  const note = ({ event, id, call, by, covers, form }: ConsentEntry): void => {
    if (event === 'asked' && call !== undefined) asked.set(id, call);
    const refused = event === 'denied' ? (call ?? asked.get(id)) : undefined;
    if (refused !== undefined) verdicts.set(refused, { outcome: 'refused' });
    const isByHand = event === 'used' && by !== undefined && covers === 'call' && form === undefined;
    if (!isByHand || call === undefined) return;
    verdicts.set(call, { outcome: 'approved', by });
    // The call that asked ended before the decision, and was repeated.
    const first = asked.get(id);
    if (first !== undefined && first !== call) verdicts.set(first, { outcome: 'repeated' });
  };
  try {
    for (const { record, intact } of reader.all({ type: 'approval' })) if (intact) note(record as ConsentEntry);
    // A rule asked about the call, but it was denied: equal calls are refused while the refusal of an owner holds.
    for (const { record } of reader.all({ type: 'decision', code: 'DENIED' }))
      if ('id' in record && typeof record.id === 'string') verdicts.set(record.id, { outcome: 'refused' });
  } finally {
    reader.close();
  }
  return verdicts;
}

/** Returns a file of rules. Exceptions are comments, because they belong into the file of the rule that asks. */
function suggestionsText(suggestions: readonly Suggestion[]): string {
  const head = comment(
    'Suggested by `tollgate policy suggest`. Review each rule. Make the exceptions in the named files by hand.',
    '',
  );
  const rules = suggestions.flatMap(({ rules: some }) => some);
  const blocks = suggestions.map(suggestionText).join('\n');
  return `${head}rules:${rules.length === 0 ? ' []' : ''}\n${blocks}`;
}

function suggestionText({ what, evidence, exceptions, rules, also }: Suggestion): string {
  const { approved, by, first, last, calls } = evidence;
  const owners = Object.entries(by).map(([id, times]) => `${id} (${times})`);
  const ids = calls.map(shortDecisionId).join(', ');
  const others = also.map((one) => `${one.what} (${one.calls})`);
  const days = first === last ? `on ${first}` : `from ${first} to ${last}`;
  const lines = [
    what,
    `approved ${plural(approved, 'time')} by ${owners.join(', ')}, ${days}; calls ${ids}`,
    also.length === 0
      ? 'allows no other recorded call'
      : `also allows recorded calls that no owner decided on: ${others.join(', ')}`,
  ];
  const edits = exceptions.map(
    ({ id, file, line, column, field, add }) =>
      comment(`in ${file}:${line}:${column}, rule ${id}, add under when:`, '  ') +
      // In one row, so that it can be copied.
      `  #   ${printable(`${field}: ${flow(add)}`)}\n`,
  );
  return [...lines.map((line) => comment(line, '  ')), ...edits, ...rules.map(ruleText)].join('');
}

function ruleText({ id, outcome, message: text, when }: Suggestion['rules'][number]): string {
  const said = text === undefined ? '' : `    message: ${flow(text)}\n`;
  return `  - id: ${id}\n    outcome: ${outcome}\n${said}    when: ${flow(when)}\n`;
}

/** Returns YAML in one row. */
function flow(value: unknown): string {
  return stringify(value, {
    collectionStyle: 'flow',
    lineWidth: 0,
    flowCollectionPadding: false,
    aliasDuplicateObjects: false,
  }).trimEnd();
}

function comment(text: string, indent: string): string {
  const width = MAX_COLUMNS - indent.length - 2;
  return wrapWords(printable(text), width, '  ')
    .split('\n')
    .map((line) => `${indent}# ${line}\n`)
    .join('');
}
