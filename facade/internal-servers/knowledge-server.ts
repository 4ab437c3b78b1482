/**
 * Answers the knowledge tools (CY-10) with passages and facts of the caller's scope, within the limits of its turn. It
 * refuses a call without an identity.
 */
import type { InProcessAnswer, UpstreamCall } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { KnowledgeConfig } from '../config/config.ts';
import { characterBoundary } from './document-chunks.ts';
import { capExceeded, type KnowledgeAllowance } from './knowledge-caps.ts';
import type { FactQuery, KnowledgeFact, KnowledgeStore, Passage } from './knowledge-store.ts';
import { firstTermOffset, searchTermsOf } from './search-terms.ts';

/** The objects that answers are made from. */
export interface KnowledgeParts {
  /** Opened by the first call. */
  readonly store: () => KnowledgeStore;
  readonly caps: () => KnowledgeConfig;
  readonly now: () => number;
}

const DEFAULT_LIMIT = 5;
const MAX_FACTS = 50;
/** How many UTF-16 units of a passage an answer shows. */
const MAX_SNIPPET = 600;
/** How many of them come before the first word that was found. */
const BEFORE = 150;

/** One item of an answer. */
interface Item {
  readonly text: string;
  readonly labels: readonly string[];
}

/** Answers a call of one of the three tools. Throws BUDGET_EXCEEDED with the limit, STATE_FAILED. */
export function createKnowledge({ store, caps, now }: KnowledgeParts): (call: UpstreamCall) => InProcessAnswer {
  return ({ tool, args, identity }) => {
    if (identity === undefined) throw new TollgateError('INTERNAL');
    const { scope, counted } = identity;
    const opened = store();
    const {
      query = '',
      limit = DEFAULT_LIMIT,
      ...facts
    } = args.value as { readonly query?: string; readonly limit?: number } & FactQuery;
    const ask = (most: number): readonly Item[] => {
      if (tool === 'facts_get') return opened.facts(scope, facts, most).map(factItem);
      const found =
        tool === 'kb_search'
          ? opened.documents(scope, query, Math.min(limit, most))
          : opened.memories(scope, query, Math.min(limit, most));
      const words = searchTermsOf(query);
      return found.map((passage) => passageItem(passage, words));
    };
    return opened.within({ scope: counted, caps: caps(), now: now() }, (left) =>
      fit(ask(Math.min(left.candidates, MAX_FACTS)), left, caps().bytes),
    );
  };
}

/** Returns as many whole items as the turn has bytes for. Throws BUDGET_EXCEEDED if the first does not fit. */
function fit(items: readonly Item[], left: KnowledgeAllowance, limit: number): InProcessAnswer & KnowledgeAllowance {
  if (items.length === 0) return { text: 'Nothing was found.', labels: [], hits: 0, bytes: 0, candidates: 0 };
  for (let count = items.length; count > 0; count -= 1) {
    const kept = items.slice(0, count);
    const rest =
      count === items.length ? [] : [`[${items.length - count} more do not fit into the limit of this turn]`];
    const text = [...kept.map((item) => item.text), ...rest].join('\n\n');
    const bytes = Buffer.byteLength(text);
    if (bytes <= left.bytes)
      return { text, labels: [...new Set(kept.flatMap((item) => item.labels))], hits: count, bytes, candidates: count };
  }
  throw capExceeded('bytes', limit);
}

function passageItem({ title, source, part, labels, body }: Passage, words: readonly string[]): Item {
  return { text: `${title} (source ${source}, part ${part}${labelText(labels)})\n${snippetOf(body, words)}`, labels };
}

function factItem({ key, value, own, source, at, labels }: KnowledgeFact): Item {
  const owner = own ? 'of this user' : 'of the space';
  const origin = `${owner}, from ${source}, ${new Date(at).toISOString()}${labelText(labels)}`;
  return { text: `${key} = ${value}\n(${origin})`, labels };
}

function labelText(labels: readonly string[]): string {
  return labels.length === 0 ? '' : `, labels: ${labels.join(', ')}`;
}

function snippetOf(body: string, words: readonly string[]): string {
  if (body.length <= MAX_SNIPPET) return body;
  const wanted = Math.min(firstTermOffset(body, words) - BEFORE, body.length - MAX_SNIPPET);
  const begin = characterBoundary(body, Math.max(0, wanted));
  const end = characterBoundary(body, begin + MAX_SNIPPET);
  return `${begin === 0 ? '' : '…'}${body.slice(begin, end).trim()}${end >= body.length ? '' : '…'}`;
}
