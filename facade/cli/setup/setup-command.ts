/**
 * Runs `tollgate setup`: finds what the clients start, puts all of it behind Tollgate, and proves that nothing bypasses
 * it. It asks before each step that changes something, and a later run continues where one ended.
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { rootsAt, shownPath } from '../../clients/client-places.ts';
import { findFiles } from '../../clients/found-client-files.ts';
import { pinRequest } from '../../clients/import-plan.ts';
import { type PinWorld, UNPINNED } from '../../clients/package-copies.ts';
import type { InstallWorld } from '../../packages/installer.ts';
import { withArchives } from '../../packages/package-source.ts';
import { readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { configFile, DEFAULT_CONFIG } from '../config-file.ts';
import {
  type InitPlace,
  placeInProject,
  placeOutside,
  writeFirst,
  writeProject,
} from '../configuration/init-command.ts';
import { offerSignIn } from '../configuration/login-actions.ts';
import { openConnectVault } from '../connect/connect-credentials.ts';
import { installWorldOf } from '../connect/connection-steps.ts';
import { json, printable } from '../print.ts';
import { askHidden, askKey } from '../terminal-prompt.ts';
import type { Wiring } from '../wiring.ts';
import { decideServers } from './setup-decisions.ts';
import { finishSetup } from './setup-finish.ts';
import { planSetup, readEntries, type SetupEntries, type SetupPlan } from './setup-plan.ts';
import { accepted, mayAsk, quiet, type SetupOptions, type SetupRun, setupCommand } from './setup-run.ts';
import {
  connectServers,
  describeReads,
  type FailedServer,
  type ReviewedServer,
  reviewServers,
} from './setup-servers.ts';
import { undoSetup } from './setup-undo.ts';
import { planScreen, setupData } from './setup-view.ts';

/**
 * Sets up everything. Exit code 7 while a person must still agree to something, 5 if a server did not start. Throws
 * USAGE, IDENTITY, CONFIG_INVALID, INSTALL_FAILED, VAULT_FAILED, STATE_FAILED, AUDIT_FAILED, CANCELLED.
 */
export async function runSetup(options: SetupOptions, io: Io, wiring: Wiring): Promise<number> {
  const place = placeOf(options, io);
  const run: SetupRun = { options: { ...options, config: place.file }, io, wiring, data: {}, given: options.config };
  if (options.undo !== undefined) return undoSetup(run, options.undo);
  const code = await withArchives((into) => setUp(run, place, { ...calmer(installWorldOf(io, wiring)), into }));
  if (options.json === true) io.stdout(json(run.data));
  return code;
}

/** Several packages at a time would each tell their time every few seconds. */
function calmer(world: InstallWorld): InstallWorld {
  const told = new Set<string>();
  const say = (line: string): void => {
    const time = /: (\d+ s …)$/.exec(line)?.[1];
    if (time === undefined) return world.say(line);
    if (told.has(time)) return;
    told.add(time);
    world.say(`… ${time.replace(' …', '')}`);
  };
  return { ...world, say };
}

async function setUp(run: SetupRun, place: InitPlace, install: PinWorld): Promise<number> {
  const { options, io } = run;
  const isNew = !existsSync(place.file);
  const planned = await planFor(run, place, install);
  const { plan } = planned;
  Object.assign(run.data, setupData(plan), { config: place.file });
  const file = shownPath(place.file, { cwd: io.cwd, home: io.home });
  if (options.json !== true) io.stdout(planScreen(plan, { file, isNew, io }));
  if (options.dryRun === true) return EXIT.ok;
  if (isNew && plan.servers.length === 0) {
    const isUnpinned = plan.stays.some(({ why }) => why.startsWith(UNPINNED));
    if (options.json !== true)
      io.stderr(
        isUnpinned
          ? `No server can be set up now, and nothing was written. To continue:\n  ${setupCommand(run, [])}\n`
          : 'There is nothing to set up, and nothing was written.\n',
      );
    return isUnpinned ? EXIT.server : EXIT.ok;
  }
  if (plan.servers.length > 0 && !(await agreesToPlan(run, plan))) return EXIT.approval;
  try {
    return await carryOutPlan(planned, run, { place, install });
  } catch (thrown) {
    if (!(thrown instanceof TollgateError) || thrown.code !== 'CANCELLED') throw thrown;
    throw new TollgateError('CANCELLED', {
      detail: 'You stopped the setup. What it has done until now stays, such as installed packages and approvals.',
      next: `Continue with \`${setupCommand(run, [])}\`, or undo it with \`${setupCommand(run, ['--undo'])}\`.`,
    });
  }
}

