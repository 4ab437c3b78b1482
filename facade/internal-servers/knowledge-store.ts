/** The database of documents, memories and facts. Every question reads the data of one scope only. */
import { join } from 'node:path';
import type { RunScope } from '../serve/host/host-runs.ts';
import { type Database, openDatabase } from '../state/database.ts';
import { createKnowledgeCaps, type KnowledgeCaps } from './knowledge-caps.ts';
import { searchExpression, searchTermsOf } from './search-terms.ts';

/**
 * Every row has its owner: `user` is empty for all users of a space, `conversation` for no conversation. The index of
 * words contains no text (FTS5, contentless tables).
 */
const SCHEMA = {
  version: 1,
  sql: `
    CREATE TABLE source (
      id INTEGER PRIMARY KEY, kind TEXT NOT NULL CHECK (kind IN ('document', 'memory')),
      space TEXT NOT NULL, user TEXT NOT NULL, conversation TEXT NOT NULL,
      name TEXT NOT NULL, title TEXT NOT NULL, labels TEXT NOT NULL,
      digest TEXT NOT NULL, bytes INTEGER NOT NULL, at INTEGER NOT NULL,
      UNIQUE (kind, space, user, conversation, name)) STRICT;
    CREATE TABLE chunk (
      id INTEGER PRIMARY KEY, source INTEGER NOT NULL, kind TEXT NOT NULL,
      space TEXT NOT NULL, user TEXT NOT NULL, conversation TEXT NOT NULL,
      part INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
    CREATE INDEX chunk_of_source ON chunk (source);
    CREATE VIRTUAL TABLE words USING fts5(
      body, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2');
    CREATE TABLE fact (
      space TEXT NOT NULL, user TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
      source TEXT NOT NULL, labels TEXT NOT NULL, at INTEGER NOT NULL,
      PRIMARY KEY (space, user, key)) STRICT, WITHOUT ROWID;
    CREATE TABLE spent (
      space TEXT NOT NULL, user TEXT NOT NULL, conversation TEXT NOT NULL, turn TEXT NOT NULL,
      requests INTEGER NOT NULL, bytes INTEGER NOT NULL, candidates INTEGER NOT NULL, touched INTEGER NOT NULL,
      PRIMARY KEY (space, user, conversation, turn)) STRICT, WITHOUT ROWID`,
};

/** A passage that was found. */
export interface Passage {
  readonly source: number;
  readonly part: number;
  readonly title: string;
  readonly labels: readonly string[];
  readonly body: string;
}

/** A fact, and whether it is the user's own. Time in ms since 1970. */
export interface KnowledgeFact {
  readonly key: string;
  readonly value: string;
  readonly own: boolean;
  readonly source: string;
  readonly labels: readonly string[];
  readonly at: number;
}

/** Selects facts by their keys, or all facts of a subject. */
export interface FactQuery {
  readonly keys?: readonly string[];
  readonly subject?: string;
}

/** The store as the tools use it. Every method throws STATE_FAILED. */
export interface KnowledgeStore extends KnowledgeCaps {
  readonly database: Database;
  /** Returns passages, the best first. Of equal ones the older comes first, so that answers are repeatable. */
  documents(scope: RunScope, query: string, limit: number): readonly Passage[];
  /** Returns passages of the user's memories: those of its conversation, and those of no conversation. */
  memories(scope: RunScope, query: string, limit: number): readonly Passage[];
  /** Returns facts in the order of their keys, the user's own before those of the space. */
  facts(scope: RunScope, query: FactQuery, limit: number): readonly KnowledgeFact[];
  close(): void;
}

/** Name of the database in a state folder. */
const KNOWLEDGE_FILE = 'knowledge.db';

/** Opens `<folder>/knowledge.db`, 0600. Throws STATE_TOO_NEW, STATE_FAILED. */
export function openKnowledgeStore(folder: string, now = Date.now()): KnowledgeStore {
  const database = openDatabase(join(folder, KNOWLEDGE_FILE), SCHEMA);
  // CROSS JOIN keeps this order: the index once, not once for each row, which would take too long.
  const search = (owner: string): ReturnType<typeof database.all<PassageRow>> =>
    database.all<PassageRow>(
      `SELECT chunk.source, chunk.part, chunk.body, source.title, source.labels
      FROM words CROSS JOIN chunk ON chunk.id = words.rowid CROSS JOIN source ON source.id = chunk.source
      WHERE words MATCH ? AND chunk.space = ? AND ${owner} ORDER BY bm25(words), chunk.id LIMIT ?`,
    );
  const documents = search(`chunk.kind = 'document' AND chunk.user IN ('', ?)`);
  const memories = search(`chunk.kind = 'memory' AND chunk.user = ? AND chunk.conversation IN ('', ?)`);
  const find = (query: string, run: (expression: string) => PassageRow[]): readonly Passage[] => {
    const words = searchTermsOf(query);
    return words.length === 0
      ? []
      : run(searchExpression(words)).map(({ source, part, body, title, labels }) => ({
          source,
          part,
          body,
          title,
          labels: labelsOf(labels),
        }));
  };
  return {
    database,
    ...createKnowledgeCaps(database, now),
    documents: ({ space, user }, query, limit) =>
      find(query, (expression) => documents(expression, space, user, limit)),
    memories: ({ space, user, conversation }, query, limit) =>
      find(query, (expression) => memories(expression, space, user, conversation, limit)),
    facts: createFacts(database),
    close: () => database.close(),
  };
}

interface PassageRow {
  readonly source: number;
  readonly part: number;
  readonly body: string;
  readonly title: string;
  readonly labels: string;
}

interface FactRow {
  readonly key: string;
  readonly value: string;
  readonly user: string;
  readonly source: string;
  readonly labels: string;
  readonly at: number;
}

function createFacts(database: Database): KnowledgeStore['facts'] {
  const inScope = `SELECT key, value, user, source, labels, at FROM fact WHERE space = ? AND user IN ('', ?)`;
  const byKey = database.all<FactRow>(`${inScope} AND key = ? ORDER BY user DESC`);
  const bySubject = database.all<FactRow>(
    `${inScope} AND (key = ? OR substr(key, 1, length(?) + 1) = ? || '.') ORDER BY key, user DESC LIMIT ?`,
  );
  return ({ space, user }, { keys = [], subject }, limit) => {
    const rows =
      subject === undefined
        ? [...new Set(keys)].flatMap((key) => byKey(space, user, key))
        : bySubject(space, user, subject, subject, subject, limit);
    return rows.slice(0, limit).map((row) => ({
      key: row.key,
      value: row.value,
      own: row.user !== '',
      source: row.source,
      labels: labelsOf(row.labels),
      at: row.at,
    }));
  };
}

function labelsOf(text: string): readonly string[] {
  return text === '' ? [] : text.split(',');
}
