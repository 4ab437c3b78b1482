/** Opens knowledge stores in new folders for tests, and reads what they contain. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  createKnowledgeCollection,
  type Document,
  type KnowledgeCollection,
  type NewFact,
} from '../../facade/internal-servers/knowledge-collection.ts';
import { type KnowledgeStore, openKnowledgeStore } from '../../facade/internal-servers/knowledge-store.ts';
import type { RunScope } from '../../facade/serve/host/host-runs.ts';

/** A store with its collection. */
export interface TestStore extends KnowledgeCollection {
  readonly folder: string;
  readonly store: KnowledgeStore;
  close(): void;
}

export function openTestStore(): TestStore {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-knowledge-'));
  const store = openKnowledgeStore(folder);
  return {
    folder,
    store,
    ...createKnowledgeCollection(store.database),
    close: () => {
      store.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Returns a document, by default of the space `team`. */
export const document = (text: string, more: Partial<Document> = {}): Document => ({
  kind: 'document',
  space: 'team',
  user: '',
  conversation: '',
  name: text.slice(0, 40),
  text,
  labels: [],
  at: 0,
  ...more,
});
export const fact = (key: string, value: string, more: Partial<NewFact> = {}): NewFact => ({
  space: 'team',
  user: '',
  key,
  value,
  source: 'owner',
  labels: [],
  at: 0,
  ...more,
});
export const scope = (more: Partial<RunScope> = {}): RunScope => ({
  user: 'alice',
  space: 'team',
  conversation: 'talk',
  turn: 'turn',
  ...more,
});
