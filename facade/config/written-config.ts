/**
 * The shape of tollgate.yaml as people write it, after its variables are filled in. The loader fills in defaults.
 * Generated from tollgate.schema.json by `npm run generate`; do not edit it.
 * A list has a hole where an entry was refused.
 */
/** A verb (read, write, destructive, execute), or a verb with the meaning of arguments. */
export type WrittenSemantics =
  | string
  | {
      /** What a call does, from harmless to dangerous. */
      readonly verb: 'read' | 'write' | 'destructive' | 'execute';
      /** Arguments that are file paths. */
      readonly paths?: readonly string[];
      /** Arguments that are URLs. */
      readonly urls?: readonly string[];
      /** The argument that is a shell command. */
      readonly command?: string;
      /** The verb for each value of one argument, where a tool does several things. */
      readonly byArgument?: {
        /** Name of the argument. */
        readonly argument: string;
        /** The verb for each of its values. */
        readonly verbs: {
          /** What a call does, from harmless to dangerous. */
          readonly [k: string]: 'read' | 'write' | 'destructive' | 'execute';
        };
      };
    };
/** A server of a primitive with the calls that it serves, or only its name for all other calls. */
export type WrittenRoute =
  | string
  | {
      /** The server of these calls: `workspace`, or a server with a mapping. */
      readonly server: string;
      /** Calls whose real path matches one of these globs, relative to the workspace. Not for bash. */
      readonly paths?: readonly string[];
      /** Calls of runs that have one of these labels. */
      readonly labels?: readonly string[];
    };
/**
 * A server of bash with the calls that it serves, or only its name for all other calls. A command opens
 * files that it does not name, so `paths` is not possible.
 */
export type WrittenBashRoute =
  | string
  | {
      /** The server of these calls: `workspace`, or a server with a mapping. */
      readonly server: string;
      /** Calls of runs that have one of these labels. */
      readonly labels?: readonly string[];
    };
/** `server.tool`, where the tool part may contain *, or the same with settings. */
export type WrittenExposed =
  | string
  | {
      /** `server.tool`; the tool part may contain *. */
      readonly tool: string;
      /** The name that the agent sees, for one tool only: a letter or _, then up to 63 letters, digits, _ and -. */
      readonly name?: string;
      /** The description that the agent sees, instead of the server's. */
      readonly description?: string;
      /** Hints that are added to the description. */
      readonly risk?: readonly ('approval' | 'writes' | 'network' | 'executes')[];
      /** Which JSON Schema features the model sees for this tool, like schemaProfile of the profile. */
      readonly schemaProfile?: string;
      /** Arguments with a fixed value; the agent neither sees nor sets them. */
      readonly pins?: {
        readonly [k: string]: unknown;
      };
    };
/** `server.prompt`, where the prompt part may contain *, or the same with a name. */
export type WrittenExposedPrompt =
  | string
  | {
      /** `server.prompt`; the prompt part may contain *. */
      readonly prompt: string;
      /**
       * The name that the client sees, for one prompt only: a letter or _, then up to 63 letters, digits, _ and
       * -.
       */
      readonly name?: string;
      /** The description that the client sees, instead of the server's. */
      readonly description?: string;
    };
/** A path, or a path or url with a mode. */
export type WrittenPolicy =
  | string
  | {
      /** A .yaml file of rules, a .rego file or folder, or a .tar.gz bundle; relative to this file. */
      readonly path?: string;
      /** A bundle that is fetched: https, or http on the loopback address. */
      readonly url?: string;
      /**
       * enforce applies the policy, warn allows the call and warns the caller, shadow only records, off ignores
       * the policy. deny and dryrun are Gatekeeper's names for enforce and shadow.
       */
      readonly mode?: 'enforce' | 'warn' | 'shadow' | 'off' | 'deny' | 'dryrun';
      /** Other modes for the callers of a profile or an origin. The first entry that matches applies. */
      readonly modes?: {
        /** For callers that have this profile. */
        readonly profile?: string;
        /** For callers of this origin. */
        readonly origin?: string;
        /** The mode for them. */
        readonly mode: 'enforce' | 'warn' | 'shadow' | 'off' | 'deny' | 'dryrun';
      }[];
      /** How often to check for a newer bundle: a number with s, m or h. */
      readonly poll?: string;
      /** Bearer token for the address, from a variable. */
      readonly token?: string;
      /** The signature that the bundle must have. */
      readonly verify?: {
        /** Files of public keys in PEM format; the signature of one of them is enough. */
        readonly keys: readonly string[];
        /** The scope that the signature must name (opa sign --scope is a claim of the token). */
        readonly scope?: string;
      };
    };

/**
 * tollgate.yaml: the servers behind Tollgate, who may use them, and within which limits. Paths, commands,
 * addresses, variables, headers, tokens and pins may contain ${VAR}, ${VAR:-default}, ${VAR:?message},
 * ${env:VAR}, ${secret:NAME} (env and headers of servers), ${workspaceFolder}, ${userHome}, ${configDir},
 * ${stateFolder} and ${tollgateFolder}; $$ is a plain $.
 */
