/**
 * Accepts a configuration on the disk, as `tollgate reload` would but without a question, for tests of what an agent
 * gets.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import {
  acceptedFolder,
  acceptedMarker,
  acceptStaged,
  exposedReads,
  readPlaces,
  stageAccepted,
} from '../../facade/config/accepted-config.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import type { World } from '../../facade/config/work-folders.ts';

/** Accepts a file. Does nothing for a file that does not load or that no agent can change. */
export function acceptNow(file: string, world: World): void {
  try {
    const disk = loadConfig(file, world);
    const places = exposedReads(disk);
    if (places.length > 0)
      acceptStaged(disk.acceptedFolder, stageAccepted(disk.acceptedFolder, readPlaces(places)), 'test');
  } catch (thrown) {
    if (!(thrown instanceof TollgateError) || thrown.code !== 'CONFIG_INVALID') throw thrown;
  }
}

/** These commands read the file on the disk, or accept it themselves. */
const READS_DISK = ['reload', 'check', 'init', 'doctor', 'import', 'export', 'policy'];

/** Accepts what a command is about to read: always if it serves agents, otherwise only the first time. */
export function acceptFor(argv: readonly string[], { folder, ...world }: World & { readonly folder: string }): void {
  const [command = ''] = argv;
  const at = argv.findIndex((word) => word === '-c' || word === '--config');
  const file = path.resolve(folder, at === -1 ? 'tollgate.yaml' : (argv[at + 1] ?? ''));
  if (READS_DISK.includes(command) || !existsSync(file)) return;
  if (['run', 'serve'].includes(command) || !existsSync(acceptedMarker(acceptedFolder(file, world))))
    acceptNow(file, world);
}
