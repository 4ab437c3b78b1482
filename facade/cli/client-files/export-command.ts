/**
 * Runs `tollgate export`: writes Tollgate into a client's file after a preview, and undoes it. Nothing is written
 * without consent.
 */
import { accessSync, constants, existsSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { showEntry } from '../../clients/client-entry-view.ts';
import { CLIENTS, type ClientFormat, clientOf } from '../../clients/client-formats.ts';
import { type ClientRoots, clientPlaces, isDefaultPlace, rootsAt, shownPath } from '../../clients/client-places.ts';
import { type ExportPlan, planExport } from '../../clients/export-plan.ts';
import { type FoundClientFile, findFiles } from '../../clients/found-client-files.ts';
import { packagesIn } from '../../clients/import-plan.ts';
import { type EntryTarget, TOKEN_VARIABLE } from '../../clients/own-entry.ts';
import { installCopies, type PinWorld, pinCopies } from '../../clients/package-copies.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean } from '../../config/config-problems.ts';
import { withArchives } from '../../packages/package-source.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { installWorldOf } from '../connect/connection-steps.ts';
import { commandLine, json, paint, printable } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { applyConfirmed, type ConfirmOptions, confirmWrite } from './client-files.ts';
import { undo } from './client-undo.ts';
import { planData, planLines } from './import-view.ts';

/** Options of the command. */
export interface ExportOptions extends CommonOptions, ConfirmOptions {
  readonly client?: string;
  readonly file?: string;
  readonly user?: true;
  readonly replace?: true;
  readonly http?: true;
  readonly as?: string;
  readonly secrets?: 'vault' | 'env';
  readonly undo?: true;
}

/** Exports or undoes. Throws USAGE, CONFIG_INVALID, AUDIT_FAILED, VAULT_FAILED, CANCELLED. */
export async function runExport(options: ExportOptions, io: Io, wiring: Wiring): Promise<number> {
  if (options.undo === true)
    return undo('export', {
      options,
      io,
      wiring,
      ...(options.client !== undefined && { client: readClient(options.client).id }),
    });
  return withArchives((into) => exportTo(options, io, { ...installWorldOf(io, wiring), into }));
}

async function exportTo(options: ExportOptions, io: Io, packages: PinWorld): Promise<number> {
  const config = readConfig(options, io);
  const roots = rootsAt(config.folder, io);
  const client = readClient(options.client);
  const file = fileToWrite(options, client, { roots, io });
  const fromVariables = options.secrets === 'env';
  const plan = await planExport({
    config,
    world: { env: io.env, home: io.home },
    roots,
    client,
    file,
    target: entryTargetOf(options, { client, config, io }),
    replace: options.replace === true,
    fromVariables,
    pin: (entries) => pinCopies(entries, packages),
  });
  const elsewhere = findFiles(roots).filter(
    (found) => found.client?.id === client.id && found.file !== file && found.servers.length > 0,
  );
  if (options.json !== true) io.stderr(report(plan, { options, client, config, roots, io, elsewhere }));
  if (
    options.dryRun !== true &&
    options.secrets === undefined &&
    plan.copied.secrets.length > 0 &&
    options.yes === true
  ) {
    throw new TollgateError('USAGE', {
      detail: 'Some of these servers have keys in the file, and --yes does not say where to store them.',
      next: 'Use --secrets vault (they move to the vault), or --secrets env (you set the variables).',
    });
  }
  const isDone = plan.changes.length > 0 && (await confirmWrite(options, io));
  const of = { clients: [client.id], servers: plan.moved.map(({ name }) => name) };
  const { copied, changes } = plan;
  if (isDone) {
    await installCopies(packagesIn(copied), config.state, packages);
    await applyConfirmed(
      { changer: 'export', changes, of, ...(!fromVariables && { secrets: copied.secrets }) },
      { config, io },
    );
  }
  if (options.json === true) io.stdout(json({ ...dataOf(plan, { config, roots, elsewhere }), written: isDone }));
  else if (isDone)
    io.stderr(`Written. Restart ${client.title}. To undo: ${commandLine([...io.self, 'export', '--undo'])}\n`);
  return EXIT.ok;
}

function readClient(id: string | undefined): ClientFormat {
  const ids = CLIENTS.map((client) => client.id);
  const client = id === undefined ? undefined : clientOf(id);
  if (client === undefined)
    throw new TollgateError('USAGE', {
      detail: id === undefined ? 'No client is named.' : `There is no client ${id}.`,
      next: id === undefined ? `Name one: --client ${ids.join(', ')}.` : didYouMean(id, ids),
    });
  return client;
}

/** Returns the file to write: that of the project if the client has one, else that of the user. */
function fileToWrite(
  { file, user }: ExportOptions,
  client: ClientFormat,
  { roots, io }: { readonly roots: ClientRoots; readonly io: Io },
): string {
  if (file !== undefined) return path.resolve(io.cwd, file);
  const places = clientPlaces(roots).filter((place) => place.client.id === client.id);
  const place =
    places.find((one) => isDefaultPlace(one) && user !== true) ?? places.find(({ ofProject }) => !ofProject);
  return place?.file ?? '';
}

/** Returns how a client starts or reaches Tollgate. Throws USAGE for an unknown principal, or a changing address. */
export function entryTargetOf(
  { http, as }: Pick<ExportOptions, 'http' | 'as'>,
  { client, config, io }: { readonly client: ClientFormat; readonly config: Config; readonly io: Io },
): EntryTarget {
  const { host, port, auth } = config.listen;
  if (http === true) {
    if (port === 0)
      throw new TollgateError('USAGE', {
        detail: 'listen.port is 0, so every start has another address.',
        next: 'Set listen.port in tollgate.yaml.',
      });
    return { url: `http://${host.includes(':') ? `[${host}]` : host}:${port}/mcp`, auth: auth !== 'none' };
  }
  const ids = config.principals.map(({ id }) => id);
  if (as !== undefined && !ids.includes(as))
    throw new TollgateError('USAGE', { detail: `tollgate.yaml lists no principal ${as}; ${didYouMean(as, ids)}` });
  const self = client.bare === true ? withoutPath(io) : io.self;
  return { words: [...self, 'run', '--config', config.file, ...(as === undefined ? [] : ['--as', as])] };
}

/** Desktop applications do not know the PATH of a shell, so they get Node itself and the file. */
function withoutPath({ self, env }: Io): readonly string[] {
  const [program = ''] = self;
  if (path.isAbsolute(program)) return self;
  const found = (env.PATH ?? '')
    .split(path.delimiter)
    .filter(path.isAbsolute)
    .map((folder) => path.join(folder, program))
    .find(isProgram);
  return found === undefined ? self : [process.execPath, realpathSync(found), ...self.slice(1)];
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

interface View {
  readonly options: ExportOptions;
  readonly client: ClientFormat;
  readonly config: Config;
  readonly roots: ClientRoots;
  readonly io: Io;
  readonly elsewhere: readonly FoundClientFile[];
}

/** The preview. */
function report(plan: ExportPlan, { options, client, roots, io, elsewhere, config }: View): string {
  const isNew = !existsSync(path.dirname(plan.file));
  const own = plan.changes.find(({ file }) => file === plan.file);
  const { file } = options;
  const self = commandLine([...io.self, 'export', '--client', client.id]);
  const program = commandLine(['tollgate', 'run', '--config', config.file]);
  const sameFile = [...(options.user === true ? ['--user'] : []), ...(file === undefined ? [] : ['--file', file])];
  const hints = [
    ...(plan.left.length > 0 && options.replace !== true
      ? [`  ${commandLine([...io.self, 'export', '--client', client.id, ...sameFile, '--replace'])}\n`]
      : []),
    ...elsewhere
      .filter(({ ofProject }) => !ofProject && options.user !== true)
      .slice(0, 1)
      .map(() => `  ${self} --user --replace\n`),
  ];
  const bypassing = [
    ...plan.left.map(({ entry, why }) => `${entry.original}${options.replace === true ? `: ${why}` : ''}`),
    ...elsewhere.map(({ shown, servers }) => `${servers.map(({ original }) => original).join(', ')}, in ${shown}`),
  ];
  return [
    `${shownPath(plan.file, roots)} (${client.title})${isNew ? ', in a new folder' : ''}\n`,
    own === undefined
      ? '  is correct already\n'
      : paint(io, 'green', `  + tollgate: ${options.http === true ? 'its address' : `starts ${printable(program)}`}\n`),
    ...plan.moved.map((entry) =>
      paint(io, 'yellow', `  - ${printable(`${entry.original}: ${showEntry(entry).runs}`)}, which Tollgate provides\n`),
    ),
    planLines(plan.copied, { io, config, fromVariables: options.secrets === 'env' }),
    ...(bypassing.length === 0 ? [] : ['The agent reaches these without Tollgate:\n']),
    ...bypassing.map((line) => `  ${printable(line)}\n`),
    ...(bypassing.length === 0 || hints.length === 0 ? [] : ['Move them behind it:\n', ...hints]),
    options.http === true && client.token !== 'input' && config.listen.auth !== 'none'
      ? `Set ${TOKEN_VARIABLE} in the environment of ${client.title} to the token that tollgate serve prints.\n`
      : '',
  ].join('');
}

function dataOf(
  plan: ExportPlan,
  { config, roots, elsewhere }: Pick<View, 'config' | 'roots' | 'elsewhere'>,
): Readonly<Record<string, unknown>> {
  return {
    file: shownPath(plan.file, roots),
    files: plan.changes.map(({ file }) => shownPath(file, roots)),
    moved: plan.moved.map(showEntry),
    left: plan.left.map(({ entry, why }) => ({ ...showEntry(entry), why })),
    elsewhere: elsewhere.map(({ shown, servers }) => ({
      file: shown,
      servers: servers.map(({ original }) => original),
    })),
    imported: planData(plan.copied, config),
  };
}
