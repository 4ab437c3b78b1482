/**
 * Folders outside the workspace that a client gave a server. The server keeps them: rules that close everything outside
 * the workspace leave out this server, and a rule of its own closes all but these folders to it.
 */
import path from 'node:path';
import { parse } from 'yaml';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { broadFolderProblem } from '../../../catalogs/readers/broad-folders.ts';
import { globProblem } from '../../../catalogs/readers/path-globs.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { type FileChange, readTarget } from '../../clients/changes/client-file-changes.ts';
import type { Config } from '../../config/config.ts';
import { addTo } from '../../config/reading/config-edit.ts';
import { realPath } from '../../config/reading/text-files.ts';
import { auditFolders } from '../../config/settings/sections.ts';
import type { ReviewedServer } from './setup-servers.ts';

/** A folder or file outside the workspace that a server gets. Absolute, links resolved. */
export interface OutsideFolder {
  readonly folder: string;
  readonly access: 'read' | 'write';
  /** Why no call may use it all the same. Absent: calls of this server may. */
  readonly refused?: string;
}

/** The configuration, and the home folder of the user. */
export interface ExceptionPlaces {
  readonly config: Config;
  readonly home: string;
}

/**
 * Returns what a server gets outside the workspace. Only of a server whose calls name paths: other servers need no
 * exception.
 */
export function outsideFolders(
  { setup, server, tools }: ReviewedServer,
  { config, home }: ExceptionPlaces,
): readonly OutsideFolder[] {
  if (!tools.tools.some(({ semantics }) => semantics.paths !== undefined)) return [];
  const { allowRead = [], allowWrite = [] } = server.sandbox?.filesystem ?? {};
  const given = [
    ...allowWrite.map((folder) => ({ folder, access: 'write' }) as const),
    ...allowRead.map((folder) => ({ folder, access: 'read' }) as const),
  ].filter(({ folder }) => !isPathWithin(folder, config.workspace));
  const kept = { home: realPath(home), hidden: [config.state, ...auditFolders(config.audit)] };
  const own = [config.folder, ...config.controlFiles, ...setup.from.map(({ found }) => realPath(found.file))];
  return given.map((one): OutsideFolder => {
    const { folder, access } = one;
    const refused =
      broadFolderProblem(folder, access === 'write', kept) ??
      (own.some((file) => isPathWithin(file, folder) || isPathWithin(folder, file))
        ? 'it contains files that decide what agents may do, or is part of their folder; name another folder'
        : /\*/.test(folder)
          ? 'a rule cannot name it, because its name contains *; rename it'
          : globProblem(folder));
    return refused === undefined ? one : { ...one, refused };
  });
}

/** The changes that let servers use their folders. */
export interface ExceptionChanges {
  /** The text of tollgate.yaml, with its own rules changed. */
  readonly text: string;
  /** Files whose rules leave out these servers. */
  readonly changes: readonly FileChange[];
  /** The rules of their own, for the file of rules of this setup. */
  readonly rules: readonly string[];
  /** Files that a person must change, each as a sentence. Their rules still deny. */
  readonly left: readonly string[];
}

/**
 * Plans the exceptions. `text`: what tollgate.yaml will be. Rules that deny everything outside the workspace leave
 * these servers out; a rule in another form, or in Rego, stays as it is and still denies.
 */
export function planExceptions(
  servers: readonly ReviewedServer[],
  text: string,
  places: ExceptionPlaces,
): ExceptionChanges {
  const opened = servers.flatMap((reviewed) => {
    const folders = outsideFolders(reviewed, places).filter(({ refused }) => refused === undefined);
    return folders.length === 0 ? [] : [{ name: reviewed.setup.name, folders }];
  });
  const names = opened.map(({ name }) => name);
  const left: string[] = [];
  const attempt = (file: string, before: () => string): FileChange => {
    try {
      return { file, before: before(), after: leavingOut(before(), names) };
    } catch (thrown) {
      if (!(thrown instanceof TollgateError)) throw thrown;
      left.push(
        `${file} still denies the folders of ${names.join(', ')}. Add exceptTools: [${patternsOf(names)}] there.`,
      );
      return { file, before: '', after: '' };
    }
  };
  const files = places.config.policies.filter(({ kind, server }) => kind === 'yaml' && server === undefined);
  const own = attempt(places.config.file, () => text);
  const changes = files
    .map(({ path: file }) => attempt(file, () => readTarget(file) ?? ''))
    .filter(({ before, after }) => after !== before);
  return {
    text: own.after === '' ? text : own.after,
    changes,
    // Without a rule that closes the folders, a rule of its own would only deny more.
    rules: changes.length > 0 || own.after !== own.before ? opened.map(ruleOf) : [],
    left,
  };
}

/** Adds all tools of servers to `exceptTools` of each rule that only closes what is outside the workspace. */
function leavingOut(text: string, names: readonly string[]): string {
  const { rules } = (parse(text) ?? {}) as { readonly rules?: readonly { readonly when?: object }[] };
  const closing = (rules ?? []).flatMap((rule, index) => (closesOutside(rule) ? [String(index)] : []));
  if (names.length === 0) return text;
  return addTo(
    text,
    closing.map((index) => ({ path: ['rules', index, 'when', 'exceptTools'], items: patternsOf(names) })),
  );
}

function patternsOf(names: readonly string[]): readonly string[] {
  return names.map((name) => `${name}.*`);
}

function closesOutside({ outcome, when }: { readonly outcome?: string; readonly when?: object }): boolean {
  const { exceptTools: _, ...rest } = (when ?? {}) as Readonly<Record<string, unknown>>;
  return outcome === 'deny' && rest.insideWorkspace === false && Object.keys(rest).length === 1;
}

function ruleOf({ name, folders }: { readonly name: string; readonly folders: readonly OutsideFolder[] }): string {
  const globs = folders.flatMap(({ folder }) => [folder, path.join(folder, '**')]);
  const list = globs.map((glob) => JSON.stringify(glob)).join(', ');
  const message = `This server may use the workspace and ${folders.map(({ folder }) => folder).join(', ')}.`;
  return (
    `  - id: folders-${name}\n    outcome: deny\n    message: ${JSON.stringify(message)}\n` +
    `    when: {servers: [${name}], insideWorkspace: false, except: [${list}]}\n`
  );
}
