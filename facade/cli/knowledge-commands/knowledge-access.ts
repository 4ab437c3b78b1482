/** Opens the knowledge store for an owner's command, and checks the space, user and labels that the command names. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { KNOWLEDGE } from '../../../catalogs/servers/shipped-servers.ts';
import { openAuditOnDemand } from '../../audit/audit-log.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, listNames, quote } from '../../config/config-problems.ts';
import { createKnowledgeCollection, type KnowledgeCollection } from '../../internal-servers/knowledge-collection.ts';
import { openKnowledgeStore } from '../../internal-servers/knowledge-store.ts';
import type { RunScope } from '../../serve/host/host-runs.ts';
import { type CommonOptions, readConfig, readOwner } from '../command-facade.ts';
import type { Io } from '../command-io.ts';
import { signed } from '../command-state.ts';

/** Options of every command under `knowledge`. */
export interface KnowledgeOptions extends Pick<CommonOptions, 'config' | 'json'> {
  readonly as?: string;
  readonly space?: string;
  readonly user?: string;
}

/** The objects that a command works with. */
export interface KnowledgeContext {
  readonly config: Config;
  readonly collection: KnowledgeCollection;
  /** The space that the owner's principal names, if it names one. */
  readonly own?: string;
  /** Called before a change, because a change that cannot be recorded is not made. Throws AUDIT_FAILED. */
  begin(): void;
  /** Records the number of entries that were added, changed or deleted, without their names. */
  record(
    event: 'knowledge.loaded' | 'knowledge.set' | 'knowledge.forgotten',
    facts: { readonly count: number; readonly whose: Partial<RunScope> },
  ): void;
}

/** The labels that rules may always name. */
const LABELS = ['public', 'internal', 'secret', 'untrusted'] as const;

/**
 * Opens the store and the audit log for an owner, and closes them. Throws CONFIG_INVALID, IDENTITY, AUDIT_FAILED,
 * STATE_FAILED, and what `work` throws.
 */
export async function withKnowledgeContext(
  options: KnowledgeOptions,
  io: Io,
  work: (context: KnowledgeContext) => number | Promise<number>,
): Promise<number> {
  const config = readConfig(options, io);
  const by = readOwner(config, { as: options.as, act: 'reads or changes the knowledge store' }, io);
  const own = config.principals.find(({ id }) => id === by)?.space;
  const audit = openAuditOnDemand(config.audit);
  try {
    const store = openKnowledgeStore(config.state);
    try {
      return await work({
        config,
        ...(own !== undefined && { own }),
        collection: createKnowledgeCollection(store.database),
        begin: () => audit.begin(),
        record: (event, facts) =>
          audit.append(signed({ type: 'server', server: KNOWLEDGE, event, outcome: 'allow', by, ...facts }, io)),
      });
    } finally {
      store.close();
    }
  } finally {
    await audit.close();
  }
}

/**
 * Returns the space and user that the options name. The default is the owner's own space, or the only space. An unknown
 * name is refused, because no one could ever see what is stored under it. Throws USAGE.
 */
export function knowledgeOwnerOf(
  { config: { principals }, own }: Pick<KnowledgeContext, 'config' | 'own'>,
  { space, user = '' }: Pick<KnowledgeOptions, 'space' | 'user'>,
): { readonly space: string; readonly user: string } {
  const spaces = new Map<string, string[]>();
  for (const { id, space: name = id } of principals) spaces.set(name, [...(spaces.get(name) ?? []), id]);
  const only = spaces.size === 1 ? [...spaces.keys()][0] : undefined;
  const chosen = space ?? own ?? only;
  if (chosen === undefined)
    throw new TollgateError('USAGE', {
      detail: 'The command names no space, and there are several.',
      next: `Add --space with one of: ${listNames(spaces.keys())}.`,
    });
  const users = spaces.get(chosen);
  if (users === undefined)
    throw new TollgateError('USAGE', {
      detail: `No principal has the space ${quote(chosen)}; ${didYouMean(chosen, spaces.keys())}`,
      next: 'The space of a principal is its `space` in tollgate.yaml; by default it is its id.',
    });
  if (user !== '' && !users.includes(user))
    throw new TollgateError('USAGE', {
      detail: `No principal ${quote(user)} has the space ${quote(chosen)}; ${didYouMean(user, users)}`,
      next: 'Name a principal of this space.',
    });
  return { space: chosen, user };
}

/** Returns the labels sorted, each once. A label that no rule can name would protect nothing. Throws USAGE. */
export function labelsOf({ servers }: Config, labels: readonly string[] = []): readonly string[] {
  const known = new Set<string>([...LABELS, ...[...servers.values()].flatMap((server) => server.labels)]);
  const unknown = labels.find((label) => !known.has(label));
  if (unknown !== undefined)
    throw new TollgateError('USAGE', {
      detail: `${quote(unknown)} is not a label that rules know; ${didYouMean(unknown, known)}`,
      next: `Use one of: ${listNames(known)}.`,
    });
  return [...new Set(labels)].sort();
}

/** Returns the scope as a record shows it, without an empty user. */
export function recordedScope({ space, user }: { readonly space: string; readonly user: string }): Partial<RunScope> {
  return user === '' ? { space } : { space, user };
}
