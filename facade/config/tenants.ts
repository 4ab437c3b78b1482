/**
 * Reads the configurations of tenants, and checks that no state, file or token of one is that of another (decision
 * 109). One process serves them all, with the rights of one user.
 */
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import type { Config } from './config.ts';
import type { InForce } from './config-in-force.ts';
import { fileProblem, type Path, type Problem } from './config-problems.ts';
import { realPath } from './reading/text-files.ts';
import type { JwtConfig } from './settings/jwt-settings.ts';

/**
 * Reads the configuration of each tenant with `read`, and checks all of them together with `own`, the configuration
 * that names them. Throws CONFIG_INVALID with all problems of all files.
 */
export function readTenants(
  own: Config,
  read: (file: string, tenant: string) => InForce,
): ReadonlyMap<string, InForce> {
  const problems: Problem[] = [];
  const found = new Map<string, InForce>();
  for (const [name, file] of own.tenants) {
    try {
      found.set(name, read(file, name));
    } catch (thrown) {
      problems.push(...problemsOf(thrown, shownFile(own, file), name));
    }
  }
  if (problems.length === 0) problems.push(...sharedBy([own, ...[...found.values()].map(({ config }) => config)], own));
  if (problems.length > 0) throw refusalOf(own, problems);
  return found;
}

/**
 * Throws CONFIG_INVALID if `changed` shares a place or a token with one of the others. All belong to one process, whose
 * configuration is `own`.
 */
export function checkTenant(changed: Config, others: readonly Config[], own: Config): void {
  const problems = sharedBy([...others, changed], own);
  if (problems.length > 0) throw refusalOf(own, problems);
}

function refusalOf(own: Config, problems: readonly Problem[]): TollgateError {
  const count = problems.length === 1 ? 'one problem' : `${problems.length} problems`;
  return new TollgateError('CONFIG_INVALID', {
    detail: `The tenants of ${path.basename(own.file)} have ${count}.`,
    data: { problems },
  });
}

/** Returns the problems of a tenant's file. Files of several tenants may have one name, so each has its folder. */
function problemsOf(thrown: unknown, file: string, tenant: string): readonly Problem[] {
  if (!(thrown instanceof TollgateError)) throw thrown;
  const { problems } = thrown.data;
  if (!Array.isArray(problems)) return [fileProblem(file, `tenant ${tenant}: ${thrown.message} ${thrown.next}`)];
  return (problems as readonly Problem[]).map((problem) => ({
    ...problem,
    file: path.join(path.dirname(file), problem.file),
  }));
}

function shownFile(own: Config, file: string): string {
  return isPathWithin(file, own.folder) ? path.relative(own.folder, file) : file;
}

/** A place of one configuration. `at`: the setting that chooses it. */
interface Place {
  readonly at: Path;
  readonly what: string;
  /** Absolute and real. */
  readonly file: string;
}

/** Returns the files and folders that belong to one tenant alone. */
function privatePlaces(config: Config): readonly Place[] {
  const { state, audit, acceptedFolder, workspace, otherWorkspaces } = config;
  const { keep, signing, export: target } = audit;
  const at = (key: Path, what: string, file: string | undefined): readonly Place[] =>
    file === undefined ? [] : [{ at: key, what, file: realPath(file) }];
  return [
    ...at(['state'], 'the state', state),
    ...at(['audit', 'folder'], 'the audit log', audit.folder),
    ...at(['audit', 'keep', 'archive'], 'the archive of the log', keep?.archive),
    ...at(['audit', 'signing', 'key'], 'the key of the log', signing.key),
    ...at(['audit', 'export', 'to'], 'the copy of the log', target?.file),
    ...at([], 'the accepted configuration', acceptedFolder),
    ...at(['workspace'], 'the workspace', workspace),
    ...otherWorkspaces.write.flatMap((file) => at(['otherWorkspaces', 'write'], 'a workspace', file)),
  ];
}

/** A folder that programs of a configuration see. */
interface SeenPlace extends Place {
  readonly isWritable: boolean;
}

/** Returns the folders that agents and servers of a configuration see. */
function seenPlaces({ workspace, otherWorkspaces, bash, servers }: Config): readonly SeenPlace[] {
  const see = (at: Path, files: readonly string[], isWritable: boolean): readonly SeenPlace[] =>
    files.map((file) => ({ at, what: 'a folder that its programs see', file: realPath(file), isWritable }));
  const sandboxes = [
    { at: ['bash', 'filesystem'], sandbox: bash.sandbox, folders: [] as readonly string[] },
    ...[...servers.values()].map(({ name, sandbox, cwd, isolation }) => ({
      at: ['servers', name],
      sandbox,
      // In a container, the folder is one of the image.
      folders: cwd === undefined || isolation === 'container' ? [] : [cwd],
    })),
  ];
  const seen = [
    ...see(['workspace'], [workspace], true),
    ...see(['otherWorkspaces'], otherWorkspaces.read, false),
    ...see(['otherWorkspaces'], otherWorkspaces.write, true),
    ...sandboxes.flatMap(({ at, sandbox, folders }) => [
      ...see(at, [...(sandbox?.filesystem.allowRead ?? []), ...folders], false),
      ...see(at, sandbox?.filesystem.allowWrite ?? [], true),
    ]),
  ];
  // By default, a sandbox may write the workspace.
  return firstOf(seen, ({ file, isWritable }) => `${isWritable} ${file}`);
}

