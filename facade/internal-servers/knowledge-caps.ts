/** The limits of the knowledge server for each turn, across all processes. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { KnowledgeConfig } from '../config/config.ts';
import type { RunScope } from '../serve/host/host-runs.ts';
import type { Database } from '../state/database.ts';

/** What one question may still use, or what it has used. */
export interface KnowledgeAllowance {
  readonly bytes: number;
  readonly candidates: number;
}

/** Applies the limits to questions. */
export interface KnowledgeCaps {
  /**
   * Runs `ask` with what the turn has left, and subtracts what it used. This is one transaction, so that parallel
   * questions cannot use the same bytes twice. Throws BUDGET_EXCEEDED, and then subtracts nothing.
   */
  within<T extends KnowledgeAllowance>(
    turn: { readonly scope: RunScope; readonly caps: KnowledgeConfig; readonly now: number },
    ask: (left: KnowledgeAllowance) => T,
  ): T;
}

type Spent = KnowledgeAllowance & { readonly requests: number };

/** After this time without a question, the spending of a turn is deleted, ms. */
const STALE_MS = 30 * 86_400_000;

const NAMES: Readonly<Record<keyof Spent, string>> = {
  requests: 'requests to the knowledge server',
  bytes: 'bytes of answers from the knowledge server',
  candidates: 'results from the knowledge server',
};

/** Returns the limits, with their spending in the knowledge database. `now`: ms since 1970. */
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
        for (const cap of ['requests', 'bytes', 'candidates'] as const)
          if (left[cap] <= 0) throw capExceeded(cap, caps[cap]);
        const found = ask(left);
        write(space, user, conversation, turn, requests + 1, bytes + found.bytes, candidates + found.candidates, at);
        return found;
      }),
  };
}

/** Returns the error for a limit that is used up. */
export function capExceeded(cap: keyof KnowledgeConfig, limit: number): TollgateError {
  return new TollgateError('BUDGET_EXCEEDED', {
    detail: `This turn has used its ${limit} ${NAMES[cap]} (knowledge.${cap}).`,
    next: 'Continue with what you have. The next turn has new limits.',
    data: { budget: `knowledge.${cap}`, scope: 'turn', unit: cap, limit, left: 0 },
  });
}
