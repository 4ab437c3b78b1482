/** Runs `policy rules`: shows every rule with the number of calls that it decided, in the whole log. */
import { join, relative } from 'node:path';
import { AUDIT_INDEX } from '../../audit/index/audit-index.ts';
import { openAuditReader } from '../../audit/index/audit-reader.ts';
import type { Config } from '../../config/config.ts';
import { policyParts } from '../../runtime/policy-parts.ts';
import { type CommonOptions, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { plural, printList } from '../print.ts';
import type { Wiring } from '../wiring.ts';

/** How often a rule decided, and when it last did. */
interface RuleHits {
  readonly hits: number;
  readonly last?: string;
}

/** Prints the rules, those that never decided first. Throws CONFIG_INVALID, POLICY_INVALID. */
export async function runRules(options: CommonOptions, io: Io, { authoring }: Wiring): Promise<number> {
  const config = readForOwner(options, io);
  const written = await authoring.rules(policyParts(config, options));
  const hits = hitsOf(config);
  const rules = written
    .map((rule) => ({ ...rule, ...(hits.get(rule.id) ?? { hits: 0 }) }))
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

function hitsOf({ state, audit }: Config): ReadonlyMap<string, RuleHits> {
  const found = new Map<string, RuleHits>();
  const reader = openAuditReader(audit.folder, join(state, AUDIT_INDEX));
  try {
    for (const { record } of reader.all({ callsOnly: true })) {
      const { reasons = [], ts } = record as { readonly reasons?: readonly { readonly id: string }[]; ts: string };
      for (const { id } of reasons) found.set(id, { hits: (found.get(id)?.hits ?? 0) + 1, last: ts });
    }
  } finally {
    reader.close();
  }
  return found;
}
