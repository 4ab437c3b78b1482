/** What the page of the console can ask: the log, the present state, drafts of the policy, and commands. */
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Awaitable } from '../../../catalogs/text/awaitable.ts';
import { replaceFile } from '../../config/reading/file-replacement.ts';
import { type CommandAnswerData, type ConsoleCommands, commandText, commandWords } from './console-commands.ts';
import type { ConsoleRequest, ConsoleRoutes } from './console-listener.ts';

/** A person's approval of a call, with the binding that was shown. */
export interface ConsoleApproval {
  readonly id: string;
  readonly binding: string;
  readonly scope: string;
  readonly loop?: { readonly max: number; readonly where: string; readonly within: string };
}

/** The questions that the console answers itself, because their answers are asked for again and again. */
export interface ConsoleSources {
  /** Searches the log: filters as texts by name, and `before`, the place to continue at. Newest first. */
  records(query: Readonly<Record<string, string>>): Awaitable<object>;
  /** What happened in a session, in order. */
  session(id: string): Awaitable<object>;
  /** What is shown now. */
  now(): Promise<object>;
  principals(): Awaitable<object>;
  proof(): Awaitable<object>;
  /** The files of the policy: absolute path by the name that people read. */
  policyFiles(): ReadonlyMap<string, string>;
  /** Approves as a person at the terminal of this console does. */
  approve(approval: ConsoleApproval): Promise<CommandAnswerData>;
}

/** How often the present state is read while a page shows it, ms. */
const NOW_MS = 1000;

/** Returns the routes. `owner`: the principal of the person who opened the console. */
export function consoleRoutes(
  sources: ConsoleSources,
  commands: ConsoleCommands,
  owner: string | undefined,
): ConsoleRoutes {
  const policy = new PolicyDrafts(sources, commands);
  return {
    'GET records': async ({ query }) => sources.records(Object.fromEntries(query)),
    'GET session': async ({ query }) => sources.session(query.get('id') ?? ''),
    'GET now': ({ gone }) => whatChanges(() => sources.now(), gone),
    'GET principals': async () => sources.principals(),
    'GET proof': async () => sources.proof(),
    'GET source': async ({ query }) => policy.read(query.get('name') ?? ''),
    'POST run': async ({ body: { name, parameters }, gone }) =>
      commands.run(commandWords(String(name), objectOf(parameters), owner), gone),
    'POST preview': async ({ body: { name, parameters } }) => ({
      command: commandText(commandWords(String(name), objectOf(parameters), owner)),
    }),
    'POST approve': async ({ body }) => sources.approve(approvalOf(body)),
    'POST draft': async (request) => policy.ask(request),
    'POST save': async (request) => policy.save(request),
  };
}

/** Yields a value, and again whenever it differs. */
async function* whatChanges(read: () => Promise<object>, gone: AbortSignal): AsyncGenerator<object> {
  let before = '';
  while (!gone.aborted) {
    const value = await read();
    const text = JSON.stringify(value);
    if (text !== before) yield value;
    before = text;
    await pause(NOW_MS, undefined, { signal: gone }).catch(() => undefined);
  }
}

function objectOf(value: unknown): Readonly<Record<string, unknown>> {
  if (value === undefined) return {};
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new TollgateError('WIRE_PARAMS', { detail: 'parameters is no object.', next: 'Reload the page.' });
}

const HASH = /^[0-9a-f]{64}$/;

/** Checks an approval: it names all of what was shown. Throws WIRE_PARAMS. */
function approvalOf(body: Readonly<Record<string, unknown>>): ConsoleApproval {
  const { id, binding, scope, loop } = body;
  const isRight =
    typeof id === 'string' &&
    /^[\w-]{1,64}$/.test(id) &&
    typeof binding === 'string' &&
    HASH.test(binding) &&
    typeof scope === 'string' &&
    ['call', 'group', 'server'].includes(scope);
  if (!isRight)
    throw new TollgateError('WIRE_PARAMS', {
      detail: 'An approval needs the id of a request, its whole binding and a scope.',
      next: 'Reload the page.',
    });
  if (loop === undefined) return { id, binding, scope };
  const { max, where, within } = objectOf(loop);
  if (!Number.isSafeInteger(max) || typeof where !== 'string' || typeof within !== 'string')
    throw new TollgateError('WIRE_PARAMS', { detail: 'A loop needs max, where and within.', next: 'Reload the page.' });
  return { id, binding, scope, loop: { max: max as number, where, within } };
}

