/** Runs the client scenarios: the suite is the server, of a client of the SDK and of Tollgate in front of it. */
import { existsSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import type { DriverReport, ScenarioRun } from './comparison.ts';
import { type Revision, runSuite, type Scenario } from './official-suite.ts';

/** The program that the suite starts. It is built, because the Node.js of Tollgate runs it. */
const DRIVER = path.join(import.meta.dirname, 'client-driver.js');

/** What to run. `folder`: for the output. */
export interface ClientRun {
  readonly revision: Revision;
  readonly scenarios: readonly Scenario[];
  readonly folder: string;
  readonly isDirect: boolean;
  /** Gets a line for each scenario that ended. */
  readonly say: (line: string) => void;
}

/** Runs the scenarios, one more at once than there are processors, because each waits for processes. Each has its own gateway. */
export async function runClientSide(run: ClientRun): Promise<ReadonlyMap<string, ScenarioRun>> {
  const left = [...run.scenarios];
  const done = new Map<string, ScenarioRun>();
  const worker = async (): Promise<void> => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) {
      const began = Date.now();
      const found = await runOne(run, next.name);
      if (found !== undefined) done.set(next.name, found);
      run.say(`  ${next.name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() + 1 }, worker));
  return done;
}

async function runOne({ revision, folder, isDirect }: ClientRun, name: string): Promise<ScenarioRun | undefined> {
  const output = path.join(folder, `client-${isDirect ? 'direct' : 'tollgate'}-${revision}`, name.replaceAll('/', '-'));
  const target = [process.execPath, DRIVER, ...(isDirect ? ['--direct'] : [])].join(' ');
  const results = await runSuite({ side: 'client', revision, target, output, only: name });
  const checks = results.get(name);
  if (checks === undefined) return undefined;
  const file = path.join(output, 'driver.json');
  // A client that took too long was ended, and left no report.
  const report = existsSync(file)
    ? (JSON.parse(readFileSync(file, 'utf8')) as DriverReport)
    : { exchanges: [], records: [], quarantined: [] };
  return { checks, ...report };
}
