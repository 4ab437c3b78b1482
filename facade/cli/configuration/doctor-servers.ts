/**
 * Examines servers for `doctor`: those that clients start without Tollgate, those without approval, and what they lack.
 * It approves and moves none.
 */

import type { StartInspector } from '../../../adapters/port.ts';
import { findBypasses, findUnusable, reachedServers } from '../../attention/cheap-findings.ts';
import type { DoctorFinding } from '../../attention/doctor-findings.ts';
import { createDigest, readAuditKey } from '../../audit/key-files.ts';
import { rootsAt } from '../../clients/client-places.ts';
import type { Config, ServerConfig } from '../../config/config.ts';
import { ConsentStore } from '../../consent/servers/consent-store.ts';
import { consentSummary } from '../../consent/servers/consent-summary.ts';
import { Consents } from '../../consent/servers/server-consents.ts';
import { readReports } from '../../runtime/servers/server-reports.ts';
import { hasState } from '../../secrets/opened-state.ts';
import type { Io } from '../command-io.ts';
import { withState } from '../command-state.ts';
import { plural } from '../print.ts';
import { fetchObstacle } from '../server-consent/start-obstacles.ts';
import { missingSecrets, setHint } from './check-command.ts';

/** Examines the servers. Throws STATE_FAILED. */
export async function examineServers(
  config: Config,
  io: Io,
  inspect: StartInspector,
): Promise<readonly DoctorFinding[]> {
  const reached = reachedServers(config);
  const usable = reached.filter((server) => server.unusable === undefined);
  return [
    ...findBypasses(rootsAt(config.folder, io)),
    ...findUnusable(config),
    ...usable.flatMap(fetching),
    ...(await findUnapproved(config, usable, inspect)),
    ...(await findDisabled(
      config,
      usable.filter((server) => fetchObstacle(server) === undefined),
    )),
    ...(await findMissingSecrets(config, reached, io)),
  ];
}

async function findUnapproved(
  config: Config,
  servers: readonly ServerConfig[],
  inspect: StartInspector,
): Promise<readonly DoctorFinding[]> {
  // Without a state database no one has approved anything, and none is made for this.
  if (servers.length === 0 || !hasState(config)) return servers.map(({ name }) => unapproved(name, NO_APPROVAL));
  return withState(config, async (state) => {
    const digest = createDigest(readAuditKey(config.state));
    const consents = new Consents(state, { folder: config.folder, inspect, digest });
    return (await Promise.all(servers.map((server) => consentFinding(server, consents)))).flat();
  });
}

async function consentFinding(server: ServerConfig, consents: Consents): Promise<readonly DoctorFinding[]> {
  const { name } = server;
  const { state, consent } = consents.statusOf(name);
  if (state === 'damaged') return [unapproved(name, 'its approval was damaged, so it does not start')];
  if (consent === undefined) return [unapproved(name, NO_APPROVAL)];
  if (consent.tools === undefined) return [unapproved(name, 'no one has approved its tools, so it is not used')];
  const { refusal, pending } = await consentSummary(name, consents, server);
  const base = { id: 'changed-approval', name: `server ${name}` } as const;
  if (refusal !== undefined) return [{ ...base, state: 'missing', seen: refusal.message, fix: refusal.next }];
  const seen = `${plural(pending, 'change')} of its tools since the approval: agents cannot use these tools`;
  return pending === 0 ? [] : [{ ...base, state: 'weak', seen, fix: `tollgate approve ${name}` }];
}

const NO_APPROVAL = 'no one has approved it, so it does not start';

function unapproved(name: string, seen: string): DoctorFinding {
  return { id: 'unapproved', name: `server ${name}`, state: 'weak', seen, fix: `tollgate approve ${name}` };
}

function fetching(server: ServerConfig): readonly DoctorFinding[] {
  const found = fetchObstacle(server);
  return found === undefined
    ? []
    : [{ id: 'fetching-server', name: `server ${server.name}`, state: 'missing', ...found }];
}

/** A server that a person disabled is not a finding. */
async function findDisabled(config: Config, servers: readonly ServerConfig[]): Promise<readonly DoctorFinding[]> {
  if (servers.length === 0 || !hasState(config)) return [];
  return withState(config, async (state) => {
    const reports = await readReports(state);
    const byPerson = await new ConsentStore(state, createDigest(readAuditKey(config.state))).disabled();
    return servers
      .filter(({ name }) => !byPerson.has(name))
      .flatMap(({ name }) =>
        (reports.get(name) ?? [])
          .filter((report) => report.state === 'disabled')
          .map(
            ({ pid, reason = '' }): DoctorFinding => ({
              id: 'disabled-server',
              name: `server ${name}`,
              state: 'weak',
              seen: `process ${pid}: ${reason}`,
              fix: `Fix what \`tollgate servers\` shows of ${name}, and restart that Tollgate.`,
            }),
          ),
      );
  });
}

async function findMissingSecrets(
  config: Config,
  servers: readonly ServerConfig[],
  io: Io,
): Promise<readonly DoctorFinding[]> {
  const { names, lines } = await missingSecrets(
    { ...config, servers: new Map(servers.map((server) => [server.name, server])) },
    io,
  );
  if (names.length === 0)
    return lines.map(
      (line): DoctorFinding => ({
        id: 'secret-missing',
        name: 'secrets',
        state: 'weak',
        seen: line.replace(/^warning: /, ''),
      }),
    );
  return names.map(
    (name): DoctorFinding => ({
      id: 'secret-missing',
      name: `secret ${name}`,
      state: 'missing',
      seen: 'it does not exist, and a server cannot start without it',
      fix: setHint(config, name).replace(/^store it with: /, ''),
    }),
  );
}
