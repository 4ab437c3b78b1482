/** Completes the review of a start with what prevents it: obstacles, and missing secrets. */
import type { ServerConfig } from '../../config/config.ts';
import { reviewStart, type StartReview } from '../../consent/servers/consent-review.ts';
import type { Io } from '../command-io.ts';
import { missingSecrets } from '../configuration/check-command.ts';
import type { OwnerContext } from './owner-context.ts';
import { obstaclesTo } from './start-obstacles.ts';

/** Returns the review of a start, with a remark on each obstacle and missing secret. Throws STATE_FAILED. */
export async function startReviewOf(
  server: ServerConfig,
  { config, consents }: Pick<OwnerContext, 'config' | 'consents'>,
  io: Io,
): Promise<StartReview> {
  const review = await reviewStart(server, consents);
  const { names } = await missingSecrets({ ...config, servers: new Map([[server.name, server]]) }, io);
  const missing = names.map((name) => {
    const source = config.secretSources.get(name);
    if (source?.from === 'file') return `secret ${name} is not set: its file cannot be read`;
    return source?.from === 'env'
      ? `secret ${name} is not set: variable ${source.variable} does not exist`
      : `secret ${name} is not set: tollgate secret set ${name}`;
  });
  return {
    ...review,
    remarks: [...review.remarks, ...obstaclesTo(server, config), ...missing],
    folders: [config.workspace, config.state, io.home],
  };
}
