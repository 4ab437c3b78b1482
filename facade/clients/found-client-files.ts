/** Finds the client files on this machine and reads them. A file that cannot be read gives a warning. */
import { existsSync } from 'node:fs';
import { isTollgate } from '../config/servers/spawn-rules.ts';
import type { ClientEntry } from './client-entry.ts';
import { type ClientFile, readClientFile } from './client-file-reader.ts';
import type { ClientFormat } from './client-formats.ts';
import { type ClientRoots, clientPlaces, shownPath } from './client-places.ts';

/** A client's file that exists. */
export interface FoundClientFile {
  readonly file: string;
  /** Relative to the project, or with `~/`. */
  readonly shown: string;
  /** Absent for a file that is at no client's place. */
  readonly client?: ClientFormat;
  readonly ofProject: boolean;
  readonly content: ClientFile;
  /** Its servers, without Tollgate itself. */
  readonly servers: readonly ClientEntry[];
}

/** Returns every client's file that exists, those of the project first. */
export function findFiles(roots: ClientRoots): readonly FoundClientFile[] {
  const there = clientPlaces(roots).filter(({ file }) => existsSync(file));
  return there.map(({ file, client, ofProject }) => ({ ...readFound(file, roots), client, ofProject }));
}

/** Reads one file at any place. */
export function readFound(file: string, roots: ClientRoots): FoundClientFile {
  const shown = shownPath(file, roots);
  const content = readClientFile(file, { shown, project: roots.cwd });
  return {
    file,
    shown,
    ofProject: !shown.startsWith('~/'),
    content,
    servers: content.entries.filter((entry) => !isOurs(entry)),
    ...(content.format !== undefined && { client: content.format }),
  };
}

/** Returns true for the entry with which a client starts or connects to Tollgate. */
export function isOurs(entry: ClientEntry): boolean {
  return (
    isTollgate(entry) ||
    (entry.original === 'tollgate' &&
      entry.url !== undefined &&
      /^https?:\/\/(127\.0\.0\.1|localhost|\[::1\]):\d+\/mcp$/.test(entry.url))
  );
}
