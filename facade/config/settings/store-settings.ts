/** Reads the setting `state`: a folder, the address of a store that machines share, or both. */
import type { StoreSettings } from '../../state/shared/shared-store.ts';
import type { ProblemReport } from '../config-problems.ts';
import { realPath } from '../reading/text-files.ts';
import type { WrittenConfig } from '../written-config.ts';

/** The schemes of addresses. `postgresql` and `rediss` (with TLS) are other words for the same kinds. */
const KINDS: ReadonlyMap<string, StoreSettings['kind']> = new Map([
  ['postgres:', 'postgres'],
  ['postgresql:', 'postgres'],
  ['redis:', 'redis'],
  ['rediss:', 'redis'],
]);
const SECRET = 'secret:';
const ADDRESS = /^[a-z][a-z0-9+.-]*:\/\//i;
const DEFAULT = { namespace: 'tollgate', connections: 4, timeoutMs: 2000 };

/** Returns the state folder as it is written; undefined for the default one. The value may have any shape. */
export function writtenStateFolder(state: unknown): string | undefined {
  if (typeof state === 'string') return ADDRESS.test(state) ? undefined : state;
  const folder = (state as { folder?: unknown } | null | undefined)?.folder;
  return typeof folder === 'string' ? folder : undefined;
}

/** Returns how the store is reached, without its password; undefined if the state is in the folder only. */
export function buildStore(
  written: WrittenConfig['state'],
  { resolve, report }: { readonly resolve: (written: string) => string; readonly report: ProblemReport },
): StoreSettings | undefined {
  const isAddress = typeof written === 'string';
  if (written === undefined || (isAddress && !ADDRESS.test(written))) return undefined;
  const settings = { ...DEFAULT, ...(isAddress ? { store: written } : written) };
  const { store, password, ca, namespace, connections, timeoutMs } = settings;
  const at = isAddress ? ['state'] : ['state', 'store'];
  // Its own error was reported: a variable that is not set.
  if (store === undefined || store === '') return undefined;
  const url = URL.canParse(store) ? new URL(store) : undefined;
  const kind = url && KINDS.get(url.protocol);
  if (url === undefined || kind === undefined) {
    report.refuse(at, 'it is no address of a store; write postgres://USER@HOST/DATABASE or redis://HOST:6379');
    return undefined;
  }
  if (url.password !== '')
    report.refuse(
      at,
      'the address contains a password, which lists and errors could show; remove it, and write ' +
        '`password: secret:NAME` under `state`',
    );
  if (kind === 'postgres' && namespace.startsWith('pg_'))
    report.refuse(['state', 'namespace'], 'Postgres has reserved names that begin with `pg_`; write another name');
  if (kind === 'redis' && ca !== undefined && url.protocol !== 'rediss:')
    report.refuse(at, '`ca` needs TLS; write rediss://');
  return {
    kind,
    url: store,
    namespace,
    connections,
    timeoutMs,
    ...(password !== undefined && { password: password.slice(SECRET.length) }),
    ...(ca !== undefined && { ca: realPath(resolve(ca)) }),
  };
}
