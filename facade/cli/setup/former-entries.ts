/** The servers that clients start today, each once, with all the places where their files name it. */
import { isDeepStrictEqual } from 'node:util';
import type { ClientEntry } from '../../clients/client-entry.ts';
import type { FoundClientFile } from '../../clients/found-client-files.ts';

/** One entry of a client's file, and the server of Tollgate that takes its place. */
export interface FormerEntry {
  readonly found: FoundClientFile;
  readonly entry: ClientEntry;
  /** Its name in Tollgate. */
  readonly server: string;
}

/** The entries that clients start. Entries that their file disables are left alone. */
export interface FormerEntries {
  readonly all: readonly FormerEntry[];
  /** The files with each server once, under its name in Tollgate. */
  readonly files: readonly FoundClientFile[];
}

/**
 * Collects the entries. Entries of several clients that start the same become one server; a name that stands for
 * different starts gets a number. `taken`: names of other servers, which no entry gets.
 */
export function collectFormer(files: readonly FoundClientFile[], taken: ReadonlySet<string>): FormerEntries {
  const all: FormerEntry[] = [];
  const single = files.map((found) => {
    const servers = found.servers.filter(isStarted).flatMap((entry) => {
      const same = all.find((one) => startsSame(one.entry, entry));
      const server = same?.server ?? freeName(entry.name, new Set([...taken, ...all.map((one) => one.server)]));
      all.push({ found, entry, server });
      return same === undefined ? [{ ...entry, name: server }] : [];
    });
    return { ...found, servers };
  });
  return { all, files: single };
}

/** Returns true if the client starts the entry, so its file does not disable it. */
export function isStarted({ unusable }: ClientEntry): boolean {
  return unusable !== 'the file disables it';
}

/** Returns true if two entries start the same server with the same arguments, variables and restrictions. */
export function startsSame(one: ClientEntry, other: ClientEntry): boolean {
  return isDeepStrictEqual(startOf(one), startOf(other));
}

function startOf({ original: _, name: _name, place: _place, path: _path, ...start }: ClientEntry): unknown {
  return start;
}

function freeName(name: string, taken: ReadonlySet<string>): string {
  let free = name;
  for (let count = 2; taken.has(free); count += 1) free = `${name}-${count}`;
  return free;
}
