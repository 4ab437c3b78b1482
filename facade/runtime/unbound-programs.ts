/** Finds programs to which rules on paths and hosts cannot apply, so that the user is told. */
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { supportsPathHandles } from '../../catalogs/readers/path-handles.ts';
import type { Policy, Principal } from '../../policies/port.ts';
import type { Config } from '../config/config.ts';
import { backendsIn } from '../config/servers/configured-routes.ts';
import { asPrincipal } from '../serve/http/token-authentication.ts';
import { isIsolated } from './servers/backends.ts';

const WORKSPACE = 'workspace';

const PATH_RACE =
  'This platform cannot keep the file that was checked open: a process that swaps links can lead a read or ' +
  'write to a file that rules on paths close.';

/**
 * Returns one line for each group of rules that does not bind a command or isolated server. `hasPathHandles`: whether
 * this platform resolves paths to descriptors. Throws CONFIG_INVALID if it does not, commands are restricted by rules
 * on paths, and the owner has not set `acceptPathRaces`.
 */
export async function findUnboundPrograms(
  config: Config,
  policy: Policy,
  hasPathHandles: () => boolean = supportsPathHandles,
): Promise<readonly string[]> {
  const callers = config.principals.map(asPrincipal);
  const bashCallers = await findBashCallers(config, policy, callers);
  const raceNotices = hasPathHandles() ? [] : [PATH_RACE];
  if (
    raceNotices.length > 0 &&
    !config.bash.acceptPathRaces &&
    bashCallers.some((caller) => closesPaths(policy, caller))
  )
    throw pathRaceError(config);
  const profiles = callers.flatMap((caller) => caller.profiles.flatMap((name) => config.profiles.get(name) ?? []));
  const reachable = new Set(profiles.flatMap((profile) => [...profile.servers, ...backendsIn(profile.primitives)]));
  const servers = [...config.servers.values()]
    .filter((server) => isIsolated(server) && reachable.has(server.name))
    .map(({ name }) => name);
  const isSandboxed = config.bash.isolation === 'sandbox';
  const directNotices =
    !isSandboxed && bashCallers.some((caller) => closesAny(policy, caller))
      ? ['Commands of bash run without isolation: no rule on paths or hosts binds them.']
      : [];
  return [
    ...raceNotices,
    ...directNotices,
    ...policy.unbound([...(isSandboxed && bashCallers.length > 0 ? [WORKSPACE] : []), ...servers]),
  ];
}

/** Returns the callers that may run commands in the workspace, as far as the policy can tell for a list. */
async function findBashCallers(
  config: Config,
  policy: Policy,
  callers: readonly Principal[],
): Promise<readonly Principal[]> {
  const withBash = callers.filter((caller) =>
    caller.profiles.some((name) =>
      config.profiles.get(name)?.primitives.bash?.some(({ server }) => server === WORKSPACE),
    ),
  );
  const verdicts = await Promise.all(
    withBash.map((caller) =>
      policy.list(caller, [{ server: WORKSPACE, tool: 'bash', verb: 'execute', primitive: 'bash' }]),
    ),
  );
  return withBash.filter((_, index) => verdicts[index]?.[0]?.verdict !== 'never');
}

function closesPaths(policy: Policy, caller: Principal): boolean {
  const { hidden, fixed, excepting = [] } = policy.confinement(WORKSPACE, caller);
  return [hidden, fixed, ...excepting.map(({ close }) => close)].some(({ inside }) => inside.length > 0);
}

function pathRaceError({ file, ruleDocument }: Config): TollgateError {
  const message =
    'bash is refused together with rules on paths: this platform cannot keep the file that was checked open, ' +
    'so a command can swap a link before it is opened; remove bash from expose.primitives, or accept it with ' +
    'bash: {acceptPathRaces: true}';
  return new TollgateError('CONFIG_INVALID', {
    data: { problems: [{ file: path.basename(file), ...ruleDocument.placeOf(['bash'], 'key'), message }] },
  });
}

function closesAny(policy: Policy, caller: Principal): boolean {
  const { hidden, fixed, excepting = [], closedHosts } = policy.confinement(WORKSPACE, caller);
  return [excepting, hidden.inside, hidden.outside, fixed.inside, fixed.outside, closedHosts].some(
    (list) => list.length > 0,
  );
}
