/** Owns how the commands of knowledge get at the store: for an owner, with names that the configuration knows, and a record of what was done; refuses everybody else. */
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

/** What a command works with. */
export interface KnowledgeContext {
  readonly config: Config;
  readonly shelf: KnowledgeCollection;
  /** The space that the owner's principal names, if it names one. */
  readonly own?: string;
  /** Called before anything is changed: what could not be recorded is not begun. Throws AUDIT_FAILED. */
  begin(): void;
  /** Writes down how many entries were added, changed or taken out; never which. */
  record(
    event: 'knowledge.loaded' | 'knowledge.set' | 'knowledge.forgotten',
    facts: { readonly count: number; readonly whose: Partial<RunScope> },
  ): void;
}

/** Labels of design §1, which rules may speak of always. */
const LABELS = ['public', 'internal', 'secret', 'untrusted'] as const;

/** Opens log and store for an owner. Throws CONFIG_INVALID, IDENTITY, AUDIT_FAILED, STATE_FAILED, and what `work` throws. */
export async function withKnowledgeContext(
  options: KnowledgeOptions,
  io: Io,
  work: (desk: KnowledgeContext) => number | Promise<number>,
): Promise<number> {
  const config = readConfig(options, io);
  const by = readOwner(config, { as: options.as, act: 'fills the store or looks into it' }, io);
  const own = config.principals.find(({ id }) => id === by)?.space;
  const audit = openAuditOnDemand(config.audit);
  try {
    const store = openKnowledgeStore(config.state);
    try {
      return await work({
        config,
        ...(own !== undefined && { own }),
        shelf: createKnowledgeCollection(store.database),
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

/** The space and user that the options name, else the owner's own space or the only one there is. A name that nobody has would hide what is loaded for ever. Throws USAGE. */
export function knowledgeOwnerOf(
  { config: { principals }, own: mine }: Pick<KnowledgeContext, 'config' | 'own'>,
  { space, user }: Pick<KnowledgeOptions, 'space' | 'user'>,
): { readonly space: string; readonly user: string } {
  const spaces = new Map<string, string[]>();
  for (const { id, space: own = id } of principals) spaces.set(own, [...(spaces.get(own) ?? []), id]);
  const only = spaces.size === 1 ? [...spaces.keys()][0] : undefined;
  const chosen = space ?? mine ?? only;
  if (chosen === undefined)
    throw new TollgateError('USAGE', {
      detail: 'Nothing says which space this is for.',
      next: `Add --space with one of: ${listNames(spaces.keys())}.`,
    });
  const users = spaces.get(chosen);
  if (users === undefined)
    throw new TollgateError('USAGE', {
      detail: `No principal has the space ${quote(chosen)}; ${didYouMean(chosen, spaces.keys())}`,
      next: 'A principal has the space that its `space` names, else one of its own, named like it.',
    });
  if (user !== undefined && !users.includes(user))
    throw new TollgateError('USAGE', {
      detail: `No principal ${quote(user)} has the space ${quote(chosen)}; ${didYouMean(user, users)}`,
      next: 'Name a principal of this space.',
    });
  return { space: chosen, user: user ?? '' };
}

/** Labels in order, each once. One that no rule can speak of guards nothing. Throws USAGE. */
export function labelsOf({ servers }: Config, labels: readonly string[] = []): readonly string[] {
  const known = new Set<string>([...LABELS, ...[...servers.values()].flatMap((server) => server.labels)]);
  const unknown = labels.find((label) => !known.has(label));
  if (unknown !== undefined)
    throw new TollgateError('USAGE', {
      detail: `Label ${quote(unknown)} is none that rules know; ${didYouMean(unknown, known)}`,
      next: `Use one of: ${listNames(known)}.`,
    });
  return [...new Set(labels)].sort();
}

/** What a record says of an owner; nobody in particular is left out. */
export function scopeOfFact({ space, user }: { readonly space: string; readonly user: string }): Partial<RunScope> {
  return user === '' ? { space } : { space, user };
}
/** What every command under `knowledge` takes. */
export interface KnowledgeOptions extends Pick<CommonOptions, 'config' | 'json'> {
  readonly as?: string;
  readonly space?: string;
  readonly user?: string;
}

/** What `forget` selects by. */
export interface ForgetOptions extends KnowledgeOptions {
  readonly kind?: 'document' | 'memory' | 'fact';
  readonly conversation?: string;
  readonly all?: true;
}

/** What may be loaded beside a document of the space. */
export interface LoadOptions extends KnowledgeOptions {
  readonly label?: readonly string[];
  readonly memory?: true;
  readonly conversation?: string;
}
