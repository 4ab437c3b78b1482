/** Runs `upgrades list`, `enable` and `disable`. An owner at the terminal decides, and the audit records who. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type Capability, TOOL_CAPABILITIES } from '../../../catalogs/tools/tool-capabilities.ts';
import type { IntentEntry, OutcomeEntry } from '../../audit/audit-entry.ts';
import { type AuditReader, openAuditReader } from '../../audit/index/audit-reader.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { UPGRADE } from '../../consent/capabilities/capability-precondition.ts';
import { type Upgrade, Upgrades } from '../../consent/capabilities/capability-upgrades.ts';
import { type OwnerOptions, readDecider, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { withDecisions } from '../command-state.ts';
import { readTime } from '../durations.ts';
import { type Cell, plural, printable, printList, printResult } from '../print.ts';

/** The use of a capability, over all sessions in the log. */
interface Uses {
  readonly calls: number;
  readonly bytes: number;
}

/** Prints every capability, added or not, with its use according to the log. Throws CONFIG_INVALID, STATE_FAILED. */
export async function runUpgradeList(options: UpgradeOptions, io: Io): Promise<number> {
  const config = readForOwner(options, io);
  const added = await withUpgrades({ config, io }, (upgrades) => upgrades.list());
  const uses = readUses(config);
  const rows = [...TOOL_CAPABILITIES.values()].map(
    (capability): UpgradeState => ({
      name: capability.name,
      title: capability.title,
      allows: capability.allows,
      risk: capability.risk,
      budget: capability.budget,
      added: added.filter((one) => one.capability === capability.name),
      uses: uses.get(capability.name) ?? { calls: 0, bytes: 0 },
    }),
  );
  const isOn = rows.filter((row) => row.added.length > 0).length;
  printList(
    { io, options },
    {
      data: { upgrades: rows },
      columns: ['NAME', 'STATE', 'WHAT', 'PROFILE', 'PER SESSION', 'ADDED', 'USED'],
      rows: rows.flatMap(upgradeRows),
      empty: '',
      summary: `${isOn} of ${rows.length} capabilities are on. Add one with: tollgate upgrades enable NAME`,
    },
  );
  return EXIT.ok;
}

interface UpgradeState extends Pick<Capability, 'name' | 'title' | 'allows' | 'risk' | 'budget'> {
  readonly added: readonly Upgrade[];
  readonly uses: Uses;
}

/** Returns one row, or one for each profile that has the capability. */
function upgradeRows({ name, title, added, uses: { calls, bytes } }: UpgradeState): readonly (readonly Cell[])[] {
  const used = calls === 0 ? '' : `${plural(calls, 'call')}, ${sizeText(bytes)}`;
  if (added.length === 0) return [[name, { text: 'off', colour: 'dim' }, title, '', '', '', used]];
  return added.map((one) => [
    name,
    { text: one.until === undefined ? 'on' : `on until ${one.until.slice(0, 16)}Z`, colour: 'yellow' },
    title,
    one.profile ?? 'all',
    `${plural(one.calls, 'call')}, ${sizeText(one.bytes)}`,
    `${one.since.slice(0, 10)} by ${one.by}`,
    used,
  ]);
}

function sizeText(bytes: number): string {
  return bytes < 1_000_000 ? `${bytes} B` : `${Math.round(bytes / 100_000) / 10} MB`;
}

/** Adds a capability. Throws IDENTITY for a principal that is no owner, USAGE, AUDIT_FAILED, STATE_FAILED. */
export async function runUpgradeEnable(
  options: UpgradeOptions & {
    readonly name: string;
    readonly calls?: number;
    readonly bytes?: number;
    readonly for?: string;
  },
  io: Io,
): Promise<number> {
  const { config, by } = readDecider(options, 'adds capabilities', io);
  const capability = readCapability(options.name);
  checkProfile(config, capability, options.profile);
  const { profile, calls, bytes } = options;
  const upgrade = await withUpgrades({ config, io }, (upgrades) =>
    upgrades.enable({
      capability,
      by,
      profile,
      calls,
      bytes,
      ...(options.for !== undefined && { ms: readTime(options.for) }),
    }),
  );
  const until = upgrade.until === undefined ? '' : `, until ${upgrade.until}`;
  printResult(
    { io, options },
    { upgrade },
    `On: ${capability.title}, for ${nameOf(upgrade)}${until}; ` +
      `${plural(upgrade.calls, 'call')} and ${upgrade.bytes} bytes per session.\n` +
      `  allows: ${capability.allows}\n  risk:   ${capability.risk}\n${foldersOf(config, capability)}` +
      `Rules still decide on each call. Withdraw it with: tollgate upgrades disable ${capability.name}`,
  );
  return EXIT.ok;
}

