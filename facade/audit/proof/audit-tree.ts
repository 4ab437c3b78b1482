/**
 * The Merkle tree of a log as it is stored: `tree.db` in the folder of the chain files. Hashes are in tiles of 256, and
 * only every eighth level is stored; the levels between are computed. A round of the sealing is one transaction.
 */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type Database, openDatabase } from '../../state/database.ts';
import { HASH_BYTES, nodeHash, type ReadNode, rootOf } from './merkle-tree.ts';

/** The tree of a log, in the folder of its chain files. */
export const TREE_FILE = 'tree.db';

/** How long the start of a process waits for another one, ms. */
const BEGIN_MS = 200;
const TILE_LEVELS = 8;
const TILE_WIDTH = 2 ** TILE_LEVELS;

/** Returns true for a level whose hashes are stored, so that `node` computes nothing. */
export function isStored(level: number): boolean {
  return level % TILE_LEVELS === 0;
}

const SCHEMA = {
  version: 1,
  sql: `
CREATE TABLE tree (origin TEXT NOT NULL) STRICT;
CREATE TABLE tile (
  level INTEGER NOT NULL, n INTEGER NOT NULL, hashes TEXT NOT NULL, PRIMARY KEY (level, n)) STRICT, WITHOUT ROWID;
CREATE TABLE span (
  leaf INTEGER PRIMARY KEY, count INTEGER NOT NULL, file TEXT NOT NULL, offset INTEGER NOT NULL, end INTEGER NOT NULL,
  seq INTEGER NOT NULL, head TEXT NOT NULL) STRICT;
CREATE INDEX span_file ON span (file, leaf);
CREATE TABLE checkpoint (
  size INTEGER PRIMARY KEY, at TEXT NOT NULL, note TEXT NOT NULL, cosignature TEXT NOT NULL DEFAULT '') STRICT`,
};

/**
 * Consecutive lines of one file that were taken in together. `offset` and `end`: bytes. `seq`: of the first record;
 * `head`: the hash of the last.
 */
export interface Span {
  readonly leaf: number;
  readonly count: number;
  readonly file: string;
  readonly offset: number;
  readonly end: number;
  readonly seq: number;
  readonly head: string;
}

/** A signed checkpoint. `at`: ISO time of the clock of the sealing process. `cosignature`: '' without a witness. */
export interface StoredCheckpoint {
  readonly size: number;
  readonly at: string;
  readonly note: string;
  readonly cosignature: string;
}

interface Tile {
  readonly n: number;
  readonly hashes: Buffer[];
}

/** An open tree. Every method throws STATE_FAILED. */
export class AuditTree {
  readonly #database: Database;
  /** The last tile that was read, of each level. */
  readonly #read = new Map<number, Tile>();
  /** The last tile of each level, while leaves are appended. */
  readonly #growing = new Map<number, Tile>();

  private constructor(database: Database) {
    this.#database = database;
  }

  /** Opens the tree of a log; undefined if it has none. `busyMs`: how long to wait for another process. */
  static open(folder: string, busyMs = 5000): AuditTree | undefined {
    const path = join(folder, TREE_FILE);
    return existsSync(path) ? guard(() => new AuditTree(openDatabase(path, SCHEMA, { busyMs }))) : undefined;
  }

  /**
   * Opens the tree of a log, or begins one. Its origin is random: a log that lost its tree never continues under the
   * same name, so no two inconsistent checkpoints have one origin.
   */
  static begin(folder: string): { readonly tree: AuditTree; readonly isNew: boolean } {
    return guard(() => {
      const database = openDatabase(join(folder, TREE_FILE), SCHEMA, { busyMs: BEGIN_MS });
      try {
        const origin = database.first('SELECT origin FROM tree');
        const isNew =
          origin() === undefined &&
          database.transact(() => {
            if (origin() !== undefined) return false;
            database.run('INSERT INTO tree VALUES (?)')(`tollgate.local/${randomBytes(16).toString('hex')}`);
            return true;
          });
        return { tree: new AuditTree(database), isNew };
      } catch (thrown) {
        database.close();
        throw thrown;
      }
    });
  }

