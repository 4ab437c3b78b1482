/** Stores, lists and deletes documents, memories and facts. No document is stored twice or in part. */
import { createHash } from 'node:crypto';
import type { Database } from '../state/database.ts';
import { chunksOf, titleOf } from './document-chunks.ts';
import { indexedText } from './search-terms.ts';

/** The owner of an entry. `user` is empty for all users of the space, `conversation` for no conversation. */
export interface KnowledgeOwner {
  readonly space: string;
  readonly user: string;
  readonly conversation: string;
}

/** A document or memory to store. `name` identifies it. `at`: ms since 1970. */
export interface Document extends KnowledgeOwner {
  readonly kind: 'document' | 'memory';
  readonly name: string;
  readonly text: string;
  readonly labels: readonly string[];
  readonly at: number;
}

/** A fact to store. `source`: where it came from, which answers show. */
export interface NewFact {
  readonly space: string;
  readonly user: string;
  readonly key: string;
  readonly value: string;
  readonly source: string;
  readonly labels: readonly string[];
  readonly at: number;
}

/** What was done with a document or fact. */
export type DocumentChange = 'added' | 'replaced' | 'unchanged';

/** A row of a list, without the text. */
export interface KnowledgeRow extends KnowledgeOwner {
  readonly kind: 'document' | 'memory' | 'fact';
  /** For a document or memory: its source in answers. */
  readonly source?: number;
  readonly name: string;
  readonly title?: string;
  readonly labels: string;
  readonly bytes: number;
  readonly at: number;
}

/** Selects what is listed or deleted. An absent field matches all. */
export type Selection = Partial<KnowledgeOwner> & { readonly kind?: KnowledgeRow['kind']; readonly name?: string };

/** Changes and lists a store. Every method throws STATE_FAILED, and then has changed nothing. */
export interface KnowledgeCollection {
  /** Stores a document, and returns how many passages were added. */
  keep(document: Document): { readonly kept: DocumentChange; readonly chunks: number };
  setFact(fact: NewFact): DocumentChange;
  list(selection: Selection): readonly KnowledgeRow[];
  /** Deletes entries, and returns how many. */
  forget(selection: Selection): number;
}

/** Returns the collection in a store's database. */
export function createKnowledgeCollection(database: Database): KnowledgeCollection {
  const find = database.first<{ id: number; digest: string }>(
    'SELECT id, digest FROM source WHERE kind = ? AND space = ? AND user = ? AND conversation = ? AND name = ?',
  );
  const add = createAdd(database);
  const drop = createDrop(database);
  const getFact = database.first<{ value: string; labels: string }>(
    'SELECT value, labels FROM fact WHERE space = ? AND user = ? AND key = ?',
  );
  const putFact = database.run('INSERT OR REPLACE INTO fact VALUES (?, ?, ?, ?, ?, ?, ?)');
  const dropFact = database.run('DELETE FROM fact WHERE space = ? AND user = ? AND key = ?');
  const list = createList(database);
  return {
    keep: (document) =>
      database.transact(() => {
        const { kind, space, user, conversation, name, text, labels } = document;
        const digest = createHash('sha256')
          .update(JSON.stringify([text, labels]))
          .digest('hex');
        const before = find(kind, space, user, conversation, name);
        if (before?.digest === digest) return { kept: 'unchanged', chunks: 0 };
        if (before !== undefined) drop(before.id);
        return { kept: before === undefined ? 'added' : 'replaced', chunks: add(document, digest) };
      }),
    setFact: ({ space, user, key, value, source, labels, at }) =>
      database.transact(() => {
        const before = getFact(space, user, key);
        if (before?.value === value && before.labels === labels.join()) return 'unchanged';
        putFact(space, user, key, value, source, labels.join(), at);
        return before === undefined ? 'added' : 'replaced';
      }),
    list,
    forget: (selection) =>
      database.transact(() => {
        const selected = list(selection);
        for (const { kind, source, space, user, name } of selected) {
          if (kind === 'fact') dropFact(space, user, name);
          else drop(source ?? 0);
        }
        return selected.length;
      }),
  };
}

/** Returns a function that adds a document with its passages and words, and returns the number of passages. */
function createAdd(database: Database): (document: Document, digest: string) => number {
  const insert = database.run(
    `INSERT INTO source (kind, space, user, conversation, name, title, labels, digest, bytes, at)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  );
  const insertChunk = database.run(
    'INSERT INTO chunk (source, kind, space, user, conversation, part, body) VALUES (?, ?, ?, ?, ?, ?, ?)',
  );
  const insertWords = database.run('INSERT INTO words (rowid, body) VALUES (?, ?)');
  const lastId = database.first<{ id: number }>('SELECT last_insert_rowid() AS id');
  return ({ kind, space, user, conversation, name, text, labels, at }, digest) => {
    const chunks = chunksOf(text);
    const title = titleOf(text, name);
    insert(kind, space, user, conversation, name, title, labels.join(), digest, Buffer.byteLength(text), at);
    const source = lastId()?.id ?? 0;
    for (const [index, body] of chunks.entries()) {
      insertChunk(source, kind, space, user, conversation, index + 1, body);
      insertWords(lastId()?.id ?? 0, indexedText(body));
    }
    return chunks.length;
  };
}

/** Returns a function that removes a document, with its passages and words. */
function createDrop(database: Database): (source: number) => void {
  const dropWords = database.run('DELETE FROM words WHERE rowid IN (SELECT id FROM chunk WHERE source = ?)');
  const dropChunks = database.run('DELETE FROM chunk WHERE source = ?');
  const dropSource = database.run('DELETE FROM source WHERE id = ?');
  return (source) => {
    dropWords(source);
    dropChunks(source);
    dropSource(source);
  };
}

function createList(database: Database): KnowledgeCollection['list'] {
  const all = database.all<KnowledgeRow>(`
    SELECT * FROM (
      SELECT kind, id AS source, space, user, conversation, name, title, labels, bytes, at FROM source
      UNION ALL SELECT 'fact', NULL, space, user, '', key, NULL, labels, length(CAST(value AS BLOB)), at FROM fact)
    WHERE (?1 IS NULL OR kind = ?1) AND (?2 IS NULL OR space = ?2) AND (?3 IS NULL OR user = ?3)
      AND (?4 IS NULL OR conversation = ?4) AND (?5 IS NULL OR name = ?5)
    ORDER BY kind, space, user, conversation, name`);
  // Facts have NULL instead of a source and a title.
  return ({ kind = null, space = null, user = null, conversation = null, name = null }) =>
    all(kind, space, user, conversation, name).map(({ source, title, ...row }) => ({
      ...row,
      ...(source != null && { source }),
      ...(title != null && { title }),
    }));
}
