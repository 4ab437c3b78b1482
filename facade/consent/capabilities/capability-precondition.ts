/**
 * Applies capabilities to lists and calls. A capability that no owner added does not exist; an added one has its own
 * budget. Internal servers need none, except for other workspaces.
 */
import { LRUCache } from 'lru-cache';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { literalWords } from '../../../catalogs/programs/command-facts.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import {
  type Capability,
  type CapabilityUse,
  isNamed,
  isOn,
  isUsed,
  TOOL_CAPABILITIES,
} from '../../../catalogs/tools/tool-capabilities.ts';
import type { BudgetObligation, Effect, Principal } from '../../../policies/port.ts';
import type { Config, OtherWorkspaces } from '../../config/config.ts';
import { NO_PRECONDITIONS, type Precondition, type PreconditionCall, type PreconditionView } from '../preconditions.ts';
import type { Upgrade, Upgrades } from './capability-upgrades.ts';

/** The prefix of a capability in ids of reasons and of budgets. */
export const UPGRADE = 'upgrade:';

type Settings = Pick<Config, 'servers' | 'profiles' | 'otherWorkspaces'>;

const NONE: readonly Capability[] = [];
const NOTHING_ADDED: ReadonlyMap<string, Upgrade> = new Map();

/** A tool that a server lists. */
type Entry = { readonly tool: { readonly name: string } };

/**
 * Returns the precondition for capabilities (CY-08, CY-09). It applies to configured servers. For internal servers it
 * applies only to the access to other workspaces.
 */
export function upgradePrecondition(
  config: Settings,
  {
    upgrades,
    entriesOf,
  }: { readonly upgrades: Pick<Upgrades, 'list'>; readonly entriesOf: (server: string) => readonly Entry[] },
): Precondition {
  const hosts = hostServers(config);
  const onServer = capabilitiesOffered(config, entriesOf);
  const addedTo = (principal: Principal): ReadonlyMap<string, Upgrade> => upgradesOf(upgrades.list(), principal);
  const hosted = [...TOOL_CAPABILITIES.values()].filter(({ host }) => host);
  const ofServer = (server: string): readonly Capability[] => (hosts.has(server) ? hosted : NONE);
  const usedBy = (effect: PreconditionCall['effect'], args: PreconditionCall['args']): readonly Capability[] => {
    const [byServer, byName, offered] = [
      ofServer(effect.server),
      capabilitiesNamed(effect.tool),
      onServer(effect.server),
    ];
    if (byServer.length + byName.length + offered.length === 0) return NONE;
    const use = {
      tool: effect.tool,
      args,
      paths: effect.paths.map(({ path }) => path),
      ...(effect.command !== undefined && offered.length > 0 && { command: commandUse(effect.command.text) }),
    };
    return [...byServer, ...byName, ...offered.filter((capability) => isUsed(capability, use))];
  };
  const viewOf = (added: ReadonlyMap<string, Upgrade>): PreconditionView => {
    const isMissing = (capability: Capability): boolean => !added.has(capability.name);
    return {
      revision: [...added.keys()].sort().join(),
      hides: ({ server, tool, primitive }) =>
        config.servers.has(server) &&
        (ofServer(server).some(isMissing) || (primitive === undefined && capabilitiesNamed(tool).some(isMissing))),
      mayStart: (server) => !ofServer(server).some(isMissing),
    };
  };
  const usual = viewOf(NOTHING_ADDED);
  return {
    view: (principal) => {
      const added = addedTo(principal);
      return added === NOTHING_ADDED ? usual : viewOf(added);
    },
    judge: ({ caller, effect, args }: PreconditionCall) => {
      const crossing = crossesWorkspace(config.otherWorkspaces, effect) ? CROSS_WORKSPACE_CAPABILITIES : NONE;
      const own = config.servers.has(effect.server) ? usedBy(effect, args) : NONE;
      if (own.length + crossing.length === 0) return NO_PRECONDITIONS;
      const used = [...new Set([...own, ...crossing])];
      const added = addedTo(caller.principal);
      const missing = used.find(({ name }) => !added.has(name));
      if (missing !== undefined) throw refusal(missing);
      return {
        budgets: used.flatMap(({ name }) => budgetOf(added.get(name))),
        ...(crossing.length > 0 && { beyond: openFolders(config, effect, `${UPGRADE}${crossing[0]?.name}`) }),
      };
    },
  };
}

