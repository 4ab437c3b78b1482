/** The last part of connecting: the approval on the screens of `approve`, and what agents can do then. */
import { UpstreamError } from '../../../adapters/port.ts';
import { asTollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Principal } from '../../../policies/port.ts';
import { listToolFacts } from '../../call/lowering/call-effect.ts';
import { type CommonOptions, readForOwner, readPrincipal, withFacade } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { offerSignIn } from '../configuration/login-actions.ts';
import { plural } from '../print.ts';
import { runApproveServer } from '../server-consent/approve-command.ts';
import { type ConsentOptions, withOwnerContext } from '../server-consent/owner-context.ts';
import { isInteractive } from '../terminal-prompt.ts';
import type { Wiring } from '../wiring.ts';
import type { ConnectRequest } from './connect-target.ts';
import type { ConnectionDraft } from './connection-draft.ts';

/** Options of the command. */
export interface ConnectOptions extends CommonOptions, ConnectRequest {
  readonly as?: string;
  readonly credential?: readonly string[];
  /** Hashes of what is approved, as `approve --yes` takes them. */
  readonly approve?: readonly string[];
  /** Make one harmless call after the approval, without a question. */
  readonly test?: true;
}

/** The result of the approval. */
export interface Consented {
  readonly code: number;
  /** What `approve --json` prints. */
  readonly data?: unknown;
  /** Why nothing was approved. */
  readonly failure?: string;
}

/**
 * Shows both screens of `approve`. A server that lists its tools only with its secrets gets them for the probe. If it
 * requires a sign-in, a person at a terminal is offered it. A refusal is returned, not thrown, because the written
 * server can be approved later.
 */
export async function approveConnected(
  draft: ConnectionDraft,
  { options, io, wiring }: { readonly options: ConnectOptions; readonly io: Io; readonly wiring: Wiring },
): Promise<Consented> {
  let data = '';
  const inner: Io = options.json === true ? { ...io, stdout: (text) => void (data += text) } : io;
  const approve = (): Promise<number> =>
    runApproveServer(
      {
        config: options.config,
        name: draft.name,
        ...draft.openness,
        ...(options.json === true && { json: true }),
        ...(options.as !== undefined && { as: options.as }),
        ...(options.approve !== undefined && { yes: options.approve }),
      },
      inner,
      wiring,
    );
  const mayAsk = isInteractive(io) && options.json !== true && options.approve === undefined;
  try {
    const code = await approve().catch(async (thrown: unknown) => {
      const needsSignIn = mayAsk && asTollgateError(thrown).data.signIn === 'required';
      const parts = { config: options.config, server: draft.name };
      if (!needsSignIn || !(await offerSignIn(parts, io, wiring))) throw thrown;
      return approve();
    });
    return { code, ...(data !== '' && { data: JSON.parse(data) as unknown }) };
  } catch (thrown) {
    if (thrown instanceof UpstreamError)
      return {
        code: EXIT.server,
        failure: `${draft.name} answers tools/list with an error: ${thrown.message.slice(0, 200)}`,
      };
    const { code, message, next } = asTollgateError(thrown);
    if (code === 'INTERNAL') throw thrown;
    return {
      code: code === 'APPROVAL_REQUIRED' ? EXIT.approval : code === 'PIN_MISMATCH' ? EXIT.refused : EXIT.server,
      failure: `${code}: ${message} ${next}`,
    };
  }
}

/** Withdraws all consent to a server. Throws IDENTITY, STATE_FAILED. */
export async function withdraw(
  options: ConsentOptions,
  name: string,
  { io, wiring }: { readonly io: Io; readonly wiring: Wiring },
): Promise<void> {
  await withOwnerContext(options, { io, wiring }, async ({ consents, record }) => {
    if (await consents.revoke(name)) record({ event: 'revoked', server: name, outcome: 'deny' });
    return EXIT.ok;
  });
}

/** The policy's decision on a server's tools, without arguments. */
export interface Reach {
  readonly runs: readonly string[];
  /** A person is asked, or the decision depends on the arguments. */
  readonly asks: readonly string[];
  readonly closed: readonly string[];
}

/** Returns what the principal's agent can do with a server. It reads the approved tools. Throws as `assemble`. */
export async function reachOf(
  name: string,
  { options, io, wiring }: { readonly options: ConnectOptions; readonly io: Io; readonly wiring: Wiring },
): Promise<Reach> {
  const config = readForOwner(options, io);
  const principal: Principal = readPrincipal(config, options, io);
  const reach = { runs: [] as string[], asks: [] as string[], closed: [] as string[] };
  await withFacade({ config, options: {}, io, assemble: wiring.assemble }, async ({ catalog, deps }) => {
    await catalog.refresh([name], 'let');
    const entries = catalog.entries(name);
    const decisions = await deps.policy().list(
      principal,
      entries.map(({ tool, semantics }) => ({ server: name, tool: tool.name, ...listToolFacts(semantics) })),
    );
    entries.forEach(({ tool }, index) => {
      const { verdict } = decisions[index] ?? { verdict: 'never' };
      reach[verdict === 'always' ? 'runs' : verdict === 'maybe' ? 'asks' : 'closed'].push(tool.name);
    });
    return EXIT.ok;
  });
  return reach;
}

/** Returns the reach in lines for a person. */
export function reachLines(name: string, { runs, asks, closed }: Reach): readonly string[] {
  const some = (tools: readonly string[]): string =>
    `${plural(tools.length, 'tool')} (${tools.slice(0, 6).join(', ')}${tools.length > 6 ? ', …' : ''})`;
  return [
    ...(runs.length === 0 ? [] : [`  runs at once: ${some(runs)}`]),
    ...(asks.length === 0 ? [] : [`  asks a person, or depends on the arguments or the run: ${some(asks)}`]),
    ...(closed.length === 0 ? [] : [`  denied by policy: ${some(closed)}`]),
    ...(runs.length + asks.length > 0
      ? []
      : [
          '  No rule allows any of them. With these rules, reads run and writes ask:',
          `    - {id: read-${name}, outcome: allow, when: {servers: [${name}], verbs: [read]}}`,
          `    - {id: ask-${name}, outcome: ask, when: {servers: [${name}], verbs: [write, destructive, execute]}}`,
        ]),
  ];
}
