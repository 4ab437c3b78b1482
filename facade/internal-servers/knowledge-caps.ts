/** Owns what each turn has had of the knowledge server, over all processes; refuses what is above a cap, by the name of the cap. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { KnowledgeConfig } from '../config/settings/knowledge-settings.ts';
import type { RunScope } from '../serve/host/host-runs.ts';
import type { Database } from '../state/database.ts';

/** What one question may still have, or has had. */
export interface KnowledgeAllowance {
  readonly bytes: number;
  readonly candidates: number;
}

/** The caps at work. */
export interface KnowledgeCaps {
  /**
   * Asks one question within what its turn has left, and takes from that what it used: one transaction, so that questions at the
   * same time, in whatever process, cannot have the same bytes twice. Throws BUDGET_EXCEEDED, which takes nothing.
   */
  within<T extends KnowledgeAllowance>(
    turn: { readonly scope: RunScope; readonly caps: KnowledgeConfig; readonly now: number },
    ask: (left: KnowledgeAllowance) => T,
  ): T;
}

type Spent = KnowledgeAllowance & { readonly requests: number };

/** A turn that nobody has touched for this long has ended, ms. */
const STALE_MS = 30 * 86_400_000;

const NAMES: Readonly<Record<keyof Spent, string>> = {
  requests: 'requests to the knowledge server',
  bytes: 'bytes of answers from the knowledge server',
  candidates: 'results from the knowledge server',
};

/** Spending kept in the store itself. `now` in ms since 1970. */
export function createKnowledgeCaps(database: Database, now: number): KnowledgeCaps {
  database.run('DELETE FROM spent WHERE touched < ?')(now - STALE_MS);
  const read = database.first<Spent>(
    'SELECT requests, bytes, candidates FROM spent WHERE space = ? AND user = ? AND conversation = ? AND turn = ?',
  );
  const write = database.run('INSERT OR REPLACE INTO spent VALUES (?, ?, ?, ?, ?, ?, ?, ?)');
  return {
    within: ({ scope: { space, user, conversation, turn }, caps, now: at }, ask) =>
      database.transact(() => {
        const { requests, bytes, candidates } = read(space, user, conversation, turn) ?? {
          requests: 0,
          bytes: 0,
          candidates: 0,
        };
        const left = {
          requests: caps.requests - requests,
          bytes: caps.bytes - bytes,
          candidates: caps.candidates - candidates,
        };
        for (const cap of ['requests', 'bytes', 'candidates'] as const) if (left[cap] <= 0) throw spent(cap, caps[cap]);
        const found = ask(left);
        write(space, user, conversation, turn, requests + 1, bytes + found.bytes, candidates + found.candidates, at);
        return found;
      }),
  };
}

/** The refusal by one cap. */
export function spent(cap: keyof KnowledgeConfig, limit: number): TollgateError {
  return new TollgateError('BUDGET_EXCEEDED', {
    detail: `This turn has had its ${limit} ${NAMES[cap]} (knowledge.${cap}).`,
    next: 'Go on with what you have; the next turn begins anew.',
    data: { budget: `knowledge.${cap}`, scope: 'turn', unit: cap, limit, left: 0 },
  });
}
