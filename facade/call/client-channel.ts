/**
 * What reaches the client while its call runs: the progress of a wait for a person, and the guarded progress of the
 * server.
 */
import { mergeProgress } from '../consent/approvals/approval-wait.ts';
import { type HidePaths, hidePaths } from '../output/host-paths.ts';
import type { Redactor } from '../output/redactor.ts';
import { ServerProgress } from '../output/server-progress.ts';
import type { CallRequest } from '../serve/facade-port.ts';

/** What the channel to the client needs. */
export interface ClientChannelDependencies {
  readonly redactor: Redactor;
  readonly files: { readonly workspace: string };
}

/** The request with a guarded channel to its client. */
export interface ClientChannel {
  readonly request: CallRequest;
  /** Replaces paths of the host in a server's errors. */
  readonly hidePaths: HidePaths;
  /** Absent if the client asked for no progress. */
  readonly progress?: ServerProgress;
}

/**
 * Opens the channel. Progress that Tollgate reports itself passes unchanged; progress of a server passes through
 * `ServerProgress`.
 */
export function openClientChannel(deps: ClientChannelDependencies, asked: CallRequest): ClientChannel {
  const hide = hidePaths(deps.files.workspace, asked.args.text);
  if (asked.onProgress === undefined) return { request: asked, hidePaths: hide };
  const { onWait, onProgress } = mergeProgress(asked.onProgress);
  const progress = new ServerProgress(onProgress, deps.redactor);
  return { request: { ...asked, onWait, onProgress: progress.take }, hidePaths: hide, progress };
}
