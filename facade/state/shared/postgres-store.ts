/** The shared store in Postgres, version 13 or newer. Each operation is one call of a function of its schema. */
import pg from 'pg';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { BUDGET_UNITS } from '../budget-counter.ts';
import type { Amounts } from '../state-port.ts';
import type { ValueChange, ValueChanges } from '../state-values.ts';
import { POSTGRES_UPGRADES } from './postgres-schema.ts';
import {
  expectedOf,
  KEPT_CHANGES,
  LEASE_MS,
  RETURN_MS,
  type SharedStore,
  STALE_MS,
  type StoreAccess,
  type StoreAnswer,
  type StoreReservation,
  type StoreWrite,
} from './shared-store.ts';
import { checkStoreVersion, storeAway, storeRefused } from './store-errors.ts';

const CLEAN_MS = 3_600_000;
/** The key of the lock of migrations: any fixed number. */
const MIGRATION_LOCK = 7_041_776;
/** How often a request is made that another transaction has disturbed. */
const MAX_TRIES = 3;
const CLOSE_MS = 1_000;

/** Opens the store. It connects at the first request. Throws STATE_FAILED for an address that cannot be read. */
export function openPostgresStore(access: StoreAccess): SharedStore {
  return new PostgresStore(access);
}

/** One function of the schema, and what it is called with. */
interface FunctionCall {
  readonly name: string;
  readonly args: readonly unknown[];
}

class PostgresStore implements SharedStore {
  readonly timeoutMs: number;
  readonly #settings: pg.ClientConfig;
  readonly #pool: pg.Pool;
  readonly #namespace: string;
  readonly #schema: string;
  readonly #cleaning: NodeJS.Timeout;
  #listener: pg.Client | undefined;
  #checkListener: () => void = () => undefined;
  #isKnown = false;
  #isClosed = false;