/** What can be done with a draft: the commands of `tollgate policy`. */
const TRIES = ['check', 'test', 'replay'] as const;

/** A larger file is not edited in a page. */
const MAX_SOURCE_BYTES = 1024 * 1024;

/** Reads, tries and writes the files of the policy. Only files that the configuration names can be read or written. */
class PolicyDrafts {
  readonly #sources: ConsoleSources;
  readonly #commands: ConsoleCommands;

  constructor(sources: ConsoleSources, commands: ConsoleCommands) {
    this.#sources = sources;
    this.#commands = commands;
  }

  read(source: string): object {
    const text = readText(this.#fileOf(source));
    return { source, text, digest: digestOf(text) };
  }

  /** Checks or tests the policy, or replays recorded calls, with a draft in the place of its source. */
  async ask({ body: { what, source, text }, gone }: ConsoleRequest): Promise<CommandAnswerData> {
    const file = this.#fileOf(String(source));
    const act = TRIES.find((one) => one === what);
    if (act === undefined) throw refused('A draft can be checked, tested or replayed.', 'Reload the page.');
    return withDraft(file, String(text), (draft) =>
      this.#commands.run(['policy', act, `--against=${draft}`, `--instead-of=${file}`, '--json'], gone),
    );
  }

  /** Writes a file that the checker accepts and that no one has changed since it was read. */
  async save(request: ConsoleRequest): Promise<CommandAnswerData> {
    const { source, text, digest } = request.body;
    const file = this.#fileOf(String(source));
    const checked = await this.ask({ ...request, body: { what: 'check', source, text } });
    if (checked.exit !== 0 && !(await this.#isBetter(checked, request)))
      throw refused('The checker finds errors with the draft, so it was not saved.', 'Correct it.');
    if (digestOf(readText(file)) !== digest)
      throw refused('The file has changed since you opened it, so nothing was saved.', 'Open it again.');
    replaceFile(file, String(text));
    const messages = 'Saved. If an agent can write to this file, accept the change: tollgate reload';
    return { command: `$EDITOR ${String(source)}`, exit: 0, messages };
  }

  /** Whether the errors with the draft are errors of the policy already, in other files: one is corrected at a time. */
  async #isBetter(checked: CommandAnswerData, { body: { source }, gone }: ConsoleRequest): Promise<boolean> {
    const found = errorsIn(checked);
    if (found.length === 0) return false;
    const before = new Set(errorsIn(await this.#commands.run(['policy', 'check', '--json'], gone)).map(textOf));
    return found.every((error) => error.file !== source && before.has(textOf(error)));
  }

  #fileOf(source: string): string {
    const file = this.#sources.policyFiles().get(source);
    if (file === undefined) throw refused('This is no file of the policy.', 'Reload the page.');
    return file;
  }
}

interface CheckError {
  readonly file?: string;
  readonly severity?: string;
  readonly message?: string;
}

function errorsIn({ data }: CommandAnswerData): readonly CheckError[] {
  const { findings = [] } = (data ?? {}) as { readonly findings?: readonly CheckError[] };
  return findings.filter(({ severity }) => severity === 'error');
}

function textOf({ file, message }: CheckError): string {
  return JSON.stringify([file, message]);
}

function refused(detail: string, next: string): TollgateError {
  return new TollgateError('WIRE_PARAMS', { detail, next });
}

function readText(file: string): string {
  if (statSync(file).size > MAX_SOURCE_BYTES)
    throw refused('The file is larger than 1 MB.', 'Edit it with another editor.');
  return readFileSync(file, 'utf8');
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Writes a draft to a folder of its own, under the name of its file, and removes both afterwards. */
async function withDraft<T>(file: string, text: string, work: (draft: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-draft-'));
  try {
    const draft = path.join(folder, path.basename(file));
    writeFileSync(draft, text, { mode: 0o600 });
    return await work(draft);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
