/** The name of a replica: which of the processes over one shared state wrote a record, a checkpoint or a head. */
import os from 'node:os';
import type { State } from '../../state/state-port.ts';

/** Characters of a name. Kubernetes cuts the host name of a pod at this length too. */
const MAX_NAME = 63;

/**
 * Returns the name of this replica: the configured one, or the host name (in Kubernetes, the name of the pod) if other
 * processes share the state. Undefined for a process that has its state for itself.
 */
export function replicaOf(
  { replica }: { readonly replica?: string | undefined },
  { isShared }: Pick<State, 'isShared'>,
): string | undefined {
  if (replica !== undefined || !isShared) return replica;
  // Every character must be one that needs no escape in JSON, in a line of a checkpoint and in a key of the state.
  return (
    os
      .hostname()
      .replaceAll(/[^A-Za-z0-9._-]/g, '-')
      .replace(/^[^A-Za-z0-9]+/, '')
      .slice(0, MAX_NAME) || 'replica'
  );
}
