/**
 * Caches the digests of programs between processes, each sealed to the identity of its file. A row with a wrong seal is
 * ignored.
 */
import type { DigestStore } from '../../../adapters/port.ts';
import type { State } from '../../state/state-port.ts';

/** In the shared state, one row per path. */
const SPACE = 'file-digest';

/** Returns the cache. `digest` is keyed. If the state cannot be used, the file itself is read. */
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

/** Ignores errors of the state here: the next check of consent meets them and refuses the start. */
async function quietly<T>(work: () => T | Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch {
    return undefined;
  }
}
