/**
 * The journal of what connecting has done, so that it can be continued or undone. A file that was edited since it was
 * written is not overwritten.
 */
import { createHash } from 'node:crypto';
import { existsSync, lstatSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { captureWrite, removeIfEmpty, replaceFile } from '../../config/reading/file-replacement.ts';
import { SERVER_FOLDER, serverFileOf } from '../../config/servers/server-files.ts';
import type { PinnedPackage } from '../../packages/pinned-package.ts';

/** What connecting has done for one server. */
export interface Journal {
  readonly server: string;
  /** The text of the file before; null if there was none. */
  readonly before: string | null;
  /** SHA-256 of the file as it was written, hex. */
  readonly after: string;
  /** Whether the folder of server files was created for it. */
  readonly madeFolder: boolean;
  /** Secrets that were not in the vault before. */
  readonly secrets: readonly string[];
  /** What was installed, with its digest. */
  readonly package?: PinnedPackage;
  /** `setup` connected it, and undoes it. */
  readonly bySetup?: true;
}

/** The folders of journals and server files. */
export interface Places {
  readonly state: string;
  /** Folder of tollgate.yaml. */
  readonly folder: string;
}

/** Returns the journal of a server; undefined if it was not connected. */
export function readJournal({ state }: Places, server: string): Journal | undefined {
  const file = journalFile(state, server);
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Journal) : undefined;
}

/** Returns the names of the connected servers, sorted. */
export function connectedNames({ state }: Places): readonly string[] {
  const folder = path.join(state, 'connected');
  return existsSync(folder)
    ? readdirSync(folder)
        .flatMap((file) => /^([a-z][a-z0-9-]*)\.json$/.exec(file)?.[1] ?? [])
        .sort()
    : [];
}

/** Returns the present file of a server; undefined if there is none. */
export function readServerFile({ folder }: Places, server: string): string | undefined {
  const file = serverFileOf(folder, server);
  return existsSync(file) ? readFileSync(file, 'utf8') : undefined;
}

/** Returns whether the file is as connect wrote it. */
export function isUntouched(journal: Journal, text: string | undefined): boolean {
  return text !== undefined && digestOf(text) === journal.after;
}

/** What connecting is about to do. */
export interface ConnectionPlan {
  readonly server: string;
  /** The server's file. */
  readonly text: string;
  /** Names that are not in the vault yet. */
  readonly secrets: readonly string[];
  readonly package?: PinnedPackage;
  readonly bySetup?: true;
}

/** Stores what undoing needs, before anything is done. What an earlier run has stored stays. Throws USAGE. */
export function beginJournal(places: Places, { server, text, secrets, ...plan }: ConnectionPlan): void {
  checkFolder(places);
  const known = readJournal(places, server);
  const madeFolder = known?.madeFolder ?? !existsSync(path.join(places.folder, SERVER_FOLDER));
  const before = known === undefined ? (readServerFile(places, server) ?? null) : known.before;
  const all = [...new Set([...(known?.secrets ?? []), ...secrets])];
  writeJournal(places, {
    server,
    before,
    after: digestOf(text),
    madeFolder,
    secrets: all,
    ...(plan.package !== undefined && { package: plan.package }),
    ...((plan.bySetup ?? known?.bySetup) === true && { bySetup: true }),
  });
}

/** Writes the file of a server. Call `beginJournal` before it. */
export function writeServerFile(places: Places, { server, text }: Pick<ConnectionPlan, 'server' | 'text'>): void {
  replaceFile(serverFileOf(places.folder, server), text);
}

/** Throws USAGE if someone has edited the file since it was written. */
export function checkUntouched(places: Places, journal: Journal): void {
  if (!isEdited(places, journal)) return;
  throw new TollgateError('USAGE', {
    detail: `servers/${journal.server}.yaml was edited after connect wrote it, so nothing was undone.`,
    next: `Remove the file, then call \`tollgate connect --undo ${journal.server}\` again.`,
  });
}

/** Returns true if someone has edited the file since it was written. */
export function isEdited(places: Places, journal: Journal): boolean {
  const text = readServerFile(places, journal.server);
  return text !== undefined && text !== journal.before && !isUntouched(journal, text);
}

/** Restores the file. Throws USAGE if someone has edited it since. */
export function restoreServerFile(places: Places, journal: Journal): void {
  checkUntouched(places, journal);
  checkFolder(places);
  const target = serverFileOf(places.folder, journal.server);
  if (journal.before !== null) return replaceFile(target, journal.before);
  captureWrite(target, undefined, () => rmSync(target, { force: true }));
  if (journal.madeFolder) removeIfEmpty(path.join(places.folder, SERVER_FOLDER));
}

/** Deletes the journal. This is the last step of undoing. */
export function dropJournal({ state }: Places, server: string): void {
  const file = journalFile(state, server);
  rmSync(file, { force: true });
  removeIfEmpty(path.dirname(file));
}

/** A cloned project may contain the folder as a link to any place. */
function checkFolder({ folder }: Places): void {
  if (lstatSync(path.join(folder, SERVER_FOLDER), { throwIfNoEntry: false })?.isSymbolicLink() !== true) return;
  throw new TollgateError('USAGE', {
    detail: `The folder ${SERVER_FOLDER} is a link, so the file would be written elsewhere.`,
    next: 'Replace the link with a folder next to tollgate.yaml.',
  });
}

function writeJournal({ state }: Places, journal: Journal): void {
  const file = journalFile(state, journal.server);
  replaceFile(file, `${JSON.stringify(journal)}\n`);
}

function journalFile(state: string, server: string): string {
  return path.join(state, 'connected', `${server}.json`);
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
