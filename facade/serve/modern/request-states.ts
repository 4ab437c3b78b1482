/**
 * The `requestState` that a client sends back with its answers. It is sealed, and bound to all that the client must not
 * change (MCP 2026-07-28, basic/patterns/mrtr, server requirements).
 */
import { hash } from 'node:crypto';
import type { Seals } from '../../state/state-seals.ts';
import type { Session } from '../facade-port.ts';
import { PARK_MS, type ParkedCall } from './parked-calls.ts';
import type { StatelessRequest } from './stateless-request.ts';

/** What a sealed state says about its call. */
export interface RequestState extends Pick<ParkedCall, 'round' | 'server' | 'revision'> {
  /** The id of the parked call. */
  readonly call: string;
}

/** What states are made with. `now` in ms since 1970. */
export interface StateParts {
  readonly seals: Seals;
  readonly session: Session;
  readonly now: () => number;
}

/** Returns the state for the next request of a call. */
export function sealRequestState(
  { seals, session, now }: StateParts,
  call: ParkedCall,
  request: StatelessRequest,
): Promise<string> {
  const { id, round, server, revision } = call;
  const text = JSON.stringify([id, round, server, revision, now() + PARK_MS]);
  return seals.seal(text, boundOf(session, request));
}

/** Returns undefined for a state that was not given out for this request, or that has expired. */
export async function openRequestState(
  { seals, session, now }: StateParts,
  state: unknown,
  request: StatelessRequest,
): Promise<RequestState | undefined> {
  const text = typeof state === 'string' ? await seals.open(state, boundOf(session, request)) : undefined;
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
