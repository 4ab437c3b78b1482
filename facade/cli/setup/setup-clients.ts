/** Puts Tollgate into the clients' files in place of the servers that it fronts, and reads them again as a proof. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type FileChange, readTarget } from '../../clients/changes/client-file-changes.ts';
import { changeServers } from '../../clients/client-file-edit.ts';
import type { ClientFormat } from '../../clients/client-formats.ts';
import type { ClientRoots } from '../../clients/client-places.ts';
import { type FoundClientFile, findFiles, isOurs, readFound } from '../../clients/found-client-files.ts';
import { type EntryTarget, ownEntry } from '../../clients/own-entry.ts';
import { type FormerEntry, isStarted, startsSame } from './former-entries.ts';

/** The change of one client's file. */
export interface ClientReplacement {
  readonly client: ClientFormat;
  readonly shown: string;
  readonly change: FileChange;
  /** Names in Tollgate of the servers that leave the file. */
  readonly servers: readonly string[];
}

/** What became of one entry: Tollgate has it, it is still in its file, or someone else has removed it. */
export interface Account {
  readonly former: FormerEntry;
  readonly state: 'fronted' | 'stays' | 'gone';
}

/** An entry that a client can start without Tollgate. */
export interface Bypass {
  readonly shown: string;
  readonly name: string;
  readonly why: string;
}

/**
 * Plans the changes of the files whose servers Tollgate fronts. The files are read again, and only entries that are
 * still as they were leave them. A file that a program cannot change is left out, with the reason.
 */
export function planReplacements(
  fronted: readonly FormerEntry[],
  { roots, targetOf }: { readonly roots: ClientRoots; readonly targetOf: (client: ClientFormat) => EntryTarget },
): { readonly replacements: readonly ClientReplacement[]; readonly unwritten: readonly string[] } {
  const files = [...new Set(fronted.map(({ found }) => found.file))];
  const unwritten: string[] = [];
  const replacements = files.flatMap((file) => {
    try {
      return replacementIn(file);
    } catch (thrown) {
      if (!(thrown instanceof TollgateError) || thrown.code !== 'USAGE') throw thrown;
      unwritten.push(`${thrown.message} ${thrown.next}`);
      return [];
    }
  });
  return { replacements, unwritten };

  function replacementIn(file: string): readonly ClientReplacement[] {
    const before = readTarget(file);
    const here = fronted.filter(({ found }) => found.file === file);
    const client = here[0]?.found.client;
    if (before === undefined || client === undefined) return [];
    const { servers, shown } = readFound(file, roots);
    const leaving = here.filter(({ entry }) => servers.some((now) => isSameEntry(now, entry)));
    const remove = leaving.map(({ entry }) => entry.path);
    const after = changeServers(before, client, { ...ownEntry(client, targetOf(client)), remove });
    if (after === before) return [];
    return [
      {
        client,
        shown,
        change: { file, before, after, client: client.id },
        servers: leaving.map(({ server }) => server),
      },
    ];
  }
}

/** Reads every client's file again. Returns what became of each former entry, and what bypasses Tollgate. */
export function proveReplacement(
  former: readonly FormerEntry[],
  {
    roots,
    fronted,
    whyOf,
  }: {
    readonly roots: ClientRoots;
    readonly fronted: readonly FormerEntry[];
    readonly whyOf: (found: FoundClientFile, name: string) => string;
  },
): { readonly accounts: readonly Account[]; readonly bypasses: readonly Bypass[] } {
  const files = findFiles(roots);
  const accounts = former.map((one): Account => {
    const now = files.find(({ file }) => file === one.found.file)?.servers ?? [];
    const isThere = now.some((entry) => isSameEntry(entry, one.entry));
    return { former: one, state: isThere ? 'stays' : fronted.includes(one) ? 'fronted' : 'gone' };
  });
  const bypasses = files.flatMap((found) =>
    found.servers
      // A client may start what Tollgate cannot read, but not an entry without a program and an address.
      .filter((entry) => isStarted(entry) && !isOurs(entry) && (entry.command ?? entry.url) !== undefined)
      .map(({ original }) => ({ shown: found.shown, name: original, why: whyOf(found, original) })),
  );
  const unread = files.flatMap((found) => {
    const why = unreadable(found);
    return why === undefined ? [] : [{ shown: found.shown, name: '?', why }];
  });
  return { accounts, bypasses: [...bypasses, ...unread] };
}

/** Returns why a file cannot be read or changed; undefined if it can, or if there is nothing in it to move. */
export function unreadable({ file, client, content, servers }: FoundClientFile): string | undefined {
  if (content.entries.length > 0 && !servers.some(isStarted)) return undefined;
  try {
    const text = readTarget(file) ?? '';
    if (content.entries.length === 0 && client !== undefined) changeServers(text, client, { remove: [] });
    return undefined;
  } catch (thrown) {
    if (!(thrown instanceof TollgateError)) throw thrown;
    return thrown.message.replace(`${file} `, '');
  }
}

function isSameEntry(one: FormerEntry['entry'], other: FormerEntry['entry']): boolean {
  return one.path.join('\0') === other.path.join('\0') && startsSame(one, other);
}
