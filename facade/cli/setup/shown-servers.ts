/** Lets agents reach the servers that setup has added: the profile, the tools that it shows, and rules for them. */
import path from 'node:path';
import { parse } from 'yaml';
import { type FileChange, readTarget } from '../../clients/changes/client-file-changes.ts';
import type { Config } from '../../config/config.ts';
import { addTo } from '../../config/reading/config-edit.ts';
import { applyConfirmed } from '../client-files/client-files.ts';
import { readConfig } from '../command-facade.ts';
import { printable } from '../print.ts';
import { planExceptions } from './folder-exceptions.ts';
import type { SetupDecisions } from './setup-decisions.ts';
import type { SetupRun } from './setup-run.ts';
import type { ReviewedServer } from './setup-servers.ts';

/** The rules of the servers that setup adds, next to the rules of the owner. */
const RULES_FILE = 'policies/setup-rules.yaml';
const RULES_HEAD =
  '# Rules of the servers that `tollgate setup` added. Edit them as you like.\n' +
  '# Deny rules of the other files apply too.\n' +
  'rules:\n';

/** The verbs that a person is asked about. */
const ASKED = ['write', 'destructive', 'execute'];

/**
 * Lets agents reach the newly approved servers, shows the proposed tools, and adds rules for them where the policy has
 * none for all external servers. Throws CONFIG_INVALID, USAGE.
 */
export async function showApproved({ approved, shown }: SetupDecisions, { options, io }: SetupRun): Promise<void> {
  const config = readConfig(options, io);
  const reached = config.profiles.get('default')?.servers ?? [];
  const fresh = approved.map(({ setup }) => setup.name).filter((name) => !reached.includes(name));
  if (fresh.length === 0) return;
  const [file, rules] = [config.file, path.join(config.folder, RULES_FILE)];
  const [text = '', former] = [readTarget(file), readTarget(rules)];
  const tools = shown.filter((id) => fresh.some((name) => id.startsWith(`${name}.`)));
  const reaching = addTo(text, [
    { path: ['profiles', 'default', 'servers'], items: fresh },
    ...(tools.length === 0 ? [] : [{ path: ['expose', 'tools'], items: tools }]),
  ]);
  const servers = approved.filter(({ setup }) => fresh.includes(setup.name));
  const opened = planExceptions(servers, reaching, { config, home: io.home });
  for (const sentence of opened.left) io.stderr(`${printable(sentence)}\n`);
  const own = opened.changes.find((change) => change.file === rules)?.after ?? former ?? RULES_HEAD;
  const isNew = (rule: string): boolean => {
    const id = /id: [^,\n]+/.exec(rule)?.[0] ?? '';
    return !own.includes(`${id},`) && !own.includes(`${id}\n`);
  };
  const general = isForAll(config) ? [] : servers.map(rulesOf);
  const added = [...general, ...opened.rules].filter(isNew).join('');
  const after = own + added;
  const changes: readonly FileChange[] = [
    {
      file,
      before: text,
      after: added === '' ? opened.text : addTo(opened.text, [{ path: ['policies'], items: [RULES_FILE] }]),
    },
    ...opened.changes.filter((change) => change.file !== rules),
    ...(after === (former ?? RULES_HEAD)
      ? []
      : [{ file: rules, after, ...(former !== undefined && { before: former }) }]),
  ];
  await applyConfirmed({ changer: 'setup', changes, of: { clients: [], servers: fresh } }, { config, io });
  readConfig(options, io);
}

/** Returns whether rules in YAML let all external servers read, and ask about all else, as those of a starter do. */
function isForAll({ policies, rules }: Config): boolean {
  const files = policies.filter(({ kind, server }) => kind === 'yaml' && server === undefined);
  const all = [
    ...rules,
    ...files.flatMap(
      (one) => (parse(readTarget(one.path) ?? '') as { readonly rules?: unknown[] } | null)?.rules ?? [],
    ),
  ];
  return all.some((rule) => isGeneral(rule, 'allow', ['read'])) && all.some((rule) => isGeneral(rule, 'ask', ASKED));
}

function isGeneral(rule: unknown, outcome: string, wanted: readonly string[]): boolean {
  const { outcome: actual, mode = 'enforce', when } = rule as Readonly<Record<string, unknown>>;
  const { trust = [], verbs = [], ...more } = when as { readonly trust?: string[]; readonly verbs?: string[] };
  const isWhole = trust.includes('external') && wanted.every((verb) => verbs.includes(verb));
  return actual === outcome && mode === 'enforce' && isWhole && Object.keys(more).length === 0;
}

/** A rule for reads would never match if no tool reads. */
function rulesOf({ setup: { name }, tools: { tools } }: ReviewedServer): string {
  const verbs = tools.flatMap(({ semantics: { verb, byArgument } }) => [
    verb,
    ...Object.values(byArgument?.verbs ?? {}),
  ]);
  const reads = `  - {id: read-${name}, outcome: allow, when: {servers: [${name}], verbs: [read]}}\n`;
  return (
    (verbs.includes('read') ? reads : '') +
    `  - id: ask-${name}\n    outcome: ask\n` +
    `    message: This call may change something at the server ${name}; a person looks first.\n` +
    `    when: {servers: [${name}], verbs: [${ASKED.join(', ')}]}\n`
  );
}
