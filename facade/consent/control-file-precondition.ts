/**
 * Refuses calls that would change Tollgate's own files outside the workspace, or touch its state. Rules on paths cannot
 * name these files.
 */
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import type { Effect } from '../../policies/port.ts';
import type { Config } from '../config/config.ts';
import { type OwnConfig, ownPlaces } from '../config/work-folders.ts';
import { NO_PRECONDITIONS, OPEN_VIEW, type Precondition } from './preconditions.ts';

/** Id of the reason for a refusal, the same as of the rule for such files in the workspace (policy-parts.ts). */
const REASON = 'control-files';
const CHANGING: ReadonlySet<string> = new Set(['write', 'destructive']);

/**
 * Returns the precondition that protects control files and the state. No call may change a control file by its real
 * path, or a folder that contains one. No call may name the state.
 * Sandboxes enforce the same for their programs; this precondition covers servers without a sandbox. The paths of a
 * call are real paths (see catalogs/readers/path-handles.ts).
 */
export function controlFilePrecondition(config: OwnConfig & Pick<Config, 'controlFiles' | 'workspace'>): Precondition {
  const control = config.controlFiles.filter((file) => !isPathWithin(file, config.workspace));
  const state = ownPlaces(config);
  const judge = ({ verb, paths }: Pick<Effect, 'verb' | 'paths'>): void => {
    if (paths.length === 0) return;
    const outside = paths.filter(({ inside, path: file }) => !inside && path.isAbsolute(file));
    if (outside.length === 0) return;
    if (outside.some(({ path: file }) => state.some((folder) => isPathWithin(file, folder))))
      throw refusal('Tollgate keeps its own state there. No call may read or change it.');
    if (!CHANGING.has(verb)) return;
    if (
      outside.some(({ path: file }) =>
        [...control, ...state].some((own) => isPathWithin(file, own) || isPathWithin(own, file)),
      )
    )
      throw refusal('This path contains files that decide what is allowed. Only a person changes them.');
  };
  return {
    view: () => OPEN_VIEW,
    judge: ({ effect }) => {
      judge(effect);
      return NO_PRECONDITIONS;
    },
  };
}

function refusal(message: string): TollgateError {
  return new TollgateError('DENIED', {
    detail: `Refused by rule ${REASON}: ${message}`,
    next: 'Do not try another path to it; ask the user to make the change.',
    data: { reasons: [{ id: REASON, message }] },
  });
}
