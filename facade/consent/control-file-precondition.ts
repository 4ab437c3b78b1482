/** Refuses calls that would change the files of Tollgate itself outside of the workspace, or touch its state: rules on paths name none of them. */
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Effect } from '../../policies/port.ts';
import type { Config } from '../config/config.ts';
import { isWithin } from '../config/reading/text-files.ts';
import { NO_PRECONDITIONS, OPEN_VIEW, type Precondition } from './preconditions.ts';

/** Id of the reason for a refusal, as of the rule for the same files in the workspace (policy-parts.ts). */
const REASON = 'control-files';
const CHANGING: ReadonlySet<string> = new Set(['write', 'destructive']);

/**
 * No call changes a control file by its real path, or a folder that holds one, and none names the state. Sandboxes hold their programs to the
 * same; this is for servers that run without one. The paths of a call are real, see catalogs/readers/path-handles.ts.
 */
export function controlFilePrecondition(
  config: Pick<Config, 'controlFiles' | 'workspace' | 'state' | 'acceptedFolder' | 'audit'>,
): Precondition {
  const control = config.controlFiles.filter((file) => !isWithin(file, config.workspace));
  const state = [config.state, config.acceptedFolder, config.audit.folder];
  const judge = ({ verb, paths }: Pick<Effect, 'verb' | 'paths'>): void => {
    const outside = paths.filter(({ inside, path: file }) => !inside && path.isAbsolute(file));
    if (outside.length === 0) return;
    if (outside.some(({ path: file }) => state.some((folder) => isWithin(file, folder))))
      throw refusal('Tollgate keeps its own state there; no call reads or changes it.');
    if (!CHANGING.has(verb)) return;
    if (
      outside.some(({ path: file }) => [...control, ...state].some((own) => isWithin(file, own) || isWithin(own, file)))
    )
      throw refusal('This path holds files that decide what is allowed; a person changes them.');
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
