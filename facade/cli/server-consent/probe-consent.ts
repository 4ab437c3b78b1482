/**
 * Asks whether `approve` may start a server to list its tools, and does it. Each look needs its own consent and is
 * recorded; its result is kept, and a server is not started again only to show it.
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
import { agrees, type ConsentDialogue, tell } from './consent-dialogue.ts';

/**
 * Returns what the server lists: as it was seen before, or by a look that someone agrees to; undefined if no one
 * agrees. Throws as `discover`, and AUDIT_FAILED.
 */
export async function findOrProbe(
  hearing: ConsentDialogue,
  start: StartReview,
): Promise<ServerProbeResult | undefined> {
  const {
    server: { name },
    desk,
    options,
  } = hearing;
  const opened = probeOpeningsOf(options);
  const seen = start.approved === undefined ? undefined : desk.consents.statusOf(name).consent?.seen;
  // The start hash alone asks for a look. Together with the tools hash, it refers to what was seen.
  if (seen !== undefined && options.yes?.length !== 1 && opened.every((flag) => seen.opened.includes(flag))) {
    tell(hearing, `As it was seen (${seen.at}); to look again: tollgate approve ${name} --yes ${start.hash}`);
    return seen.looked;
  }
  // A server that is in use starts anyway when it is called.
  const isUsed = start.approved !== undefined && desk.consents.refusalOf(name) === undefined;
  if (!isUsed && !(await agreeToLook(hearing, start))) return undefined;
  tell(hearing, lookWords(hearing.server, options));
  const looked = await lookOnce(hearing, start);
  if (!isUsed) await desk.consents.store.keepSeen(name, start.hash, { at: desk.now(), opened, looked });
  return looked;
}

async function agreeToLook(hearing: ConsentDialogue, { facts, hash, approved }: StartReview): Promise<boolean> {
  const { server, desk, options } = hearing;
  const again = approved === undefined ? '' : ' more';
  const question = `Let it start once${again} as shown above, ${openWords(server, options)}, to list its tools?`;
  if (!(await agrees(hearing, { named: options.yes?.[0], question, next: [hash] }))) return false;
  desk.record({
    event: approved === undefined ? 'start-approved' : 'look-approved',
    server: server.name,
    outcome: 'allow',
    approved: hash,
    opened: probeOpeningsOf(options),
  });
  if (approved === undefined) await desk.consents.approveStart({ facts, by: desk.by, at: desk.now() });
  return true;
}

async function lookOnce(
  { server, desk, options, io }: ConsentDialogue,
  start: StartReview,
): Promise<ServerProbeResult> {
  const stop = new AbortController();
  void io.stopped.then(() => stop.abort());
  let looked: ServerProbeResult | undefined;
  try {
    looked = await probeForConsent(server, options, {
      probe: await desk.look(),
      signal: stop.signal,
      consent: () => refuseOther(server, start, desk.consents),
    });
    return looked;
  } finally {
    desk.record({
      event: 'looked',
      server: server.name,
      outcome: looked === undefined ? 'error' : 'allow',
      opened: probeOpeningsOf(options),
      ...(looked !== undefined && { tools: looked.tools.length }),
    });
  }
}

function openWords(
  { isolation = 'sandbox', transport }: ServerConfig,
  { withSecrets, withNetwork, ownIsolation }: ProbeOpenings,
): string {
  const words = [
    ...(ownIsolation === true && transport === 'stdio' ? [`at its own isolation (${isolation})`] : []),
    ...(withSecrets === true ? ['with its secrets'] : []),
    ...(withNetwork === true ? ['with its domains'] : []),
  ];
  return words.length === 0 ? 'closed in' : words.join(', ');
}

function lookWords(server: ServerConfig, { ownIsolation }: ProbeOpenings): string {
  const { transport, isolation = 'sandbox', name } = server;
  if (transport !== 'stdio') return `Reaching ${name} once to list its tools …`;
  const aside = isProbedInSandbox(server, ownIsolation)
    ? ' (it is configured direct; this look runs in a sandbox)'
    : '';
  const where = isolation === 'container' ? ', in a container' : `, in a sandbox${aside}`;
  return `Starting ${name} once to list its tools${ownIsolation === true ? ` at its own isolation (${isolation})` : where} …`;
}
