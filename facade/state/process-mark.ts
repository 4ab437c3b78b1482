/**
 * Tells whether another process is alive. Each process locks its own file in the shared folder, and the kernel releases
 * the lock when the process ends. Process ids are not enough, because two containers on one folder can have the same.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import type Libsql from 'libsql';
import { TollgateError } from '../../catalogs/errors/error-table.ts';

const require = createRequire(import.meta.url);

/** The folder of the locks in a shared folder. */
const LOCKS = 'processes';
/** 128 random bits. */
const MARK_PATTERN = /^[0-9a-f]{32}$/;
const MAX_TRIES = 5;

/** The mark of a process in a folder: the name of its lock. */
export type ProcessMark = string;

const ownLocks = new Map<string, { readonly mark: ProcessMark; readonly lock: Libsql.Database }>();

/**
 * Returns the mark of this process in a folder. The first call takes a lock until the process ends, and removes the
 * locks of dead processes. Throws STATE_FAILED if no lock can be taken, because then no process could tell when this
 * one ends.
 */
export function ownMark(folder: string): ProcessMark {
  const known = ownLocks.get(folder);
  if (known !== undefined && existsSync(lockOf(folder, known.mark))) return known.mark;
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    const mark = randomBytes(16).toString('hex');
    const lock = tryTakeLock(folder, mark);
    if (lock === undefined) continue;
    ownLocks.set(folder, { mark, lock });
    if (known === undefined) removeDead(folder);
    return mark;
  }
  throw noMark();
}

/** The error for work that needs a mark. */
export function noMark(): TollgateError {
  return new TollgateError('STATE_FAILED', {
    detail: 'This process cannot lock a file in the state folder, so other processes could not tell when it has ended.',
    next: 'Free space on the disk, and let the user of Tollgate write to the state folder.',
  });
}

/** Returns true for the mark that this process has in a folder. */
export function isOwn(folder: string, mark: ProcessMark): boolean {
  return ownLocks.get(folder)?.mark === mark;
}

/** Returns true while the process with this mark runs, and if that cannot be known. Returns false for other texts. */
export function isAlive(folder: string, mark: ProcessMark): boolean {
  if (ownLocks.get(folder)?.mark === mark) return true;
  if (!MARK_PATTERN.test(mark)) return false;
  const file = lockOf(folder, mark);
  if (!existsSync(file)) return false;
  return !canLock(file, 'BEGIN; SELECT count(*) FROM sqlite_schema; COMMIT');
}

/** Makes and locks a file. Returns undefined if it cannot be made, or if another process removed it before the lock. */
function tryTakeLock(folder: string, mark: ProcessMark): Libsql.Database | undefined {
  const file = lockOf(folder, mark);
  let lock: Libsql.Database | undefined;
  try {
    mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 });
    lock = openLock(file);
    // Without a journal, because nothing is ever written.
    lock.exec('PRAGMA journal_mode = OFF; BEGIN EXCLUSIVE');
    if (existsSync(file)) return lock;
  } catch {
    // The disk is full or read-only.
  }
  lock?.close();
  return undefined;
}

function removeDead(folder: string): void {
  for (const name of readdirSync(path.join(folder, LOCKS))) {
    const file = lockOf(folder, name);
    // Takes the lock first, so that a starting process does not lose a file that it is about to lock.
    if (MARK_PATTERN.test(name) && ownLocks.get(folder)?.mark !== name)
      canLock(file, 'PRAGMA journal_mode = OFF; BEGIN EXCLUSIVE', () => rmSync(file, { force: true }));
  }
}

function canLock(file: string, sql: string, whileLocked: () => void = () => undefined): boolean {
  let lock: Libsql.Database | undefined;
  try {
    lock = openLock(file);
    lock.exec(sql);
    whileLocked();
    return true;
  } catch {
    return false;
  } finally {
    lock?.close();
  }
}

/**
 * Locks a file, and makes it if it is missing. `close` or the end of this process releases the lock. Returns 'busy' if
 * another process has it, 'none' if the file cannot be locked (a full disk, or other content).
 */
export function tryLock(file: string): Pick<Libsql.Database, 'close'> | 'busy' | 'none' {
  let lock: Libsql.Database | undefined;
  try {
    lock = openLock(file);
    lock.exec('PRAGMA journal_mode = OFF; BEGIN EXCLUSIVE');
    return lock;
  } catch (error) {
    lock?.close();
    return (error as { code?: string }).code === 'SQLITE_BUSY' ? 'busy' : 'none';
  }
}

function openLock(file: string): Libsql.Database {
  const Database = require('libsql') as typeof Libsql;
  return new Database(file, { timeout: 0 } as Libsql.Options);
}

function lockOf(folder: string, mark: ProcessMark): string {
  return path.join(folder, LOCKS, mark);
}

/** A process of this PID namespace. `born`: boot and start tick, because ids are reused; '' if they are unknown. */
export interface LocalProcess {
  readonly pid: number;
  readonly born: string;
}

/** Returns this process. */
export const OWN_PROCESS: LocalProcess = { pid: process.pid, born: readStat(process.pid)?.born ?? '' };

/** Returns true while that process runs. A zombie counts as dead. Use it only for processes of this PID namespace. */
export function isRunning({ pid, born }: LocalProcess): boolean {
  if (!answersSignal(pid)) return false;
  const stat = readStat(pid);
  if (stat === undefined) return true;
  if (stat.state === 'Z' || stat.state === 'X') return false;
  return born === '' || stat.born === born;
}

function answersSignal(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: it is alive, but belongs to another user.
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Reads Linux's /proc; undefined elsewhere, or if the process has ended. */
function readStat(pid: number): { readonly state: string; readonly born: string } | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').slice(0, 8);
    // The name in brackets may contain spaces and brackets (proc(5)), so the last bracket counts.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0] ?? '', born: `${boot}.${fields[19] ?? ''}` };
  } catch {
    return undefined;
  }
}
