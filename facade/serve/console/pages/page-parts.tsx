/** Small parts that every page uses: badges, times, sizes, errors, dialogs, and texts that a stranger wrote. */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import {
  type CommandAnswer,
  type CommandAsk,
  ConsoleError,
  type Loaded,
  previewCommand,
  runCommand,
} from './console-client.tsx';

const TONES: Readonly<Record<string, string>> = {
  allow: 'good',
  approved: 'good',
  healthy: 'good',
  ok: 'good',
  ask: 'warn',
  changed: 'warn',
  'not approved': 'warn',
  'start only': 'warn',
  unapproved: 'warn',
  pending: 'warn',
  degraded: 'warn',
  weak: 'warn',
  damaged: 'bad',
  deny: 'bad',
  denied: 'bad',
  error: 'bad',
  killed: 'bad',
  disabled: 'bad',
  unavailable: 'bad',
  suspended: 'bad',
};

/** A word with a colour. The word alone says everything, so no one needs to see the colour. */
export function Badge({ word }: { readonly word: string }): JSX.Element {
  return <span class={`badge ${TONES[word] ?? 'plain'}`}>{word}</span>;
}

/**
 * A text from an agent, a server or a policy. Direction marks and control characters are shown as escapes, so that the
 * text cannot pretend to be another one.
 */
export function Foreign({ text }: { readonly text: string }): JSX.Element {
  return <bdi>{visible(text)}</bdi>;
}

/** The id of a principal, with a link to its page. */
export function AgentLink({ id }: { readonly id: string }): JSX.Element {
  return (
    <a href={`/agents/${encodeURIComponent(id)}`}>
      <Foreign text={id} />
    </a>
  );
}

/** Returns a word as it is typed in a shell. */
export function terminalWord(word: string): string {
  return /^[\w@.:/+-]+$/.test(word) ? word : `'${visible(word).replaceAll("'", "'\\''")}'`;
}

const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]/g;

/** Returns a text with its invisible characters as escapes. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (found) => `\\u{${found.codePointAt(0)?.toString(16) ?? ''}}`);
}

/** A time as in the log and in the terminal: UTC. A narrow page leaves out the year; the title is exact. */
export function Time({ iso }: { readonly iso: string }): JSX.Element {
  const text = timeText(iso);
  if (text === undefined) return <span>{visible(iso)}</span>;
  return (
    <time dateTime={iso} title={iso}>
      <span class="year">{text.slice(0, 5)}</span>
      {text.slice(5)}
    </time>
  );
}

