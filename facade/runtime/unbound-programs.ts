/** Finds programs that rules on paths and hosts cannot bind, so that the user is told. */
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { supportsPathHandles } from '../../catalogs/readers/path-handles.ts';
import type { Policy, Principal } from '../../policies/port.ts';
import type { Config } from '../config/config.ts';
import { backendsIn } from '../config/servers/configured-routes.ts';
import { asPrincipal } from '../serve/http/token-authentication.ts';
import { isIsolated } from './servers/backends.ts';

const WORKSPACE = 'workspace';

const UNHELD =
  'This platform cannot keep the file that was checked open: a process that swaps links can lead a read or write to a file that rules on paths close.';

/**
 * Returns a line for each rule, or for many of them, that does not bind the commands and isolated servers that someone
 * may use. `holds`: whether this platform resolves paths to descriptors. Throws CONFIG_INVALID if it does not, commands
 * may run, and no one accepted it.
 */
export async function findUnboundPrograms(
  config: Config,
  policy: Policy,
  holds: () => boolean = supportsPathHandles,
): Promise<readonly string[]> {
  const callers = config.principals.map(asPrincipal);
  const commanders = await findCommanders(config, policy, callers);
  const raced = holds() ? [] : [UNHELD];
  if (raced.length > 0 && !config.bash.acceptPathRaces && commanders.some((caller) => closesPaths(policy, caller)))
    throw refuseRaces(config);
  const profiles = callers.flatMap((caller) => caller.profiles.flatMap((name) => config.profiles.get(name) ?? []));
  const reached = new Set(profiles.flatMap((profile) => [...profile.servers, ...backendsIn(profile.primitives)]));
  const servers = [...config.servers.values()]
    .filter((server) => isIsolated(server) && reached.has(server.name))
    .map(({ name }) => name);
  const isJailed = config.bash.isolation === 'sandbox';
  const bare =
    !isJailed && commanders.some((caller) => closesAny(policy, caller))
      ? ['Commands of bash run without isolation: no rule on paths or hosts binds them.']
      : [];
  return [
    ...raced,
    ...bare,
    ...policy.unbound([...(isJailed && commanders.length > 0 ? [WORKSPACE] : []), ...servers]),
  ];
}

/** Who may run commands of the workspace, as far as a list can tell. Looking at commands that ran does not count. */
async function findCommanders(
  config: Config,
  policy: Policy,
  callers: readonly Principal[],
): Promise<readonly Principal[]> {
  const holders = callers.filter((caller) =>
    caller.profiles.some((name) =>
      config.profiles.get(name)?.primitives.bash?.some(({ server }) => server === WORKSPACE),
    ),
  );
  const verdicts = await Promise.all(
    holders.map((caller) =>
      policy.list(caller, [{ server: WORKSPACE, tool: 'bash', verb: 'execute', primitive: 'bash' }]),
    ),
  );
  return holders.filter((_, index) => verdicts[index]?.[0]?.verdict !== 'never');
}

function closesPaths(policy: Policy, caller: Principal): boolean {
  const { hidden, fixed } = policy.confinement(WORKSPACE, caller);
  return hidden.inside.length > 0 || fixed.inside.length > 0;
}

function refuseRaces({ file, ruleDocument }: Config): TollgateError {
  const message =
    'bash is refused together with rules on paths: this platform cannot keep the file that was checked open, so a command can swap a link before it is opened; remove bash from expose.primitives, or accept it with bash: {acceptPathRaces: true}';
  return new TollgateError('CONFIG_INVALID', {
    data: { problems: [{ file: path.basename(file), ...ruleDocument.placeOf(['bash'], 'key'), message }] },
  });
}

function closesAny(policy: Policy, caller: Principal): boolean {
  const { hidden, fixed, closedHosts } = policy.confinement(WORKSPACE, caller);
  return [hidden.inside, hidden.outside, fixed.inside, fixed.outside, closedHosts].some((list) => list.length > 0);
}
