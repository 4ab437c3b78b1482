/**
 * The shared store in Redis 6.2 or newer, or Valkey: one script, see redis-script.ts. The server must write each change
 * to its disk and may not evict keys, because a lost change could allow what was forbidden.
 */
import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { BUDGET_UNITS } from '../budget-counter.ts';
import type { Amounts, CounterName } from '../state-port.ts';
import type { ValueChange, ValueChanges } from '../state-values.ts';
import { SCRIPT } from './redis-script.ts';
import {
  expectedOf,
  KEPT_CHANGES,
  LEASE_MS,
  RETURN_MS,
  type SharedStore,
  STORE_VERSION,
  type StoreAccess,
  type StoreAnswer,
  type StoreReservation,
  type StoreWrite,
} from './shared-store.ts';
import { checkStoreVersion, storeAway, storeRefused } from './store-errors.ts';

/** Between the parts of a name. No part contains it. */
const NUL = '\0';
const SHA = createHash('sha1').update(SCRIPT).digest('hex');
const RECONNECT_MS = 1_000;
const DISCONNECT_MS = 100;
/** Counters that one request removes. */
const RESET_MOST = 100_000;

/** Opens the store. It connects at once, and again whenever the connection ends. */
export function openRedisStore(access: StoreAccess): SharedStore {
  return new RedisStore(access);
}

/** A nested answer of the script. */
type Reply = string | null | readonly Reply[];

class RedisStore implements SharedStore {
  readonly timeoutMs: number;
  readonly #client: Redis;
  readonly #prefix: string;
  readonly #access: StoreAccess;
  #listener: Redis | undefined;
  #ready: Promise<void> | undefined;
  #isKnown = false;
  #isClosed = false;
  #lastError: unknown;

