/** Finds the configuration of a folder: the one that the owner keeps elsewhere, or the one in the folder. */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { realPath } from '../config/reading/text-files.ts';
import { toSlug } from '../config/servers/server-names.ts';
import type { Io } from './command-io.ts';

/** The default of `--config`. */
export const DEFAULT_CONFIG = 'tollgate.yaml';

/** Returns the folder of the user for the configuration of a workspace. No agent can write it. */
export function outsideFolder(workspace: string, { env, home }: Pick<Io, 'env' | 'home'>): string {
  const base = env.XDG_CONFIG_HOME ?? '';
  const digest = createHash('sha256').update(workspace).digest('hex').slice(0, 6);
  const folder = path.join(path.isAbsolute(base) ? base : path.join(home, '.config'), 'tollgate');
  return realPath(path.join(folder, `${toSlug(path.basename(workspace))}-${digest}`));
}

/**
 * Returns the file of `--config`, absolute. The default is the configuration that the owner keeps for the current
 * folder (`init --outside`, `setup`), and otherwise tollgate.yaml in the folder. An agent can write the latter, so it
 * never takes the place of the former.
 */
export function configFile(config: string, io: Pick<Io, 'cwd' | 'env' | 'home'>): string {
  const here = path.resolve(io.cwd, config);
  if (config !== DEFAULT_CONFIG) return here;
  const outside = path.join(outsideFolder(realPath(io.cwd), io), DEFAULT_CONFIG);
  return existsSync(outside) ? outside : here;
}
