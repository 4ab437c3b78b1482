/** Plans an export before anything is written. No server is removed from a client unless Tollgate has it. */
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Config, ServerDefinition } from '../config/config.ts';
import { substitute, type Variables } from '../config/reading/variable-substitution.ts';
import { resolver, type World } from '../config/work-folders.ts';
import { readRunner } from '../packages/runner-command.ts';
import { type FileChange, readTarget } from './changes/client-file-changes.ts';
import type { ClientEntry } from './client-entry.ts';
import { changeServers } from './client-file-edit.ts';
import { readClientText } from './client-file-reader.ts';
import type { ClientFormat } from './client-formats.ts';
import { type ClientRoots, shownPath } from './client-places.ts';
import { type FoundClientFile, isOurs } from './found-client-files.ts';
import { type ImportPlan, planCopy } from './import-plan.ts';
import { type EntryTarget, OWN_NAME, ownEntry } from './own-entry.ts';
import type { CopyStarts } from './package-copies.ts';

/** A request to write Tollgate into one file of a client. */
export interface ExportRequest {
  readonly config: Config;
  readonly world: World;
  readonly roots: ClientRoots;
  readonly client: ClientFormat;
  readonly file: string;
  readonly target: EntryTarget;
  /** Move the servers of the file behind Tollgate. */
  readonly replace: boolean;
  readonly fromVariables: boolean;
  /** Pins the packages of the servers that move. Without it, copies start what the client starts. */
  readonly pin?: (entries: readonly ClientEntry[]) => Promise<CopyStarts>;
}

/** All that an export will do. */
export interface ExportPlan {
  readonly file: string;
  readonly changes: readonly FileChange[];
  /** Removed from the file, because Tollgate has them. */
  readonly moved: readonly ClientEntry[];
  /** They stay in the file, so the agent reaches them without Tollgate. */
  readonly left: readonly { readonly entry: ClientEntry; readonly why: string }[];
  /** What is added to tollgate.yaml. */
  readonly copied: ImportPlan;
}

const NOTHING: ImportPlan = { changes: [], outcomes: [], secrets: [], wanted: [] };

/** Plans the export. Throws USAGE, CONFIG_INVALID. */
export async function planExport(request: ExportRequest): Promise<ExportPlan> {
  const { config, roots, client, file, target, replace } = request;
  const before = readTarget(file);
  const shown = shownPath(file, roots);
  const content =
    before === undefined || before.trim() === ''
      ? { file: shown, entries: [], inputs: new Map(), warnings: [] }
      : readClientText(before.replace(/^\uFEFF/, ''), { shown, project: config.folder, file, format: client });
  const others = content.entries.filter((entry) => !isOurs(entry));
  const taken = others.find(({ original, path }) => original === OWN_NAME && path.length === 2);
  if (taken !== undefined)
    throw new TollgateError('USAGE', {
      detail: `${shown} has a server called ${OWN_NAME} that is not Tollgate.`,
      next: 'Rename it there first.',
    });
  const found: FoundClientFile = { file, shown, client, ofProject: true, content, servers: others };
  const { moved, left, copied } = replace
    ? await moveAll(found, request)
    : {
        moved: [],
        left: others.filter(isLive).map((entry) => ({ entry, why: 'you did not ask to move it' })),
        copied: NOTHING,
      };
  const after = changeServers(before ?? '', client, {
    ...ownEntry(client, target),
    remove: moved.map(({ path }) => path),
  });
  const own: readonly FileChange[] =
    after === before ? [] : [{ file, after, client: client.id, ...(before !== undefined && { before }) }];
  return { file, changes: [...copied.changes, ...own], moved, left, copied };
}

/** Returns true if the client starts the server, so the entry is not disabled. */
function isLive({ unusable }: ClientEntry): boolean {
  return unusable !== 'the file disables it';
}

async function moveAll(
  found: FoundClientFile,
  request: ExportRequest,
): Promise<Pick<ExportPlan, 'moved' | 'left' | 'copied'>> {
  const { config, world, fromVariables, pin } = request;
  const has = found.servers.filter((entry) => isProvidedAlready(entry, found, request));
  const rest = found.servers.filter((entry) => !has.includes(entry) && isLive(entry));
  const starts = await pin?.(rest.filter(({ unusable }) => unusable === undefined));
  const files = [{ ...found, servers: rest }];
  const copied =
    rest.length === 0
      ? NOTHING
      : planCopy({ config, world, files, fromVariables, ...(starts !== undefined && { starts }) });
  const came = copied.outcomes.filter(({ left }) => left === undefined).map(({ entry }) => entry);
  const left = copied.outcomes.flatMap(({ entry, left: why }) => (why === undefined ? [] : [{ entry, why }]));
  return { moved: [...has, ...came], left, copied };
}

/** Returns true if Tollgate has the same server from another place than this file. */
function isProvidedAlready(
  entry: ClientEntry,
  { file, content }: FoundClientFile,
  { config, world }: ExportRequest,
): boolean {
  const server = config.servers.get(entry.name);
  if (
    server === undefined ||
    server.unusable !== undefined ||
    resolver(config.folder, world.home)(server.source) === file
  )
    return false;
  const variables: Variables = {
    env: world.env,
    folders: new Map([
      ['workspaceFolder', config.workspace],
      ['userHome', world.home],
      ['configDir', config.folder],
    ]),
    inputs: content.inputs,
  };
  const filled = (text: string): string => {
    const result = substitute(text, variables);
    return result.ok ? result.text : text;
  };
  const startOf = ({ command = '', args, url = '' }: Pick<ClientEntry, 'command' | 'args' | 'url'>): string =>
    JSON.stringify([command, args, url].flat().map(filled));
  return startOf(entry) === startOf(server) || runsCopy(entry, server, path.join(config.state, 'packages', entry.name));
}

/** Returns true if a server runs the installed package of an entry with the same arguments. `folder`: its packages. */
function runsCopy(entry: ClientEntry, { command = '', args }: ServerDefinition, folder: string): boolean {
  const runner = readRunner(entry);
  if (runner === undefined || 'fault' in runner) return false;
  const [program = '', ...rest] = command === 'node' ? args : [command, ...args];
  const { spec } = runner;
  const isSame = spec.kind === 'npm' ? program.includes(`/node_modules/${spec.name}/`) : spec.kind === 'pypi';
  return isSame && program.startsWith(`${folder}/`) && JSON.stringify(rest) === JSON.stringify(runner.args);
}