/** Withdraws a capability. Throws as `runUpgradeEnable`. */
export async function runUpgradeDisable(options: UpgradeOptions & { readonly name: string }, io: Io): Promise<number> {
  const { config, by } = readDecider(options, 'adds capabilities', io);
  const { name } = readCapability(options.name);
  const ended = await withUpgrades({ config, io }, (upgrades) =>
    upgrades.disable({ capability: name, profile: options.profile, by }),
  );
  printResult(
    { io, options },
    { disabled: ended },
    ended.length === 0
      ? 'It was off already.'
      : `Off: ${name}, for ${ended.map(nameOf).join(', ')}. It no longer applies to any call.`,
  );
  return EXIT.ok;
}

/**
 * Returns how often each capability was used, and the bytes of its results. Intents carry the name of the budget,
 * outcomes the size.
 */
function readUses(config: Config): ReadonlyMap<string, Uses> {
  const reader = openAuditReader(config.audit.folder, path.join(config.state, 'audit-index.db'));
  const uses = new Map<string, Uses>();
  try {
    for (const { record } of reader.all({ type: 'intent', budget: `${UPGRADE}*` })) {
      const { id = '', obligations: { budgets = [] } = {} } = record as Partial<IntentEntry>;
      const names = budgets.flatMap((budget) => (budget.startsWith(UPGRADE) ? [budget.slice(UPGRADE.length)] : []));
      const sent = names.length === 0 ? 0 : sentBy(reader, id);
      for (const name of names) {
        const { calls, bytes } = uses.get(name) ?? { calls: 0, bytes: 0 };
        uses.set(name, { calls: calls + 1, bytes: bytes + sent });
      }
    }
    return uses;
  } finally {
    reader.close();
  }
}

/** Bytes of the result of a call; 0 if it has no outcome. */
function sentBy(reader: AuditReader, id: string): number {
  const [{ record } = { record: {} }] = reader.page({ id, type: 'outcome' }, { limit: 1 }).records;
  const { sizes: { sent = 0 } = {} } = record as Partial<OutcomeEntry>;
  return sent;
}

function readCapability(name: string): Capability {
  const found = TOOL_CAPABILITIES.get(name);
  if (found === undefined)
    throw new TollgateError('USAGE', {
      detail: `There is no capability ${quote(name)}.`,
      next: `Name one from \`tollgate upgrades list\`; ${didYouMean(name, [...TOOL_CAPABILITIES.keys()])}`,
    });
  return found;
}

function checkProfile(
  { profiles, otherWorkspaces: { read, write } }: Config,
  { name, host, crosses }: Capability,
  profile: string | undefined,
): void {
  if (crosses && read.length + write.length === 0)
    throw new TollgateError('USAGE', {
      detail: `There is no folder under otherWorkspaces, so ${name} would change nothing.`,
      next: 'Name the folders under `otherWorkspaces` in tollgate.yaml.',
    });
  const fitting = [...profiles.values()].filter((one) => !host || one.host).map((one) => one.name);
  if (host && fitting.length === 0)
    throw new TollgateError('USAGE', {
      detail: `No profile is a host profile, so ${name} would change nothing.`,
      next: 'Write `host: true` into a profile that is for hosts only, in tollgate.yaml.',
    });
  if (profile === undefined || fitting.includes(profile)) return;
  throw new TollgateError('USAGE', {
    detail: `There is no ${host ? 'host ' : ''}profile ${quote(printable(profile))}.`,
    next: `The profiles are ${fitting.join(', ')}.`,
  });
}

/** Returns one line for each folder of other workspaces that the capability opens. */
function foldersOf({ otherWorkspaces }: Config, { crosses }: Capability): string {
  if (!crosses) return '';
  return (['read', 'write'] as const)
    .flatMap((list) => otherWorkspaces[list].map((folder) => `  ${list.padEnd(6)}  ${printable(folder)}\n`))
    .join('');
}

function nameOf({ profile }: Upgrade): string {
  return profile === undefined ? 'every profile' : `profile ${profile}`;
}

function withUpgrades<T>(
  { config, io }: { readonly config: Config; readonly io: Io },
  work: (upgrades: Upgrades) => Promise<T> | T,
): Promise<T> {
  return withDecisions(config, io, ({ state, append }) => work(new Upgrades({ state, now: Date.now, append })));
}
/** Options of the upgrades commands. */
export interface UpgradeOptions extends OwnerOptions {
  readonly profile?: string;
}
