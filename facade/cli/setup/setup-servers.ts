/** Installs and writes the servers of a setup, starts each once in an offline sandbox, and reviews what it lists. */
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { installEach } from '../../clients/package-copies.ts';
import type { ServerConfig } from '../../config/config.ts';
import { reviewTools, type StartReview, type ToolReview } from '../../consent/servers/consent-review.ts';
import { claimedReads } from '../../exposure/exposure-proposal.ts';
import type { InstallWorld } from '../../packages/installer.ts';
import { readConfig } from '../command-facade.ts';
import type { Io } from '../command-io.ts';
import { openConnectVault } from '../connect/connect-credentials.ts';
import { beginJournal, writeServerFile } from '../connect/connection-journal.ts';
import { carryOut, serverFileText } from '../connect/connection-steps.ts';
import { printable } from '../print.ts';
import type { ConsentDialogue } from '../server-consent/consent-dialogue.ts';
import { serverNamed, withOwnerContext } from '../server-consent/owner-context.ts';
import { findOrProbe } from '../server-consent/probe-consent.ts';
import { startReviewOf } from '../server-consent/start-screen.ts';
import type { SetupServer } from './setup-plan.ts';
import type { SetupRun } from './setup-run.ts';

/** A server that was started once. */
export interface ReviewedServer {
  readonly setup: SetupServer;
  readonly server: ServerConfig;
  readonly start: StartReview;
  readonly tools: ToolReview;
  /** The owner agreed to exactly this in an earlier run. */
  readonly isApproved: boolean;
}

/** A server that could not be installed or written, or did not list its tools. */
export interface FailedServer {
  readonly setup: SetupServer;
  readonly why: string;
  /** A remote server that lists its tools after a sign-in. */
  readonly needsSignIn?: true;
}

/**
 * Installs the packages, stores the secrets and writes the server files. What an earlier run has done stays, and a
 * server that fails does not stop the others. `asked`: secrets that a person has typed. Returns the failed ones. Throws
 * VAULT_FAILED, CONFIG_INVALID, CANCELLED.
 */
export async function connectServers(
  servers: readonly SetupServer[],
  { options, io }: SetupRun,
  { install, asked }: { readonly install: InstallWorld; readonly asked: ReadonlyMap<string, string> },
): Promise<readonly FailedServer[]> {
  const config = readConfig(options, io);
  const packages = servers.flatMap(({ name, draft }) =>
    draft.package === undefined ? [] : [{ name, pinned: draft.package }],
  );
  const failed = new Map(await installEach(packages, config.state, install));
  const { places } = await openConnectVault(config, io);
  for (const { draft, secrets, wanted } of servers.filter(({ name }) => !failed.has(name))) {
    const typed = wanted.flatMap((name) => (asked.has(name) ? [[name, asked.get(name) ?? ''] as const] : []));
    const values = new Map([...secrets.map(({ name, value }) => [name, value] as const), ...typed]);
    try {
      await carryOut(draft, values, {
        state: config.state,
        folder: config.folder,
        vault: places.vault,
        install,
        bySetup: true,
        reload: () => void readConfig(options, io),
      });
    } catch (thrown) {
      // The steps of this server are undone; those of the others stay.
      if (!(thrown instanceof TollgateError) || thrown.code !== 'INSTALL_FAILED') throw thrown;
      failed.set(draft.name, `${thrown.message} ${thrown.next}`);
    }
  }
  return servers.flatMap((setup) => {
    const why = failed.get(setup.name);
    return why === undefined ? [] : [{ setup, why }];
  });
}

/** Starts each server once, and returns what it would run and lists. Throws IDENTITY, STATE_FAILED, AUDIT_FAILED. */
export async function reviewServers(
  servers: readonly SetupServer[],
  { options, io, wiring }: SetupRun,
): Promise<readonly (ReviewedServer | FailedServer)[]> {
  const results: (ReviewedServer | FailedServer)[] = [];
  if (servers.length === 0) return results;
  const quiet: Io = { ...io, stdout: () => undefined, stderr: () => undefined };
  await withOwnerContext(options, { io, wiring }, async (owner) => {
    for (const setup of servers) {
      const server = serverNamed(owner.config, setup.name);
      io.stderr(
        server.transport === 'stdio'
          ? `Starting ${setup.name} once, offline in a sandbox …\n`
          : `Asking ${printable(setup.name)} for its tools …\n`,
      );
      try {
        const start = await startReviewOf(server, owner, io);
        const dialogue: ConsentDialogue = {
          server,
          owner,
          io: quiet,
          // The plan that the owner agreed to contains this start. An earlier probe of it is used again.
          options: { ...options, name: setup.name, yes: [start.hash, ''], ...setup.draft.openness },
          shown: {},
        };
        const probed = await findOrProbe(dialogue, start);
        if (probed === undefined) continue;
        const tools = reviewTools(server, probed, {
          before: owner.consents.lastSet(setup.name),
          others: owner.consents.toolsOfOthers(setup.name),
        });
        const { consent } = owner.consents.statusOf(setup.name);
        results.push({ setup, server, start, tools, isApproved: consent?.tools?.set === tools.hash });
      } catch (thrown) {
        const error = asTollgateError(thrown);
        if (error.code === 'CANCELLED') throw error;
        const needsSignIn = error.data.signIn === 'required';
        results.push({ setup, why: error.message, ...(needsSignIn && { needsSignIn }) });
      }
    }
    return 0;
  });
  return results;
}

/**
 * Writes down that tools of unknown servers only read, where the server says so and the name says it too. The owner
 * sees it in the start that is approved. Returns the names of changed servers. Throws VAULT_FAILED, CONFIG_INVALID.
 */
export async function describeReads(
  reviewed: readonly (ReviewedServer | FailedServer)[],
  { options, io }: SetupRun,
): Promise<readonly string[]> {
  const config = readConfig(options, io);
  const changed: string[] = [];
  for (const one of reviewed) {
    if ('why' in one || one.isApproved || one.setup.copy.known !== undefined) continue;
    if (one.setup.draft.entry.semantics !== undefined) continue;
    const reads = claimedReads(one.tools.tools.map(({ tool }) => tool));
    if (reads.length === 0) continue;
    const { draft } = one.setup;
    const semantics = Object.fromEntries(reads.map((name) => [name, 'read' as const]));
    const text = serverFileText({ ...draft, entry: { ...draft.entry, semantics } });
    const { package: pkg } = draft;
    beginJournal(config, { server: draft.name, text, secrets: [], ...(pkg !== undefined && { package: pkg }) });
    writeServerFile(config, { server: draft.name, text });
    changed.push(draft.name);
  }
  return changed;
}
