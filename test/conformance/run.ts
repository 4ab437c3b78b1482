/**
 * `npm run conformance`: the official suite of MCP, on its fixture directly and through Tollgate. Prints each scenario,
 * writes docs/conformance.md after a complete run, and exits with 1 unless every scored scenario passes through Tollgate.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { installConformance } from '../servers/install.ts';
import { installSystem } from '../servers/system.ts';
import { runClientSide } from './client-side.ts';
import { compareWith, countChecks, passes, type Row, type ScenarioRun } from './comparison.ts';
import { type FixtureFiles, prepareFixture, startFixture } from './fixture-server.ts';
import { callOnce, startGateway } from './gateway.ts';
import { NODE_22, REVISIONS, type Revision, type Scenario, type Side, scenariosOf } from './official-suite.ts';
import { FIXTURE, fixtureConfig } from './policy.ts';
import { linesOf, pageOf, totalsOf } from './report.ts';
import { runServerSide, type Target } from './server-side.ts';

const ROOT = path.join(import.meta.dirname, '..', '..').replace(/\/dist$/, '');
const UPSTREAMS = ['http', 'stdio'] as const;
type Upstream = (typeof UPSTREAMS)[number];
const USAGE = `npm run conformance -- [--revision ${REVISIONS.join('|')}] [--upstream ${UPSTREAMS.join('|')}]
                       [--side server|client] [--only SCENARIO] [--quick] [--json]`;

/** What to run; by default everything. `quick`: client scenarios of both revisions run in one of them. */
interface Choice {
  readonly revisions: readonly Revision[];
  readonly upstreams: readonly Upstream[];
  readonly sides: readonly Side[];
  readonly only: string | undefined;
  readonly quick: boolean;
  readonly json: boolean;
}

const say = (line: string): void => void process.stderr.write(`${line}\n`);

function readChoice(): Choice {
  const { values } = parseArgs({
    options: {
      revision: { type: 'string' },
      upstream: { type: 'string' },
      side: { type: 'string' },
      only: { type: 'string' },
      quick: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
    },
  });
  const oneOf = <T extends string>(name: 'revision' | 'upstream' | 'side', all: readonly T[]): readonly T[] => {
    const wanted = values[name];
    if (wanted === undefined) return all;
    const known = all.find((one) => one === wanted);
    if (known === undefined) throw new Error(`--${name} is ${all.join(' or ')}, not ${wanted}`);
    return [known];
  };
  return {
    revisions: oneOf('revision', REVISIONS),
    upstreams: oneOf('upstream', UPSTREAMS),
    sides: oneOf('side', ['server', 'client']),
    only: values.only,
    quick: values.quick,
    json: values.json,
  };
}

/** Things to end, newest first. */
const cleanups: (() => unknown)[] = [];

/**
 * Runs the server scenarios of all revisions and ways at the same time, because each waits for the others' processes
 * and clocks. Each has its own fixture, which remembers what its clients did.
 */
async function runServers(choice: Choice, folder: string): Promise<readonly Row[]> {
  const files = prepareFixture(path.join(folder, 'fixture'), ROOT);
  const rows = await Promise.all(choice.revisions.map((revision) => runRevision({ choice, folder, files }, revision)));
  return rows.flat();
}

function stdioUpstream(files: FixtureFiles): Readonly<Record<string, unknown>> {
  return {
    command: NODE_22,
    args: [files.stdio],
    cwd: files.folder,
    // A program that starts slowly, because others start too, must not get a session only.
    connectTimeoutMs: 60_000,
    sandbox: { filesystem: { allowRead: [files.folder] }, limits: { memoryMb: 1024 } },
  };
}

interface Place {
  readonly choice: Choice;
  readonly folder: string;
  readonly files: FixtureFiles;
}

async function runRevision(place: Place, revision: Revision): Promise<readonly Row[]> {
  const { upstreams, only } = place.choice;
  const wanted = scenariosOf(revision, 'server').filter(({ name }) => (only ?? name) === name);
  if (wanted.length === 0) return [];
  const runs = new Map(
    await Promise.all(
      (['direct', ...upstreams] as const).map(async (way) => [way, await runWay(place, revision, way)] as const),
    ),
  );
  return wanted.map(({ name, scored }) => {
    const direct = runs.get('direct')?.get(name);
    return {
      side: 'server',
      revision,
      scenario: name,
      scored,
      direct: countChecks(direct),
      through: Object.fromEntries(
        upstreams.map((upstream) => [upstream, compareWith(direct, runs.get(upstream)?.get(name))]),
      ),
    };
  });
}

/** Runs the scenarios of one revision against a fixture, or against a gateway in front of it. */
async function runWay(
  { choice, folder, files }: Place,
  revision: Revision,
  way: 'direct' | Upstream,
): Promise<ReadonlyMap<string, ScenarioRun>> {
  const fixture = await startFixture(files);
  cleanups.push(() => fixture.stop());
  const only = choice.only === undefined ? {} : { only: choice.only };
  const run = async (target: Target): Promise<ReadonlyMap<string, ScenarioRun>> => {
    const found = await runServerSide({ target, revision, folder, ...only });
    say(`${revision}, server scenarios, ${way === 'direct' ? 'the fixture' : `through Tollgate, ${way}`}`);
    return found;
  };
  if (way === 'direct') return run({ name: way, url: fixture.url, records: () => [] });
  // The fixture answers sessions differently. A server keeps the revision that its first client led to.
  const gateway = await startGateway({
    folder: path.join(folder, `gateway-${way}-${revision}`),
    server: FIXTURE,
    config: fixtureConfig(way === 'http' ? { url: fixture.url } : stdioUpstream(files), fixture.offer),
  });
  cleanups.push(() => gateway.stop());
  // Scenarios of this revision wait for a notification for 1.5 s. A program may need longer to start.
  if (revision === '2026-07-28') await callOnce(gateway, 'test_simple_text');
  const found = await run({ name: way, ...gateway });
  await gateway.stop();
  await fixture.stop();
  return found;
}

