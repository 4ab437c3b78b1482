/**
 * Counts what a process does, for the benchmark: `node --import counters.mjs PROGRAM`, with an IPC channel. Promises are
 * those of the main thread; an `await` counts as one. Those that timers make do not count, because a slow machine runs
 * more timers per call. Statements of SQLite and messages to threads are those of all
 * threads. Each message of the parent starts a new count of the work that it names, or stops it ('stop'); the answer has
 * what was counted since the message before.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import { GCProfiler, promiseHooks } from 'node:v8';
import threads from 'node:worker_threads';

const KEY = 'counters of the benchmark';
const [STATEMENTS, MESSAGES] = [0, 1];
if (threads.isMainThread) threads.setEnvironmentData(KEY, new Int32Array(new SharedArrayBuffer(8)));
const shared = threads.getEnvironmentData(KEY);

function countCalls(prototype, names, counter) {
  for (const name of names) {
    const original = prototype[name];
    prototype[name] = function (...args) {
      Atomics.add(shared, counter, 1);
      return original.apply(this, args);
    };
  }
}

const Database = createRequire(process.argv[1])('libsql');
const memory = new Database(':memory:');
countCalls(Object.getPrototypeOf(memory.prepare('SELECT 1')), ['run', 'get', 'iterate'], STATEMENTS);
countCalls(Database.prototype, ['exec'], STATEMENTS);
memory.close();

const { Worker } = threads;
threads.Worker = class extends Worker {
  constructor(file, options) {
    super(file, { ...options, execArgv: ['--import', import.meta.url] });
  }
};
countCalls(threads.Worker.prototype, ['postMessage'], MESSAGES);
syncBuiltinESMExports();

/** Counts the bytes that the heap of this thread has given out, whatever the garbage collector took back. */
function countAllocation() {
  const profiler = new GCProfiler();
  const before = process.memoryUsage().heapUsed;
  profiler.start();
  return () => {
    const freed = profiler
      .stop()
      .statistics.map(
        ({ beforeGC, afterGC }) => beforeGC.heapStatistics.usedHeapSize - afterGC.heapStatistics.usedHeapSize,
      );
    return { allocated: freed.reduce((sum, bytes) => sum + bytes, process.memoryUsage().heapUsed - before) };
  };
}

const ofTimer = new AsyncLocalStorage();
for (const name of ['setTimeout', 'setInterval']) {
  const original = globalThis[name];
  const timer = (work, ...rest) => original((...args) => ofTimer.run(true, work, ...args), ...rest);
  globalThis[name] = Object.assign(timer, original);
}

function countPromises() {
  let promises = 0;
  const stop = promiseHooks.onInit(() => {
    if (ofTimer.getStore() === undefined) promises += 1;
  });
  return () => {
    stop();
    return { promises };
  };
}

if (threads.isMainThread && process.send !== undefined) {
  const start = { promises: countPromises, allocation: countAllocation, stop: () => () => ({}) };
  let finish = start.stop();
  process.on('message', (what) => {
    const counted = { ...finish(), statements: shared[STATEMENTS], messages: shared[MESSAGES] };
    process.send(counted, () => {
      shared.fill(0);
      finish = start[what]();
    });
  });
  process.channel.unref();
}
