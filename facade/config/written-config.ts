/** Owns the shape of tollgate.yaml as people write it, after its variables are filled in; what is absent here gets its default in the loader. */

import type { OAuthSettings, ServerLifetime } from '../../adapters/port.ts';
import type { HelperSettings } from '../../catalogs/programs/helper-programs.ts';
import type { Semantics, Verb } from '../../catalogs/tools/tool-definition.ts';
import type { MODE_NAMES } from '../../policies/port.ts';
import type { BudgetConfig, CapsConfig, Config, ListenConfig, OtherWorkspaces, Route, Start } from './config.ts';
import type { SandboxConfig } from './servers/isolation-settings.ts';
import type { KnowledgeConfig } from './settings/knowledge-settings.ts';

/** The whole file, as tollgate.schema.json admits it. Lists have holes where an entry was refused, so that places keep their index. */
export interface WrittenConfig {
  readonly workspace?: string;
  readonly state?: string;
  readonly otherWorkspaces?: Partial<OtherWorkspaces>;
  readonly servers?: Readonly<Record<string, WrittenServer>>;
  readonly bash?: WrittenBash;
  readonly programs?: HelperSettings['programs'];
  readonly include?: readonly string[];
  readonly secrets?: Readonly<Record<string, WrittenSecret>>;
  readonly principals?: readonly WrittenPrincipal[];
  readonly profiles?: Readonly<Record<string, WrittenProfile>>;
  readonly policies?: readonly (string | WrittenPolicy)[];
  readonly rules?: readonly unknown[];
  readonly expose?: WrittenExpose;
  readonly budgets?: readonly WrittenBudget[];
  readonly caps?: Partial<CapsConfig>;
  readonly audit?: { readonly folder?: string; readonly rotateBytes?: number };
  readonly approvals?: { readonly waitMs?: number; readonly expireMs?: number };
  readonly recording?: { readonly mode?: 'off' | 'last' | 'on'; readonly keep?: string; readonly maxBytes?: number };
  readonly runs?: { readonly keep?: string };
  readonly knowledge?: Partial<KnowledgeConfig>;
  readonly labels?: { readonly sticky: readonly string[] };
  readonly listen?: Partial<ListenConfig>;
  readonly limits?: Partial<Config['limits']>;
  readonly schemaProfile?: string;
}

/** A server; without `command` and `url` it adds settings to a server of an included file. */
export interface WrittenServer {
  readonly description?: string;
  /** Profiles that reach the server and show all of its tools. */
  readonly profiles?: readonly string[];
  readonly transport?: 'stdio' | 'http' | 'sse';
  readonly command?: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly url?: string;
  readonly socket?: string;
  readonly trust?: 'internal' | 'external';
  readonly pin?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly oauth?: WrittenOAuth;
  readonly isolation?: 'direct' | 'sandbox' | 'container';
  readonly sandbox?: WrittenSandbox;
  readonly tools?: { readonly allow?: readonly string[]; readonly deny?: readonly string[] };
  readonly semantics?: Readonly<Record<string, Verb | Semantics>>;
  readonly mapping?: string;
  readonly trustHints?: boolean;
  readonly start?: Start;
  readonly lifetime?: ServerLifetime;
  readonly connectTimeoutMs?: number;
  readonly timeoutMs?: number;
  readonly hardTimeoutMs?: number;
  readonly maxRetries?: number;
  readonly reconnectBackoffMs?: number;
  readonly healthCheckMs?: number;
  readonly validateOutput?: 'off' | 'warn' | 'strict';
  readonly labels?: readonly string[];
}

/** A client for signing in to a remote server. */
export type WrittenOAuth = Partial<OAuthSettings>;

/** How commands of the workspace run. */
export type WrittenBash = Omit<WrittenSandbox, 'image'> & {
  readonly isolation?: 'direct' | 'sandbox';
  readonly acceptPathRaces?: boolean;
};

/** What an isolated program is given. */
export interface WrittenSandbox {
  readonly filesystem?: {
    readonly allowRead?: readonly string[];
    readonly allowWrite?: readonly string[];
    readonly denyRead?: readonly string[];
    readonly denyWrite?: readonly string[];
  };
  readonly network?: { readonly allowedDomains?: readonly string[]; readonly deniedDomains?: readonly string[] };
  readonly limits?: Partial<SandboxConfig['limits']>;
  readonly image?: string;
}

/** Where a secret comes from: one of the three. */
export interface WrittenSecret {
  readonly env?: string;
  readonly exec?: readonly string[];
  readonly keychain?: string;
}

/** A principal; its token is a hash, or came from the environment. */
export interface WrittenPrincipal {
  readonly id: string;
  readonly role?: string;
  readonly groups?: readonly string[];
  readonly profiles?: readonly string[];
  readonly token?: string;
  readonly client?: string;
  readonly stdio?: boolean;
  readonly owner?: boolean;
  readonly space?: string;
  readonly registers?: readonly string[];
}

/** A profile, without its name. */
export interface WrittenProfile {
  readonly servers?: readonly string[];
  readonly expose?: WrittenExpose;
  readonly budgets?: readonly WrittenBudget[];
  readonly caps?: Partial<CapsConfig>;
  readonly lifetimes?: Readonly<Record<string, ServerLifetime>>;
  readonly starts?: Readonly<Record<string, Start>>;
  readonly schemaProfile?: string;
  readonly plan?: boolean;
  readonly grants?: 'optional' | 'required';
  readonly host?: boolean;
}

/** Who serves the primitives, and which tools are shown beside them. */
export interface WrittenExpose {
  readonly primitives?: string | Readonly<Partial<Record<'read' | 'write' | 'edit' | 'bash', WrittenRoutes>>>;
  readonly tools?: readonly (string | WrittenExposed)[];
}

/** Who serves one primitive: a server, or several in order, of which an entry without conditions may be a name alone. */
export type WrittenRoutes = string | readonly (string | Route)[];

/** One exposed tool or pattern. */
export interface WrittenExposed {
  readonly tool: string;
  readonly name?: string;
  readonly description?: string;
  readonly risk?: readonly ('approval' | 'writes' | 'network' | 'executes')[];
  readonly schemaProfile?: string;
  readonly pins?: Readonly<Record<string, unknown>>;
}

/** A budget; `when` may be absent. */
export type WrittenBudget = Omit<BudgetConfig, 'when'> & { readonly when?: BudgetConfig['when'] };

/** A policy with a mode; it has either a path or a url. */
export interface WrittenPolicy {
  readonly path?: string;
  readonly url?: string;
  readonly mode?: WrittenMode;
  readonly modes?: readonly { readonly profile?: string; readonly origin?: string; readonly mode: WrittenMode }[];
  readonly poll?: string;
  readonly token?: string;
  readonly verify?: { readonly keys: readonly string[]; readonly scope?: string };
}

type WrittenMode = keyof typeof MODE_NAMES;
