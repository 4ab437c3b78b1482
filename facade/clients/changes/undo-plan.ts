/**
 * Undoes changes of files, also if others edited them since: what the change removed comes back, what it added goes,
 * and everything else stays.
 */
import { unlinkSync } from 'node:fs';
import { parseDocument } from 'yaml';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
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

/** What is undone: the last changes of a command, or all changes of one client's files. */
export interface UndoRequest {
  readonly state: string;
  readonly changer: Changer;
  readonly client?: ClientId;
  /** Its key opens the backups. */
  readonly vault: Vault;
}

/** What can be restored. `secrets` are still in the vault. */
export interface UndoPlan {
  readonly files: readonly string[];
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
export async function openUndo({ state, changer, client, vault }: UndoRequest): Promise<UndoPlan> {
  const backups = listBackups(state);
  const own = backups.filter((backup) => isOf(backup, changer));
  const sets =
    client === undefined
      ? own.slice(-1)
      : own.filter((backup) => readManifest(backup).of.clients.includes(client)).reverse();
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
    readManifest(backup).files.forEach((changed, index) => {
      const { file } = changed;
      const earlier = restored.get(file);
      const current = earlier === undefined ? readTarget(file) : earlier.text;
      restored.set(file, {
        current: earlier === undefined ? current : earlier.current,
        ...restore(changed, texts[index] ?? { after: '' }, current),
      });
    });
  }
  const manifests = sets.map(readManifest);
  const collect = (select: (names: ChangeNames) => readonly string[]): readonly string[] => [
    ...new Set(manifests.flatMap(({ of }) => select(of))),
  ];
  return {
    files: [...restored.keys()],
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
  { file, client, mode, afterHash }: ChangedFile,
  { before, after }: FileTexts,
  current: string | undefined,
): Pick<Restored, 'text' | 'mode'> {
  if (current === before || (current !== undefined && textHash(current) === afterHash))
    return { text: before, ...(mode !== undefined && { mode }) };
  const format = client === undefined ? undefined : clientOf(client);
  const texts = current === undefined ? undefined : { after, current, ...(before !== undefined && { before }) };
  const text = texts === undefined ? undefined : format === undefined ? restoreYaml(texts) : restoreText(texts, format);
  if (text === undefined)
    throw changeRefusal(
      file,
      'was changed since, and undoing would lose that change',
      'If `tollgate connect` replaced a server, undo that first. Otherwise restore it by hand.',
    );
  return { text };
}

/** Merges the lines of a file of Tollgate. A new file that a person has edited is theirs. */
function restoreYaml({ before, after, current }: FileTexts & { readonly current: string }): string | undefined {
  const merged = before === undefined ? undefined : mergeLines({ before, after, current });
  return merged !== undefined && parseDocument(merged).errors.length === 0 ? merged : undefined;
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
