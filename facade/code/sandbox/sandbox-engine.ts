/** Instances of QuickJS in WebAssembly: each with its own memory, which has a limit, and with a clock of its own. */
import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';
import { QuickJSFFI } from '@jitl/quickjs-wasmfile-release-sync/ffi';
import {
  type EmscriptenModuleLoader,
  newQuickJSWASMModuleFromVariant,
  newVariant,
  type QuickJSContext,
  type QuickJSEmscriptenModule,
} from 'quickjs-emscripten-core';
import type { CodeLimits, SandboxProgram } from './sandbox-program.ts';

const require = createRequire(import.meta.url);

const PAGE_BYTES = 65_536;
/** The memory that the WebAssembly module needs at least: 5 MB are the stack, 10 MB are free. */
const FIRST_PAGES = 256;
const OWN_BYTES = 6_500_000;
/** Emscripten asks three times, each time for less, before it reports that there is no memory. */
const GROW_ATTEMPTS = 3;
/** For each byte of this stack, the parser needs up to 32 bytes of the thread's stack. */
const MOST_STACK_BYTES = 1_048_576;

/** Milliseconds since 1970 of the next reading. One thread runs one program at a time. */
let now = 0;

/**
 * Replaces `Date` of this thread, through which QuickJS reads the time: the clock moves only when it is read, and its
 * zone is UTC. Nothing else in the thread may need the time of day.
 */
export function useProgramClock(): void {
  const SystemDate = Date;
  globalThis.Date = class ProgramDate extends SystemDate {
    constructor(...parts: readonly [] | ConstructorParameters<DateConstructor>) {
      super(...((parts.length === 0 ? [ProgramDate.now()] : parts) as [number]));
    }

    static override now(): number {
      return now++;
    }

    override getTimezoneOffset(): number {
      return 0;
    }
  } as DateConstructor;
}

/** One instance, for one program. */
export interface SandboxEngine {
  /** Returns a new context with the limits and the clock of a program. Call it once. */
  readonly open: (program: Pick<SandboxProgram, 'limits' | 'startedAt' | 'seed'>) => QuickJSContext;
  /** Returns true if the program was refused memory at any time, also if it caught the error. */
  readonly isOutOfMemory: () => boolean;
}

/** Instantiates the compiled module. Nothing of an earlier instance can be read in it. */
export async function newEngine(wasm: WebAssembly.Module): Promise<SandboxEngine> {
  let mostPages = FIRST_PAGES;
  let refusals = 0;
  const memory = new WebAssembly.Memory({ initial: FIRST_PAGES, maximum: 32_768 });
  const grow = memory.grow.bind(memory);
  memory.grow = (pages) => {
    if (memory.buffer.byteLength / PAGE_BYTES + pages > mostPages) {
      refusals += 1;
      throw new RangeError('The program has no more memory.');
    }
    const before = grow(pages);
    if (refusals < GROW_ATTEMPTS) refusals = 0;
    return before;
  };
  const loader =
    require('@jitl/quickjs-wasmfile-release-sync/emscripten-module') as EmscriptenModuleLoader<QuickJSEmscriptenModule>;
  const variant = newVariant(
    { type: 'sync', importFFI: async () => QuickJSFFI, importModuleLoader: async () => loader },
    { wasmModule: wasm, wasmMemory: memory },
  );
  const quickJs = await newQuickJSWASMModuleFromVariant(variant);
  return {
    open: ({ limits, startedAt, seed }) => {
      mostPages = Math.max(FIRST_PAGES, pagesFor(limits));
      // A new context reads the clock once, for its random numbers.
      now = createHash('sha256').update(seed).digest().readUIntBE(0, 5);
      const context = quickJs.newContext();
      context.runtime.setMaxStackSize(Math.min(limits.stackBytes, MOST_STACK_BYTES));
      now = startedAt;
      return context;
    },
    isOutOfMemory: () => refusals >= GROW_ATTEMPTS,
  };
}

function pagesFor({ memoryBytes }: CodeLimits): number {
  return Math.min(32_768, Math.ceil((OWN_BYTES + memoryBytes) / PAGE_BYTES));
}
