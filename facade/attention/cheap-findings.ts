/**
 * The findings of `doctor` that the list of what needs attention has too: they start nothing, use no network and no
 * keychain, and read few small files.
 */
import { type ClientRoots, isDefaultPlace } from '../clients/client-places.ts';
import { findFiles } from '../clients/found-client-files.ts';
import type { Config, ServerConfig } from '../config/config.ts';
import { listNames } from '../config/config-problems.ts';
import type { DoctorFinding } from './doctor-findings.ts';
import { examineOwnFiles } from './own-files.ts';

const OLDEST_NODE = [20, 20] as const;

/**
 * Returns all of them. `roots`: where clients have their files; absent: these are not read. `now`: ms since 1970. Never
 * throws.
 */
export function cheapFindings(
  config: Config,
  { now, roots }: { readonly now: number; readonly roots?: ClientRoots | undefined },
): readonly DoctorFinding[] {
  return [
    nodeVersion(),
    ...examineOwnFiles(config, now),
    ...findUnusable(config),
    ...(roots === undefined ? [] : findBypasses(roots)),
  ];
}

/** Returns the servers that at least one profile reaches. No one can use the others. */
export function reachedServers({ profiles, servers }: Pick<Config, 'profiles' | 'servers'>): readonly ServerConfig[] {
  const reached = new Set([...profiles.values()].flatMap((profile) => profile.servers));
  return [...servers.values()].filter(({ name }) => reached.has(name));
}

/** Returns the servers that cannot be used as they are configured. */
export function findUnusable(config: Pick<Config, 'profiles' | 'servers'>): readonly DoctorFinding[] {
  return reachedServers(config).flatMap(({ name, unusable }): readonly DoctorFinding[] =>
    unusable === undefined
      ? []
      : [{ id: 'unusable-server', name: `server ${name}`, state: 'missing', seen: unusable, fix: 'tollgate check' }],
  );
}

/** A server that a client starts itself obeys no policy and leaves no record. */
export function findBypasses(roots: ClientRoots): readonly DoctorFinding[] {
  return findFiles(roots).flatMap(({ client, shown, servers, ofProject }): DoctorFinding[] => {
    const live = servers.filter(({ unusable }) => unusable !== 'the file disables it');
    if (live.length === 0) return [];
    const isDefault = client !== undefined && isDefaultPlace({ client, ofProject });
    return [
      {
        id: 'bypass',
        name: `${client?.title ?? 'client'} (${shown})`,
        state: 'weak',
        seen: `starts without Tollgate: ${listNames(live.map(({ original }) => original))}`,
        fix: `tollgate export --client ${client?.id ?? ''}${isDefault ? '' : ' --user'} --replace`,
      },
    ];
  });
}

/** Returns whether this Node.js is new enough. */
export function nodeVersion(): DoctorFinding {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  const isNew = major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1]);
  return {
    id: 'node-version',
    name: 'Node.js',
    state: isNew ? 'ok' : 'missing',
    seen: process.version,
    fix: `Install Node.js ${OLDEST_NODE.join('.')} or newer.`,
  };
}
