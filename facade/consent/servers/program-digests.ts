/** Owns the digests of programs from one process to the next, each sealed to its file's identity; refuses rows that something else wrote. */
import type { DigestStore } from '../../../adapters/port.ts';
import type { State } from '../../state/state-port.ts';

/** Beside consent in the shared state, a row a path. */
const SPACE = 'file-digest';

/** `digest` is keyed. What cannot be kept or read costs time, not an answer: the file itself is read then. */
export function createDigestStore(state: Pick<State, 'get' | 'put'>, digest: (text: string) => string): DigestStore {
  const pathOf = (identity: string): string => identity.slice(0, identity.indexOf('\0'));
  const sealed = (identity: string, sha256: string): string => `${sha256} ${digest(`file\0${identity}\0${sha256}`)}`;
  return {
    get: async (identity) => {
      const row = await quietly(() => state.get(SPACE, pathOf(identity)));
      const sha256 = row?.slice(0, 64);
      return sha256 !== undefined && row === sealed(identity, sha256) ? sha256 : undefined;
    },
    put: async (identity, sha256) =>
      void (await quietly(() => state.put(SPACE, pathOf(identity), sealed(identity, sha256)))),
  };
}

/** A state that fails says so at the next question of consent, which refuses the start. */
async function quietly<T>(work: () => T | Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch {
    return undefined;
  }
}
