/**
 * Runs `tollgate import`: lists the servers of clients, and imports them after a preview. Nothing is written without
 * consent, and no value is shown.
 */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ChangeNames } from '../../clients/changes/backups.ts';
import { CLIENTS, clientOf } from '../../clients/client-formats.ts';
import { type ClientRoots, rootsAt } from '../../clients/client-places.ts';
import { type FoundClientFile, findFiles, readFound } from '../../clients/found-client-files.ts';
import {
  type ImportPlan,
  type ImportRequest,
  packagesIn,
  pinRequest,
  planCopy,
  planInclude,
} from '../../clients/import-plan.ts';
import { installCopies } from '../../clients/package-copies.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import type { InstallWorld } from '../../packages/installer.ts';
import { withArchives } from '../../packages/package-source.ts';
import { readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { installWorldOf } from '../connect/connection-steps.ts';
import { commandLine, json, printable, printList } from '../print.ts';
import { askYes, isInteractive } from '../terminal-prompt.ts';
import type { Wiring } from '../wiring.ts';
import { applyConfirmed, confirmWrite } from './client-files.ts';
import { undo } from './client-undo.ts';
import { type ImportOptions, importServer, serverText } from './import-server.ts';
import { importReport, listOf, planData } from './import-view.ts';

/** Lists, imports or undoes. Throws USAGE, CONFIG_INVALID, AUDIT_FAILED, VAULT_FAILED, CANCELLED. */
export async function runImport(options: ImportOptions, io: Io, wiring: Wiring): Promise<number> {
  if (options.undo === true) return undo('import', { options, io, wiring });
  const config = readConfig(options, io);
  const text = options.file === undefined ? undefined : serverText(path.resolve(io.cwd, options.file));
  if (options.file !== undefined && text !== undefined)
    return importServer({ text, options: { ...options, file: options.file }, config, io });
  const roots = rootsAt(config.folder, io);
  const files = filesOf(options, roots, io);
  if (options.file === undefined && options.from === undefined && options.all !== true) {
    if (options.copy !== true && options.only === undefined) return list(files, options, io);
    throw new TollgateError('USAGE', {
      detail: `${options.copy === true ? '--copy' : '--only'} does not say from which file.`,
      next: 'Add --all, --from CLIENT or a file.',
    });
  }
  checkNames(options, files);
  const fromVariables = await chooseSecrets(options, files, io);
  const request = {
    config,
    world: { env: io.env, home: io.home },
    files,
    ...(options.only !== undefined && { only: namesIn(options.only) }),
    fromVariables,
  };
  if (options.copy !== true) return carryOutPlan(planInclude(request), request, { options, io });
  const world = installWorldOf(io, wiring);
  return withArchives(async (into) => {
    const pinned = await pinRequest(request, { ...world, into });
    return carryOutPlan(await planWithFolders(pinned, options, io), request, { options, io, world });
  });
}

/** Shows a plan, asks, and does it. Packages are installed first, so that a failure leaves the files as they are. */
async function carryOutPlan(
  plan: ImportPlan,
  { config, files, fromVariables = false }: ImportRequest,
  { options, io, world }: { readonly options: ImportOptions; readonly io: Io; readonly world?: InstallWorld },
): Promise<number> {
  if (options.json !== true) io.stderr(importReport(plan, { files, io, config, fromVariables }));
  const isDone = plan.changes.length > 0 && (await confirmWrite(options, io));
  const of = namesOf(plan, files);
  const { changes, secrets } = plan;
  if (isDone) {
    if (world !== undefined) await installCopies(packagesIn(plan), config.state, world);
    await applyConfirmed({ changer: 'import', changes, of, ...(!fromVariables && { secrets }) }, { config, io });
  }
  if (options.json === true) io.stdout(json({ ...planData(plan, config), written: isDone }));
  else if (isDone) io.stderr(`Written. To undo: ${commandLine([...io.self, 'import', '--undo'])}\n`);
  return EXIT.ok;
}

/** Plans a copy. At a terminal, a person decides about each folder outside the workspace. */
async function planWithFolders(request: ImportRequest, options: ImportOptions, io: Io): Promise<ImportPlan> {
  const plan = planCopy(request);
  if (!isInteractive(io) || options.yes === true || options.dryRun === true) return plan;
  const granted = new Set<string>();
  for (const { entry, copy } of plan.outcomes)
    for (const { folder, access } of copy?.folders.outside ?? []) {
      const may = access === 'read' ? 'read' : 'read and write';
      const question = `May ${entry.name} ${may} ${printable(folder)}, outside the workspace?`;
      if (await askYes(io, question)) granted.add(`${entry.name} ${folder}`);
    }
  return granted.size === 0
    ? plan
    : planCopy({ ...request, isGranted: (server, folder) => granted.has(`${server} ${folder}`) });
}

/** Throws USAGE for a name that no file has, because a mistyped name would be left out silently. */
function checkNames({ only }: ImportOptions, files: readonly FoundClientFile[]): void {
  const known = files.flatMap(({ servers }) => servers.flatMap(({ name, original }) => [name, original]));
  const unknown = namesIn(only ?? '').find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw new TollgateError('USAGE', {
      detail: `None of these files has a server ${quote(unknown)}.`,
      next: `\`tollgate import\` lists them; ${didYouMean(unknown, new Set(known))}`,
    });
}

function namesIn(only: string): readonly string[] {
  return only
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
}

/** Returns the servers to import, and the clients whose files have them. */
function namesOf({ outcomes }: ImportPlan, files: readonly FoundClientFile[]): ChangeNames {
  const imported = outcomes.filter(({ left }) => left === undefined);
  const clients = files
    .filter(({ shown }) => imported.some(({ file }) => file === shown))
    .map(({ client }) => client?.id ?? 'file');
  return { clients: [...new Set(clients)], servers: [...new Set(imported.map(({ entry }) => entry.name))] };
}

function filesOf({ file, from }: ImportOptions, roots: ClientRoots, io: Io): readonly FoundClientFile[] {
  const ids = CLIENTS.map(({ id }) => id);
  if (from !== undefined && clientOf(from) === undefined)
    throw new TollgateError('USAGE', { detail: `There is no client ${from}; ${didYouMean(from, ids)}` });
  if (file === undefined) return findFiles(roots).filter(({ client }) => from === undefined || client?.id === from);
  const found = readFound(path.resolve(io.cwd, file), roots);
  const [warning] = found.content.warnings;
  if (found.content.entries.length === 0)
    throw new TollgateError('USAGE', {
      detail: `${file} gives no server${warning === undefined ? '' : `: ${warning.message}`}.`,
      next: 'Name a file in which a client keeps its servers.',
    });
  return [found];
}

function list(files: readonly FoundClientFile[], options: ImportOptions, io: Io): number {
  printList(
    { io, options },
    {
      ...listOf(files),
      empty: 'No file of a known client was found. Name one: tollgate import FILE',
      summary:
        'Nothing was changed. Import them:\n' +
        '  tollgate import --all          they stay in their files\n' +
        '  tollgate import --all --copy   copies of your own; keys move to the vault',
    },
  );
  return EXIT.ok;
}

/** Where literal secrets are stored. Only copies move them. */
async function chooseSecrets(options: ImportOptions, files: readonly FoundClientFile[], io: Io): Promise<boolean> {
  if (options.copy !== true) {
    if (options.secrets !== undefined)
      throw new TollgateError('USAGE', {
        detail: "--secrets needs --copy: without it, values stay in the client's file.",
        next: 'Add --copy, or omit --secrets.',
      });
    return false;
  }
  if (options.secrets !== undefined) return options.secrets === 'env';
  const holdsValues = files.some(({ servers }) =>
    servers.some(
      ({ env, headers, envFile }) =>
        envFile !== undefined ||
        [...Object.values(env), ...Object.values(headers)].some((value) => !value.includes('${')),
    ),
  );
  if (!holdsValues) return false;
  if (options.dryRun === true) return false;
  if (!isInteractive(io))
    throw new TollgateError('USAGE', {
      detail: 'Some of these servers have keys in their files, and there is no terminal to ask where to store them.',
      next: 'Use --secrets vault (they move to the vault), or --secrets env (you set the variables).',
    });
  return !(await askYes(
    io,
    'Move the keys in these files to the vault? If not, they are read from variables that you set.',
  ));
}
