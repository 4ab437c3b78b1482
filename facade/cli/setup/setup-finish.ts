/** The end of a setup: shows the approved servers to agents, replaces the clients' entries, and proves the result. */
import path from 'node:path';
import { type FileChange, readTarget } from '../../clients/changes/client-file-changes.ts';
import type { ClientFormat } from '../../clients/client-formats.ts';
import { rootsAt } from '../../clients/client-places.ts';
import type { Config } from '../../config/config.ts';
import { addTo } from '../../config/reading/config-edit.ts';
import { applyConfirmed } from '../client-files/client-files.ts';
import { entryTargetOf } from '../client-files/export-command.ts';
import { askFacade, readConfig, readForOwner, readPrincipal } from '../command-facade.ts';
import { EXIT } from '../command-io.ts';
import { plural } from '../print.ts';
import { askKey } from '../terminal-prompt.ts';
import type { FormerEntry } from './former-entries.ts';
import { type ClientReplacement, planReplacements, proveReplacement } from './setup-clients.ts';
import { codeOf, decidedText, nextCommand, type SetupDecisions } from './setup-decisions.ts';
import type { SetupPlan } from './setup-plan.ts';
import { accepted, mayAsk, type SetupRun, setupCommand } from './setup-run.ts';
import type { ReviewedServer } from './setup-servers.ts';
import { bypassText, replacementText } from './setup-view.ts';

/** The rules of the servers that setup adds, next to the rules of the owner. */
const RULES_FILE = 'policies/setup-rules.yaml';
const RULES_HEAD =
  '# Rules of the servers that `tollgate setup` added: reads run, and everything else asks a person first.\n' +
  '# Deny rules of the other files apply too. Edit them as you like.\n' +
  'rules:\n';

/** What a setup has planned and decided. */
export interface SetupEnd {
  readonly plan: SetupPlan;
  readonly all: readonly FormerEntry[];
  readonly decided: SetupDecisions;
}

/** Shows servers, replaces entries, proves it and tells the result. Returns the exit code. */
export async function finishSetup(end: SetupEnd, run: SetupRun): Promise<number> {
  const { options, io, data } = run;
  const { decided } = end;
  if (decided.approved.length > 0) await accepted(run, () => showApproved(decided, run));
  const fronted = decided.approved.flatMap(({ setup }) => setup.from);
  const roots = rootsAt(readConfig(options, io).workspace, io);
  const targetOf = (client: ClientFormat) => entryTargetOf(options, { client, config: readConfig(options, io), io });
  const replacements = planReplacements(fronted, { roots, targetOf });
  const isReplaced = await replace(replacements, run);
  const { accounts, bypasses } = proveReplacement(end.all, { roots, fronted, whyOf: whyOf(end, isReplaced) });
  const isOpen = decided.open.length > 0 || !isReplaced;
  const seen = await seenBy(end, run);
  const undo = setupCommand({ ...run, given: undoConfig(run) }, ['--undo']);
  Object.assign(data, {
    approved: decided.approved.map(({ setup }) => setup.name),
    declined: decided.declined.map(({ setup }) => setup.name),
    open: decided.open.map(({ setup, start, tools }) => ({ name: setup.name, start: start.hash, tools: tools.hash })),
    failed: decided.failed.map(({ setup, why }) => ({ name: setup.name, why })),
    replaced: isReplaced,
    accounts: accounts.map(({ former, state }) => ({
      file: former.found.shown,
      name: former.entry.original,
      server: former.server,
      state,
    })),
    bypasses,
    agent: seen,
    undo,
    ...(isOpen && { next: nextCommand(decided, run) }),
  });
  if (options.json !== true) {
    io.stdout(decidedText(decided) + bypassText(bypasses, io) + seenText(seen));
    if (isOpen) io.stderr(`Still to agree to:\n  ${nextCommand(decided, run)}\n`);
    if (replacements.length > 0 && isReplaced)
      io.stderr(`Restart ${replacements.map(({ client }) => client.title).join(', ')}. To undo:\n  ${undo}\n`);
  }
  return isOpen ? EXIT.approval : codeOf(decided);
}

/** Undoing may be needed from another folder, so a configuration that is elsewhere is named. */
function undoConfig({ options, io, given }: SetupRun): string {
  return options.config === path.join(io.cwd, 'tollgate.yaml') ? given : options.config;
}