/** With `quick`, the revisions share the scenarios that both require, one each in turn. */
function clientScenarios({ only, quick }: Choice, revision: Revision): readonly Scenario[] {
  const [first, second] = REVISIONS.map((one) => scenariosOf(one, 'client'));
  const shared = (first ?? [])
    .filter(({ name }) => second?.some((other) => other.name === name))
    .map(({ name }) => name);
  return scenariosOf(revision, 'client').filter(({ name }) => {
    const isOfOther = quick && shared.indexOf(name) % REVISIONS.length === 1 - REVISIONS.indexOf(revision);
    return (only ?? name) === name && !isOfOther;
  });
}

/** The suite connects over HTTP alone, so there is one way through Tollgate. */
async function runClients(choice: Choice, folder: string): Promise<readonly Row[]> {
  const rows: Row[] = [];
  for (const revision of choice.revisions) {
    const scenarios = clientScenarios(choice, revision);
    if (scenarios.length === 0) continue;
    say(`${revision}, client scenarios, the client of the SDK`);
    const direct = await runClientSide({ revision, scenarios, folder, isDirect: true, say });
    say(`${revision}, client scenarios, Tollgate`);
    const through = await runClientSide({ revision, scenarios, folder, isDirect: false, say });
    for (const { name, scored } of scenarios)
      rows.push({
        side: 'client',
        revision,
        scenario: name,
        scored,
        direct: countChecks(direct.get(name)),
        through: { http: compareWith(direct.get(name), through.get(name)) },
      });
  }
  return rows;
}

/**
 * Runs the scenarios again, each alone, that failed while others ran: some wait 1.5 s for a message, which is too short
 * on a busy machine. More than `MOST_AGAIN` failures have another cause.
 */
async function runFailedAgain(rows: readonly Row[], choice: Choice, folder: string): Promise<readonly Row[]> {
  const failed = rows.filter((row) => row.scored && !Object.values(row.through).every(passes));
  if (choice.only !== undefined || failed.length > MOST_AGAIN) return rows;
  const again = new Map<Row, Row | undefined>();
  for (const [index, row] of failed.entries()) {
    say(`${row.scenario} of ${row.revision} failed while others ran; it runs again, alone`);
    const alone = { ...choice, revisions: [row.revision], sides: [row.side], only: row.scenario };
    const [second] = await SIDES[row.side](alone, path.join(folder, `again-${index}`));
    again.set(row, second);
  }
  return rows.map((row) => again.get(row) ?? row);
}

/** Prints the rows. Returns whether every scored scenario passes. */
function report(rows: readonly Row[], choice: Choice): boolean {
  const print = (line: string): void => void process.stdout.write(`${line}\n`);
  if (choice.json) print(JSON.stringify(rows, undefined, 2));
  else for (const line of linesOf(rows)) print(line);
  const scored = rows.filter((row) => row.scored);
  const failing = scored.filter((row) => !Object.values(row.through).every(passes));
  const { passed, scenarios } = totalsOf(rows, (row) => row.direct);
  say('');
  say(`directly: ${passed} of ${scenarios} scored scenarios pass`);
  say(`through Tollgate: ${scored.length - failing.length} of ${scored.length} scored scenarios pass`);
  if (isComplete(choice) && !choice.quick) writeFileSync(path.join(ROOT, 'docs', 'conformance.md'), pageOf(rows));
  return scored.length > 0 && failing.length === 0;
}

function isComplete({ revisions, upstreams, sides, only }: Choice): boolean {
  return revisions.length === REVISIONS.length && upstreams.length === UPSTREAMS.length && sides.length === 2 && !only;
}

/** Runs the tests with real clients. Their output goes to stderr, because it is no data. */
function runRealClients(): Promise<boolean> {
  say('real clients through tollgate serve');
  const vitest = path.join(ROOT, 'node_modules', 'vitest', 'vitest.mjs');
  const child = spawn(process.execPath, [vitest, 'run', '--config', 'vitest.conformance.config.ts'], {
    cwd: ROOT,
    stdio: ['ignore', 2, 2],
  });
  cleanups.push(() => child.kill('SIGTERM'));
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => resolve(code === 0));
  });
}

const SIDES = { server: runServers, client: runClients };
const MOST_AGAIN = 3;

async function main(): Promise<boolean> {
  const choice = readChoice();
  const folder = mkdtempSync(path.join(tmpdir(), 'tgc-'));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));
  await installConformance(say);
  installSystem(say);
  const [areServed, ...found] = await Promise.all([
    isComplete(choice) ? runRealClients() : true,
    ...choice.sides.map((side) => SIDES[side](choice, folder)),
  ]);
  const rows = await runFailedAgain(found.flat(), choice, folder);
  if (rows.length === 0) throw new Error(`no scenario ${choice.only ?? ''}; to see all, run without --only`);
  return report(rows, choice) && areServed;
}

async function endEverything(): Promise<void> {
  for (const end of cleanups.splice(0).reverse()) await end();
}

for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => void endEverything().then(() => process.exit(130)));

try {
  process.exitCode = (await main()) ? 0 : 1;
} catch (thrown) {
  say((thrown as Error).message);
  if ((thrown as Error).message.startsWith('--')) say(USAGE);
  process.exitCode = 2;
} finally {
  await endEverything();
}