  constructor(access: StoreAccess) {
    this.#access = access;
    this.timeoutMs = access.timeoutMs;
    // In braces: all keys are in one slot of a cluster.
    this.#prefix = `{${access.namespace}}:`;
    this.#client = this.#connect((times) => Math.min(times * 50, RECONNECT_MS));
    // After a failover another server answers, which is checked too.
    this.#client.on('close', () => {
      this.#ready = undefined;
      // It sends nothing, so it would not notice that its connection is dead.
      this.#listener?.disconnect();
    });
  }

  async reserve({ claims, ahead, lease, mark }: StoreReservation): Promise<StoreAnswer> {
    const written = claims.map(({ windowMs, concurrent, demands, ...name }) => ({
      n: nameOf(name),
      ...scopeOf(name),
      ...(windowMs !== undefined && { w: windowMs }),
      ...(concurrent !== undefined && { c: concurrent }),
      d: demands.map(({ unit, limit, most, least }) => [BUDGET_UNITS.indexOf(unit), limit, most, least]),
    }));
    const [outcome, now, ...rest] = await this.#run('reserve', [
      JSON.stringify(written),
      ahead.most,
      ahead.held,
      lease,
      mark,
      LEASE_MS,
      RETURN_MS,
    ]);
    if (outcome === 'taken')
      return {
        now: Number(now),
        taken: (rest as readonly (readonly string[])[]).map(([since, ...amounts]) => ({
          since: Number(since),
          amounts: readAmounts(amounts),
        })),
      };
    const [index = 0, unit = 0, left = 0, since = 0] = rest.map(Number);
    return { now: Number(now), refused: { index, unit: BUDGET_UNITS[unit] ?? 'concurrent', left, since } };
  }

  async settle(...[lease, changes]: Parameters<SharedStore['settle']>): Promise<void> {
    const written = changes.map(({ claim, since, amounts }) => ({
      n: nameOf(claim),
      t: String(since),
      a: BUDGET_UNITS.map((unit) => String(amounts[unit])),
      ...(claim.concurrent !== undefined && { c: 1 }),
    }));
    await this.#run('settle', [JSON.stringify(written), lease]);
  }

  async endScope(scope: string, key: string): Promise<void> {
    await this.#run('end', [`${scope}${NUL}${key}`]);
  }

  async counters(most: number): ReturnType<SharedStore['counters']> {
    const [, ...rows] = await this.#run('counters', [most]);
    return (rows as readonly (readonly string[])[]).map(([name = '', since, ...amounts]) => {
      const [scope = '', key = '', budget = ''] = name.split(NUL);
      return { scope, key, budget, since: Number(since), amounts: readAmounts(amounts) };
    });
  }

  async resetCounters(budget: string, key?: string): Promise<number> {
    const all = await this.counters(RESET_MOST);
    const names = all.filter((one) => one.budget === budget && (key === undefined || one.key === key)).map(nameOf);
    const [, count] = await this.#run('reset', names);
    return Number(count);
  }

  async write(change: StoreWrite, from: number): ReturnType<SharedStore['write']> {
    const expected = expectedOf(change);
    const [, result, news] = await this.#run('write', [
      change.op,
      `${change.space}${NUL}${change.key}`,
      expected === undefined ? '' : `=${expected}`,
      'to' in change ? change.to : '',
      from,
      KEPT_CHANGES,
    ]);
    return { result: (result as string | null) ?? undefined, news: readNews(news) };
  }

  async news(from: number | undefined, mark: string): ReturnType<SharedStore['news']> {
    const [, now, news, alive, resumed] = await this.#run('news', [from ?? '', mark, LEASE_MS]);
    return { ...readNews(news), now: Number(now), resumed: Number(resumed), alive: alive as readonly string[] };
  }

  listen({ onNews, onLost }: Parameters<SharedStore['listen']>[0]): void {
    if (this.#isClosed) return;
    const listener = this.#connect(() => null);
    this.#listener = listener;
    listener.on('ready', () => {
      listener.subscribe(`${this.#prefix}news`).then(onNews, () => listener.disconnect());
    });
    listener.on('message', onNews);
    listener.on('end', onLost);
  }

  async leave(mark: string): Promise<void> {
    await this.#run('leave', [mark]);
  }

  async migrate(): ReturnType<SharedStore['migrate']> {
    try {
      await this.#opened();
      const meta = `${this.#prefix}meta`;
      const from = Number((await this.#client.hget(meta, 'version')) ?? 0);
      if (from > STORE_VERSION) checkStoreVersion(from, false);
      // One command, so that of two commands at the same time one makes it. Version 1 has nothing to change.
      if (from === 0) await this.#client.hset(meta, { version: STORE_VERSION, seq: 0, floor: 0 });
      return { from, to: STORE_VERSION };
    } catch (thrown) {
      throw errorOf(thrown);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#listener?.disconnect();
    this.#client.disconnect();
  }

  #connect(retryStrategy: (times: number) => number | null): Redis {
    const { url, password, ca, timeoutMs } = this.#access;
    const client = new Redis(url, {
      ...(password !== undefined && { password }),
      ...(ca !== undefined && { tls: { ca } }),
      connectTimeout: timeoutMs,
      // The timer also runs, and holds the process, if the connection has already ended.
      disconnectTimeout: DISCONNECT_MS,
      commandTimeout: timeoutMs,
      // A request without an answer may have been done, so it is never sent again.
      autoResendUnfulfilledCommands: false,
      enableOfflineQueue: false,
      maxRetriesPerRequest: 0,
      retryStrategy,
      connectionName: 'tollgate',
    });
    // Requests report the error.
    client.on('error', (thrown: unknown) => (this.#lastError = thrown));
    client.on('ready', () => (this.#lastError = undefined));
    return client;
  }

  /** Waits for the first connection, and checks that the server keeps what it is told. */
  async #opened(): Promise<void> {
    this.#ready ??= this.#check();
    try {
      await this.#ready;
    } catch (thrown) {
      this.#ready = undefined;
      throw thrown;
    }
  }

  async #check(): Promise<void> {
    await this.#connected();
    const info = await this.#ask((client) => client.info());
    const valueOf = (name: string): string | undefined => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1];
    if (valueOf('maxmemory_policy') !== 'noeviction')
      throw storeRefused(
        'it may evict keys when its memory is full, so a denial could be forgotten',
        'Set `maxmemory-policy noeviction` in Redis.',
      );
    if (valueOf('aof_enabled') !== '1')
      throw storeRefused(
        'it does not write changes to its disk, so a restart would allow what was forbidden',
        'Set `appendonly yes` and `appendfsync always` in Redis.',
      );
  }

  async #connected(): Promise<void> {
    const until = performance.now() + this.timeoutMs;
    while (this.#client.status !== 'ready') {
      if (isRefusal(this.#lastError)) throw errorOf(this.#lastError);
      if (performance.now() > until) throw errorOf(this.#lastError ?? new Error('timeout'));
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  async #run(op: string, args: readonly (string | number)[]): Promise<readonly Reply[]> {
    try {
      await this.#opened();
      const all = [1, this.#prefix, op, STORE_VERSION, ...args] as const;
      const answer = (await this.#evaluate(all)) as readonly Reply[];
      if (answer[0] === 'version') checkStoreVersion(Number(answer[1]), this.#isKnown);
      this.#isKnown = true;
      return answer;
    } catch (thrown) {
      throw errorOf(thrown);
    }
  }

  async #evaluate(args: readonly [number, ...(string | number)[]]): Promise<unknown> {
    try {
      return await this.#ask((client) => client.evalsha(SHA, ...args));
    } catch (thrown) {
      // The script is not known there yet, so nothing was done.
      if (!textOf(thrown).startsWith('NOSCRIPT')) throw thrown;
      return this.#ask((client) => client.eval(SCRIPT, ...args));
    }
  }

  /**
   * Ends a connection that does not answer: after a cut, the kernel would be silent on it as long again as the cut
   * took. The option `socketTimeout` of the client would end a new connection too (redis/ioredis#2147).
   */
  async #ask<T>(send: (client: Redis) => Promise<T>): Promise<T> {
    const { stream } = this.#client;
    try {
      return await send(this.#client);
    } catch (thrown) {
      if (textOf(thrown) === 'Command timed out') stream.destroy();
      throw thrown;
    }
  }
}

function nameOf({ scope, key, budget }: CounterName): string {
  return `${scope}${NUL}${key}${NUL}${budget}`;
}

/** Runs and sessions end, and their counters with them. */
function scopeOf({ scope, key }: CounterName): { readonly s?: string } {
  return scope === 'run' || scope === 'session' ? { s: `${scope}${NUL}${key}` } : {};
}

function readAmounts(texts: readonly string[]): Amounts {
  const [calls = 0, argBytes = 0, outputBytes = 0, wallMs = 0] = texts.map(Number);
  return { calls, argBytes, outputBytes, wallMs };
}

/** Reads pairs of a field and a value. Of changes, a value begins with `=`; without one it was removed. */
function readNews(reply: Reply | undefined): ValueChanges {
  const [to, isAll, pairs] = reply as readonly [string, string, readonly string[]];
  const all = isAll === '1';
  const changes: ValueChange[] = [];
  for (let index = 0; index < pairs.length; index += 2) {
    const [field = '', text = ''] = pairs.slice(index, index + 2);
    const cut = field.indexOf(NUL);
    const value = all ? text : text === '' ? undefined : text.slice(1);
    changes.push({ space: field.slice(0, cut), key: field.slice(cut + 1), ...(value !== undefined && { value }) });
  }
  return { to: Number(to), all, changes };
}

function textOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : '';
}

function isRefusal(thrown: unknown): boolean {
  return /^(WRONGPASS|NOAUTH|NOPERM|ERR invalid password)|certificate|self.signed/i.test(textOf(thrown));
}

function errorOf(thrown: unknown): TollgateError {
  if (thrown instanceof TollgateError) return thrown;
  const text = textOf(thrown);
  if (/^(WRONGPASS|NOAUTH|ERR invalid password)/.test(text))
    return storeRefused(
      'the user or the password is wrong',
      'Correct `state` in tollgate.yaml, or the secret it names.',
    );
  if (text.startsWith('NOPERM'))
    return storeRefused('the user may not do this', 'Give it all commands and keys of the namespace (ACL SETUSER).');
  if (/certificate|self.signed/i.test(text))
    return storeRefused('its certificate is not trusted', 'Correct `ca` in `state`.');
  if (text.startsWith('OOM')) return storeRefused('its memory is full', 'Give Redis more memory (maxmemory).');
  if (text.startsWith('MISCONF'))
    return storeRefused('it cannot write to its disk', 'Free space on the disk of Redis.');
  if (text.startsWith('READONLY'))
    return storeRefused('it is a read-only replica', 'Name the primary server in `state`.');
  const { code } = thrown as { code?: unknown };
  // Without the queue, a request that was not sent fails at once with this text.
  const isUnsent = text.includes('enableOfflineQueue') || text.startsWith('LOADING') || text.startsWith('BUSY');
  const why = typeof code === 'string' ? code : /time/i.test(text) ? 'timeout' : 'connection ended';
  return storeAway(isUnsent && text.startsWith('LOADING') ? 'it is starting' : why, !isUnsent);
}