/** Lets agents reach the newly approved servers, shows the proposed tools, and adds rules for them. */
async function showApproved({ approved, shown }: SetupDecisions, { options, io }: SetupRun): Promise<void> {
  const config = readConfig(options, io);
  const reached = config.profiles.get('default')?.servers ?? [];
  const fresh = approved.map(({ setup }) => setup.name).filter((name) => !reached.includes(name));
  if (fresh.length === 0) return;
  const [file, rules] = [config.file, path.join(config.folder, RULES_FILE)];
  const [text = '', former] = [readTarget(file), readTarget(rules)];
  const added = fresh.filter((name) => former?.includes(`id: read-${name},`) !== true).map(rulesOf);
  const tools = shown.filter((id) => fresh.some((name) => id.startsWith(`${name}.`)));
  const changed = addTo(text, [
    { path: ['policies'], items: [RULES_FILE] },
    { path: ['profiles', 'default', 'servers'], items: fresh },
    ...(tools.length === 0 ? [] : [{ path: ['expose', 'tools'], items: tools }]),
  ]);
  const changes: readonly FileChange[] = [
    { file, before: text, after: changed },
    ...(added.length === 0
      ? []
      : [
          {
            file: rules,
            after: (former ?? RULES_HEAD) + added.join(''),
            ...(former !== undefined && { before: former }),
          },
        ]),
  ];
  await applyConfirmed({ changer: 'setup', changes, of: { clients: [], servers: fresh } }, { config, io });
  readConfig(options, io);
}

function rulesOf(name: string): string {
  return (
    `  - {id: read-${name}, outcome: allow, when: {servers: [${name}], verbs: [read]}}\n` +
    `  - {id: ask-${name}, outcome: ask, when: {servers: [${name}], verbs: [write, destructive, execute]}}\n`
  );
}

/** Writes the clients' files, each with a backup of its own. Returns false if a person did not agree. */
async function replace(replacements: readonly ClientReplacement[], run: SetupRun): Promise<boolean> {
  const { options, io } = run;
  if (replacements.length === 0) return true;
  if (options.json !== true) io.stdout(`\n${replacementText(replacements, io)}`);
  if (mayAsk(run)) {
    if ((await askKey(io, 'Write these files?', 'yn')) !== 'y') return false;
  } else if (options.yesTo === undefined) return false;
  const config: Config = readForOwner(options, io);
  for (const { client, change, servers } of replacements)
    await applyConfirmed(
      { changer: 'export', changes: [change], of: { clients: [client.id], servers } },
      { config, io },
    );
  return true;
}

/** Says why an entry can still be started without Tollgate. */
function whyOf({ plan, decided }: SetupEnd, isReplaced: boolean): Parameters<typeof proveReplacement>[1]['whyOf'] {
  return (found, name) => {
    const isIt = ({ found: one, entry }: FormerEntry): boolean => one.file === found.file && entry.original === name;
    const failed = decided.failed.find(({ setup }) => setup.from.some(isIt));
    const stays = plan.stays.find(({ former }) => isIt(former));
    if (stays !== undefined) return stays.why;
    if (failed !== undefined) return 'it did not list its tools';
    if (decided.declined.some(({ setup }) => setup.from.some(isIt))) return 'you declined it; remove it there too';
    if (decided.open.some(({ setup }) => setup.from.some(isIt))) return 'you have not decided about it yet';
    return isReplaced ? 'it is new since the plan; run setup again' : 'its file was not changed';
  };
}

/** A number of tools with the size of their list. */
interface Seen {
  readonly tools: number;
  readonly bytes: number;
}

/** What an agent saw in each client, and what it sees now. */
interface SeenChange {
  readonly before: readonly (Seen & { readonly client: string })[];
  readonly after: Seen;
}

async function seenBy({ all, decided }: SetupEnd, run: SetupRun): Promise<SeenChange> {
  const { options, io, wiring } = run;
  const reviewed = [...decided.approved, ...decided.declined, ...decided.open];
  const clients = [...new Set(all.map(({ found }) => found.client?.title ?? found.shown))];
  const before = clients.map((client) => {
    const names = new Set(
      all.filter(({ found }) => (found.client?.title ?? found.shown) === client).map(({ server }) => server),
    );
    const tools = reviewed.filter(({ setup }) => names.has(setup.name)).flatMap(toolTexts);
    return { client, tools: tools.length, bytes: tools.reduce((sum, text) => sum + Buffer.byteLength(text), 0) };
  });
  const config = readForOwner(options, io);
  const principal = readPrincipal(config, options, io);
  let after: Seen = { tools: 0, bytes: 0 };
  await askFacade(
    { config, options, io: { ...io, stderr: () => undefined }, assemble: wiring.assemble },
    async ({ deps }) => {
      const view = await deps.nameTables.tableFor(principal);
      after = { tools: view.listed.length, bytes: Buffer.byteLength(view.text) };
      return { data: '', remarks: [], code: EXIT.ok };
    },
  );
  return { before, after };
}

function toolTexts({ tools }: ReviewedServer): readonly string[] {
  return tools.tools.map(({ tool }) => JSON.stringify(tool));
}

function seenText({ before, after }: SeenChange): string {
  const size = ({ tools, bytes }: Seen): string => `${plural(tools, 'tool')}, ${(bytes / 1000).toFixed(1)} kB`;
  return [
    ...before.map(({ client, ...seen }) => `An agent in ${client} saw ${size(seen)}.\n`),
    `An agent sees now: ${size(after)}.\n`,
  ].join('');
}
