/** Runs the server scenarios: the suite is the client, of the fixture itself and of Tollgate in front of it. */
import path from 'node:path';
import type { ScenarioRun } from './comparison.ts';
import type { AuditRecord } from './gateway.ts';
import { logOf, type Revision, runSuite, ScenarioReader } from './official-suite.ts';
import { startInjector } from './recording-injector.ts';

/** What the suite runs against. `records`: the audit log so far. */
export interface Target {
  readonly name: string;
  readonly url: string;
  readonly token?: string;
  readonly records: () => readonly AuditRecord[];
}

/** What to run. `folder`: for the output. */
export interface ServerRun {
  readonly target: Target;
  readonly revision: Revision;
  readonly folder: string;
  readonly only?: string;
}

/** Runs the scenarios one after the other. Returns each with its requests and its records. */
export async function runServerSide(run: ServerRun): Promise<ReadonlyMap<string, ScenarioRun>> {
  const { target, revision, only } = run;
  const output = path.join(run.folder, `server-${target.name}-${revision}`);
  const reader = new ScenarioReader(logOf(output), only);
  const marks: { readonly name: string; readonly from: number }[] = [];
  const scenario = (): string => {
    const name = reader.now();
    // Every record of a call is written before its reply, so what is there belongs to the scenarios before.
    if (marks.at(-1)?.name !== name) marks.push({ name, from: target.records().length });
    return name;
  };
  const injector = await startInjector({
    target: target.url,
    ...(target.token === undefined ? {} : { token: target.token }),
    scenario,
  });
  try {
    const results = await runSuite({
      side: 'server',
      revision,
      target: injector.url,
      output,
      ...(only === undefined ? {} : { only }),
    });
    // Closing also records the streams that were still open.
    await injector.close();
    const records = target.records();
    const recordsOf = (name: string): readonly AuditRecord[] =>
      marks.flatMap((mark, at) => (mark.name === name ? records.slice(mark.from, marks[at + 1]?.from) : []));
    return new Map(
      [...results].map(([name, checks]) => [
        name,
        {
          checks,
          exchanges: injector.exchanges.filter((one) => one.scenario === name),
          records: recordsOf(name),
        },
      ]),
    );
  } finally {
    await injector.close();
  }
}