export interface WrittenConfig {
  /** Version of this format. */
  readonly version?: 1;
  /** The folder in which the primitives work; relative to this file. Not / and not the home folder. */
  readonly workspace?: string;
  /**
   * The folder of budgets, grants, spills and the audit log; outside the workspace. Default:
   * $XDG_STATE_HOME/tollgate, a folder for each project. Or the address of a store that several machines
   * share: postgres://USER@HOST/DATABASE or redis://HOST. Or a mapping with both.
   */
  readonly state?:
    | string
    | {
        /** The state folder of this machine: spills, the audit log and the file of stops. */
        readonly folder?: string;
        /** The address of the store, without a password. */
        readonly store: string;
        /** The secret with the password: `secret:NAME`. */
        readonly password?: string;
        /** A PEM file with the certificates that are trusted. Default: those of Node.js. */
        readonly ca?: string;
        /** Separates installations in one store: the schema of Postgres, the prefix of keys in Redis. */
        readonly namespace?: string;
        /** The most connections to Postgres of one process. */
        readonly connections?: number;
        /** How long the store may take for a connection or an answer. Calls that need it are refused then. */
        readonly timeoutMs?: number;
      };
  /**
   * Folders outside the workspace that read, write and edit can reach after an owner has added the
   * capability cross_workspace.
   */
  readonly otherWorkspaces?: {
    /** Folders whose files may be read; relative to this file. */
    readonly read?: readonly string[];
    /** Folders whose files may be read and changed; relative to this file. */
    readonly write?: readonly string[];
  };
  /**
   * Servers behind Tollgate by name. An entry without command and url adds settings to a server of an
   * included file.
   */
  readonly servers?: {
    readonly [k: string]: WrittenServer;
  };
  /** How the commands of bash in the workspace run. */
  readonly bash?: {
    /**
     * `sandbox` gives commands the workspace and what is listed here; `direct` gives them all of your rights.
     * Default: `sandbox`.
     */
    readonly isolation?: 'direct' | 'sandbox';
    /**
     * On a platform where a path cannot be resolved to a descriptor (not Linux), bash is refused together with
     * rules on paths, unless this is true. Default: false.
     */
    readonly acceptPathRaces?: boolean;
    readonly filesystem?: WrittenFilesystem;
    readonly network?: WrittenNetwork;
    readonly limits?: WrittenLimits;
  };
  /**
   * The paths of programs that Tollgate itself runs: absolute, and outside all folders that agents may
   * write. A program that is not named is searched for in folders that only the system can change. Changes
   * need a restart.
   */
  readonly programs?: {
    /** The program bash. */
    readonly bash?: string;
    /** The program bwrap. */
    readonly bwrap?: string;
    /** The program docker. */
    readonly docker?: string;
    /** The program git. */
    readonly git?: string;
    /** The program notify-send. */
    readonly 'notify-send'?: string;
    /** The program npm. */
    readonly npm?: string;
    /** The program opa. */
    readonly opa?: string;
    /** The program podman. */
    readonly podman?: string;
    /** The program prlimit. */
    readonly prlimit?: string;
    /** The program python3. */
    readonly python3?: string;
    /** The program rg. */
    readonly rg?: string;
    /** The program setpriv. */
    readonly setpriv?: string;
    /** The program socat. */
    readonly socat?: string;
    /** The program unshare. */
    readonly unshare?: string;
    /** The program xdg-open. */
    readonly 'xdg-open'?: string;
  };
  /**
   * Files of Claude, VS Code, Cursor, Windsurf or Gemini that define servers. They never grant trust and
   * never stop the start.
   */
  readonly include?: readonly string[];
  /**
   * Addresses of registries of MCP servers that tollgate search asks, besides the known servers. A registry
   * has the MCP registry API (GET /v0.1/servers).
   */
  readonly registries?: readonly string[];
  /**
   * The sources of secrets that are not in the vault, by name. Servers use a secret as ${secret:NAME} in env
   * or headers.
   */
  readonly secrets?: {
    /** The source: exactly one of env, file, exec and keychain. */
    readonly [k: string]: {
      /** A variable of Tollgate's own environment, read when a server starts. */
      readonly env?: string;
      /**
       * A file outside of the workspace, read when a server starts. Its text without a final line end is the
       * value.
       */
      readonly file?: string;
      /** A program and its arguments, without a shell. Its output within 10 seconds is the value. */
      readonly exec?: readonly string[];
      /** An entry of the keychain of the operating system: service/account. */
      readonly keychain?: string;
    };
  };
  /** The callers. Default: one principal `local` for the person who starts Tollgate. */
  readonly principals?: readonly WrittenPrincipal[];
  /**
   * Named selections of servers with their own settings. `default` (no server) and `harbor` (small budgets,
   * and nothing without a grant) are built in.
   */
  readonly profiles?: {
    readonly [k: string]: WrittenProfile;
  };
  /** YAML rule files, folders of Rego, or built bundles (.tar.gz). */
  readonly policies?: readonly WrittenPolicy[];
  /** Rules written here instead of in a separate file; see docs/policies.md. Variables are not filled in. */
  readonly rules?: {
    readonly [k: string]: unknown;
  }[];
  readonly expose?: WrittenExpose;
  /**
   * Templates by server.prompt, which the results of these prompts must match, and prompts of your own by
   * prompts.name.
   */
  readonly prompts?: {
    readonly [k: string]: WrittenPrompt;
  };
  /** Budgets for every caller. */
  readonly budgets?: readonly WrittenBudget[];
  /** Limits of one call. */
  readonly caps?: {
    /** How many bytes of one result the model sees; the rest is spilled, and `read` can read it. */
    readonly bytes?: number;
    /** How many lines of one result the model sees. */
    readonly lines?: number;
    /** Arguments of one call, in bytes; more is refused. */
    readonly argBytes?: number;
    /** How many bytes of one result are stored as a spill. */
    readonly spillBytes?: number;
    /** How many bytes of images, audio and blobs of one result are shown; the rest is spilled and named. */
    readonly media?: number;
    /**
     * Validate results against the schema that the tool declares: off, warn (report a violation) or strict
     * (refuse the result).
     */
    readonly validateOutput?: 'off' | 'warn' | 'strict';
    /** Calls of one session that run at once; more wait for their turn. */
    readonly concurrent?: number;
    /** The most milliseconds that one call may take. Default: the timeout of the server. */
    readonly timeoutMs?: number;
  };
  /** The audit log. */
  readonly audit?: {
    /** Folder of the audit log; outside the workspace. Default: `audit` in the state folder. */
    readonly folder?: string;
    /** A file of the log is closed after this many bytes; a new day closes it too. */
    readonly rotateBytes?: number;
    /**
     * The name of this replica of a fleet, in its records and checkpoints. Default: the host name if `state`
     * names a store, otherwise none.
     */
    readonly replica?: string;
    /** How the log is signed. */
    readonly signing?: {
      /**
       * The Ed25519 private key (PEM): a file of mode 0600 outside the workspace, or `secret:NAME`. Default:
       * made in the state folder.
       */
      readonly key?: string;
      /** A checkpoint is signed after this many records of one process. */
      readonly every?: number;
      /** New records are signed after this time: seconds, minutes or hours. */
      readonly within?: string;
      /** A program that gets each checkpoint on stdin, to keep or cosign it elsewhere. */
      readonly witness?: {
        /** The program and its arguments, without a shell. It has 10 seconds. */
        readonly command: readonly string[];
        /** Verifier key of the witness. With it, the program must print a cosignature. */
        readonly key?: string;
      };
    };
    /** Copies each record of the log to a file, or to a receiver by HTTP. */
    readonly export?: {
      /**
       * A file outside the workspace that gets one record in each line, in a folder that exists; or an address
       * that gets them by POST: https, or http of this machine.
       */
      readonly to: string;
      /** HTTP headers that are sent to the address. Take secrets from the vault. */
      readonly headers?: {
        /** A value; quote numbers and true. */
        readonly [k: string]: string;
      };
      /** The most records of one request. */
      readonly batch?: number;
    };
    /**
     * What the records of a call tell of its arguments: `none` nothing, `names` the paths, programs and hosts,
     * `full` also keeps all arguments and decisions next to the log, encrypted, so that decisions can be
     * explained and replayed.
     */
    readonly facts?: 'none' | 'names' | 'full';
    /** How long recorded arguments are kept with `facts: full`. They can be deleted at any time. */
    readonly recordings?: {
      /** How long recorded arguments are kept: minutes, hours or days. */
      readonly keep?: string;
      /** Bytes of all recordings; above it the oldest are removed. */
      readonly maxBytes?: number;
    };
    /**
     * When a running facade moves old files of the log to compressed archives. Without it, the log keeps all
     * files.
     */
    readonly keep?: {
      /** Files whose records are all older are moved: hours or days. */
      readonly age?: string;
      /** Bytes of the log; above it the oldest files are moved. */
      readonly size?: number;
      /** The folder of the archives; outside of what agents may write. */
      readonly archive: string;
    };
  };
  /** Approvals of calls by a person. */
  readonly approvals?: {
    /**
     * How long a call waits for its approval before it is refused, ms; 0: it does not wait. Keep it below the
     * timeout of your client.
     */
    readonly waitMs?: number;
    /** How long a request, an approval and a denial are valid, ms. */
    readonly expireMs?: number;
  };
  /** How long the data of runs is kept, even if their session continues. */
  readonly runs?: {
    /** The age at which a spill, or a run that a host did not end, is removed: minutes, hours or days. */
    readonly keep?: string;
  };
  /**
   * How much one turn of a conversation may ask of the internal server `knowledge`. Profiles that list the
   * server can use it.
   */
  readonly knowledge?: {
    /** Questions of one turn. */
    readonly requests?: number;
    /** Bytes of all answers of one turn. */
    readonly bytes?: number;
    /** Passages and facts in all answers of one turn. */
    readonly candidates?: number;
  };
  /** Limits of one run of code (`expose.code`), and code of the owner. */
  readonly code?: {
    /** Bytes of memory of one run. */
    readonly memory?: number;
    /** Bytes of the stack of one run. */
    readonly stack?: number;
    /** Milliseconds that the code may run. Time in which it waits for tools or for a person does not count. */
    readonly timeMs?: number;
    /** Bytes that one run may return and print. What the model sees of it is limited by caps. */
    readonly output?: number;
    /** Calls of tools by one run. */
    readonly calls?: number;
    /** Calls of one run that are open at once; others wait for their turn. */
    readonly parallel?: number;
    /** Bytes of the variables that are kept between the runs of a session. 0: none are kept. */
    readonly variables?: number;
    /** Code that agents call as a tool, by the name of the tool. Profiles with expose.code show all of them. */
    readonly snippets?: {
      readonly [k: string]: WrittenSnippet;
    };
  };
  /** Which labels of results stay after their session. */
  readonly labels?: {
    /**
     * Labels that stay with the principal, in all of its sessions and runs, until an owner clears them with
     * `tollgate labels clear`.
     */
    readonly sticky: readonly string[];
  };
  /** Where the owner is told what needs attention. Without it: nowhere. */
  readonly notices?: {
    /** true: serving processes show a notice on the desktop of their user. */
    readonly desktop?: boolean;
    /** An https address, or http of this machine, that gets a POST with ids, kinds and counts of new items. */
    readonly webhook?: string;
  };
  /** The HTTP listener of `tollgate serve`. */
  readonly listen?: {
    /** Address to listen on. */
    readonly host?: string;
    /** Port to listen on; 0 picks a free one. */
    readonly port?: number;
    /**
     * Port on which other replicas send on requests of sessions that this one has; 0 picks a free one.
     * Replicas share the state. Without it, a session moves to the replica that is asked.
     */
    readonly replicaPort?: number;
    /** Address of this replica for the others, also to listen on. Default: `listen.host`. */
    readonly replicaHost?: string;
    /**
     * At the end, `/readyz` fails for this long before requests are refused, so that a load balancer sends
     * them elsewhere.
     */
    readonly unreadyMs?: number;
    /** Host headers that are accepted in addition to those of the loopback. */
    readonly hosts?: readonly string[];
    /** Origins of web pages that may connect, scheme and host; no wildcard. */
    readonly origins?: readonly string[];
    /** `token` requires a bearer token; `none` accepts every caller on the loopback address. */
    readonly auth?: 'token' | 'none';
    /**
     * Accepts JWT access tokens of one issuer, in addition to the tokens of `principals`. Each of its subjects
     * is a principal.
     */
    readonly jwt?: {
      /** The claim `iss` of its tokens, and the address of its metadata. */
      readonly issuer: string;
      /** The claim `aud` that a token must have. Use the address of the MCP endpoint. */
      readonly audience: string;
      /** Address of the MCP endpoint as clients reach it. Default: the audience. Required if that is no address. */
      readonly resource?: string;
      /** Address of the keys (JWKS). Default: the one in the metadata of the issuer. */
      readonly jwks?: string;
      /** Signatures that are accepted. Default: RS256, PS256, ES256 and EdDSA. */
      readonly algorithms?: readonly (
        | 'RS256'
        | 'RS384'
        | 'RS512'
        | 'PS256'
        | 'PS384'
        | 'PS512'
        | 'ES256'
        | 'ES384'
        | 'ES512'
        | 'EdDSA'
      )[];
      /**
       * Claims that a token must have with exactly these texts, such as the organisation of a tenant. Others are
       * refused.
       */
      readonly require?: {
        /** The only text that the claim may be. */
        readonly [k: string]: string;
      };
      /** Which claims become which facts of the principal. A claim that is not named here changes nothing. */
      readonly claims?: {
        /** Claim with the id of the subject. Default: `sub`. */
        readonly id?: string;
        /**
         * Claim with the role. The first value that the token has decides. Default: every subject has the role
         * `user`.
         */
        readonly role?: {
          /** Name of the claim: a text, a list of texts, or the words of `scope`. */
          readonly claim: string;
          /** Value in the token → role. Other values are ignored. */
          readonly values: {
            /** A role. */
            readonly [k: string]: string;
          };
        };
        /** Claim with the groups. Default: none. */
        readonly groups?: {
          /** Name of the claim: a text, a list of texts, or the words of `scope`. */
          readonly claim: string;
          /** Value in the token → group. Other values are ignored. */
          readonly values: {
            /** A group. */
            readonly [k: string]: string;
          };
        };
        /** Claim with the profiles. Default, and if no value fits: `default`. */
        readonly profiles?: {
          /** Name of the claim: a text, a list of texts, or the words of `scope`. */
          readonly claim: string;
          /** Value in the token → profile. Other values are ignored. */
          readonly values: {
            /** A profile. */
            readonly [k: string]: string;
          };
        };
        /**
         * Claim that makes a subject an owner, who may approve calls and change grants. Default: no subject is
         * one.
         */
        readonly owner?: {
          /** Name of the claim. */
          readonly claim: string;
          /** Values that make an owner. */
          readonly values: readonly string[];
        };
      };
    };
    /** Bytes of one request. */
    readonly maxBodyBytes?: number;
    /** The most parallel sessions. One more ends the idle session that was unused longest. */
    readonly maxSessions?: number;
    /**
     * The most parallel sessions of one principal; if `maxSessions` is less, that is the limit. One more ends
     * the principal's idle session that was unused longest.
     */
    readonly maxSessionsPerPrincipal?: number;
    /**
     * Milliseconds after which an idle session ends. One with an open stream stays, but may be ended for a new
     * session after this time.
     */
    readonly idleMs?: number;
    /**
     * The most parallel connections. One more closes an idle one: the oldest without a token, else the one
     * whose last request is longest ago.
     */
    readonly maxConnections?: number;
    /** Milliseconds in which the headers of a request must arrive. */
    readonly headersMs?: number;
    /** Milliseconds in which a complete request must arrive. */
    readonly requestMs?: number;
    /**
     * Milliseconds after which a connection is closed that has no request, or whose client does not read its
     * answer.
     */
    readonly socketIdleMs?: number;
  };
  /** Limits of the whole facade. */
  readonly limits?: {
    /** The most configured servers; included servers above it are left out. */
    readonly servers?: number;
    /**
     * The most servers that are connected at once, over all processes of a state folder. Default for `serve`:
     * 20.
     */
    readonly connections?: number;
    /** The most calls that run at once in one process. Further ones wait, and principals take turns. */
    readonly calls?: number;
    /**
     * The most bytes of calls that wait in one process: their arguments, and 16 KiB for each. A call above it
     * is refused.
     */
    readonly waitingBytes?: number;
    /**
     * Milliseconds that running calls may continue after a signal or the end of the input. Default for
     * `serve`: 20000.
     */
    readonly drainMs?: number;
  };
  /** The tenants of `tollgate serve`, by name: the configuration file of each. Its endpoint is /t/NAME/mcp. */
  readonly tenants?: {
    /** The configuration file of a tenant. Each has another folder. */
    readonly [k: string]: string;
  };
  /** Which JSON Schema features the model sees. */
  readonly schemaProfile?: string;
}
/** One MCP server: `command` starts it, `url` reaches it. */
export interface WrittenServer {
  /** Its purpose, in one line, for people; no model reads it. */
  readonly description?: string;
  /**
   * Profiles that reach it and show all of its tools, as if the profile named it. If the profile lists some
   * of its tools under `expose`, only those are shown.
   */
  readonly profiles?: readonly string[];
  /** How it is reached. Default: stdio with `command`, http with `url`. */
  readonly transport?: 'stdio' | 'http' | 'sse';
  /** Program to start; not a shell command line. */
  readonly command?: string;
  /** Arguments of the program, each a separate text. */
  readonly args?: readonly string[];
  /** Variables of the program. Secrets: ${secret:NAME} from the vault, or ${env:NAME}. */
  readonly env?: {
    /** A value; quote numbers and true. */
    readonly [k: string]: string;
  };
  /** Folder in which the program starts; relative to this file. */
  readonly cwd?: string;
  /** Address of a remote server, http or https, without user and password. */
  readonly url?: string;
  /** Path of the unix socket of an internal server, in a folder of mode 0700; relative to this file. */
  readonly socket?: string;
  /** HTTP headers that are sent to the server. Take secrets from the environment. */
  readonly headers?: {
    /** A value; quote numbers and true. */
    readonly [k: string]: string;
  };
  /** The client with which `tollgate login` signs in to a remote server. Default: Tollgate registers one. */
  readonly oauth?: {
    /**
     * `authorization_code`: a person consents in a browser. `client_credentials`: the client itself has the
     * permission; for machines. `enterprise`: the identity provider of the enterprise vouches for the user.
     */
    readonly grant?: 'authorization_code' | 'client_credentials' | 'enterprise';
    /** Address of the issuer with which the client is registered. No one else gets the client and its secret. */
    readonly issuer?: string;
    /** Id of a client that is registered already. */
    readonly clientId?: string;
    /** Take it from the vault. Needs `issuer`. */
    readonly clientSecret?: string;
    /**
     * Proves the client instead of a secret (private_key_jwt): a PKCS #8 key as PEM, or a JWK. Take it from
     * the vault. Needs `issuer`.
     */
    readonly privateKey?: string;
    /** The only scopes that are requested. Default: those that the server names. */
    readonly scopes?: readonly string[];
    /** The identity provider of the enterprise, which vouches for the user. Only for the grant `enterprise`. */
    readonly enterprise?: {
      /** Address of the identity provider. No one else gets the client, its secret and the ID token. */
      readonly issuer: string;
      /** Id of the client that is registered there. The ID token was issued to it. */
      readonly clientId: string;
      /** Take it from the vault. */
      readonly clientSecret?: string;
      /** Proves the client instead of a secret. Take it from the vault. */
      readonly privateKey?: string;
      /** The ID token of the user, from the vault or from a program (`secrets.*.exec`) that gets a new one. */
      readonly idToken: string;
    };
    /**
     * Port of 127.0.0.1 to which the browser returns, if the client was registered with one. Default: any free
     * port.
     */
    readonly callbackPort?: number;
  };
  /**
   * `sandbox` (Linux) and `container` give the server only what `sandbox` names; `direct` starts it with all
   * of your rights. Default: `sandbox`.
   */
  readonly isolation?: 'direct' | 'sandbox' | 'container';
  readonly sandbox?: WrittenSandbox;
  /** internal: your own server, limited to the tools listed here and to their pin. Default: external. */
  readonly trust?: 'internal' | 'external';
  /** Hash of the definitions of all tools of an internal server; `tollgate servers` shows it. */
  readonly pin?: string;
  /** The tools of the server that Tollgate uses. */
  readonly tools?: {
    /** Only these tools; names or patterns with *. */
    readonly allow?: readonly string[];
    /** Never these tools; takes precedence over allow. */
    readonly deny?: readonly string[];
  };
  /**
   * What the tools do, by name or pattern. The first match applies, and a tool without a match counts as
   * destructive.
   */
  readonly semantics?: {
    readonly [k: string]: WrittenSemantics;
  };
  /** Mapping of catalogs/primitives that lets this server serve primitives. */
  readonly mapping?: string;
  /** Milliseconds until the server must have answered its handshake. */
  readonly connectTimeoutMs?: number;
  /** Milliseconds without an answer after which a call ends; progress restarts the time. */
  readonly timeoutMs?: number;
  /** Milliseconds after which a call always ends. */
  readonly hardTimeoutMs?: number;
  /**
   * Restarts after a crash that the calls of one session may cause within ten minutes. For a remote server:
   * attempts to connect again, default 10.
   */
  readonly maxRetries?: number;
  /**
   * true: you have checked what the server says about its tools (readOnlyHint, destructiveHint), and it
   * counts for tools that semantics does not list.
   */
  readonly trustHints?: boolean;
  /** lazy starts the server with its first use, eager with Tollgate. */
  readonly start?: 'lazy' | 'eager';
  /**
   * ephemeral: runs until it was idle for a minute or its sessions have ended; on-demand: until Tollgate
   * ends or another server needs its connection; keep-alive: always, and it is restarted after a crash.
   */
  readonly lifetime?: 'ephemeral' | 'on-demand' | 'keep-alive';
  /** Milliseconds between two pings of an idle remote server (30000 by default); 0: none. */
  readonly healthCheckMs?: number;
  /** Milliseconds before the first reconnect; doubles each time. */
  readonly reconnectBackoffMs?: number;
  /** Like caps.validateOutput, for this server. */
  readonly validateOutput?: 'off' | 'warn' | 'strict';
  /** Labels that its results bring into a run. */
  readonly labels?: readonly string[];
  /**
   * How the client sees URIs of its resources: `prefixed` with the name of the server and +, or its `own`.
   * At most one server of a profile has its own.
   */
  readonly uri?: 'prefixed' | 'own';
  /**
   * What the server gets of a client's trace in `_meta`: the trace `context`, or its `baggage` too, which
   * may name users.
   */
  readonly trace?: 'context' | 'baggage';
  /** What the server may ask the client during a call, if a rule allows it too. Default: nothing. */
  readonly asks?: readonly ('sampling' | 'elicitation' | 'roots')[];
  /**
   * `session` gives each session its own process or connection, so that requests of the server belong to one
   * client; `shared` serves all sessions with one.
   */
  readonly process?: 'shared' | 'session';
}
/** What an isolated program gets. It sees and reaches nothing else of the machine. */
export interface WrittenSandbox {
  readonly filesystem?: WrittenFilesystem;
  readonly network?: WrittenNetwork;
  readonly limits?: WrittenLimits;
  /** Image of a container, with its digest if possible. */
  readonly image?: string;
}
/**
 * Folders and files that are visible in addition to the system's programs and its own; relative to the
 * workspace.
 */
