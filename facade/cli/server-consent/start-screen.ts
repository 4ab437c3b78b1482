/** Owns the first screen with all that a person needs to judge it; refuses to leave out that a secret is not there. */
import type { ServerConfig } from '../../config/config.ts';
import { reviewStart, type StartReview } from '../../consent/servers/consent-review.ts';
import type { Io } from '../command-io.ts';
import { missingSecrets } from '../configuration/check-command.ts';
import type { OwnerContext } from './owner-context.ts';
import { obstaclesTo } from './start-obstacles.ts';

/** What would run, with a remark on what it cannot start without, each of its secrets that is nowhere among that. Throws STATE_FAILED. */
export async function lookAtStart(
  server: ServerConfig,
  { config, consents }: Pick<OwnerContext, 'config' | 'consents'>,
  io: Io,
): Promise<StartReview> {
  const review = await reviewStart(server, consents);
  const { names } = await missingSecrets({ ...config, servers: new Map([[server.name, server]]) }, io);
  const missing = names.map((name) => {
    const source = config.secretSources.get(name);
    return source?.from === 'env'
      ? `secret ${name} is not set: variable ${source.variable} is not there`
      : `secret ${name} is not set: tollgate secret set ${name}`;
  });
  return { ...review, remarks: [...review.remarks, ...obstaclesTo(server, config), ...missing] };
}
