/** Plans a setup before anything is written: which server becomes what, and what stays in its client's file. */
import { createHash } from 'node:crypto';
import { parse } from 'yaml';
import { canonicalJson } from '../../../catalogs/tools/definition-pin.ts';
import type { MovedSecret } from '../../clients/client-server-conversion.ts';
import type { FoundClientFile } from '../../clients/found-client-files.ts';
import { type ImportRequest, planCopy, type ServerCopy } from '../../clients/import-plan.ts';
import type { Config } from '../../config/config.ts';
import type { World } from '../../config/work-folders.ts';
import type { ConnectionDraft } from '../connect/connection-draft.ts';
import { connectedNames, readServerFile } from '../connect/connection-journal.ts';
import { draftOfCopy } from '../connect/package-draft.ts';
import { collectFormer, type FormerEntry } from './former-entries.ts';
import { unreadable } from './setup-clients.ts';

/** One server that Tollgate will start instead of the clients. */
export interface SetupServer {
  readonly name: string;
  readonly draft: ConnectionDraft;
  readonly copy: ServerCopy;
  readonly secrets: readonly MovedSecret[];
  /** Secrets that the client would have asked for. */
  readonly wanted: readonly string[];
  readonly from: readonly FormerEntry[];
}

/** An entry that stays in its file, so the client reaches the server without Tollgate, or cannot start it either. */
export interface StayingEntry {
  readonly former: FormerEntry;
  readonly why: string;
}

/** All that a setup will do. */
export interface SetupPlan {
  readonly servers: readonly SetupServer[];
  readonly stays: readonly StayingEntry[];
  /** Files whose servers cannot be read or written, each with the reason. */
  readonly unread: readonly { readonly found: FoundClientFile; readonly why: string }[];
  /** SHA-256 of all that it will do, hex. */
  readonly hash: string;
}

/** What a plan is made from. */
export interface SetupRequest {
  readonly config: Config;
  readonly world: World;
  readonly files: readonly FoundClientFile[];
}

/** What the clients start today, and how copies of it are planned. */
export interface SetupEntries {
  readonly all: readonly FormerEntry[];
  readonly unread: SetupPlan['unread'];
  readonly copies: ImportRequest;
}

/** Returns the entries of the files. Pin the packages of `copies`, then plan. */
export function readEntries({ config, world, files }: SetupRequest): SetupEntries {
  const unread = files.flatMap((found) => {
    const why = unreadable(found);
    return why === undefined ? [] : [{ found, why }];
  });
  const again = new Set(connectedNames(config));
  const { all, files: single } = collectFormer(
    files.filter((found) => !unread.some((one) => one.found === found)),
    new Set([...config.servers.keys()].filter((name) => !again.has(name))),
  );
  return { all, unread, copies: { config, world, files: single, again, isGranted: () => true } };
}

/** Plans the setup. Throws CONFIG_INVALID. */
export function planSetup({ all, unread, copies }: SetupEntries): SetupPlan {
  const { outcomes } = planCopy(copies);
  const servers = outcomes.flatMap(({ entry, copy, left }): readonly SetupServer[] => {
    if (copy === undefined || left !== undefined) return [];
    const draft = asWritten(draftOfCopy(entry.name, copy), copies.config);
    const from = all.filter(({ server }) => server === entry.name);
    return [{ name: entry.name, draft, copy, secrets: copy.secrets, wanted: copy.wanted, from }];
  });
  const stays = all.flatMap((former): readonly StayingEntry[] => {
    const why = outcomes.find(({ entry }) => entry.name === former.server)?.left;
    return why === undefined ? [] : [{ former, why }];
  });
  return { servers, stays, unread, hash: hashOf({ servers, stays }) };
}

/**
 * The profile reaches a server when its owner has agreed to it, not before. Semantics that an earlier run has written
 * stay.
 */
function asWritten(draft: ConnectionDraft, config: Config): ConnectionDraft {
  const { profiles: _, ...entry } = draft.entry;
  const text = entry.semantics === undefined ? readServerFile(config, draft.name) : undefined;
  const written = text === undefined ? undefined : ((parse(text) ?? {}) as typeof entry).semantics;
  return {
    ...draft,
    entry: written === undefined ? entry : { ...entry, semantics: written },
    // A remote server lists its tools only to those who have signed in.
    ...(entry.url !== undefined && { openness: { withSecrets: true } }),
  };
}

function hashOf({ servers, stays }: Pick<SetupPlan, 'servers' | 'stays'>): string {
  const facts = {
    // What tools do may be written down later; the hash of the start contains it.
    servers: servers.map(
      ({
        name,
        draft: {
          entry: { semantics: _, ...entry },
          ...draft
        },
        secrets,
        wanted,
        from,
      }) => ({
        name,
        entry,
        package:
          draft.package === undefined
            ? ''
            : `${draft.package.name} ${draft.package.version} ${draft.package.integrity}`,
        secrets: secrets.map((secret) => secret.name),
        wanted,
        from: from.map(({ found, entry }) => [found.file, entry.path]),
      }),
    ),
    stays: stays.map(({ former, why }) => [former.found.file, former.entry.path, why]),
  };
  return createHash('sha256').update(canonicalJson(facts)).digest('hex');
}
