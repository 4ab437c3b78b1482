/** Shows one screen for each server, and approves it if its owner agrees at the terminal or by its hash. */
import path from 'node:path';
import { proposeExposures, type ServerOffer } from '../../exposure/exposure-proposal.ts';
import { readConfig } from '../command-facade.ts';
import { EXIT } from '../command-io.ts';
import { withdraw } from '../connect/connect-consent.ts';
import { plural, printable } from '../print.ts';
import { runApproveServer } from '../server-consent/approve-command.ts';
import { askKey } from '../terminal-prompt.ts';
import { outsideFolders } from './folder-exceptions.ts';
import { mayAsk, quiet, type SetupRun, setupCommand } from './setup-run.ts';
import type { FailedServer, ReviewedServer } from './setup-servers.ts';
import { fullScreens, reviewHash, serverScreen } from './setup-view.ts';

/** What became of the servers. */
export interface SetupDecisions {
  readonly approved: readonly ReviewedServer[];
  /** The tools of approved servers to show, as `server.tool`. */
  readonly shown: readonly string[];
  readonly declined: readonly ReviewedServer[];
  /** No one has decided about them yet. */
  readonly open: readonly ReviewedServer[];
  readonly failed: readonly FailedServer[];
}

/** Asks about each server that is not approved yet. Throws CANCELLED, and what an approval throws. */
export async function decideServers(
  results: readonly (ReviewedServer | FailedServer)[],
  run: SetupRun,
): Promise<SetupDecisions> {
  const failed = results.filter((one): one is FailedServer => 'why' in one);
  const reviewed = results.filter((one): one is ReviewedServer => !('why' in one));
  const proposed = proposeExposures(reviewed.map(offerOf)).expose;
  const places = { config: readConfig(run.options, run.io), home: run.io.home };
  const sorted = new Map<ReviewedServer, 'approved' | 'declined' | 'open'>();
  for (const [index, one] of reviewed.entries()) {
    const shown = toolsOf(proposed, one.setup.name);
    sorted.set(
      one,
      one.isApproved
        ? 'approved'
        : await decide(
            {
              reviewed: one,
              shown,
              folders: outsideFolders(one, places),
              at: index + 1,
              of: reviewed.length,
              file: path.basename(places.config.file),
            },
            run,
          ),
    );
  }
  const of = (state: string): readonly ReviewedServer[] => reviewed.filter((one) => sorted.get(one) === state);
  for (const { setup, why } of failed)
    if (run.options.json !== true) run.io.stderr(`${printable(`${setup.name} was not set up: ${why}`)}\n`);
  const names = new Set(of('approved').map(({ setup }) => setup.name));
  return {
    approved: of('approved'),
    shown: [...names].flatMap((name) => toolsOf(proposed, name).map((tool) => `${name}.${tool}`)),
    declined: of('declined'),
    open: of('open'),
    failed,
  };
}

/** The names of the tools of one server, without the name of the server. */
function toolsOf(proposed: readonly string[], server: string): readonly string[] {
  return proposed.filter((id) => id.startsWith(`${server}.`)).map((id) => id.slice(server.length + 1));
}

function offerOf({ setup, tools }: ReviewedServer): ServerOffer {
  return { name: setup.name, tools: tools.tools.filter(({ audit }) => audit.quarantine === undefined) };
}

async function decide(
  screen: Parameters<typeof serverScreen>[0],
  run: SetupRun,
): Promise<'approved' | 'declined' | 'open'> {
  const { options, io } = run;
  const { reviewed } = screen;
  if (options.json !== true) io.stdout(serverScreen(screen, io));
  if (!mayAsk(run)) {
    if (options.yesTo?.includes(reviewHash(reviewed)) !== true) return 'open';
    return approve(reviewed, run);
  }
  let key = await askKey(io, 'Let agents use it as shown, within the policy? d: all details', 'ynd');
  while (key === 'd') {
    io.stdout(fullScreens(reviewed, io));
    key = await askKey(io, 'Let agents use it as shown, within the policy?', 'ynd');
  }
  if (key === 'y') return approve(reviewed, run);
  await withdraw(options, reviewed.setup.name, run);
  return 'declined';
}

/** Approves exactly what was shown: both hashes are checked again. */
async function approve({ setup, start, tools }: ReviewedServer, run: SetupRun): Promise<'approved' | 'open'> {
  const { options, io, wiring } = run;
  const yes = [start.hash, tools.hash];
  const approval = { ...options, name: setup.name, yes, ...setup.draft.openness };
  return (await runApproveServer(approval, quiet(io), wiring)) === EXIT.ok ? 'approved' : 'open';
}

/** Returns the command that agrees to what is still open. */
export function nextCommand({ open }: SetupDecisions, run: SetupRun): string {
  const [plan = String(run.data.plan), ...given] = run.options.yesTo ?? [];
  return setupCommand(run, ['--yes-to', plan, ...new Set([...given, ...open.map(reviewHash)])]);
}

/** One line about what was decided. */
export function decidedText({ approved, declined, open, failed }: SetupDecisions): string {
  const parts = [
    `${plural(approved.length, 'server')} approved`,
    ...(declined.length === 0 ? [] : [`${declined.length} declined`]),
    ...(open.length === 0 ? [] : [`${open.length} to decide`]),
    ...(failed.length === 0 ? [] : [`${failed.length} not set up`]),
  ];
  return `${parts.join(', ')}.\n`;
}

/** The exit code so far. */
export function codeOf({ open, failed }: SetupDecisions): number {
  return open.length > 0 ? EXIT.approval : failed.length > 0 ? EXIT.server : EXIT.ok;
}