export interface WrittenFilesystem {
  /** Visible, and read-only. */
  readonly allowRead?: readonly string[];
  /** Visible, and writable. Default for a server that serves primitives: the workspace. */
  readonly allowWrite?: readonly string[];
  /** Hidden, although allowed by the other two. A path that does not exist at the start is not hidden. */
  readonly denyRead?: readonly string[];
  /**
   * Never writable, even if allowWrite allows it. A path that does not exist at the start can still be
   * created.
   */
  readonly denyWrite?: readonly string[];
}
/** What the program can reach over the network. */
export interface WrittenNetwork {
  /** Hosts, or *.example.org for all names below it, with :port if it is not 80 or 443. */
  readonly allowedDomains?: readonly string[];
  /**
   * Hosts that are never reached, even if they are allowed, written like the allowed ones; without :port on
   * every port.
   */
  readonly deniedDomains?: readonly string[];
}
/**
 * The limits of an isolated program. Defaults for a server: 256 MB of memory, 64 processes, files of 256
 * MB. For bash: 4096 MB, 512, 2048 MB, one hour of CPU time.
 */
export interface WrittenLimits {
  /**
   * Megabytes of memory of all processes together; if no control group is available, of data of each
   * process.
   */
  readonly memoryMb?: number;
  /** The number of processes and threads together. Node has about seven threads. */
  readonly processes?: number;
  /** Megabytes of the largest file, and of everything in /tmp. */
  readonly fileMb?: number;
  /** Seconds of CPU time after which a process is ended. Default for a server: no limit. */
  readonly cpuSeconds?: number;
}
/** One caller. */
export interface WrittenPrincipal {
  /** Name in policies and audit. If it is the name of an OS user, the principal belongs to that user. */
  readonly id: string;
  /** Role, for policies. */
  readonly role?: string;
  /** Groups, for policies. */
  readonly groups?: readonly string[];
  /** Profiles, stacked in this order. Default: `default`. */
  readonly profiles?: readonly string[];
  /**
   * Bearer token for HTTP: its hash (sha256: and 64 hex digits), or ${env:NAME} that holds the token or its
   * hash.
   */
  readonly token?: string;
  /** The client that has the token; it is the origin of its calls. Default: the id. */
  readonly client?: string;
  /**
   * true: every user who starts Tollgate over stdio may be this principal; false: no one. Default: true
   * without a token, else only the OS user with this name.
   */
  readonly stdio?: boolean;
  /** May approve, and may change grants. */
  readonly owner?: boolean;
  /** The space of its data in internal servers. Principals with the same space share it. Default: the id. */
  readonly space?: string;
  /**
   * Profiles in which this principal may register servers through the host API. Each server still needs an
   * owner's approval.
   */
  readonly registers?: readonly string[];
}
/** Servers and settings. Several profiles of a principal are combined; later ones override earlier ones. */
export interface WrittenProfile {
  /** Servers whose tools this profile reaches. */
  readonly servers?: readonly string[];
  readonly expose?: WrittenExpose;
  /** Budgets for calls under this profile. */
  readonly budgets?: readonly WrittenBudget[];
  /** Limits that differ from those of the file. */
  readonly caps?: {
    /** How many bytes of one result the model sees; the rest is spilled, and `read` can read it. */
    readonly bytes?: number;
    /** How many lines of one result the model sees. */
    readonly lines?: number;
    /** Arguments of one call, in bytes; more is refused. */
    readonly argBytes?: number;
    /** How many bytes of one result are stored as a spill. */
    readonly spillBytes?: number;
    /** How many bytes of images, audio and blobs of one result are shown; the rest is spilled and named. */
    readonly media?: number;
    /**
     * Validate results against the schema that the tool declares: off, warn (report a violation) or strict
     * (refuse the result).
     */
    readonly validateOutput?: 'off' | 'warn' | 'strict';
    /** Calls of one session that run at once; more wait for their turn. */
    readonly concurrent?: number;
    /** The most milliseconds that one call may take. Default: the timeout of the server. */
    readonly timeoutMs?: number;
  };
  /** Limits of one run of code that differ from those of the file. */
  readonly code?: {
    /** Bytes of memory of one run. */
    readonly memory?: number;
    /** Bytes of the stack of one run. */
    readonly stack?: number;
    /** Milliseconds that the code may run. Time in which it waits for tools or for a person does not count. */
    readonly timeMs?: number;
    /** Bytes that one run may return and print. What the model sees of it is limited by caps. */
    readonly output?: number;
    /** Calls of tools by one run. */
    readonly calls?: number;
    /** Calls of one run that are open at once; others wait for their turn. */
    readonly parallel?: number;
    /** Bytes of the variables that are kept between the runs of a session. 0: none are kept. */
    readonly variables?: number;
  };
  /** How long servers stay for sessions of this profile, by name. Of several sessions the longest applies. */
  readonly lifetimes?: {
    /** Like lifetime of the server. */
    readonly [k: string]: 'ephemeral' | 'on-demand' | 'keep-alive';
  };
  /** When servers start for this profile, by name: with each of its sessions, or not before their first use. */
  readonly starts?: {
    /** Like start of the server. */
    readonly [k: string]: 'lazy' | 'eager';
  };
  /**
   * Variables of servers for sessions of this profile, by server. They are added to those of the server and
   * replace equal names. Such sessions use a process of their own, which no session with other variables
   * shares.
   */
  readonly env?: {
    /** Like env of the server. */
    readonly [k: string]: {
      /** A value; quote numbers and true. */
      readonly [k: string]: string;
    };
  };
  /** Like schemaProfile of the file. */
  readonly schemaProfile?: string;
  /**
   * true: the servers of this profile act on the machine itself, outside every sandbox (`isolation:
   * direct`). They are off until an owner adds `desktop` with `tollgate upgrades enable desktop`, and may be
   * in no other profile.
   */
  readonly host?: boolean;
  /**
   * true: only reading runs until an owner has approved the plan of the run. It is enough if one of several
   * profiles says so.
   */
  readonly plan?: boolean;
  /**
   * required: nothing is listed, called or started without a grant of an owner to the caller's origin. It is
   * enough if one of several profiles says so.
   */
  readonly grants?: 'optional' | 'required';
  /**
   * caller: a rule that asks about a call that only reads or writes also asks the person at the client, in a
   * form, if the client supports forms. All of several profiles must say so. owner: only owners decide.
   */
  readonly approvals?: 'owner' | 'caller';
}
/** What the agent sees. A profile with its own `expose` does not use that of the file. */
export interface WrittenExpose {
  /**
   * The server of read, write, edit and bash: `workspace`, a server with a mapping, or one for each. A
   * primitive that a map leaves out is not shown.
   */
  readonly primitives?:
    | string
    | {
        /** The server of read, or several in order. The first route that matches the call serves it. */
        readonly read?: string | readonly WrittenRoute[];
        /** The server of write, or several in order. The first route that matches the call serves it. */
        readonly write?: string | readonly WrittenRoute[];
        /** The server of edit, or several in order. The first route that matches the call serves it. */
        readonly edit?: string | readonly WrittenRoute[];
        /** The server of bash, or several in order. The first route that matches the call serves it. */
        readonly bash?: string | readonly WrittenBashRoute[];
      };
  /** Tools to show besides the primitives, as server.tool. */
  readonly tools?: readonly WrittenExposed[];
  /** Servers whose resources the agent may read, if a rule allows it. */
  readonly resources?: readonly string[];
  /** Prompts to show, as server.prompt, if a rule allows it. */
  readonly prompts?: readonly WrittenExposedPrompt[];
  /**
   * true: tools of servers are found with find_tools and called with call_read and call_write, and are not
   * listed. Primitives are listed as before. Default: false.
   */
  readonly search?: boolean;
  /** With search: how many tools that a session found last are added to its list. Default: 0. */
  readonly promote?: number;
  /**
   * true: the agent can run code that calls its tools, with run_code, list_modules and module_info. Default:
   * false.
   */
  readonly code?: boolean;
}
/** A budget: at least one of calls, argBytes, outputBytes, wallMs and concurrent. */
export interface WrittenBudget {
  /** Name in refusals and audit. */
  readonly id: string;
  /** What shares the budget. */
  readonly scope: 'run' | 'session' | 'principal' | 'server' | 'tool' | 'origin';
  /** Seconds after which it is full again. Default: the lifetime of the scope. */
  readonly window?: number;
  /** Number of calls. */
  readonly calls?: number;
  /** Bytes of arguments. */
  readonly argBytes?: number;
  /** Bytes of results. */
  readonly outputBytes?: number;
  /** Milliseconds that calls took. */
  readonly wallMs?: number;
  /** Parallel calls. */
  readonly concurrent?: number;
  /** Only for calls that match all of these. */
  readonly when?: {
    /**
     * What requests do their work on: one of tool, resource, prompt, completion, sampling, elicitation, roots,
     * or a list of them.
     */
    readonly kind?:
      | string
      | readonly ('tool' | 'resource' | 'prompt' | 'completion' | 'sampling' | 'elicitation' | 'roots')[];
    /** A server's name, or `workspace`. */
    readonly server?: string;
    /** A tool's name or pattern with *. */
    readonly tool?: string;
    /** What a call does, from harmless to dangerous. */
    readonly verb?: 'read' | 'write' | 'destructive' | 'execute';
    /** A role of a principal. */
    readonly role?: string;
    /** A profile's name. */
    readonly profile?: string;
  };
}
/** A template that the result of a prompt must match, or a prompt of your own. */
export interface WrittenPrompt {
  /**
   * The text of the prompt, or its messages. {{name}} stands for the argument of this name, {{*}} for any
   * text, {{*media}} for any image, audio or blob.
   */
  readonly template:
    | string
    | {
        /** Who says it. */
        readonly role: 'user' | 'assistant';
        /** A text, or a content item of MCP, in which texts may contain the same marks. */
        readonly content:
          | string
          | {
              readonly [k: string]: unknown;
            };
      }[];
  /** The text that replaces a result which does not match. Default: the prompt is refused. */
  readonly fallback?: string;
  /** The description of a prompt of your own. */
  readonly description?: string;
  /** Arguments of a prompt of your own. Default: the names in its template, all required. */
  readonly arguments?: {
    /** Its name in the template. */
    readonly name: string;
    /** What it is. */
    readonly description?: string;
    /** False if it may be left out. */
    readonly required?: boolean;
  }[];
}
/** Code of the owner that agents call as a tool. */
export interface WrittenSnippet {
  /** The file of the code: JavaScript or TypeScript, relative to this file. */
  readonly file: string;
  /** What the agent is told about it. */
  readonly description: string;
  /** JSON Schema of its arguments, which the code reads as `args`. Default: no arguments. */
  readonly input?: {
    readonly [k: string]: unknown;
  };
}