  constructor({ url, password, ca, namespace, connections, timeoutMs }: StoreAccess) {
    this.timeoutMs = timeoutMs;
    this.#namespace = namespace;
    this.#schema = pg.escapeIdentifier(namespace);
    this.#settings = {
      connectionString: addressOf(url, { password, isOwnCa: ca !== undefined }),
      ...(ca !== undefined && { ssl: { ca } }),
      application_name: 'tollgate',
      connectionTimeoutMillis: timeoutMs,
      query_timeout: timeoutMs,
      // The server ends requests for which no one waits any more.
      statement_timeout: timeoutMs,
      keepAlive: true,
    };
    this.#pool = new pg.Pool({ ...this.#settings, max: connections, idleTimeoutMillis: 60_000 });
    // A connection that ends while nothing uses it is replaced by the next request.
    this.#pool.on('error', () => undefined);
    // One that ends while it is used also says so outside of its request. Without a listener the process would end.
    this.#pool.on('connect', (client) => void client.on('error', () => undefined));
    this.#cleaning = setInterval(() => this.#clean(), CLEAN_MS);
    this.#cleaning.unref();
  }

  async reserve({ claims, ahead, lease, mark }: StoreReservation): Promise<StoreAnswer> {
    const args = [JSON.stringify(claims.map(writeClaim)), ahead.most, ahead.held, lease, mark, LEASE_MS, RETURN_MS];
    const { now, taken, refused } = await this.#call<ReserveRow>({ name: 'reserve', args });
    if (taken !== undefined)
      return { now, taken: taken.map(([since = 0, ...amounts]) => ({ since, amounts: readAmounts(amounts) })) };
    const [index, unit, left, since] = refused!;
    return { now, refused: { index, unit: BUDGET_UNITS[unit] ?? 'concurrent', left, since } };
  }

  async settle(...[lease, changes]: Parameters<SharedStore['settle']>): Promise<void> {
    const written = changes.map(({ claim, since, amounts }) => ({
      ...counterOf(claim),
      t: since,
      a: BUDGET_UNITS.map((unit) => amounts[unit]),
      ...(claim.concurrent !== undefined && { c: 1 }),
    }));
    await this.#call({ name: 'settle', args: [JSON.stringify(written), lease] });
  }

  async endScope(scope: string, key: string): Promise<void> {
    await this.#query(`DELETE FROM ${this.#schema}.counter WHERE scope = $1 AND key = $2`, [scope, key]);
  }

  async counters(most: number): ReturnType<SharedStore['counters']> {
    const rows = await this.#query<CounterRow>(
      `SELECT scope, key, budget, since, amounts FROM ${this.#schema}.counter WHERE touched > 0 ` +
        'ORDER BY touched DESC LIMIT $1',
      [most],
    );
    return rows.map(({ since, amounts, ...name }) => ({
      ...name,
      since: Number(since),
      amounts: readAmounts(amounts.map(Number)),
    }));
  }

  async resetCounters(budget: string, key?: string): Promise<number> {
    const rows = await this.#query(
      `DELETE FROM ${this.#schema}.counter WHERE touched > 0 AND budget = $1 AND ($2::text IS NULL OR key = $2) ` +
        'RETURNING 1',
      [budget, key ?? null],
    );
    return rows.length;
  }

  async write(change: StoreWrite, from: number): ReturnType<SharedStore['write']> {
    const { op, space, key } = change;
    const to = 'to' in change ? change.to : null;
    const { result, news } = await this.#call<{ result: string | null; news: NewsRow }>({
      name: 'write',
      args: [op, space, key, expectedOf(change) ?? null, to, from, KEPT_CHANGES],
    });
    return { result: result ?? undefined, news: this.#readNews(news) };
  }

  async news(from: number | undefined, mark: string): ReturnType<SharedStore['news']> {
    const row = await this.#call<NewsRow & { now: number; resumed: number; alive: string[] }>({
      name: 'news',
      args: [from ?? null, mark, LEASE_MS],
    });
    return { ...this.#readNews(row), now: row.now, resumed: row.resumed, alive: row.alive };
  }

  listen({ onNews, onLost }: Parameters<SharedStore['listen']>[0]): void {
    if (this.#isClosed) return;
    const client = new pg.Client(this.#settings);
    this.#listener = client;
    let isLost = false;
    const lose = (): void => {
      if (isLost) return;
      isLost = true;
      void client.end().catch(() => undefined);
      if (!this.#isClosed) onLost();
    };
    let isAsked = true;
    const subscribe = async (): Promise<void> => {
      isAsked = true;
      await client.query(`LISTEN ${pg.escapeIdentifier(`${this.#namespace}_news`)}`);
      isAsked = false;
    };
    this.#checkListener = () => {
      if (!isAsked) subscribe().catch(lose);
    };
    client.on('error', lose);
    client.on('end', lose);
    client.on('notification', onNews);
    client.connect().then(subscribe).then(onNews).catch(lose);
  }

  async leave(mark: string): Promise<void> {
    await this.#query(
      `WITH gone AS (DELETE FROM ${this.#schema}.slot WHERE process = $1) ` +
        `DELETE FROM ${this.#schema}.process WHERE mark = $1`,
      [mark],
    );
  }

  async migrate(): ReturnType<SharedStore['migrate']> {
    // Upgrades may take longer than a request.
    const client = new pg.Client({ ...this.#settings, query_timeout: 0, statement_timeout: 0 });
    client.on('error', () => undefined);
    try {
      await client.connect();
      await client.query('BEGIN');
      await client.query('SELECT pg_advisory_xact_lock($1)', [MIGRATION_LOCK]);
      const from = await versionOf(client, this.#schema);
      if (from > POSTGRES_UPGRADES.length) checkStoreVersion(from, false);
      if (from === 0) await client.query(`CREATE SCHEMA IF NOT EXISTS ${this.#schema}`);
      for (const upgrade of POSTGRES_UPGRADES.slice(from))
        await client.query(upgrade.replaceAll('SCHEMA', this.#schema).replaceAll('NAMESPACE', this.#namespace));
      await client.query(`UPDATE ${this.#schema}.meta SET version = $1`, [POSTGRES_UPGRADES.length]);
      await client.query('COMMIT');
      return { from, to: POSTGRES_UPGRADES.length };
    } catch (thrown) {
      throw errorOf(thrown, false);
    } finally {
      await client.end().catch(() => undefined);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#cleaning);
    const ended = Promise.allSettled([this.#listener?.end(), this.#pool.end()]);
    await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, CLOSE_MS).unref())]);
  }

  /** The next one removes what a failed one has left. */
  #clean(): void {
    this.#call({ name: 'clean', args: [LEASE_MS, STALE_MS] }).catch(() => undefined);
  }

  #readNews({ version, to, all, changes }: NewsRow): ValueChanges {
    checkStoreVersion(version, this.#isKnown);
    this.#isKnown = true;
    return { to, all, changes: changes.map(readChange) };
  }

  async #call<T>({ name, args }: FunctionCall): Promise<T> {
    const marks = args.map((_, index) => `$${index + 1}`).join(', ');
    const text = `SELECT ${this.#schema}.${name}(${marks}) AS answer`;
    for (let tries = 1; ; tries += 1)
      try {
        const [row] = await this.#query<{ answer: T }>(text, args, name);
        return row!.answer;
      } catch (thrown) {
        // Another transaction ended the scope, or waited for the same rows. Nothing was done.
        if (!isDisturbed(thrown) || tries === MAX_TRIES) throw thrown;
      }
  }

  async #query<Row extends pg.QueryResultRow>(text: string, values: readonly unknown[], name?: string): Promise<Row[]> {
    let client: pg.PoolClient | undefined;
    try {
      client = await this.#pool.connect();
      const { rows } = await client.query<Row>({ text, values: [...values], ...(name !== undefined && { name }) });
      client.release();
      return rows;
    } catch (thrown) {
      // The connection may still be busy with the request.
      client?.release(true);
      // The listener sends nothing by itself, so it would not notice that its connection is dead.
      if (client !== undefined && !isAnswer(thrown)) this.#checkListener();
      if (isMissing(thrown)) checkStoreVersion(0, this.#isKnown);
      throw errorOf(thrown, client !== undefined);
    }
  }
}

/** Returns the address with its password. Parameters of the address would replace a `ca` and a separate password. */
function addressOf(
  url: string,
  { password, isOwnCa }: { readonly password: string | undefined; readonly isOwnCa: boolean },
): string {
  const address = new URL(url);
  if (password !== undefined) address.password = encodeURIComponent(password);
  if (isOwnCa) address.searchParams.delete('sslmode');
  return address.href;
}

interface ReserveRow {
  readonly now: number;
  readonly taken?: readonly (readonly number[])[];
  readonly refused?: readonly [index: number, unit: number, left: number, since: number];
}

interface NewsRow {
  readonly version: number;
  readonly to: number;
  readonly all: boolean;
  readonly changes: readonly (readonly [space: string, key: string, value: string | null])[];
}

interface CounterRow {
  readonly scope: string;
  readonly key: string;
  readonly budget: string;
  readonly since: string;
  readonly amounts: readonly string[];
}

function counterOf({ scope, key, budget }: StoreReservation['claims'][number]): { s: string; k: string; b: string } {
  return { s: scope, k: key, b: budget };
}

function writeClaim(claim: StoreReservation['claims'][number]): unknown {
  const { windowMs, concurrent, demands } = claim;
  return {
    ...counterOf(claim),
    ...(windowMs !== undefined && { w: windowMs }),
    ...(concurrent !== undefined && { c: concurrent }),
    d: demands.map(({ unit, limit, most, least }) => [BUDGET_UNITS.indexOf(unit), limit, most, least]),
  };
}

function readAmounts([calls = 0, argBytes = 0, outputBytes = 0, wallMs = 0]: readonly number[]): Amounts {
  return { calls, argBytes, outputBytes, wallMs };
}

function readChange([space, key, value]: NewsRow['changes'][number]): ValueChange {
  return { space, key, ...(value !== null && { value }) };
}

async function versionOf(client: pg.Client, schema: string): Promise<number> {
  const { rows: tables } = await client.query('SELECT to_regclass($1) AS found', [`${schema}.meta`]);
  if (tables[0].found === null) return 0;
  const { rows } = await client.query(`SELECT version FROM ${schema}.meta`);
  return rows[0].version;
}

function codeOf(thrown: unknown): string | undefined {
  const { code, cause } = thrown as { code?: unknown; cause?: unknown };
  if (thrown instanceof TollgateError) return cause === undefined ? undefined : codeOf(cause);
  return typeof code === 'string' ? code : undefined;
}

/** A schema, table or function that does not exist (SQLSTATE 3F000, 42P01, 42883). */
function isMissing(thrown: unknown): boolean {
  return ['3F000', '42P01', '42883'].includes(codeOf(thrown) ?? '');
}

/** Returns true for an error that the server has sent: it has a SQLSTATE. Names such as EPIPE contain no digit. */
function isAnswer(thrown: unknown): boolean {
  return /^(?=.*\d)[0-9A-Z]{5}$/.test(codeOf(thrown) ?? '');
}

/** A serialization failure or a deadlock (SQLSTATE 40001, 40P01): the transaction was rolled back. */
function isDisturbed(thrown: unknown): boolean {
  return ['40001', '40P01'].includes(codeOf(thrown) ?? '');
}

/** Returns the error for the user. */
function errorOf(thrown: unknown, isSent: boolean): TollgateError {
  if (thrown instanceof TollgateError) return thrown;
  const code = codeOf(thrown);
  const text = thrown instanceof Error ? thrown.message : '';
  if (isDisturbed(thrown)) return new TollgateError('STATE_AWAY', { cause: thrown });
  if (code === '28P01' || code === '28000')
    return storeRefused(
      'the user or the password is wrong',
      'Correct `state` in tollgate.yaml, or the secret it names.',
    );
  if (code === '3D000') return storeRefused('there is no such database', 'Create it, or correct `state`.');
  if (code === '42501')
    return storeRefused('the user may not do this', 'Let an administrator grant it the right to the schema.');
  if (code === '53100') return storeRefused('its disk is full', 'Free space on the disk of Postgres.');
  if (code === '25006') return storeRefused('it is read-only', 'Name the primary server in `state`.');
  if (/certificate|self.signed|SSL/i.test(text))
    return storeRefused('its certificate is not trusted, or it offers no TLS', 'Correct `ca` or sslmode in `state`.');
  // Classes 08, 53, 57: connections, resources, the server stops. Others are faults of this program.
  const isAway = code === undefined || !isAnswer(thrown) || /^(08|53|57)/.test(code);
  if (isAway) return storeAway(code ?? (/timeout/i.test(text) ? 'timeout' : 'connection ended'), isSent);
  return new TollgateError('STATE_FAILED', { detail: `Postgres refused a request (${code}).`, cause: thrown });
}
