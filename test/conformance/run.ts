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
import { type Gateway, startGateway } from './gateway.ts';
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

async function runServers(choice: Choice, folder: string): Promise<readonly Row[]> {
  const files = prepareFixture(path.join(folder, 'fixture'), ROOT);
  const fixture = await startFixture(files);
  cleanups.push(() => fixture.stop());
  const rows: Row[] = [];
  for (const revision of choice.revisions) {
    const targets: Target[] = [{ name: 'direct', url: fixture.url, records: () => [] }];
    const gateways: Gateway[] = [];
    // The fixture answers sessions differently. A server keeps the revision that its first client led to.
    for (const name of choice.upstreams) {
      const upstream = name === 'http' ? { url: fixture.url } : stdioUpstream(files);
      const gateway = await startGateway({
        folder: path.join(folder, `gateway-${name}-${revision}`),
        server: FIXTURE,
        config: fixtureConfig(upstream, fixture.offer),
      });
      cleanups.push(() => gateway.stop());
      gateways.push(gateway);
      targets.push({ name, ...gateway });
    }
    rows.push(...(await runRevision({ choice, folder, targets }, revision)));
    await Promise.all(gateways.map((gateway) => gateway.stop()));
  }
  return rows;
}

function stdioUpstream(files: FixtureFiles): Readonly<Record<string, unknown>> {
  return {
    command: NODE_22,
    args: [files.stdio],
    cwd: files.folder,
    sandbox: { filesystem: { allowRead: [files.folder] }, limits: { memoryMb: 1024 } },
  };
}

interface Place {
  readonly choice: Choice;
  readonly folder: string;
  readonly targets: readonly Target[];
}

async function runRevision({ choice, folder, targets }: Place, revision: Revision): Promise<readonly Row[]> {
  const runs = new Map<string, ReadonlyMap<string, ScenarioRun>>();
  const wanted = scenariosOf(revision, 'server').filter(({ name }) => (choice.only ?? name) === name);
  if (wanted.length === 0) return [];
  for (const target of targets) {
    say(
      `${revision}, server scenarios, ${target.name === 'direct' ? 'the fixture' : `through Tollgate, ${target.name}`}`,
    );
    const only = choice.only === undefined ? {} : { only: choice.only };
    runs.set(target.name, await runServerSide({ target, revision, folder, ...only }));
  }
  return wanted.map(({ name, scored }) => {
    const direct = runs.get('direct')?.get(name);
    return {
      side: 'server',
      revision,
      scenario: name,
      scored,
      direct: countChecks(direct),
      through: Object.fromEntries(
        choice.upstreams.map((upstream) => [upstream, compareWith(direct, runs.get(upstream)?.get(name))]),
      ),
    };
  });
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
  say('');
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

async function main(): Promise<boolean> {
  const choice = readChoice();
  const folder = mkdtempSync(path.join(tmpdir(), 'tgc-'));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));
  await installConformance(say);
  installSystem(say);
  const rows: Row[] = [];
  if (choice.sides.includes('server')) rows.push(...(await runServers(choice, folder)));
  if (choice.sides.includes('client')) rows.push(...(await runClients(choice, folder)));
  if (rows.length === 0) throw new Error(`no scenario ${choice.only ?? ''}; to see all, run without --only`);
  const conforms = report(rows, choice);
  return isComplete(choice) ? (await runRealClients()) && conforms : conforms;
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
