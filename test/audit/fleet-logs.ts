/** The logs of three replicas over one shared state, each with its own key, for tests. */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { AuditEntry } from '../../facade/audit/audit-entry.ts';
import { openAudit } from '../../facade/audit/audit-log.ts';
import { HeadPublisher, readHeads } from '../../facade/audit/fleet/published-heads.ts';
import { AuditTree } from '../../facade/audit/proof/audit-tree.ts';
import { sealLog } from '../../facade/audit/proof/log-sealing.ts';
import { type DirectState, openState } from '../../facade/state/sqlite-state.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { calls } from './signed-log.ts';

/** The first time of the records, ms. */
export const START = Date.UTC(2026, 0, 5);

/** The log of one replica, and its key. */
export interface SampleReplica {
  readonly name: string;
  readonly folder: string;
  readonly key: KeyObject;
}

/** Signs a log with the key of its replica. */
export function sealReplica({ folder, key, name }: SampleReplica): void {
  AuditTree.begin(folder).tree.close();
  sealLog({ folder, key, budgetMs: 60_000, now: START, replica: name });
}

/** Appends a chain of `count` calls to a log. Records are `stepMs` apart from `from` on. */
export async function appendChain(
  { folder, name }: Pick<SampleReplica, 'folder' | 'name'>,
  { from, count, stepMs = 1000 }: { readonly from: number; readonly count: number; readonly stepMs?: number },
): Promise<void> {
  let now = from - stepMs;
  const audit = openAudit({ folder, rotateBytes: 1e9, replica: name, now: () => (now += stepMs) });
  for (const entry of calls(from / 1000, count)) audit.append(entry as AuditEntry);
  await audit.close();
}

/** Publishes the head of a log. Returns why it was not published, if it was not. */
export async function publishHead(state: DirectState, { name, folder, key }: SampleReplica): Promise<string[]> {
  const failures: string[] = [];
  const publisher = new HeadPublisher({
    state: { get: state.get, swap: async (...at) => state.swap(...at), refresh: () => undefined },
    replica: name,
    folder,
    onResult: (failure) => failure !== undefined && failures.push(failure.message),
  });
  await publisher.finish(key);
  return failures;
}

/** Three replicas with two chains each, signed and published. */
export class Fleet {
  /** The folder with a folder for each replica. */
  readonly folder = temporaryFolder();
  readonly stateFolder = join(temporaryFolder(), 'state');
  readonly state = openState(this.stateFolder);
  readonly replicas: readonly SampleReplica[] = ['gw-1', 'gw-2', 'gw-3'].map((name) => ({
    name,
    folder: join(this.folder, name, 'audit'),
    key: generateKeyPairSync('ed25519').privateKey,
  }));

  /** Makes the logs. Each chain has `count` calls. */
  static async make(count = 4): Promise<Fleet> {
    const fleet = new Fleet();
    onTestFinished(() => fleet.state.close());
    for (const [at, replica] of fleet.replicas.entries()) {
      await appendChain(replica, { from: START + at * 500, count });
      await appendChain(replica, { from: START + 3_600_000 + at * 500, count });
      sealReplica(replica);
      await publishHead(fleet.state, replica);
    }
    return fleet;
  }

  get folders(): readonly string[] {
    return this.replicas.map(({ folder }) => folder);
  }

  heads(): ReturnType<typeof readHeads> {
    return readHeads(this.state);
  }
}
