/** What the page asks of the console: data, streams and commands. Every request carries the token of the page. */
import { useEffect, useRef, useState } from 'preact/hooks';

const TOKEN = 'tollgate-page';

/** A refusal of the console, in its words. */
export class ConsoleError extends Error {
  readonly code: string;
  readonly next: string;

  constructor({ code, message, next }: { readonly code: string; readonly message: string; readonly next: string }) {
    super(message);
    this.code = code;
    this.next = next;
  }
}

/** What a command of the terminal answered. */
export interface CommandAnswer<Data> {
  /** As it is typed in a terminal. */
  readonly command: string;
  readonly exit: number;
  readonly data?: Data;
  readonly messages: string;
}

let onSignedOut = (): void => undefined;

/** Sets what happens when the session has ended. */
export function whenSignedOut(listener: () => void): void {
  onSignedOut = listener;
}

/** Whether this browser has the token of a session, which may have ended. */
export function hasToken(): boolean {
  return localStorage.getItem(TOKEN) !== null;
}

/** Exchanges the code of the terminal for a session. Throws ConsoleError. */
export async function signIn(code: string): Promise<void> {
  const { page } = await request<{ readonly page: string }>('sign-in', { code });
  localStorage.setItem(TOKEN, page);
}

/** Ends the session. */
export async function signOut(): Promise<void> {
  await request('sign-out', {}).catch(() => undefined);
  localStorage.removeItem(TOKEN);
  onSignedOut();
}

/** Asks for data. With a body it is a POST request. Throws ConsoleError. */
export async function request<Data>(path: string, body?: object, signal?: AbortSignal): Promise<Data> {
  const response = await ask(path, body, signal);
  return (await response.json()) as Data;
}

async function ask(path: string, body?: object, signal?: AbortSignal): Promise<Response> {
  const response = await fetch(`/api/${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: {
      'x-tollgate-page': localStorage.getItem(TOKEN) ?? '',
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
    ...(signal !== undefined && { signal }),
  }).catch((thrown: unknown) => {
    if (signal?.aborted === true) throw thrown;
    throw new ConsoleError({
      code: 'CONSOLE_UNAVAILABLE',
      message: 'The console does not answer.',
      next: 'Look at its terminal, and start it again with: tollgate console',
    });
  });
  if (response.ok) return response;
  const { error } = (await response.json()) as { readonly error: ConstructorParameters<typeof ConsoleError>[0] };
  if (response.status === 401 && path !== 'sign-in') {
    localStorage.removeItem(TOKEN);
    onSignedOut();
  }
  throw new ConsoleError(error);
}

/**
 * Runs a command of the console. Throws ConsoleError, also for a command that was refused: with the two lines that the
 * terminal would show.
 */
export async function runCommand<Data>(
  name: string,
  parameters: Readonly<Record<string, string | readonly string[]>> = {},
  accepts: readonly number[] = [0],
): Promise<CommandAnswer<Data>> {
  const answer = await request<CommandAnswer<Data>>('run', { name, parameters });
  if (accepts.includes(answer.exit)) return answer;
  throw new ConsoleError(refusalIn(answer));
}

/** A command of the console with its parameters, before it runs. */
export interface CommandAsk {
  readonly name: string;
  readonly parameters?: Readonly<Record<string, string | readonly string[]>>;
}

/** Returns a command as it is typed in a terminal, and runs nothing. Throws ConsoleError for a wrong parameter. */
export async function previewCommand(asked: CommandAsk): Promise<string> {
  return (await request<{ readonly command: string }>('preview', asked)).command;
}

/** Runs a command and returns its data. Throws as `runCommand`. */
export async function commandData<Data>(...asked: Parameters<typeof runCommand>): Promise<Data> {
  const answer = await runCommand<Data>(...asked);
  if (answer.data === undefined) throw new ConsoleError(refusalIn(answer));
  return answer.data;
}

/** With --json, a refusal is one JSON object on stderr. */
function refusalIn({ messages, exit }: CommandAnswer<unknown>): ConstructorParameters<typeof ConsoleError>[0] {
  const start = messages.indexOf('{');
  try {
    const { error } = JSON.parse(messages.slice(start)) as { error: { code: string; message: string; next: string } };
    return error;
  } catch {
    return { code: `EXIT ${exit}`, message: messages.trim() || 'The command failed.', next: '' };
  }
}

/** Something that is loaded: data, or why there is none. `reload` asks again and keeps what is shown until then. */
export interface Loaded<Data> {
  readonly data?: Data;
  readonly error?: Error;
  readonly reload: () => void;
}

/** Loads when `key` changes. An answer that comes after a newer question is dropped. */
export function useLoaded<Data>(key: string, load: (signal: AbortSignal) => Promise<Data>): Loaded<Data> {
  const [state, setState] = useState<{ readonly key?: string; readonly data?: Data; readonly error?: Error }>({});
  const [times, setTimes] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    const over = new AbortController();
    latest
      .current(over.signal)
      .then((data) => !over.signal.aborted && setState({ key, data }))
      .catch((error: Error) => !over.signal.aborted && setState({ key, error }));
    return () => over.abort();
  }, [key, times]);
  const isCurrent = state.key === key;
  return {
    ...(isCurrent && state.data !== undefined && { data: state.data }),
    ...(isCurrent && state.error !== undefined && { error: state.error }),
    reload: () => setTimes((before) => before + 1),
  };
}

/** Reads a stream of JSON lines while the component is shown. Begins again a second after it broke. */
export function useStream<Data>(path: string): Data | undefined {
  const [data, setData] = useState<Data>();
  useEffect(() => {
    const over = new AbortController();
    void (async () => {
      while (!over.signal.aborted) {
        await readLines(path, over.signal, (line) => setData(line as Data)).catch(() => undefined);
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
    })();
    return () => over.abort();
  }, [path]);
  return data;
}

async function readLines(path: string, signal: AbortSignal, onLine: (line: unknown) => void): Promise<void> {
  const response = await ask(path, undefined, signal);
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (let part = await reader?.read(); part !== undefined && !part.done; part = await reader?.read()) {
    const lines = (rest + part.value).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line !== '') onLine(JSON.parse(line));
  }
}
