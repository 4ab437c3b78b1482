/** A whole facade for tests: a folder, a configuration, the connected parts, and calls through them. */

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseJsonDoc } from '../../adapters/rpc/message-parser.ts';
import { errorJson, joinText } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
// Not facade/main.ts: in dist, that file only starts the bundle, and the economics run from there.
import { assembleFacade } from '../../facade/app.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { principalForStdio } from '../../facade/config/stdio-identity.ts';
import type { AssembledFacade } from '../../facade/runtime/assembled-facade.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { approveAll } from '../consent/approve-servers.ts';

/** The answer to a call, of either kind. */
export interface Answer {
  readonly result?: ToolResult;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown };
  /** The code of the error table, or `''`. */
  readonly code: string;
  /** All texts, joined. */
  readonly text: string;
}

/** A record as it is in the log. */
export type Recorded = Readonly<Record<string, unknown>>;

/** The types of the records that calls write. */
const CALL_RECORDS: readonly unknown[] = ['intent', 'outcome', 'decision', 'budget'];

/** A running facade of a test. */
export interface TestFacade {
  readonly folder: string;
  readonly assembled: AssembledFacade;
  open(principal: string): Session;
  call(
    session: Session,
    name: string,
    args: unknown,
    more?: { signal?: AbortSignal; meta?: Record<string, unknown>; text?: string },
  ): Promise<Answer>;
  list(session: Session): Promise<readonly { name: string; [key: string]: unknown }[]>;
  /** Returns all records of the log, oldest first. */
  records(): readonly Recorded[];
  /** Returns the records of calls, oldest first. A server may change its state between two of them at any time. */
  callRecords(): readonly Recorded[];
  close(): Promise<void>;
}

/** How a test starts a facade. */
export interface StartOptions {
  /** Files to write next to tollgate.yaml. The folder `workspace` always exists. */
  readonly files?: Record<string, string>;
  readonly env?: Record<string, string>;
  /** Default: a new folder, removed at the end. */
  readonly folder?: string;
  /** Called with each line for the person who started the facade. */
  readonly onLog?: (line: string) => void;
  /** The servers that are approved. Default: all. */
  readonly approved?: readonly string[];
}

/** Starts a facade with a configuration. */
export async function startFacade(config: string, options: StartOptions = {}): Promise<TestFacade> {
  const folder = options.folder ?? mkdtempSync(path.join(tmpdir(), 'tollgate-test-'));
  mkdirSync(path.join(folder, 'workspace'), { recursive: true });
  for (const [name, text] of Object.entries({ ...options.files, 'tollgate.yaml': config })) {
    mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
    writeFileSync(path.join(folder, name), text);
  }
  const loaded = load(path.join(folder, 'tollgate.yaml'), { ...process.env, ...options.env });
  await approveAll(loaded, options.approved);
  const assembled = await assembleFacade(loaded, options.onLog === undefined ? {} : { onLog: options.onLog });
  const { gateway } = assembled;
  const records = (): readonly Recorded[] =>
    readdirSync(loaded.audit.folder)
      .filter((name) => name.endsWith('.jsonl'))
      .sort()
      .flatMap((name) =>
        readFileSync(path.join(loaded.audit.folder, name), 'utf8')
          .trimEnd()
          .split('\n')
          .filter((line) => line !== '')
          .map((line) => JSON.parse(line) as Recorded),
      );
  return {
    folder,
    assembled,
    open: (principal) =>
      gateway.openSession(principalForStdio(loaded, { user: 'nobody-else', as: principal }), 'stdio'),
    call: async (session, name, args, more = {}) => {
      const doc = parseJsonDoc(more.text ?? JSON.stringify(args));
      return read(
        await gateway.perform(session, {
          name,
          args: doc,
          signal: more.signal ?? new AbortController().signal,
          ...(more.meta === undefined ? {} : { meta: more.meta }),
        }),
      );
    },
    list: async (session) => {
      const reply = await gateway.list(session, 'tools/list', session.closed);
      if (reply.kind === 'error') throw new Error(reply.error.message);
      return (JSON.parse(joinText(reply.text)) as { tools: { name: string }[] }).tools;
    },
    records,
    callRecords: () => records().filter(({ type }) => CALL_RECORDS.includes(type)),
    close: async () => {
      await gateway.close();
      if (options.folder === undefined) rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

/** Loads a configuration. If it is invalid, the test fails with its problems. */
function load(file: string, env: Record<string, string | undefined>): ReturnType<typeof loadConfig> {
  try {
    return loadConfig(file, { env, home: '/home/nobody-at-all' });
  } catch (thrown) {
    if (thrown instanceof TollgateError) throw new Error(`${thrown.message} ${JSON.stringify(thrown.data)}`);
    throw thrown;
  }
}

function read(reply: Awaited<ReturnType<AssembledFacade['gateway']['perform']>>): Answer {
  if (reply.kind === 'error')
    return {
      error: JSON.parse(errorJson(reply.error)) as NonNullable<Answer['error']>,
      code: String((reply.error.data as { code?: unknown } | undefined)?.code ?? ''),
      text: reply.error.message,
    };
  const result = JSON.parse(joinText(reply.text)) as ToolResult;
  return {
    result,
    code: String(result._meta?.['tollgate/code'] ?? ''),
    text: (result.content ?? []).map((item) => (typeof item.text === 'string' ? item.text : '')).join('\n'),
  };
}