function firstOf<T>(all: readonly T[], keyOf: (one: T) => string): readonly T[] {
  return [...new Map(all.toReversed().map((one) => [keyOf(one), one])).values()].toReversed();
}

/** Returns what each two of the configurations share. A pair is reported at the one that comes later. */
function sharedBy(configs: readonly Config[], own: Config): readonly Problem[] {
  return configs.flatMap((config, index) =>
    configs.slice(0, index).flatMap((other) => {
      const who = other.tenant === undefined ? `of ${path.basename(own.file)} itself` : `of tenant ${other.tenant}`;
      const at = (place: Path, message: string): Problem => ({
        file: shownFile(own, config.file),
        ...config.ruleDocument.placeOf(place, 'value'),
        message,
      });
      return [...sharedPlaces(config, other), ...sharedStore(config, other), ...sharedTokens(config, other)].map(
        ([place, what, fix]) => at(place, `${what} ${who}; ${fix}`),
      );
    }),
  );
}

type Shared = readonly [at: Path, what: string, fix: string];

function sharedPlaces(config: Config, other: Config): readonly Shared[] {
  const [mine, theirs] = [privatePlaces(config), privatePlaces(other)];
  const [seen, theirSeen] = [seenPlaces(config), seenPlaces(other)];
  const files = (one: Config): readonly Place[] =>
    one.controlFiles.map((file) => ({ at: [], what: 'a file of the configuration', file }));
  const found = [
    ...overlaps(mine, theirs),
    ...overlaps(seen, [...theirs, ...files(other)]),
    ...overlaps([...mine, ...files(config)], theirSeen),
    // A folder that both see is a channel, unless both may only read it.
    ...overlaps(
      seen.filter(({ isWritable }) => isWritable),
      theirSeen,
    ),
    ...overlaps(
      seen,
      theirSeen.filter(({ isWritable }) => isWritable),
    ),
  ];
  // One mistake overlaps in several ways, and one line for each setting says enough.
  return firstOf(found, ([at]) => JSON.stringify(at));
}

const OWN_FOLDER = 'nothing may pass from one tenant to another, so name a folder that is outside of all others';

/** Returns one entry for each of `mine` that contains, or lies in, one of `theirs`. */
function overlaps(mine: readonly Place[], theirs: readonly Place[]): readonly Shared[] {
  return mine.flatMap(({ at, what, file }) => {
    const hit = theirs.find((place) => isPathWithin(file, place.file) || isPathWithin(place.file, file));
    return hit === undefined ? [] : [[at, `${what} overlaps with ${hit.what}`, OWN_FOLDER]];
  });
}

/** Two addresses may lead to one store, so only namespaces tell states apart. */
function sharedStore({ store }: Config, other: Config): readonly Shared[] {
  const isShared = store !== undefined && store.kind === other.store?.kind && store.namespace === other.store.namespace;
  return isShared
    ? [[['state', 'namespace'], 'the namespace in the store is also that', 'write another namespace for each']]
    : [];
}

/** Returns the tokens that both would accept. */
function sharedTokens(config: Config, other: Config): readonly Shared[] {
  const hashes = new Set(other.principals.flatMap(({ tokenHash }) => tokenHash ?? []));
  const tokens = config.principals.flatMap(({ tokenHash }, index): readonly Shared[] =>
    tokenHash !== undefined && hashes.has(tokenHash)
      ? [[['principals', index, 'token'], 'the token is also that of a principal', 'give each principal its own']]
      : [],
  );
  return mayShare(config.listen.jwt, other.listen.jwt)
    ? [...tokens, [['listen', 'jwt'], 'issuer and audience are also those', DIFFER] as const]
    : tokens;
}

const DIFFER =
  'a token of one would be accepted by the other, so write another audience, or in both of them a claim under ' +
  'require whose text differs';

function mayShare(one: JwtConfig | undefined, other: JwtConfig | undefined): boolean {
  if (one === undefined || other === undefined) return false;
  if (one.issuer !== other.issuer || one.audience !== other.audience) return false;
  return !Object.entries(one.require ?? {}).some(
    ([claim, text]) => other.require?.[claim] !== undefined && other.require[claim] !== text,
  );
}
