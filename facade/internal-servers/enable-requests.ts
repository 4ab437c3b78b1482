/** Owns what agents have asked owners to enable; refuses to enable anything, and to keep one wish twice. */
import type { State } from '../state/state-port.ts';

/** A wish. `since`: ms since 1970. */
export interface EnableRequest {
  readonly server: string;
  readonly principal: string;
  readonly since: number;
}

const SPACE = 'requests';

/** Notes a wish; false when it stands already, so that a model cannot fill the log with it. Throws STATE_FAILED. */
export async function noteRequest(state: State, { server, principal, since }: EnableRequest): Promise<boolean> {
  const key = `${server}/${principal}`;
  if (state.get(SPACE, key) !== undefined) return false;
  await state.put(SPACE, key, String(since));
  return true;
}

/** All wishes, by server. Throws STATE_FAILED. */
export async function listRequests(state: State): Promise<readonly EnableRequest[]> {
  return [...state.list(SPACE)].map(([key, since]) => {
    const [server = '', ...principal] = key.split('/');
    return { server, principal: principal.join('/'), since: Number(since) };
  });
}

/** An owner has decided, whatever it was. Throws STATE_FAILED. */
export async function dropRequests(state: State, server: string): Promise<void> {
  for (const request of await listRequests(state))
    if (request.server === server) await state.remove(SPACE, `${server}/${request.principal}`);
}
