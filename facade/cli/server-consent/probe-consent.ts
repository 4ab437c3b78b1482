/**
 * Asks whether `approve` may probe a server, and probes it. Each probe needs its own consent and is recorded. Its
 * result is stored, so that a server is not started again only to show it.
 */
import type { ServerProbeResult } from '../../../adapters/port.ts';
import type { ServerConfig } from '../../config/config.ts';
import {
  isProbedInSandbox,
  type ProbeOpenings,
  probeForConsent,
  probeOpeningsOf,
} from '../../consent/servers/consent-probe.ts';
import { refuseOther, type StartReview } from '../../consent/servers/consent-review.ts';
import { agrees, type ConsentDialogue, checkPresence, tell } from './consent-dialogue.ts';

/**
 * Returns what the server lists: from an earlier probe, or from a new one that the owner agrees to; undefined if the
 * owner does not agree. Throws as `probeForConsent`, AUDIT_FAILED, and SERVER_UNAVAILABLE if its program is missing.
 */
export async function findOrProbe(
  dialogue: ConsentDialogue,
  start: StartReview,
): Promise<ServerProbeResult | undefined> {
  const { server, owner, options } = dialogue;
  const { name } = server;
  checkPresence(dialogue, start);
  const opened = probeOpeningsOf(options);
  const earlier = start.approved === undefined ? undefined : owner.consents.statusOf(name).consent?.seen;
  // The start hash alone asks for a new probe. Together with the tools hash, it refers to the earlier one.
  if (earlier !== undefined && options.yes?.length !== 1 && opened.every((flag) => earlier.opened.includes(flag))) {
    const again = `tollgate approve ${name} --yes ${start.hash}`;
    tell(dialogue, `Result of the probe at ${earlier.at}. To probe again:\n  ${again}`);
    return earlier.looked;
  }
  // An approved server starts at the next call anyway.
  const isUsed = start.approved !== undefined && owner.consents.refusalOf(name) === undefined;
  if (!isUsed && !(await agreeToProbe(dialogue, start))) return undefined;
  tell(dialogue, probeNotice(server, options));
  const probed = await probe(dialogue, start);
  if (!isUsed) await owner.consents.store.keepSeen(name, start.hash, { at: owner.now(), opened, looked: probed });
  return probed;
}

async function agreeToProbe(dialogue: ConsentDialogue, { facts, hash, approved }: StartReview): Promise<boolean> {
  const { server, owner, options } = dialogue;
  const again = approved === undefined ? '' : ' more';
  const question = `Let it start once${again} as shown above, ${openingsText(server, options)}, to list its tools?`;
  if (!(await agrees(dialogue, { named: options.yes?.[0], question, next: [hash] }))) return false;
  owner.record({
    event: approved === undefined ? 'start-approved' : 'look-approved',
    server: server.name,
    outcome: 'allow',
    approved: hash,
    opened: probeOpeningsOf(options),
  });
  if (approved === undefined) await owner.consents.approveStart({ facts, by: owner.by, at: owner.now() });
  return true;
}

async function probe({ server, owner, options, io }: ConsentDialogue, start: StartReview): Promise<ServerProbeResult> {
  const stop = new AbortController();
  void io.stopped.then(() => stop.abort());
  let probed: ServerProbeResult | undefined;
  try {
    probed = await probeForConsent(server, options, {
      probe: await owner.openProbe(),
      signal: stop.signal,
      consent: () => refuseOther(server, start, owner.consents),
    });
    return probed;
  } finally {
    owner.record({
      event: 'looked',
      server: server.name,
      outcome: probed === undefined ? 'error' : 'allow',
      opened: probeOpeningsOf(options),
      ...(probed !== undefined && { tools: probed.tools.length }),
    });
  }
}

function openingsText(
  { isolation = 'sandbox', transport }: ServerConfig,
  { withSecrets, withNetwork, ownIsolation }: ProbeOpenings,
): string {
  const words = [
    ...(ownIsolation === true && transport === 'stdio' ? [`at its own isolation (${isolation})`] : []),
    ...(withSecrets === true ? ['with its secrets'] : []),
    ...(withNetwork === true ? ['with its domains'] : []),
  ];
  if (words.length > 0) return words.join(', ');
  return transport === 'stdio' ? 'without its secrets and domains' : 'without its secrets';
}

function probeNotice(server: ServerConfig, { ownIsolation }: ProbeOpenings): string {
  const { transport, isolation = 'sandbox', name } = server;
  if (transport !== 'stdio') return `Connecting to ${name} once to list its tools …`;
  const start = `Starting ${name} once to list its tools`;
  if (ownIsolation === true) return `${start} at its own isolation (${isolation}) …`;
  if (isolation === 'container') return `${start}, in a container …`;
  const note = isProbedInSandbox(server, ownIsolation)
    ? ' (its isolation is direct, but this probe runs in a sandbox)'
    : '';
  return `${start}, in a sandbox${note} …`;
}
