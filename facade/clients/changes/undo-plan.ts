/**
 * Undoes changes of files, also if others edited them since: what the change removed comes back, what it added goes,
 * and everything else stays.
 */
import { unlinkSync } from 'node:fs';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { removeAdditions } from '../../config/reading/addition-removal.ts';
import { valueOf } from '../../config/reading/config-edit.ts';
import { captureWrite, removeIfEmpty } from '../../config/reading/file-replacement.ts';
import type { Vault } from '../../secrets/vault.ts';
import { type ClientId, clientOf } from '../client-formats.ts';
import {
  type Backup,
  type ChangedFile,
  type ChangeNames,
  type Changer,
  dropBackup,
  type FileTexts,
  isOf,
  listBackups,
  readManifest,
  readTexts,
  textHash,
} from './backups.ts';
import { changeRefusal, placeText, readTarget } from './client-file-changes.ts';
import { mergeLines, restoreText } from './three-way-restore.ts';

/** What is undone: the last changes of a command, all of one client's files, or all. */
export interface UndoRequest {
  readonly state: string;
  readonly changer: Changer;
  readonly client?: ClientId;
  readonly all?: true;
  /** Its key opens the backups. */
  readonly vault: Vault;
}

/** What can be restored. `secrets` are still in the vault. */
export interface UndoPlan {
  /** The files with the texts that they get; undefined: the file is removed. */
  readonly files: ReadonlyMap<string, string | undefined>;
  readonly secrets: readonly string[];
  readonly of: ChangeNames;
  readonly restore: () => void;
}

/** The text that a file gets. Absent: the file is removed. */
interface Restored {
  readonly current: string | undefined;
  readonly text: string | undefined;
  readonly mode?: number;
}

/**
 * Plans to undo. Throws USAGE if there is nothing to undo, if only a person can restore one of the files, or if a later
 * export removed servers from a client's file that would be lost then. Throws VAULT_FAILED.
 */
export async function openUndo({ state, changer, client, all, vault }: UndoRequest): Promise<UndoPlan> {
  const backups = listBackups(state);
  const own = backups.filter((backup) => isOf(backup, changer));
  const chosen =
    client === undefined
      ? own.slice(all === true ? 0 : -1)
      : own.filter((backup) => readManifest(backup).of.clients.includes(client));
  const sets = chosen.reverse();
  const [last] = sets;
  if (last === undefined)
    throw new TollgateError('USAGE', {
      detail: `There is nothing to undo for ${changer}${client === undefined ? '' : ` of ${client}`}.`,
      next: 'Only what it wrote from this tollgate.yaml can be undone, once.',
    });
  if (changer === 'import')
    refuseLostServers(
      backups.filter((one) => timeOf(one) >= timeOf(last)),
      readManifest(last).of,
    );
  const restored = new Map<string, Restored>();
  for (const backup of sets) {
    const texts = await readTexts(backup, vault);
    const changes = readManifest(backup).files.map((changed, index) => ({
      changed,
      texts: texts[index] ?? { after: '' },
    }));
    const isNew = ({ changed }: { readonly changed: ChangedFile }): boolean => changed.mode === undefined;
    const staying: string[] = [];
    // Whether a new file stays decides whether the lines that name it stay.
    for (const change of [...changes.filter(isNew), ...changes.filter((one) => !isNew(one))]) {
      const { file } = change.changed;
      const earlier = restored.get(file);
      const current = earlier === undefined ? readTarget(file) : earlier.text;
      const result = restore(change, current, { changer, staying });
      if (isNew(change) && result.text !== undefined) staying.push(file);
      restored.set(file, { current: earlier === undefined ? current : earlier.current, ...result });
    }
  }
  const manifests = sets.map(readManifest);
  const collect = (select: (names: ChangeNames) => readonly string[]): readonly string[] => [
    ...new Set(manifests.flatMap(({ of }) => select(of))),
  ];
  return {
    files: new Map([...restored].map(([file, { text }]) => [file, text])),
    secrets: [...new Set(manifests.flatMap(({ secrets }) => secrets))],
    of: { clients: collect(({ clients }) => clients), servers: collect(({ servers }) => servers) },
    restore: () => {
      for (const [file, { current, text, mode }] of restored)
        if (text === undefined) captureWrite(file, undefined, () => current !== undefined && unlinkSync(file));
        else if (text !== current) placeText(file, text, mode);
      for (const folder of manifests.flatMap(({ folders }) => folders)) removeIfEmpty(folder);
      sets.forEach(dropBackup);
    },
  };
}

/** Returns the text without the change. A run that was killed may have restored the file already. */
function restore(
  { changed, texts }: { readonly changed: ChangedFile; readonly texts: FileTexts },
  current: string | undefined,
  others: Pick<UndoRequest, 'changer'> & { readonly staying: readonly string[] },
): Pick<Restored, 'text' | 'mode'> {
  const { file, client, mode, afterHash } = changed;
  const { before } = texts;
  if (current === before || (current !== undefined && textHash(current) === afterHash))
    return { text: before, ...(mode !== undefined && { mode }) };
  const format = client === undefined ? undefined : clientOf(client);
  const edited = current === undefined ? undefined : { ...texts, current };
  const kept = new Set(others.staying.map((one) => path.relative(path.dirname(file), one)));
  // A new file with the definition of a server belongs to the person who has edited it.
  const isOurs = before !== undefined || others.changer === 'setup';
  if (edited !== undefined && format === undefined && isOurs) {
    const text = restoreYaml(edited, kept);
    if (text !== undefined) return { text: before === undefined && isEmpty(valueOf(text)) ? undefined : text };
  }
  const text = edited === undefined || format === undefined ? undefined : restoreText(edited, format);
  if (text === undefined)
    throw changeRefusal(
      file,
      'was changed since, and undoing would lose that change. Nothing was undone',
      'If `tollgate connect` replaced a server, undo that first. Otherwise restore it by hand.',
    );
  return { text };
}

/** Takes additions out of a file of Tollgate. Lines that no one else has touched come back byte for byte. */
function restoreYaml(
  { before = '', after, current }: FileTexts & { readonly current: string },
  kept: ReadonlySet<string>,
): string | undefined {
  const wanted = removeAdditions({ before, after, current }, kept);
  const merged = mergeLines({ before, after, current });
  const value = merged === undefined ? undefined : valueOf(merged);
  const isRight = value !== undefined && (wanted === undefined || isDeepStrictEqual(value, valueOf(wanted)));
  return isRight ? merged : wanted;
}

/** Whether nothing is left but comments and empty sections. */
function isEmpty(value: unknown): boolean {
  return typeof value === 'object' && Object.values(value ?? {}).every((one) => one == null || isEmpty(one));
}

/** The names of backups begin with it. */
function timeOf({ name }: Backup): string {
  return name.split('Z')[0] ?? '';
}

function refuseLostServers(later: readonly Backup[], { servers }: ChangeNames): void {
  const moved = later.filter((backup) => isOf(backup, 'export')).flatMap((backup) => readManifest(backup).of.servers);
  const lost = servers.filter((name) => moved.includes(name));
  if (lost.length > 0)
    throw new TollgateError('USAGE', {
      detail:
        `A later export removed servers from a client's file because Tollgate has them: ${lost.join(', ')}. ` +
        'Without the import they would be lost.',
      next: 'Restore them there first: tollgate export --undo',
    });
}
