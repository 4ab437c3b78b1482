/**
 * Runs `tollgate init`: writes a working tollgate.yaml from what clients have. It overwrites nothing, and shows no
 * value of their files.
 */
import { existsSync, lstatSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { readClientFile } from '../../clients/client-file-reader.ts';
import { clientPlaces, isDefaultPlace, shownPath } from '../../clients/client-places.ts';
import { dropStaged } from '../../config/accepted-config.ts';
import { formatProblems } from '../../config/config-problems.ts';
import { SCHEMA_FILE } from '../../config/config-schema.ts';
import { loadConfig } from '../../config/load-config.ts';
import { captureWrite, captureWrites, type Replaced } from '../../config/reading/file-replacement.ts';
import { realPath } from '../../config/reading/text-files.ts';
import { workspaceFault } from '../../config/work-folders.ts';
import { EXIT, type Io } from '../command-io.ts';
import { DEFAULT_CONFIG, outsideFolder } from '../config-file.ts';
import { commandLine } from '../print.ts';
import { ownerObstacle } from '../server-consent/start-obstacles.ts';
import { askYes, isInteractive } from '../terminal-prompt.ts';
import { accept, acceptWritten, stageDisk } from './configuration-acceptance.ts';
import { type InitClientFile, projectFile } from './init-file.ts';

/** Rules to begin with: policies/starter/, docs/starters.md. */
export type Starter = 'workspace' | 'reviewer' | 'no-leaving' | 'ci' | 'strict';

/** Options of the command. */
export interface InitOptions {
  /** The file to write, relative to the current folder. */
  readonly config: string;
  readonly force?: true;
  /** Default workspace. */
  readonly starter?: Starter;
  /** Writes the configuration to a folder of the user instead of the project. */
  readonly outside?: true;
  /** False: the servers of clients are not included. */
  readonly clients?: false;
  readonly json?: true;
}

const RULES_SCHEMA = new URL('../../../policies/schemas/rules.json', import.meta.url);
const SUITE_SCHEMA = new URL('../../../policies/schemas/suite.json', import.meta.url);
const STARTER_FOLDER = new URL('../../../policies/starter/', import.meta.url);
const PACKAGED = 'node_modules/tollgate/dist';

/** If clients have servers: import them, look at each, then let the client see only Tollgate. */
function nextOf(found: readonly InitClientFile[]): readonly (readonly string[])[] {
  const first = found.find(({ servers }) => servers.length > 0);
  const name = first?.servers.find(({ unusable }) => unusable === undefined)?.name;
  if (first === undefined || name === undefined) return [['check'], ['tools'], ['run']];
  return [
    ['check'],
    ['import', '--all'],
    ['approve', name],
    ['export', '--client', first.id, ...(first.isDefault ? [] : ['--user']), '--replace'],
  ];
}

/**
 * Writes a configuration and accepts it. A person at a terminal is asked where to write it. Throws as `writeProject`,
 * and AUDIT_FAILED.
 */
export async function runInit(options: InitOptions, io: Io): Promise<number> {
  return writeFirst(await placeFor(options, io), options, io);
}

/** Writes a configuration and accepts it. Throws as `writeProject`, and AUDIT_FAILED. */
export async function writeFirst(place: InitPlace, options: InitOptions, io: Io): Promise<number> {
  const { result, writes } = await captureWrites(() => writeProject(place, options, io));
  await acceptFirst({ config: place.file, ...(options.force === true && { force: true }) }, io, writes);
  return result;
}

/**
 * Writes tollgate.yaml, policies/rules.yaml with its suite and, if the package is not installed in the project, the
 * schemas for the editor. With `json`, data goes to stdout and messages to stderr. Existing rules stay, unless a
 * starter is named. Returns the exit code.
 * Throws USAGE if another file exists and `force` is not given, or if the folder cannot be a workspace.
 */
export function writeProject(
  place: InitPlace,
  options: InitOptions,
  io: Pick<Io, 'stdout' | 'stderr' | 'env' | 'home' | 'self'> & { readonly platform?: NodeJS.Platform },
): number {
  const { file, folder, workspace } = place;
  const fault = workspaceFault(workspace, io.home);
  if (fault !== undefined)
    throw new TollgateError('USAGE', {
      detail: `This folder cannot be a project: ${fault}.`,
      next: 'Change to the folder of your project and run tollgate init again.',
    });
  const planned = plannedFiles(place, options.starter ?? 'workspace');
  const kept = keptFiles(options, folder, planned);
  const files = planned.filter(({ path: target }) => !kept.includes(target));
  const existing = files.filter(({ path: target }) => occupied(target));
  if (existing.length > 0 && options.force !== true) {
    const names = existing.map(({ path: target }) => path.relative(folder, target)).join(', ');
    throw new TollgateError('USAGE', {
      detail: `These files exist already: ${names}. Nothing was written.`,
      next: 'Use --force to replace them, or --config to write another file.',
    });
  }
  const found = options.clients === false ? [] : findClients(place, io, io.platform ?? process.platform);
  // All texts are made first, so that an error leaves no half-written project.
  const texts = files.map(({ path: target, text }) => [target, text(found)] as const);
  for (const [target, text] of texts) write(target, text);
  const { warnings } = loadConfig(file, { env: io.env, home: io.home });
  const next = nextOf(found).map((words) =>
    commandLine([
      ...io.self,
      ...words,
      ...(options.config === DEFAULT_CONFIG ? [] : ['--config', place.isOutside ? file : options.config]),
    ]),
  );
  const left = kept.filter(occupied).map((target) => path.relative(folder, target));
  if (options.json === true)
    io.stdout(
      `${JSON.stringify({
        written: files.map(({ path: target }) => (place.isOutside ? target : path.relative(folder, target))),
        kept: left,
        found: found.map(asData),
        warnings,
        next,
      })}\n`,
    );
  else
    io.stderr(
      report({
        place,
        written: files.map(({ path: target }) => path.relative(folder, target)),
        left,
        found,
        next,
        warnings: [
          formatProblems(warnings),
          ...ownerObstacle(folder).map((line) => `neither servers nor bash can start in a sandbox: ${line}`),
        ]
          .filter((line) => line !== '')
          .join('\n'),
      }),
    );
  return EXIT.ok;
}

/** Where the configuration is written, and the folder in which agents work. */
export interface InitPlace {
  readonly file: string;
  readonly folder: string;
  readonly workspace: string;
  readonly isOutside: boolean;
}

/** Next to the project, or in a folder of the user that no agent can write. A person at a terminal is asked. */
async function placeFor(options: InitOptions, io: Io): Promise<InitPlace> {
  const inProject = placeInProject(path.resolve(io.cwd, options.config));
  const outside = placeOutside(inProject.workspace, io);
  // Commands would read this one, so a second configuration of the folder would do nothing.
  if (options.config === DEFAULT_CONFIG && existsSync(outside.file)) return outside;
  const mayAsk = options.json !== true && options.config === DEFAULT_CONFIG && isInteractive(io) && io.isTTY;
  const question =
    `Keep the configuration in ${outside.folder}, where no agent can write it? ` +
    'If not, it is written here, and edits take effect when you run tollgate reload.';
  const isOutside = options.outside === true || (mayAsk && (await askYes(io, question)));
  return isOutside ? outside : inProject;
}

/** A folder of the user for the configuration of a workspace, which no agent can write. */
export function placeOutside(workspace: string, io: Pick<Io, 'env' | 'home'>): InitPlace {
  const folder = outsideFolder(workspace, io);
  return { file: path.join(folder, DEFAULT_CONFIG), folder, workspace, isOutside: true };
}

/** A configuration in the folder in which agents work. */
export function placeInProject(file: string): InitPlace {
  const workspace = realPath(path.dirname(file));
  return { file, folder: workspace, workspace, isOutside: false };
}

/**
 * At the first call the owner accepts everything: the owner has written it, or has found it here. A later call accepts
 * only what it has written; with `force` also where that replaced an edit that no owner had accepted.
 */
async function acceptFirst(
  options: Pick<InitOptions, 'config' | 'force'>,
  io: Io,
  writes: readonly Replaced[],
): Promise<void> {
  const candidate = stageDisk(options, io);
  if (candidate === undefined) return;
  if (candidate.before === undefined) return accept(candidate, { by: io.user, io });
  dropStaged(candidate.config.acceptedFolder, candidate.staged);
  const { files } = candidate.before.accepted;
  return acceptWritten(
    options,
    io,
    options.force === true
      ? writes.map((write) => ({ ...write, before: files.get(write.file)?.toString('utf8') }))
      : writes,
  );
}

/** Existing rules stay, with the files next to them, because the test cases of a starter would fail on other rules. */
function keptFiles(
  { force, starter }: InitOptions,
  folder: string,
  planned: readonly PlannedFile[],
): readonly string[] {
  if (force === true || starter !== undefined || !occupied(path.join(folder, 'policies', 'rules.yaml'))) return [];
  const policyFiles = planned
    .map(({ path: target }) => target)
    .filter((target) => path.dirname(target) === path.join(folder, 'policies'));
  return policyFiles.filter((target) => occupied(target) || path.basename(target) === 'rules_suite.yaml');
}

interface PlannedFile {
  readonly path: string;
  readonly text: (found: readonly InitClientFile[]) => string;
}

/** The schemas are copied only if the editor cannot find those of the package. */
function plannedFiles({ file, folder, workspace, isOutside }: InitPlace, starter: Starter): readonly PlannedFile[] {
  const packaged = ['facade/config/tollgate.schema.json', 'policies/schemas/rules.json'].every((name) =>
    existsSync(path.join(folder, PACKAGED, name)),
  );
  const schema = packaged ? `./${PACKAGED}/facade/config/tollgate.schema.json` : './policies/tollgate.schema.json';
  const started = (name: string, schemaName: string): PlannedFile => {
    const own = packaged ? `../${PACKAGED}/policies/schemas/${schemaName}.json` : `./${schemaName}.schema.json`;
    return {
      path: path.join(folder, 'policies', name),
      text: () =>
        readFileSync(new URL(name.replace('rules', starter), STARTER_FOLDER), 'utf8')
          .replace(/(?<=\$schema=)\S+/, own)
          // The suite proves that the agent cannot write the configuration, wherever it is.
          .replace(
            '{path: tollgate.yaml, content: x}}, expect: deny, reason: control-files}',
            isOutside ? `{path: ${JSON.stringify(file)}, content: x}}, expect: deny}` : '$&',
          ),
    };
  };
  const files: PlannedFile[] = [
    { path: file, text: (found) => projectFile({ schema, found, ...(isOutside && { workspace }) }) },
    started('rules.yaml', 'rules'),
    started('rules_suite.yaml', 'suite'),
  ];
  const copied = (name: string, from: string | URL): PlannedFile => ({
    path: path.join(folder, 'policies', name),
    text: () => readFileSync(from, 'utf8'),
  });
  return packaged
    ? files
    : [
        ...files,
        copied('tollgate.schema.json', SCHEMA_FILE),
        copied('rules.schema.json', RULES_SCHEMA),
        copied('suite.schema.json', SUITE_SCHEMA),
      ];
}

/** True for a dangling link too, because writing through it would create a file elsewhere. */
function occupied(target: string): boolean {
  return lstatSync(target, { throwIfNoEntry: false }) !== undefined;
}

function write(target: string, text: string): void {
  mkdirSync(path.dirname(target), { recursive: true });
  captureWrite(target, text, () => writeFileSync(target, text));
}

function findClients(
  { folder, workspace }: InitPlace,
  io: Pick<Io, 'env' | 'home'>,
  platform: NodeJS.Platform,
): readonly InitClientFile[] {
  return clientPlaces({ cwd: workspace, home: io.home, env: io.env, platform })
    .filter(({ file }) => existsSync(file))
    .map(({ client, file, ofProject }): InitClientFile => {
      const shown = shownPath(file, { cwd: folder, home: io.home });
      const { entries, warnings } = readClientFile(file, { shown, project: workspace });
      const [first] = warnings;
      return {
        id: client.id,
        client: client.title,
        isDefault: isDefaultPlace({ client, ofProject }),
        path: shown,
        servers: entries,
        ...(entries.length === 0 && { unread: first?.message ?? 'it defines no server' }),
      };
    });
}

/** Only names are shown, because a client's file has keys in its arguments, variables and headers. */
function asData({ client, path: shown, servers, unread }: InitClientFile): unknown {
  const names = servers.map(({ original, name, env, headers, unusable }) => ({
    name,
    original,
    variables: Object.keys(env),
    headers: Object.keys(headers),
    ...(unusable !== undefined && { unusable }),
  }));
  return { client, path: shown, servers: names, ...(unread !== undefined && { unread }) };
}

interface Report {
  readonly place: InitPlace;
  readonly written: readonly string[];
  readonly left: readonly string[];
  readonly found: readonly InitClientFile[];
  readonly next: readonly string[];
  readonly warnings: string;
}

function report({ place, written, left, found, next, warnings }: Report): string {
  const clients = found.map(({ client, path: shown, servers, unread }) => {
    const names = servers.map(({ name, env }) => name + variables(Object.keys(env))).join(', ');
    return `  ${client} (${shown}): ${unread ?? names}\n`;
  });
  return [
    clients.length === 0
      ? 'No client files were found. Only the workspace serves read, write, edit and bash.\n'
      : `Found:\n${clients.join('')}`,
    `Wrote ${place.isOutside ? `in ${place.folder}: ` : ''}${written.join(', ')}.\n`,
    left.length === 0 ? '' : `Unchanged: ${left.join(', ')}.\n`,
    warnings === '' ? '' : `Worth knowing:\n${warnings.replace(/^/gm, '  ')}\n`,
    `Next:\n${next.map((command) => `  ${command}\n`).join('')}`,
  ].join('');
}

function variables(names: readonly string[]): string {
  return names.length === 0 ? '' : ` (sets ${names.join(', ')})`;
}