async function carryOutPlan(
  { plan, entries }: PlannedSetup,
  run: SetupRun,
  { place, install }: { readonly place: InitPlace; readonly install: PinWorld },
): Promise<number> {
  const failed: FailedServer[] = [];
  if (plan.servers.length > 0) {
    if (!existsSync(place.file)) await writeFirst(place, { config: place.file, clients: false }, quiet(run.io));
    const asked = await askWanted(run, plan);
    failed.push(...(await accepted(run, () => connectServers(plan.servers, run, { install, asked }))));
  }
  const connected = plan.servers.filter((setup) => !failed.some((one) => one.setup === setup));
  const listed = await reviewServers(connected, run);
  const reviewed = await reviewAgain(listed, await signInToServers(listed, run), run);
  const described = await accepted(run, () => describeReads(reviewed, run));
  const results = await reviewAgain(reviewed, described, run);
  const decided = await decideServers([...failed, ...results], run);
  return finishSetup({ plan, all: entries.all, decided }, run);
}

type ReviewResult = ReviewedServer | FailedServer;

/** Reviews the servers with these names once more. */
async function reviewAgain(
  results: readonly ReviewResult[],
  names: readonly string[],
  run: SetupRun,
): Promise<readonly ReviewResult[]> {
  const setups = results.map(({ setup }) => setup).filter(({ name }) => names.includes(name));
  const again = await reviewServers(setups, run);
  return results.map((one) => again.find(({ setup }) => setup === one.setup) ?? one);
}

/** Offers to sign in to each server that requires it. Returns those with a sign-in now. Throws CANCELLED. */
async function signInToServers(results: readonly ReviewResult[], run: SetupRun): Promise<readonly string[]> {
  const { options, io, wiring } = run;
  const names: string[] = [];
  for (const one of results) {
    if (!('why' in one) || one.needsSignIn !== true || !mayAsk(run)) continue;
    const { name } = one.setup;
    if (await offerSignIn({ config: options.config, server: name }, io, wiring)) names.push(name);
  }
  return names;
}

/** Returns where the configuration is: here if there is one here, else in a folder that no agent can write. */
function placeOf({ config }: SetupOptions, io: Io): InitPlace {
  const here = placeInProject(path.resolve(io.cwd, config));
  const isHere = config !== DEFAULT_CONFIG || (existsSync(here.file) && configFile(config, io) === here.file);
  return isHere ? here : placeOutside(here.workspace, io);
}

/** A plan, and the clients' entries that it was made from. */
interface PlannedSetup {
  readonly plan: SetupPlan;
  readonly entries: SetupEntries;
}

/** A configuration that does not exist yet is planned in a folder that is removed again. */
async function planFor(run: SetupRun, place: InitPlace, install: PinWorld): Promise<PlannedSetup> {
  const { io } = run;
  if (existsSync(place.file)) return planIn(run, install);
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-setup-'));
  try {
    const draft = { ...place, folder, file: path.join(folder, 'tollgate.yaml'), isOutside: true };
    writeProject(draft, { config: draft.file, clients: false }, quiet(io));
    return await planIn({ ...run, options: { ...run.options, config: draft.file } }, install);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function planIn({ options, io }: SetupRun, install: PinWorld) {
  const config = readConfig(options, io);
  const files = findFiles(rootsAt(config.workspace, io));
  if (files.length === 0)
    throw new TollgateError('USAGE', {
      detail: "No client's file was found, so there is nothing to set up.",
      next: 'Add servers with `tollgate connect`, and Tollgate to a client with `tollgate export`.',
    });
  const entries = readEntries({ config, world: { env: io.env, home: io.home }, files });
  const copies = await pinRequest(entries.copies, install);
  return { entries, plan: planSetup({ ...entries, copies }) };
}

/** Returns whether the owner agrees, at the terminal or by the hash of the plan. Throws PIN_MISMATCH. */
async function agreesToPlan(run: SetupRun, { hash }: SetupPlan): Promise<boolean> {
  const { options, io, data } = run;
  const [named] = options.yesTo ?? [];
  if (named === hash) return true;
  if (named !== undefined)
    throw new TollgateError('PIN_MISMATCH', {
      detail: 'The first hash after --yes-to is not that of the present plan.',
      next: `Read the plan above. Its hash is ${hash}`,
    });
  if (mayAsk(run)) return (await askKey(io, 'Do this?', 'yn')) === 'y';
  const next = setupCommand(run, ['--yes-to', hash]);
  data.next = next;
  if (options.json !== true) io.stderr(`A person must agree to this. After reading it, run:\n  ${next}\n`);
  return false;
}

/** Asks for the secrets that clients would have asked for. An empty answer leaves one for later. */
async function askWanted({ options, io }: SetupRun, { servers }: SetupPlan): Promise<ReadonlyMap<string, string>> {
  const { names } = await openConnectVault(readConfig(options, io), io);
  const missing = [...new Set(servers.flatMap(({ wanted }) => wanted))].filter((name) => !names.has(name));
  const values = new Map<string, string>();
  for (const name of missing) {
    if (!mayAsk({ options, io })) io.stderr(`${printable(name)} is not set: tollgate secret set ${printable(name)}\n`);
    else {
      const value = await askHidden(io, `Value of ${printable(name)} (not shown; empty: later): `);
      if (value !== '') values.set(name, value);
    }
  }
  return values;
}
