/** Runs `policy rules`: shows every rule with the number of calls that it decided, in the whole log. */
import { join, relative } from 'node:path';
import { AUDIT_INDEX } from '../../audit/index/audit-index.ts';
import { openAuditReader } from '../../audit/index/audit-reader.ts';
import type { RuleHits } from '../../audit/index/log-overview.ts';
import type { Config } from '../../config/config.ts';
import { policyParts } from '../../runtime/policy-parts.ts';
import { type CommonOptions, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { plural, printList } from '../print.ts';
import type { Wiring } from '../wiring.ts';

/** Prints the rules, those that never decided first. Throws CONFIG_INVALID, POLICY_INVALID. */
export async function runRules(options: CommonOptions, io: Io, { authoring }: Wiring): Promise<number> {
  const config = readForOwner(options, io);
  const written = await authoring.rules(policyParts(config, options));
  const hits = hitsOf(
    config,
    written.map(({ id }) => id),
  );
  const rules = written
    .map((rule) => ({ ...rule, hits: hits.get(rule.id)?.hits ?? 0, last: hits.get(rule.id)?.last }))
    .sort((one, other) => one.hits - other.hits);
  const never = rules.filter((rule) => rule.hits === 0).length;
  printList(
    { io, options },
    {
      data: {
        rules,
        sources: config.policies.filter(({ kind }) => kind === 'yaml').map(({ path }) => relative(config.folder, path)),
      },
      columns: ['RULE', 'OUTCOME', 'MODE', 'HITS', 'LAST (UTC)', 'PLACE'],
      rows: rules.map(({ id, outcome, mode, hits: count, last, file, line }) => [
        id,
        outcome,
        mode,
        String(count),
        last?.slice(0, 19).replace('T', ' ') ?? 'never',
        `${file}:${line}`,
      ]),
      empty: 'The policy has no rules in YAML.',
      summary: `${plural(rules.length, 'rule')}; ${never} never decided a call that the log has.`,
    },
  );
  return EXIT.ok;
}

function hitsOf({ state, audit }: Config, rules: readonly string[]): ReadonlyMap<string, RuleHits> {
  const reader = openAuditReader(audit.folder, join(state, AUDIT_INDEX));
  try {
    return new Map(reader.ruleHits(rules).map((one) => [one.rule, one]));
  } finally {
    reader.close();
  }
}
