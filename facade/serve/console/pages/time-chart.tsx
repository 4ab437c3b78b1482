/** A chart over time, and the same numbers as a table for readers who do not see it. */
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';

/** One line of a chart. `colour`: a custom property of the style sheet. */
export interface ChartLine {
  readonly name: string;
  readonly colour: string;
  readonly values: readonly number[];
}

const HEIGHT = 180;

/** Hours and minutes, UTC. */
function clockText(seconds: number): string {
  return new Date(seconds * 1000).toISOString().slice(11, 16);
}

/** Draws lines over times (seconds since 1970). */
export function TimeChart({
  label,
  times,
  lines,
}: {
  readonly label: string;
  readonly times: readonly number[];
  readonly lines: readonly ChartLine[];
}): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  useEffect(() => {
    const element = frame.current;
    if (element === null) return undefined;
    const style = getComputedStyle(element);
    const axis = { stroke: style.getPropertyValue('--quiet'), grid: { stroke: style.getPropertyValue('--line') } };
    plot.current = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        axes: [
          { ...axis, values: (_plot, times) => times.map(clockText) },
          { ...axis, size: 48 },
        ],
        series: [
          {},
          ...lines.map(({ name, colour }) => ({
            label: name,
            stroke: style.getPropertyValue(colour),
            width: 2,
            points: { show: false },
          })),
        ],
      },
      [[...times], ...lines.map(({ values }) => [...values])],
      element,
    );
    const resize = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    resize.observe(element);
    return () => {
      resize.disconnect();
      plot.current?.destroy();
    };
  }, [lines.length]);
  useEffect(() => {
    plot.current?.setData([[...times], ...lines.map(({ values }) => [...values])]);
  }, [times, lines]);
  return (
    <figure>
      <div ref={frame} aria-hidden="true" />
      <figcaption>
        {lines.map(({ name, colour, values }) => (
          <span key={name}>
            <i style={{ background: `var(${colour})` }} aria-hidden="true" /> {name}{' '}
            {values.reduce((sum, value) => sum + value, 0)}
          </span>
        ))}
        <span class="quiet">{label}</span>
      </figcaption>
    </figure>
  );
}