/** How the commands of the workspace run. */
export type WrittenBash = NonNullable<WrittenConfig['bash']>;
/** Where a secret comes from: one of the three. */
export type WrittenSecret = NonNullable<WrittenConfig['secrets']>[string];
/** The servers of one primitive: a name, or several routes in order. */
export type WrittenRoutes = NonNullable<Exclude<NonNullable<WrittenExpose['primitives']>, string>['read']>;
/** A policy with settings. */
export type WrittenPolicySettings = Exclude<WrittenPolicy, string>;

/** The defaults of the settings that have one in the schema. The last three are those of each entry. */
export const DEFAULTS = {
  version: 1,
  workspace: '.',
  caps: {
    bytes: 30000,
    lines: 2000,
    argBytes: 1048576,
    spillBytes: 67108864,
    media: 1048576,
    validateOutput: 'warn',
    concurrent: 16,
  },
  audit: {
    rotateBytes: 67108864,
    signing: { every: 10000, within: '60s' },
    export: { batch: 500 },
    facts: 'names',
    recordings: { keep: '7d', maxBytes: 268435456 },
  },
  approvals: { waitMs: 45000, expireMs: 600000 },
  runs: { keep: '1d' },
  knowledge: { requests: 8, bytes: 32768, candidates: 50 },
  code: { memory: 67108864, stack: 262144, timeMs: 10000, output: 1048576, calls: 200, parallel: 8, variables: 0 },
  notices: { desktop: false },
  listen: {
    host: '127.0.0.1',
    port: 7310,
    unreadyMs: 0,
    auth: 'token',
    maxBodyBytes: 4194304,
    maxSessions: 1000,
    maxSessionsPerPrincipal: 100,
    idleMs: 1800000,
    maxConnections: 4096,
    headersMs: 10000,
    requestMs: 60000,
    socketIdleMs: 60000,
  },
  limits: { servers: 20, connections: 5, calls: 256, waitingBytes: 67108864, drainMs: 10000 },
  schemaProfile: 'portable',
  server: {
    connectTimeoutMs: 10000,
    timeoutMs: 30000,
    hardTimeoutMs: 300000,
    maxRetries: 3,
    trustHints: false,
    start: 'lazy',
    lifetime: 'on-demand',
    reconnectBackoffMs: 1000,
    uri: 'prefixed',
    trace: 'context',
    process: 'shared',
  },
  principal: { role: 'user', owner: false },
  profile: { host: false, plan: false, grants: 'optional', approvals: 'owner' },
} as const;
