/**
 * Tells whether a process that left something behind still lives. Each process holds a lock on a file of its own in the folder that it
 * shares with others; the kernel gives the lock back when the process ends. Process numbers do not tell: two containers on one folder
 * have the same ones.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import type Libsql from 'libsql';
import { TollgateError } from '../../catalogs/errors/error-table.ts';

const require = createRequire(import.meta.url);

/** Where the locks lie in a shared folder. */
const LOCKS = 'processes';
/** 128 random bits. */
const FORM = /^[0-9a-f]{32}$/;
const TRIES = 5;

/** One process as its folder knows it: the name of its lock. */
export type ProcessMark = string;

const held = new Map<string, { readonly mark: ProcessMark; readonly lock: Libsql.Database }>();

/**
 * The mark of this process in a folder. The lock is held until the process ends. Removes the locks of dead processes when it takes it.
 * Throws STATE_FAILED when no lock can be taken: nobody could tell then that this process has ended.
 */
export function ownMark(folder: string): ProcessMark {
  const known = held.get(folder);
  if (known !== undefined && existsSync(lockOf(folder, known.mark))) return known.mark;
  for (let tries = 0; tries < TRIES; tries += 1) {
    const mark = randomBytes(16).toString('hex');
    const lock = tryHold(folder, mark);
    if (lock === undefined) continue;
    held.set(folder, { mark, lock });
    if (known === undefined) removeDead(folder);
    return mark;
  }
  throw noMark();
}

/** The refusal of what needs a mark. */
export function noMark(): TollgateError {
  return new TollgateError('STATE_FAILED', {
    detail: 'This process cannot lock a file in the state folder, so others could not tell when it has ended.',
    next: 'Free the disk, and let the user of Tollgate write to the state folder.',
  });
}

/** True for the mark that this process has in a folder. */
export function isOwn(folder: string, mark: ProcessMark): boolean {
  return held.get(folder)?.mark === mark;
}

/** True while the process that has this mark runs, and when that cannot be known. A text that is no mark is of nobody. */
export function isAlive(folder: string, mark: ProcessMark): boolean {
  if (held.get(folder)?.mark === mark) return true;
  if (!FORM.test(mark)) return false;
  const file = lockOf(folder, mark);
  if (!existsSync(file)) return false;
  return !canLock(file, 'BEGIN; SELECT count(*) FROM sqlite_schema; COMMIT');
}

/** Undefined when the file cannot be made, or another process removed it before it was locked. */
function tryHold(folder: string, mark: ProcessMark): Libsql.Database | undefined {
  const file = lockOf(folder, mark);
  let lock: Libsql.Database | undefined;
  try {
    mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 });
    lock = open(file);
    // Without a journal: nothing is ever written.
    lock.exec('PRAGMA journal_mode = OFF; BEGIN EXCLUSIVE');
    if (existsSync(file)) return lock;
  } catch {
    // A full disk, or a read-only one.
  }
  lock?.close();
  return undefined;
}

function removeDead(folder: string): void {
  for (const name of readdirSync(path.join(folder, LOCKS))) {
    const file = lockOf(folder, name);
    // Under its lock: a process that is starting must not lose a file that it is about to lock.
    if (FORM.test(name) && held.get(folder)?.mark !== name)
      canLock(file, 'PRAGMA journal_mode = OFF; BEGIN EXCLUSIVE', () => rmSync(file, { force: true }));
  }
}

function canLock(file: string, sql: string, meanwhile: () => void = () => undefined): boolean {
  let lock: Libsql.Database | undefined;
  try {
    lock = open(file);
    lock.exec(sql);
    meanwhile();
    return true;
  } catch {
    return false;
  } finally {
    lock?.close();
  }
}

/**
 * Takes a lock on a file, which is made where it is missing; `close` gives it back, and so does the end of this process. 'busy' while
 * another process has it, 'none' where it cannot be taken at all (a full disk, or a file that holds something else).
 */
export function tryLock(file: string): Pick<Libsql.Database, 'close'> | 'busy' | 'none' {
  let lock: Libsql.Database | undefined;
  try {
    lock = open(file);
    lock.exec('PRAGMA journal_mode = OFF; BEGIN EXCLUSIVE');
    return lock;
  } catch (error) {
    lock?.close();
    return (error as { code?: string }).code === 'SQLITE_BUSY' ? 'busy' : 'none';
  }
}

function open(file: string): Libsql.Database {
  const Database = require('libsql') as typeof Libsql;
  return new Database(file, { timeout: 0 } as Libsql.Options);
}

function lockOf(folder: string, mark: ProcessMark): string {
  return path.join(folder, LOCKS, mark);
}

/** A process of this PID namespace, told apart from a later one with the same number: `born` is boot and start tick, '' where the system does not tell. */
export interface LocalProcess {
  readonly pid: number;
  readonly born: string;
}

/** This very process. */
export const OWN_PROCESS: LocalProcess = { pid: process.pid, born: readStat(process.pid)?.born ?? '' };

/** True while that process runs. A zombie holds nothing any more and counts as dead. Ask it only of processes of this PID namespace. */
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
    // EPERM: it lives, but belongs to somebody else.
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Reads Linux's /proc; undefined elsewhere or when the process is gone. */
function readStat(pid: number): { readonly state: string; readonly born: string } | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').slice(0, 8);
    // The name in brackets may hold spaces and brackets itself (proc(5)), so count from the last one.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0] ?? '', born: `${boot}.${fields[19] ?? ''}` };
  } catch {
    return undefined;
  }
}
