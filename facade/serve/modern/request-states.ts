/**
 * The `requestState` that a client sends back with its answers. It is sealed, and bound to all that the client must not
 * change (MCP 2026-07-28, basic/patterns/mrtr, server requirements).
 */
import { hash } from 'node:crypto';
import type { Seals } from '../../state/state-seals.ts';
import type { Session } from '../facade-port.ts';
import { PARK_MS, type ParkedCall } from './parked-calls.ts';
import type { StatelessRequest } from './stateless-request.ts';

/** The name of a replica before a dot, in texts that clients send back. */
const REPLICA_PREFIX = /^([A-Za-z0-9_-]{8,64})\./;

/** Returns the replica that a text of a client names, if it names one. */
export function namedReplica(text: unknown): string | undefined {
  return typeof text === 'string' ? REPLICA_PREFIX.exec(text)?.[1] : undefined;
}

/** What a sealed state says about its call. */
export interface RequestState extends Pick<ParkedCall, 'round' | 'server' | 'revision'> {
  /** The id of the parked call. */
  readonly call: string;
}

/** What states are made with. `now` in ms since 1970. */
export interface StateParts {
  /** The mark of the replica that has the parked calls, if there are several. It comes before the state and a dot. */
  readonly replica: string | undefined;
  readonly seals: Seals;
  readonly session: Session;
  readonly now: () => number;
}

/** Returns the state for the next request of a call. */
export async function sealRequestState(
  { seals, session, now, replica }: StateParts,
  call: ParkedCall,
  request: StatelessRequest,
): Promise<string> {
  const { id, round, server, revision } = call;
  const text = JSON.stringify([id, round, server, revision, now() + PARK_MS]);
  const sealed = await seals.seal(text, boundOf(session, request));
  return replica === undefined ? sealed : `${replica}.${sealed}`;
}

/** Returns undefined for a state that was not given out for this request, or that has expired. */
export async function openRequestState(
  { seals, session, now }: StateParts,
  state: unknown,
  request: StatelessRequest,
): Promise<RequestState | undefined> {
  const sealed = typeof state === 'string' ? state.slice(state.indexOf('.') + 1) : undefined;
  const text = sealed === undefined ? undefined : await seals.open(sealed, boundOf(session, request));
  if (text === undefined) return undefined;
  const [call, round, server, revision, expires] = JSON.parse(text) as [string, number, string, string, number];
  return now() < expires ? { call, round, server, revision } : undefined;
}

/** The principal, the session, the run and the request itself. */
function boundOf({ id, principal }: Session, { message, name, args, meta }: StatelessRequest): string {
  const { method, params } = message;
  const asked = method === 'resources/read' ? JSON.stringify(params?.value.uri ?? null) : args.text;
  const run = meta?.['tollgate/run'] ?? null;
  return JSON.stringify([principal.id, principal.origin, id, run, method, name, hash('sha256', asked, 'hex')]);
}
