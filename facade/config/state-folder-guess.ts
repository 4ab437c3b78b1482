/** Finds the state folder of a configuration that cannot be loaded, so that `off` and `kill` work anyway. */
import path from 'node:path';
import { ProblemReport } from './config-problems.ts';
import { readText, realPath } from './reading/text-files.ts';
import { fillVariables } from './reading/variable-fields.ts';
import { readYaml } from './reading/yaml-document.ts';
import { writtenStateFolder } from './settings/store-settings.ts';
import { resolver, stateFolder, type World } from './work-folders.ts';

const MAX_BYTES = 1024 * 1024;
/** A separate line without indentation, which can be read without the rest. */
const STATE_LINE = /^state[ \t]*:.*$/gm;
/** Any other spelling of the key, which is not read: quoted, or in braces. */
const OTHER_STATE = /^["']state["'][ \t]*:|[{,]\s*["']?state["']?\s*:/m;

/** Folders, absolute and real. */
export interface GuessedFolders {
  readonly state: string;
  readonly auditFolder: string;
}

/**
 * Returns the state and audit folders of a file that may be broken or missing. Reads `state` and `audit.folder` if the
 * file parses as YAML, otherwise only the line of `state`. A file without `state` has the default folder. Returns
 * undefined if the folder cannot be known, for example because a variable is not set.
 */
export function guessFolders(file: string, world: World): GuessedFolders | undefined {
  const folder = realPath(path.dirname(path.resolve(file)));
  const resolve = resolver(folder, world.home);
  const written = readKeys(file);
  if (written === undefined) return undefined;
  const report = new ProblemReport({ file, placeOf: () => ({ line: 1, column: 1 }) });
  const folders = new Map([
    ['userHome', world.home],
    ['configDir', folder],
  ]);
  const filled = fillVariables(written, [], {
    report,
    secrets: new Set(),
    variables: { env: world.env, folders },
  }) as Keys;
  const isStore = typeof (filled.state as { store?: unknown } | null | undefined)?.store === 'string';
  const isUnread = filled.state !== undefined && typeof filled.state !== 'string' && !isStore;
  if (report.problems.length > 0 || isUnread) return undefined;
  const state = stateFolder(writtenStateFolder(filled.state), { ...world, folder, resolve });
  const audit = filled.audit?.folder;
  return {
    state,
    auditFolder: realPath(typeof audit === 'string' && audit !== '' ? resolve(audit) : path.join(state, 'audit')),
  };
}

interface Keys {
  readonly state?: unknown;
  readonly audit?: { readonly folder?: unknown };
}

/** Returns the two keys as they are written; undefined if there may be a `state` that cannot be read. */
function readKeys(file: string): Keys | undefined {
  const read = readText(file, MAX_BYTES);
  // A missing file names no other folder, so the default folder is used.
  if (!read.ok) return {};
  const yaml = readYaml(file, read.text);
  if (yaml.problems.length === 0) return pick(yaml.value);
  const lines = read.text.match(STATE_LINE) ?? [];
  if (lines.length > 1 || OTHER_STATE.test(read.text)) return undefined;
  const [line] = lines;
  if (line === undefined) return {};
  const alone = readYaml(file, line);
  const { state } = pick(alone.value);
  return alone.problems.length > 0 || typeof state !== 'string' ? undefined : { state };
}

function pick(value: unknown): Keys {
  const { state, audit } = (typeof value === 'object' && value !== null ? value : {}) as Keys;
  return {
    ...(state === undefined ? {} : { state }),
    ...(typeof audit === 'object' && audit !== null && audit.folder !== undefined
      ? { audit: { folder: audit.folder } }
      : {}),
  };
}
