/** Runs `check`: it reads configuration and policy as a start does, and starts nothing. */
import { asTollgateError } from '../../../catalogs/errors/error-table.ts';
import { shownPath } from '../../clients/client-places.ts';
import { readAccepted } from '../../config/accepted-config.ts';
import type { Config } from '../../config/config.ts';
import { differenceNote, differingFiles } from '../../config/config-in-force.ts';
import { loadConfig } from '../../config/load-config.ts';
import { readText, realPath } from '../../config/reading/text-files.ts';
import { readTenants } from '../../config/tenants.ts';
import { MAX_SECRET_FILE } from '../../secrets/secret-source.ts';
import { secretUses } from '../../secrets/secret-uses.ts';
import { openPlaces } from '../../secrets/secrets.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { plural, printable } from '../print.ts';
import { fetchObstacle } from '../server-consent/start-obstacles.ts';
import { reportStops } from '../stop-notice.ts';
import type { Wiring } from '../wiring.ts';

/** Prints what was read, and the warnings. Throws what refuses the configuration. */
export async function runCheck(options: CommonOptions, io: Io, { check }: Pick<Wiring, 'check'>): Promise<number> {
  const config = readConfig(options, io);
  const world = { env: io.env, home: io.home, isShared: true };
  readTenants(config, (file, tenant) => ({ config: loadConfig(file, { ...world, tenant }), differing: [] }));
  await reportStops(config.state, io);
  const {
    revision,
    rules,
    unbound,
    unjudged: names,
    unshown,
  } = await check(config, options.opa === undefined ? {} : { opa: options.opa });
  const unjudged = [...names, ...unshown];
  const missing = await missingSecrets(config, io);
  const unstartable = unstartableIn(config);
  const facts = {
    file: config.file,
    servers: config.servers.size,
    principals: config.principals.length,
    profiles: config.profiles.size,
    policies: config.policies.length,
    rules,
    revision,
    warnings: config.warnings,
    unbound,
    unjudged,
    missingSecrets: missing.names,
    unstartable: unstartable.map(({ server }) => server),
  };
  if (options.json === true) {
    io.stdout(`${JSON.stringify(facts)}\n`);
    return EXIT.ok;
  }
  if (realPath(io.cwd) !== config.folder) io.stderr(`Using ${printable(shownPath(config.file, io))}\n`);
  const note = unacceptedNote(config);
  if (note !== undefined) io.stderr(`${printable(note)}\n`);
  for (const { file, line, column, message } of config.warnings) io.stderr(`${file}:${line}:${column}: ${message}\n`);
  for (const line of [...unbound, ...unjudged]) io.stderr(`${line}\n`);
  for (const line of missing.lines) io.stderr(`${line}\n`);
  for (const { server, seen, fix } of unstartable) io.stderr(`warning: ${server} cannot start: ${seen}; ${fix}\n`);
  const isEmpty = rules === 0 && config.policies.every(({ kind, mode }) => kind === 'yaml' || mode === 'off');
  const parts = [
    plural(facts.servers, 'server'),
    plural(facts.principals, 'principal'),
    plural(facts.profiles, 'profile'),
    plural(rules, 'YAML rule'),
    plural(facts.policies, 'policy source'),
  ];
  io.stdout(`ok: ${parts.join(', ')} (revision ${revision.slice(0, 12)})\n`);
  if (isEmpty) io.stdout('There is no rule and no policy: every call is denied.\n');
  return EXIT.ok;
}

/**
 * Returns a line if agents are served another configuration than the one on the disk. Throws CONFIG_NOT_ACCEPTED for a
 * damaged copy.
 */
export function unacceptedNote({ acceptedFolder, folder }: Config): string | undefined {
  const accepted = readAccepted(acceptedFolder);
  return accepted === undefined ? undefined : differenceNote(differingFiles(accepted, folder));
}

/** Returns the servers that cannot start on any machine as they are written. */
function unstartableIn({
  servers,
}: Config): readonly { readonly server: string; readonly seen: string; readonly fix: string }[] {
  return [...servers.values()].flatMap((server) => {
    const found = server.unusable === undefined ? fetchObstacle(server) : undefined;
    return found === undefined ? [] : [{ server: server.name, ...found }];
  });
}

/** Returns how to supply a missing secret from its source. */
export function setHint({ secretSources }: Pick<Config, 'secretSources'>, name: string): string {
  const source = secretSources.get(name);
  if (source?.from === 'file') return `make its file readable for Tollgate: ${source.file}`;
  return source?.from === 'env'
    ? `set the variable ${source.variable} where Tollgate runs`
    : `store it with: tollgate secret set ${name}`;
}

/**
 * Returns the secrets that servers use and that do not exist. The file is not at fault: the user may store them later.
 */
export async function missingSecrets(
  config: Config,
  io: Io,
): Promise<{ readonly names: readonly string[]; readonly lines: readonly string[] }> {
  const uses = secretUses(config);
  if (uses.size === 0) return { names: [], lines: [] };
  const { vault, env } = openPlaces({ state: config.state, env: io.env });
  try {
    const known = new Set((await vault.list()).map(({ name }) => name));
    const isMissing = (name: string): boolean => {
      const source = config.secretSources.get(name);
      if (source?.from === 'file') return !readText(source.file, MAX_SECRET_FILE).ok;
      return source === undefined ? !known.has(name) : source.from === 'env' && env[source.variable] === undefined;
    };
    const names = [...uses.keys()].filter(isMissing);
    return {
      names,
      lines: names.map((name) => {
        const servers = (uses.get(name) ?? []).join(', ');
        return `warning: secret ${name} is missing, and ${servers} cannot start without it; ${setHint(config, name)}`;
      }),
    };
  } catch (thrown) {
    const error = asTollgateError(thrown);
    if (error.code !== 'VAULT_FAILED') throw thrown;
    return {
      names: [],
      lines: [`warning: the secrets of servers could not be checked: ${error.message} ${error.next}`],
    };
  }
}
