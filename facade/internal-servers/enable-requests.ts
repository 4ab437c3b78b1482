/** Stores the requests of agents to enable a server, for an owner to decide. */
import type { State } from '../state/state-port.ts';

/** A request of an agent. `since`: ms since 1970. */
export interface EnableRequest {
  readonly server: string;
  readonly principal: string;
  readonly since: number;
}

const SPACE = 'requests';

/** Stores a request. Returns false if it exists, so that a model cannot fill the log. Throws STATE_FAILED. */
export async function noteRequest(state: State, { server, principal, since }: EnableRequest): Promise<boolean> {
  const key = `${server}/${principal}`;
  if (state.get(SPACE, key) !== undefined) return false;
  await state.put(SPACE, key, String(since));
  return true;
}

/** Returns all requests, sorted by server. Throws STATE_FAILED. */
export async function listRequests(state: State): Promise<readonly EnableRequest[]> {
  return [...state.list(SPACE)].map(([key, since]) => {
    const [server = '', ...principal] = key.split('/');
    return { server, principal: principal.join('/'), since: Number(since) };
  });
}

/** Removes the requests for a server after an owner's decision, yes or no. Throws STATE_FAILED. */
export async function dropRequests(state: State, server: string): Promise<void> {
  for (const request of await listRequests(state))
    if (request.server === server) await state.remove(SPACE, `${server}/${request.principal}`);
}