/** Returns the capabilities that the tools of a server have, cached by tool list. */
function capabilitiesOffered(
  { servers }: Pick<Config, 'servers'>,
  entriesOf: (server: string) => readonly Entry[],
): (server: string) => readonly Capability[] {
  const cached = new WeakMap<readonly Entry[], readonly Capability[]>();
  return (server) => {
    const entries = entriesOf(server);
    const known = cached.get(entries);
    if (known !== undefined) return known;
    const offered = { mapping: servers.get(server)?.mapping, tools: new Set(entries.map(({ tool }) => tool.name)) };
    const found = [...TOOL_CAPABILITIES.values()].filter((capability) => isOn(capability, offered));
    cached.set(entries, found);
    return found;
  };
}

/**
 * Returns the upgrades of a principal by capability. An upgrade of its profile takes precedence over an upgrade of all.
 */
function upgradesOf(listed: readonly Upgrade[], { profiles }: Principal): ReadonlyMap<string, Upgrade> {
  if (listed.length === 0) return NOTHING_ADDED;
  return new Map(
    listed
      .filter(({ profile }) => profile === undefined || profiles.includes(profile))
      .sort((a, b) => Number(a.profile !== undefined) - Number(b.profile !== undefined))
      .map((one) => [one.capability, one]),
  );
}

function commandUse(text: string): NonNullable<CapabilityUse['command']> {
  const words = literalWords(text);
  return { text, ...(words !== undefined && { words }) };
}

/** Servers of host profiles, which run outside every sandbox. */
function hostServers({ profiles }: Pick<Config, 'profiles'>): ReadonlySet<string> {
  return new Set([...profiles.values()].flatMap(({ host, servers }) => (host ? servers : [])));
}

function budgetOf(upgrade: Upgrade | undefined): readonly BudgetObligation[] {
  return upgrade === undefined
    ? []
    : [{ id: `${UPGRADE}${upgrade.capability}`, scope: 'session', calls: upgrade.calls, outputBytes: upgrade.bytes }];
}

function refusal({ name, title }: Capability): TollgateError {
  const id = `${UPGRADE}${name}`;
  const message = `${title} is a capability that no owner has added here.`;
  return new TollgateError('DENIED', {
    detail: `Refused by rule ${id}: ${message}`,
    next: `Choose another way, or tell the user that an owner adds it with \`tollgate upgrades enable ${name}\`.`,
    data: { reasons: [{ id, message }] },
  });
}

/** The capabilities of tools by name, for all configurations: names alone decide, and a list asks for thousands. */
const capabilitiesByName = new LRUCache<string, readonly Capability[]>({ max: 20_000 });

/** Returns the capabilities of a tool by its name. */
function capabilitiesNamed(tool: string): readonly Capability[] {
  let found = capabilitiesByName.get(tool);
  if (found === undefined) {
    found = [...TOOL_CAPABILITIES.values()].filter((capability) => isNamed(capability, tool));
    capabilitiesByName.set(tool, found);
  }
  return found;
}

/** The capabilities that open folders of other workspaces. */
export const CROSS_WORKSPACE_CAPABILITIES = [...TOOL_CAPABILITIES.values()].filter((capability) => capability.crosses);

/**
 * Returns true for a call that names a path in one of these folders, or a folder that contains one. The paths of a call
 * are real paths (see catalogs/readers/path-handles.ts).
 */
export function crossesWorkspace({ read, write }: OtherWorkspaces, { paths }: Pick<Effect, 'paths'>): boolean {
  if (read.length + write.length === 0) return false;
  return paths.some(
    ({ inside, path }) =>
      !inside &&
      path.startsWith('/') &&
      [...read, ...write].some((folder) => isPathWithin(path, folder) || isPathWithin(folder, path)),
  );
}

/**
 * Returns the folders that are open to a call with this verb. Throws DENIED for a write to a folder that is open only
 * for reading.
 */
export function openFolders(
  { otherWorkspaces: { read, write } }: Pick<Config, 'otherWorkspaces'>,
  { verb, paths }: Pick<Effect, 'verb' | 'paths'>,
  id: string,
): readonly string[] {
  if (verb === 'read') return [...read, ...write];
  if (
    !paths.some(
      ({ inside, path }) => !inside && read.some((folder) => isPathWithin(path, folder) || isPathWithin(folder, path)),
    )
  )
    return write;
  const message = 'This folder of another workspace is only open for reading.';
  throw new TollgateError('DENIED', {
    detail: `Refused by rule ${id}: ${message}`,
    next: 'Read it, or tell the user that an owner changes `otherWorkspaces` in tollgate.yaml.',
    data: { reasons: [{ id, message }] },
  });
}
