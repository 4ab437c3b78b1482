/** Formats metrics (Prometheus text format 0.0.4): families with their help and type. */

/** The type of a family. */
export type FamilyType = 'counter' | 'gauge' | 'histogram';

/** Upper bounds of the duration buckets, seconds (semantic conventions for MCP, metrics). */
export const BUCKETS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300];

/** A histogram of durations, in seconds. */
export interface DurationHistogram {
  /** Counts by bucket, not cumulative. */
  readonly buckets: number[];
  sum: number;
  count: number;
}

/** Returns a histogram without durations. */
export function emptyHistogram(): DurationHistogram {
  return { buckets: BUCKETS.map(() => 0), sum: 0, count: 0 };
}

/** Adds one duration. */
export function observe(durations: DurationHistogram, seconds: number): void {
  const bucket = BUCKETS.findIndex((bound) => seconds <= bound);
  if (bucket !== -1) durations.buckets[bucket] = (durations.buckets[bucket] ?? 0) + 1;
  durations.sum += seconds;
  durations.count += 1;
}

/** Returns one family; `samples` are its lines without the name: labels in braces, or nothing, and the value. */
export function metricFamily(
  name: string,
  [type, help]: readonly [FamilyType, string],
  samples: Iterable<readonly [labels: string, value: number]>,
): readonly string[] {
  return [
    `# HELP ${name} ${help}`,
    `# TYPE ${name} ${type}`,
    ...[...samples].map(([labels, value]) => `${name}${labels === '' ? '' : `{${labels}}`} ${value}`),
  ];
}

/** Returns a family with one value and no labels. */
export function singleMetric(name: string, described: readonly [FamilyType, string], value: number): readonly string[] {
  return metricFamily(name, described, [['', value]]);
}

/** Returns one family of histograms, by the labels of each. */
export function histograms(
  name: string,
  help: string,
  all: Iterable<readonly [labels: string, durations: DurationHistogram]>,
): readonly string[] {
  const lines = [...all].flatMap(([labels, { buckets, sum, count }]) => {
    let cumulative = 0;
    const bucketLines = BUCKETS.map((bound, index) => {
      cumulative += buckets[index] ?? 0;
      return `${name}_bucket{${labels},le="${bound}"} ${cumulative}`;
    });
    return [
      ...bucketLines,
      `${name}_bucket{${labels},le="+Inf"} ${count}`,
      `${name}_sum{${labels}} ${sum.toFixed(6)}`,
      `${name}_count{${labels}} ${count}`,
    ];
  });
  return [`# HELP ${name} ${help}`, `# TYPE ${name} histogram`, ...lines];
}

/** Returns the labels of a sample, escaped. */
export function labelled(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(
      ([name, value]) => `${name}="${value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')}"`,
    )
    .join(',');
}

interface MetricFamily {
  /** Its help and its type. */
  readonly head: Set<string>;
  readonly samples: string[];
}

/** Joins the metrics of several processes. A label tells them apart, and each family is described once. */
export function joinMetrics(label: string, texts: ReadonlyMap<string, string>): string {
  const families = new Map<string, MetricFamily>();
  for (const [value, text] of texts) {
    const own = labelled({ [label]: value });
    let family: MetricFamily = { head: new Set(), samples: [] };
    for (const line of text.split('\n')) {
      const name = /^# (?:HELP|TYPE) (\S+)/.exec(line)?.[1];
      if (name !== undefined) {
        family = families.get(name) ?? { head: new Set(), samples: [] };
        families.set(name, family);
        family.head.add(line);
      } else if (line !== '') family.samples.push(withLabel(line, own));
    }
  }
  return [...families.values()]
    .flatMap(({ head, samples }) => [...head, ...samples])
    .join('\n')
    .concat('\n');
}

/** Adds a label to a sample, which is a name, labels in braces or none, and a value. */
function withLabel(sample: string, label: string): string {
  const end = /[{ ]/.exec(sample)?.index ?? sample.length;
  return sample[end] === '{'
    ? `${sample.slice(0, end)}{${label},${sample.slice(end + 1)}`
    : `${sample.slice(0, end)}{${label}}${sample.slice(end)}`;
}
