/** A table that draws only the rows in view, however many there are. */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';

/**
 * One column: its heading, its cell, and whether a narrow page leaves it out. A column that `shrinks` takes the width
 * that the others leave, so that a long name cuts no number.
 */
export interface Column<Row> {
  readonly name: string;
  readonly cell: (row: Row) => ComponentChildren;
  readonly isWide?: boolean;
  readonly shrinks?: boolean;
}

const ROW_HEIGHT = 34;
/** Rows that are drawn above and below the view. */
const AROUND = 12;

/**
 * Shows rows of equal height. The arrow keys, `j` and `k` move between rows, Enter opens one. `onEnd` is called when the
 * last rows come into view.
 */
export function VirtualTable<Row>({
  label,
  columns,
  rows,
  keyOf,
  href,
  onEnd,
  empty,
}: {
  readonly label: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row) => string;
  readonly href?: (row: Row) => string;
  readonly onEnd?: () => void;
  readonly empty: string;
}): JSX.Element {
  const frame = useRef<HTMLElement>(null);
  const { route } = useLocation();
  const [view, setView] = useState({ first: 0, count: 40 });
  const [active, setActive] = useState(0);
  const look = (): void => {
    const element = frame.current;
    if (element === null) return;
    const first = Math.max(0, Math.floor(element.scrollTop / ROW_HEIGHT) - AROUND);
    const count = Math.ceil(element.clientHeight / ROW_HEIGHT) + 2 * AROUND;
    setView((before) => (before.first === first && before.count === count ? before : { first, count }));
    if (element.scrollTop + element.clientHeight > element.scrollHeight - ROW_HEIGHT * AROUND) onEnd?.();
  };
  useEffect(look, [rows]);
  const move = (to: number): void => {
    const next = Math.min(Math.max(0, to), rows.length - 1);
    const element = frame.current;
    if (element === null) return;
    const top = next * ROW_HEIGHT;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + 3 * ROW_HEIGHT > element.scrollTop + element.clientHeight)
      element.scrollTop = top + 3 * ROW_HEIGHT - element.clientHeight;
    setActive(next);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const steps: Readonly<Record<string, number>> = {
      ArrowDown: 1,
      j: 1,
      ArrowUp: -1,
      k: -1,
      PageDown: 20,
      PageUp: -20,
    };
    const step = steps[event.key];
    if (step !== undefined) {
      event.preventDefault();
      move(active + step);
    } else if (event.key === 'Enter' && event.target === frame.current) {
      const row = rows[active];
      if (row !== undefined && href !== undefined) route(href(row));
    }
  };
  const shown = rows.slice(view.first, view.first + view.count);
  if (rows.length === 0) return <p class="quiet">{empty}</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a part that scrolls must be reachable by the keyboard (WCAG 2.1.1).
    <section class="table" ref={frame} tabIndex={0} aria-label={label} onScroll={look} onKeyDown={onKeyDown}>
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => (
              <th key={column.name} scope="col" class={classOf(column)}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {view.first > 0 && (
            <tr style={{ height: `${view.first * ROW_HEIGHT}px` }}>
              <td colSpan={columns.length} />
            </tr>
          )}
          {shown.map((row, at) => (
            <tr
              key={keyOf(row)}
              aria-rowindex={view.first + at + 2}
              class={view.first + at === active ? 'active' : ''}
              onClick={() => setActive(view.first + at)}
            >
              {columns.map((column, place) => (
                <td key={column.name} class={classOf(column)}>
                  {place === 0 && href !== undefined ? <a href={href(row)}>{column.cell(row)}</a> : column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
          {view.first + shown.length < rows.length && (
            <tr style={{ height: `${(rows.length - view.first - shown.length) * ROW_HEIGHT}px` }}>
              <td colSpan={columns.length} />
            </tr>
          )}
        </tbody>
      </table>
    </section>
  );
}

function classOf<Row>({ isWide, shrinks }: Column<Row>): string {
  return [isWide === true && 'wide', shrinks === true && 'shrinks'].filter(Boolean).join(' ');
}