  /** The name of the tree in its checkpoints. */
  get origin(): string {
    return guard(() => this.#database.first<{ origin: string }>('SELECT origin FROM tree')()?.origin ?? '');
  }

  /** The last checkpoint; undefined before the first. */
  get last(): StoredCheckpoint | undefined {
    return guard(() => this.#database.first<StoredCheckpoint>('SELECT * FROM checkpoint ORDER BY size DESC LIMIT 1')());
  }

  /** The last checkpoint that a witness has cosigned. */
  get lastCosigned(): StoredCheckpoint | undefined {
    return guard(() =>
      this.#database.first<StoredCheckpoint>(
        "SELECT * FROM checkpoint WHERE cosignature <> '' ORDER BY size DESC LIMIT 1",
      )(),
    );
  }

  /** All checkpoints, by size. */
  get checkpoints(): readonly StoredCheckpoint[] {
    return guard(() => this.#database.all<StoredCheckpoint>('SELECT * FROM checkpoint ORDER BY size')());
  }

  /** What was taken in, in the order of the tree. */
  get spans(): readonly Span[] {
    return guard(() => this.#database.all<Span>('SELECT * FROM span ORDER BY leaf')());
  }

  /** The last span of each file. */
  get ends(): ReadonlyMap<string, Span> {
    const last = 'SELECT * FROM span WHERE leaf IN (SELECT max(leaf) FROM span GROUP BY file)';
    return guard(
      () =>
        new Map(
          this.#database
            .all<Span>(last)()
            .map((span) => [span.file, span]),
        ),
    );
  }

  /** The span that has this byte of a file. */
  spanAt(file: string, offset: number): Span | undefined {
    return guard(() =>
      this.#database.first<Span>('SELECT * FROM span WHERE file = ? AND offset <= ? AND end > ?')(file, offset, offset),
    );
  }

  /** Returns the root of a complete subtree. Throws STATE_FAILED for a hash that is not there. */
  readonly node: ReadNode = (level, index) => {
    const within = level % TILE_LEVELS;
    if (within > 0) return nodeHash(this.node(level - 1, 2 * index), this.node(level - 1, 2 * index + 1));
    const tile = this.tile(level / TILE_LEVELS, Math.floor(index / TILE_WIDTH));
    const found = tile[index % TILE_WIDTH];
    if (found === undefined) throw damaged(`leaf ${index * 2 ** level} is missing`);
    return found;
  };

  /** Returns the hashes of a tile; none if it is not there. `level`: in tiles. */
  tile(level: number, n: number): readonly Buffer[] {
    const known = this.#read.get(level);
    if (known?.n === n) return known.hashes;
    const row = guard(() =>
      this.#database.first<{ hashes: string }>('SELECT hashes FROM tile WHERE level = ? AND n = ?')(level, n),
    );
    const bytes = Buffer.from(row?.hashes ?? '', 'base64');
    const hashes = Array.from({ length: Math.floor(bytes.length / HASH_BYTES) }, (_, at) =>
      bytes.subarray(at * HASH_BYTES, (at + 1) * HASH_BYTES),
    );
    this.#read.set(level, { n, hashes });
    return hashes;
  }

  /** Runs `work` while no other process can add to the tree. It is on the disk, or undone, when this returns. */
  transact<T>(work: () => T): T {
    try {
      return guard(() => this.#database.transact(work, { synced: true }));
    } finally {
      this.#growing.clear();
      this.#read.clear();
    }
  }

  /** Appends a leaf as number `index`. The last tiles are written by `add`. */
  append(leaf: Buffer, index: number): void {
    this.#put(0, index, leaf);
  }

  /** Adds what was appended, and the checkpoint that `sign` makes of the root. Returns its note. */
  add(
    spans: readonly Span[],
    { size, at }: Pick<StoredCheckpoint, 'size' | 'at'>,
    sign: (root: Buffer) => string,
  ): string {
    for (const [level, tile] of this.#growing) this.#write(level, tile);
    this.#read.clear();
    const note = sign(rootOf(size, this.node));
    const insert = this.#database.run('INSERT INTO span VALUES (?, ?, ?, ?, ?, ?, ?)');
    for (const { leaf, count, file, offset, end, seq, head } of spans)
      insert(leaf, count, file, offset, end, seq, head);
    this.#database.run('INSERT INTO checkpoint (size, at, note) VALUES (?, ?, ?)')(size, at, note);
    return note;
  }

  /** Stores what a witness said of a checkpoint. */
  cosign(size: number, cosignature: string): void {
    this.transact(() => this.#database.run('UPDATE checkpoint SET cosignature = ? WHERE size = ?')(cosignature, size));
  }

  /** Moves everything from SQLite's log into the file, so that a copy of the file alone is whole. */
  settle(): void {
    guard(() => this.#database.first('PRAGMA wal_checkpoint(TRUNCATE)')());
  }

  close(): void {
    this.#database.close();
  }

  #put(level: number, index: number, found: Buffer): void {
    const n = Math.floor(index / TILE_WIDTH);
    const known = this.#growing.get(level);
    const tile = known?.n === n ? known : { n, hashes: index % TILE_WIDTH === 0 ? [] : [...this.tile(level, n)] };
    if (tile.hashes.length !== index % TILE_WIDTH) throw damaged('a tile has another number of hashes');
    tile.hashes.push(found);
    this.#growing.set(level, tile);
    if (tile.hashes.length < TILE_WIDTH) return;
    this.#write(level, tile);
    this.#put(level + 1, n, rootOfTile(tile.hashes));
  }

  #write(level: number, { n, hashes }: Tile): void {
    this.#database.run('INSERT OR REPLACE INTO tile VALUES (?, ?, ?)')(
      level,
      n,
      Buffer.concat(hashes).toString('base64'),
    );
  }
}

/** Opens the tree of a log for `work`, and closes it. Returns undefined if there is none. Throws STATE_FAILED. */
export function withTree<T>(folder: string, work: (tree: AuditTree) => T): T | undefined {
  const tree = AuditTree.open(folder);
  try {
    return tree === undefined ? undefined : work(tree);
  } finally {
    tree?.close();
  }
}

/**
 * Checks that each stored level follows from the one below, down to the leaves: after this, `node` can be believed as
 * far as the leaves can. Throws STATE_FAILED.
 */
export function checkTiles(tree: AuditTree, size: number): void {
  for (let level = 0, full = Math.floor(size / TILE_WIDTH); full > 0; level += 1) {
    for (let n = 0; n < full; n += 1) {
      const hashes = tree.tile(level, n);
      const above = tree.tile(level + 1, Math.floor(n / TILE_WIDTH))[n % TILE_WIDTH];
      if (hashes.length !== TILE_WIDTH || above === undefined || !rootOfTile(hashes).equals(above))
        throw damaged('its hashes contradict each other');
    }
    full = Math.floor(full / TILE_WIDTH);
  }
}

function rootOfTile(hashes: readonly Buffer[]): Buffer {
  let level = hashes;
  while (level.length > 1) {
    const below = level;
    level = Array.from({ length: below.length / 2 }, (_, at) => nodeHash(below[2 * at]!, below[2 * at + 1]!));
  }
  return level[0]!;
}

/** The error for a tree that cannot be what was signed. */
export function damaged(what: string, cause?: unknown): TollgateError {
  return new TollgateError('STATE_FAILED', {
    detail: `The signed tree of the audit log (${TREE_FILE}) cannot be used: ${what}.`,
    next: 'See "If verify finds a fault" in docs/audit-proof.md.',
    retryable: false,
    cause,
  });
}

/** Names the tree in the errors of the database. */
function guard<T>(work: () => T): T {
  try {
    return work();
  } catch (thrown) {
    if (!(thrown instanceof TollgateError) || thrown.message.includes(TREE_FILE)) throw thrown;
    const reason = (thrown.cause as { readonly code?: unknown } | undefined)?.code;
    throw damaged(typeof reason === 'string' ? reason : thrown.message.replace(/\.$/, ''), thrown.cause);
  }
}
