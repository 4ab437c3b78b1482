/** Writes the comparison: a table for a terminal, and the page docs/conformance.md. */
import { type Cell, passes, type Row } from './comparison.ts';

const WIDTH = 100;
const INTRODUCTION = `# Conformance

\`npm run conformance\` wrote this page. It runs the official suite, \`@modelcontextprotocol/conformance\`, against its fixture
directly, and against the same fixture behind \`tollgate serve\`. The policy allows by kind, verb and name, and refuses everything else.
Every call is recorded. There is no list of expected failures.

A cell has the checks that passed and all checks; a check that is repeated counts once. *Difference* is empty if Tollgate gives what the fixture gives. Scenarios
with \`*\` are not scored: they are extensions, newer than the revision, or the fixture itself cannot pass them.

A pass can prove nothing: an empty list has a valid form, and some scenarios accept any error. So the command also compares each
answer with the answer of the fixture, and the audit log with the requests. A pass that differs is *hollow*, and counts as a failure.

- Client scenarios test Tollgate as a client. *Direct* is then the client of the official SDK.
- HTTP and stdio are how Tollgate reaches the fixture. The suite itself speaks HTTP only.
`;

/** How a run ended. */
export interface Totals {
  readonly scenarios: number;
  readonly passed: number;
}

/** Counts the scored scenarios of one target that passed. */
export function totalsOf(rows: readonly Row[], pick: (row: Row) => Cell | undefined): Totals {
  const cells = rows.flatMap((row) => (row.scored ? [pick(row)] : [])).filter((cell) => cell !== undefined);
  return { scenarios: cells.length, passed: cells.filter(passes).length };
}

/** Returns the page. It has no times and no ports, so two runs give the same page. */
export function pageOf(rows: readonly Row[]): string {
  const sections = groups(rows).map(([title, group]) => {
    const upstreams = Object.keys(group[0]?.through ?? {});
    const head = ['scenario', 'direct', ...upstreams.map((name) => `through Tollgate, ${name}`), 'difference'];
    const lines = group.map((row) => [
      `\`${row.scenario}\`${row.scored ? '' : ' *'}`,
      countOf(row.direct),
      ...upstreams.map((name) => countOf(row.through[name])),
      inCell(differencesOf(row)),
    ]);
    const sums = ['direct', ...upstreams].map((name) => {
      const { passed, scenarios } = totalsOf(group, (row) => (name === 'direct' ? row.direct : row.through[name]));
      return `${passed}/${scenarios}`;
    });
    return [
      `## ${title}`,
      '',
      tableLine(head),
      tableLine(head.map(() => '---')),
      ...lines.map(tableLine),
      tableLine(['**scored scenarios that pass**', ...sums, '']),
    ].join('\n');
  });
  return `${INTRODUCTION}\n${sections.join('\n\n')}\n`;
}

/** Returns the lines for a terminal, at most 100 columns: one for each scenario, and more for each difference. */
export function linesOf(rows: readonly Row[]): readonly string[] {
  return groups(rows).flatMap(([title, group]) => {
    const upstreams = Object.keys(group[0]?.through ?? {});
    const line = (name: string, cells: readonly string[]): string =>
      [name.padEnd(54), ...cells.map((cell) => cell.padEnd(10))].join(' ').trimEnd();
    return [
      '',
      line(title, ['direct', ...upstreams]),
      ...group.flatMap((row) => [
        line(`${marked(row)} ${row.scenario}${row.scored ? '' : ' *'}`, [
          countOf(row.direct),
          ...upstreams.map((name) => countOf(row.through[name])),
        ]),
        ...differencesOf(row).map((text) => clip(`      ${text}`)),
      ]),
    ];
  });
}

function marked(row: Row): string {
  return Object.values(row.through).every(passes) ? '✓' : '✗';
}

function groups(rows: readonly Row[]): readonly (readonly [title: string, rows: readonly Row[]])[] {
  const found = new Map<string, Row[]>();
  for (const row of rows) {
    const title = `${row.revision}, ${row.side} scenarios`;
    found.set(title, [...(found.get(title) ?? []), row]);
  }
  return [...found];
}

function countOf(cell: Cell | undefined): string {
  return cell === undefined ? '–' : `${cell.passed}/${cell.total}`;
}

/** What fails through Tollgate, with the upstream if only one fails in this way. */
function differencesOf({ direct, through }: Row): readonly string[] {
  const upstreams = Object.entries(through);
  const found = new Map<string, Set<string>>();
  for (const [name, cell] of upstreams)
    for (const text of [...cell.failures, ...cell.hollow.map((why) => `hollow: ${why}`)]) {
      const plain = withoutPlaces(text);
      if (!direct.failures.map(withoutPlaces).includes(plain))
        found.set(plain, (found.get(plain) ?? new Set()).add(name));
    }
  return [...found].map(([text, names]) => (names.size === upstreams.length ? text : `${[...names]}: ${text}`));
}

/** Removes what differs from run to run: addresses, ports, ids, and all but the first line. */
function withoutPlaces(text: string): string {
  return (text.split('\n')[0] ?? '')
    .replace(/(https?:\/\/(?:localhost|127\.0\.0\.1)):\d+/g, '$1:PORT')
    .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}/g, 'ID')
    .slice(0, 300);
}

/** The page has the first differences only; `--only SCENARIO` prints all. */
function inCell(differences: readonly string[]): string {
  const shown = differences.slice(0, 3).map((text) => text.replaceAll('|', '\\|').replaceAll('<', '&lt;'));
  const more = differences.length - shown.length;
  return [...shown, ...(more > 0 ? [`and ${more} more`] : [])].join('; ');
}

function clip(text: string): string {
  return text.length <= WIDTH ? text : `${text.slice(0, WIDTH - 1)}…`;
}

function tableLine(cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |`;
}