/** Absent for a text that is no time. */
function timeText(iso: string): string | undefined {
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? undefined : `${date.toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

/** Returns a text of Tollgate with its ISO times as `Time` shows them. */
export function withTimes(text: string): string {
  return text.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g, (iso) => timeText(iso) ?? iso);
}

/** Returns a number of bytes for a person. */
export function bytesText(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

/** Returns a number with separators. */
export function countText(count: number): string {
  return count.toLocaleString('en-US');
}

/** Returns a count with its noun: `1 record`, `2,000 records`. */
export function counted(count: number, noun: string): string {
  return `${countText(count)} ${noun}${count === 1 ? '' : 's'}`;
}

/** Shows what failed, and what to do. */
export function Problem({ error }: { readonly error: Error }): JSX.Element {
  return (
    <div class="problem" role="alert">
      <strong>{visible(error.message)}</strong>
      {error instanceof ConsoleError && error.next !== '' && <p>{visible(error.next)}</p>}
      {error instanceof ConsoleError && <small>{error.code}</small>}
    </div>
  );
}

/** Shows loaded data, a problem, or that it is loading. */
export function Shown<Data>({
  loaded,
  children,
}: {
  readonly loaded: Loaded<Data>;
  readonly children: (data: Data) => ComponentChildren;
}): JSX.Element {
  if (loaded.error !== undefined) return <Problem error={loaded.error} />;
  if (loaded.data === undefined) return <p class="quiet">Loading …</p>;
  return <>{children(loaded.data)}</>;
}

/** A section with a heading. */
export function Section({
  title,
  children,
}: {
  readonly title: string;
  readonly children: ComponentChildren;
}): JSX.Element {
  return (
    <section>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

/** Names and values, one below the other. Absent values are left out. */
export function Facts({ facts }: { readonly facts: Readonly<Record<string, ComponentChildren>> }): JSX.Element {
  return (
    <dl>
      {Object.entries(facts)
        .filter(([, value]) => value !== undefined && value !== '' && value !== null)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

/** What a button does: a command with the values of its form, or an act of another kind. `shows`: its command as a text. */
export type Acting =
  | { readonly command: (form: FormData) => CommandAsk }
  | { readonly act: (form: FormData) => Promise<CommandAnswer<unknown>>; readonly shows?: (form: FormData) => string };

/**
 * A button that acts only after a second step: it opens a dialog that says what will happen, with the command that does
 * the same in a terminal.
 */
export function Act({
  label,
  title,
  children,
  done,
  isDanger = false,
  ...acting
}: Acting & {
  readonly label: string;
  readonly title: string;
  readonly children?: ComponentChildren;
  readonly done: () => void;
  readonly isDanger?: boolean;
}): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const form = useRef<HTMLFormElement>(null);
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const [result, setResult] = useState<CommandAnswer<unknown>>();
  const [command, setCommand] = useState<string>();
  const preview = (): void => {
    if (form.current === null) return;
    const data = new FormData(form.current);
    if ('act' in acting) return setCommand(acting.shows?.(data));
    previewCommand(acting.command(data))
      .then(setCommand)
      .catch(() => setCommand(undefined));
  };
  const open = (): void => {
    dialog.current?.showModal();
    preview();
  };
  const run = (event: SubmitEvent): void => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    const data = new FormData(event.currentTarget as HTMLFormElement);
    runAct(acting, data)
      .then(setResult)
      .catch(setError)
      .finally(() => setBusy(false));
  };
  // The page is read again only now, so that the words of the dialog stay while it is open.
  const onClose = (): void => {
    if (result !== undefined) done();
    setResult(undefined);
    setError(undefined);
  };
  return (
    <>
      <button type="button" class={isDanger ? 'danger' : ''} onClick={open}>
        {label}
      </button>
      <dialog ref={dialog} aria-label={visible(title)} onClose={onClose}>
        <form ref={form} onSubmit={run} onInput={preview}>
          <h2>{visible(title)}</h2>
          {children}
          {error !== undefined && <Problem error={error} />}
          {result === undefined && command !== undefined && (
            <p>
              This runs: <code>{visible(command)}</code>
            </p>
          )}
          {result !== undefined && (
            <p role="status">
              Done. In a terminal: <code>{visible(result.command)}</code>
            </p>
          )}
          <div class="buttons">
            <button type="button" onClick={() => dialog.current?.close()}>
              {result === undefined ? 'Cancel' : 'Close'}
            </button>
            {result === undefined && (
              <button type="submit" class={isDanger ? 'danger' : 'primary'} disabled={isBusy}>
                {isBusy ? 'Working …' : label}
              </button>
            )}
          </div>
        </form>
      </dialog>
    </>
  );
}

function runAct(acting: Acting, form: FormData): Promise<CommandAnswer<unknown>> {
  if ('act' in acting) return acting.act(form);
  const { name, parameters } = acting.command(form);
  return runCommand(name, parameters);
}

/** Two texts line by line: what was removed, added, and kept. The longest common part is found by lines. */
export function Difference({ before, after }: { readonly before: string; readonly after: string }): JSX.Element {
  return (
    <Preformatted kind="difference">
      {lineChanges(before.split('\n'), after.split('\n')).map(([sign, line], at) => (
        <span key={at} class={sign === '+' ? 'added' : sign === '-' ? 'removed' : ''}>
          {`${sign} ${visible(line)}\n`}
        </span>
      ))}
    </Preformatted>
  );
}

/** More lines than this are compared by their beginning and end only, so that the page never waits. */
const MAX_LINES = 2000;

/** Returns the lines of both texts with `-`, `+` or a space. */
export function lineChanges(
  before: readonly string[],
  after: readonly string[],
): readonly (readonly ['+' | '-' | ' ', string])[] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let [endBefore, endAfter] = [before.length, after.length];
  while (endBefore > start && endAfter > start && before[endBefore - 1] === after[endAfter - 1]) {
    endBefore -= 1;
    endAfter -= 1;
  }
  const [left, right] = [before.slice(start, endBefore), after.slice(start, endAfter)];
  const middle =
    left.length * right.length > MAX_LINES * MAX_LINES
      ? [...left.map((line) => ['-', line] as const), ...right.map((line) => ['+', line] as const)]
      : commonLines(left, right);
  return [
    ...before.slice(0, start).map((line) => [' ', line] as const),
    ...middle,
    ...before.slice(endBefore).map((line) => [' ', line] as const),
  ];
}

function commonLines(left: readonly string[], right: readonly string[]): (readonly ['+' | '-' | ' ', string])[] {
  const width = right.length + 1;
  const lengths = new Uint32Array((left.length + 1) * width);
  const at = (row: number, column: number): number => lengths[row * width + column] ?? 0;
  for (let row = left.length - 1; row >= 0; row -= 1)
    for (let column = right.length - 1; column >= 0; column -= 1)
      lengths[row * width + column] =
        left[row] === right[column] ? at(row + 1, column + 1) + 1 : Math.max(at(row + 1, column), at(row, column + 1));
  const changes: (readonly ['+' | '-' | ' ', string])[] = [];
  let [row, column] = [0, 0];
  while (row < left.length || column < right.length) {
    if (row < left.length && column < right.length && left[row] === right[column]) {
      changes.push([' ', left[row] ?? '']);
      row += 1;
      column += 1;
    } else if (column >= right.length || (row < left.length && at(row + 1, column) >= at(row, column + 1))) {
      changes.push(['-', left[row] ?? '']);
      row += 1;
    } else {
      changes.push(['+', right[column] ?? '']);
      column += 1;
    }
  }
  return changes;
}

/** JSON with colours by kind. Everything stays text. */
export function Json({ value }: { readonly value: unknown }): JSX.Element {
  const text = typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? '');
  const parts = text.split(/("(?:[^"\\]|\\.)*"(?:\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?)/);
  return (
    <Preformatted kind="json">
      {parts.map((part, at) => (
        <span
          key={at}
          class={at % 2 === 0 ? '' : part.startsWith('"') ? (part.endsWith(':') ? 'key' : 'string') : 'number'}
        >
          {visible(part)}
        </span>
      ))}
    </Preformatted>
  );
}

/** A text with its own line breaks. It scrolls, so the keyboard must reach it (WCAG 2.1.1). */
export function Preformatted({
  kind = '',
  children,
}: {
  readonly kind?: string;
  readonly children: ComponentChildren;
}): JSX.Element {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: see above.
    <pre class={kind} tabIndex={0}>
      {children}
    </pre>
  );
}

/** Calls `listener` for each key that is pressed outside of fields. It returns whether the key did something. */
export function useKeys(listener: (key: string) => boolean): void {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const target = event.target as HTMLElement;
      const isTyping = ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName) || target.closest('dialog') !== null;
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      if (latest.current(event.key)) event.preventDefault();
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, []);
}
