/** Reads what a person types or a program pipes in. It shows no secret value, and a missing answer means no. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Io } from './command-io.ts';

const MAX_BYTES = 64 * 1024;
const [CTRL_C, CTRL_D, BACKSPACE, DELETE] = ['\u0003', '\u0004', '\b', '\u007f'];

/** The parts of a terminal's input that are used. */
type TerminalInput = NodeJS.ReadableStream & { readonly isTTY?: boolean; setRawMode?(raw: boolean): unknown };

/** The streams of a question, and what ends it. */
type PromptIo = Pick<Io, 'stdin' | 'stderr'> & Partial<Pick<Io, 'stopped'>>;

/** Returns whether a person is at the input. */
export function isInteractive(io: Pick<Io, 'stdin'>): boolean {
  return (io.stdin as TerminalInput).isTTY === true;
}

/**
 * Reads one hidden line from the terminal. `question` goes to stderr. Throws CANCELLED on Ctrl-C and at the end of the
 * input.
 */
export async function askHidden(io: PromptIo, question: string): Promise<string> {
  const input = io.stdin as TerminalInput;
  io.stderr(question);
  input.setRawMode?.(true);
  try {
    return await readLine(io);
  } finally {
    input.setRawMode?.(false);
    input.pause();
    io.stderr('\n');
  }
}

function readLine({ stdin, stopped }: PromptIo): Promise<string> {
  const input = stdin as TerminalInput;
  return new Promise((resolve, reject) => {
    let typed = '';
    const finish = (settle: () => void): void => {
      input.off('data', take).off('end', giveUp);
      settle();
    };
    const giveUp = (): void => finish(() => reject(cancelled()));
    // Outside raw mode, Ctrl-C arrives as a signal.
    void stopped?.then(giveUp);
    const take = (chunk: Buffer | string): void => {
      for (const letter of chunk.toString()) {
        if (letter === '\r' || letter === '\n') return finish(() => resolve(typed));
        if (letter === CTRL_C || letter === CTRL_D) return giveUp();
        typed = letter === BACKSPACE || letter === DELETE ? [...typed].slice(0, -1).join('') : typed + letter;
      }
    };
    input.on('data', take).on('end', giveUp).resume();
  });
}

/**
 * Reads all of a piped input, without one line end at its end. Throws USAGE for more than 64 KiB or text that is not
 * UTF-8.
 */
export async function readPiped(io: Pick<Io, 'stdin'>): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of io.stdin) {
    const bytes = Buffer.from(chunk as string | Uint8Array);
    size += bytes.length;
    if (size > MAX_BYTES)
      throw new TollgateError('USAGE', {
        detail: 'The input is larger than 64 KiB.',
        next: 'Pipe in only the value.',
      });
    chunks.push(bytes);
  }
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: false })
      .decode(Buffer.concat(chunks))
      .replace(/\r?\n$/, '');
  } catch {
    throw new TollgateError('USAGE', {
      detail: 'The input is not UTF-8 text.',
      next: 'Encode a binary value, for example as base64.',
    });
  }
}

/** Asks a yes-or-no question. Every answer but yes means no. Throws CANCELLED as `askHidden`. */
export async function askYes(io: PromptIo, question: string): Promise<boolean> {
  io.stderr(`${question} [y/N] `);
  try {
    return /^y(es)?$/i.test((await readLine(io)).trim());
  } catch (thrown) {
    // The line has no end yet, so the next text would follow the question.
    io.stderr('\n');
    throw thrown;
  } finally {
    io.stdin.pause();
  }
}

/**
 * Asks for one key, without Enter. Returns the first of `keys` that is typed; other keys are ignored. What was typed
 * ahead does not answer the next question. Throws CANCELLED on Ctrl-C and at the end of the input.
 */
export async function askKey(io: PromptIo, question: string, keys: string): Promise<string> {
  const input = io.stdin as TerminalInput;
  io.stderr(`${question} [${[...keys].join('/')}] `);
  input.setRawMode?.(true);
  let key = '';
  try {
    key = await readKey(io, keys);
    return key;
  } finally {
    input.setRawMode?.(false);
    input.pause();
    io.stderr(`${key}\n`);
  }
}

function readKey({ stdin, stopped }: PromptIo, keys: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const finish = (settle: () => void): void => {
      stdin.off('data', take).off('end', giveUp);
      settle();
    };
    const giveUp = (): void => finish(() => reject(cancelled()));
    void stopped?.then(giveUp);
    const take = (chunk: Buffer | string): void => {
      for (const letter of chunk.toString().toLowerCase()) {
        if (letter === CTRL_C || letter === CTRL_D) return giveUp();
        if (keys.includes(letter)) return finish(() => resolve(letter));
      }
    };
    stdin.on('data', take).on('end', giveUp).resume();
  });
}

function cancelled(): TollgateError {
  return new TollgateError('CANCELLED', {
    detail: 'You cancelled the prompt, so nothing was done.',
    next: 'Run it again.',
  });
}
