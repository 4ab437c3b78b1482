/** A tollgate.yaml with every key of the schema, each with a value that is not its default. */
import type { Project } from './project.ts';

export const FULL_ENV = {
  GH_TOKEN: 'value-of-gh-token',
  ALICE: 'token-of-alice-0123456789',
  FLEET: 'value-of-fleet-token',
} as const;

export const FULL = `
version: 1
workspace: work
state: {folder: ~/state, store: 'rediss://tollgate@store.example:6379', password: secret:store, ca: store-ca.pem,
  namespace: team_a, connections: 8, timeoutMs: 500}
otherWorkspaces: {read: [../library], write: [../site]}
include: [mcp.json]
registries: ['https://registry.example/mcp']
servers:
  files:
    description: Files of the team.
    transport: stdio
    command: npx
    args: [-y, files@1.2.3]
    env: {LEVEL: debug, GH_TOKEN: '\${env:GH_TOKEN}'}
    cwd: sub
    isolation: container
    sandbox:
      filesystem: {allowRead: [docs], allowWrite: [out], denyRead: [docs/keys], denyWrite: [out/index]}
      network: {allowedDomains: [api.example.org], deniedDomains: [private.api.example.org]}
      limits: {memoryMb: 300, processes: 70, fileMb: 80, cpuSeconds: 90}
      image: mcp/files@sha256:0123012301230123012301230123012301230123012301230123012301230123
    tools: {allow: [read_*, write_*], deny: [write_all]}
    semantics:
      read_*: read
      write_file: {verb: write, paths: [path], urls: [from], command: run, byArgument: {argument: mode,
          verbs: {wipe: destructive}}}
    mapping: server-filesystem
    trustHints: true
    start: eager
    lifetime: keep-alive
    connectTimeoutMs: 9000
    timeoutMs: 20000
    hardTimeoutMs: 40000
    maxRetries: 1
    validateOutput: strict
    labels: [internal]
    uri: own
    trace: baggage
    asks: [sampling]
    process: session
  own:
    socket: ~/run/own.sock
    trust: internal
    pin: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    tools: {allow: [find]}
  web:
    profiles: [harbor]
    transport: sse
    url: https://web.example/mcp
    headers: {X-Team: blue}
    reconnectBackoffMs: 500
    healthCheckMs: 60000
    oauth: {grant: client_credentials, issuer: 'https://login.example', clientId: team-a,
        clientSecret: '\${secret:a}', scopes: [read], callbackPort: 7311}
  vouched:
    url: https://vouched.example/mcp
    oauth: {grant: enterprise, issuer: 'https://login.example', clientId: team-a, privateKey: '\${secret:key}',
        enterprise: {issuer: 'https://corp.example', clientId: corp, clientSecret: '\${secret:b}',
            idToken: '\${secret:me}'}}
  vouched-by-key:
    url: https://vouched.example/mcp
    oauth: {grant: enterprise, issuer: 'https://login.example', clientId: team-a,
        enterprise: {issuer: 'https://corp.example', clientId: corp, privateKey: '\${secret:key}',
            idToken: '\${secret:me}'}}
  clicks: {command: clicks, isolation: direct}
programs: {bash: /opt/tools/bash, bwrap: /opt/tools/bwrap, docker: /opt/tools/docker,
    git: /opt/tools/git, notify-send: /opt/tools/notify-send, npm: /opt/tools/npm,
    opa: /opt/tools/opa, podman: /opt/tools/podman, prlimit: /opt/tools/prlimit, rg: /opt/tools/rg,
    python3: /opt/tools/python3, setpriv: /opt/tools/setpriv, socat: /opt/tools/socat, unshare: /opt/tools/unshare,
    xdg-open: /opt/tools/xdg-open}
bash:
  isolation: sandbox
  acceptPathRaces: true
  filesystem: {allowRead: [sdk], allowWrite: [., cache], denyRead: [sdk/keys], denyWrite: [.git/hooks]}
  network: {allowedDomains: [packages.example.org], deniedDomains: [internal.packages.example.org]}
  limits: {memoryMb: 600, processes: 140, fileMb: 160, cpuSeconds: 180}
secrets: {a: {env: SOME_VARIABLE}, f: {file: ~/f.txt}, b: {exec: [op, read, x]}, c: {keychain: service/account}}
principals:
  - {id: alice, role: developer, groups: [team-a], profiles: [dev], token: '\${env:ALICE}', client: cursor,
      stdio: true, owner: true, space: team-a, registers: [dev]}
  - {id: bob, profiles: [harbor]}
profiles:
  dev:
    servers: [files, web]
    expose:
      primitives: {read: [{paths: ['docs/**'], labels: [secret], server: files}, workspace],
          write: [{paths: ['docs/**'], labels: [secret], server: files}, workspace], edit: [{paths: ['docs/**'],
          labels: [secret], server: files}, workspace], bash: [{labels: [secret], server: workspace}]}
      tools:
        - web.*
        - {tool: web.read_media, name: media, description: Reads a picture., risk: [network],
            schemaProfile: flat, pins: {depth: 1}}
      resources: [web]
      prompts: [web.greet, {prompt: web.review, name: review, description: Reviews a page.}]
      search: true
      promote: 3
      code: true
    budgets:
      - {id: dev-calls, scope: session, window: 61, calls: 50, argBytes: 60, outputBytes: 70, wallMs: 80,
          concurrent: 90, when: {server: web, tool: web.x, verb: write, role: user, profile: plain, kind: tool}}
    caps: {bytes: 5000, lines: 50, argBytes: 5000, spillBytes: 5000, media: 5000, validateOutput: 'off',
        concurrent: 2, timeoutMs: 5000}
    code: {memory: 2000000, stack: 20000, timeMs: 20, output: 2000, calls: 2, parallel: 2, variables: 2}
    lifetimes: {web: ephemeral}
    starts: {web: eager}
    env: {files: {LEVEL: info, GH_TOKEN: '\${env:GH_TOKEN}'}}
    schemaProfile: flat
    plan: true
    approvals: caller
    grants: required
  plain: {servers: [web]}
  desk: {servers: [clicks], host: true, expose: {primitives: {}}}
policies:
  - rules.yaml
  - {path: more.yaml, mode: shadow}
  - {url: 'https://policies.example/bundle.tar.gz', mode: warn, poll: 5m, token: '\${env:FLEET}',
      verify: {keys: [fleet.pem], scope: write}, modes: [{profile: dev, origin: 'https://a.example',
      mode: 'off'}]}
rules:
  - {id: inline, outcome: deny, when: {}}
expose:
  primitives: {read: [{paths: ['docs/**'], labels: [secret], server: files}, workspace],
      write: [{paths: ['docs/**'], labels: [secret], server: files}, workspace], edit: [{paths: ['docs/**'],
      labels: [secret], server: files}, workspace], bash: [{labels: [secret], server: workspace}]}
  tools:
    - {tool: web.search, name: find, description: Finds pages., risk: [network], schemaProfile: flat,
        pins: {safe: true}}
  resources: [files]
  prompts: [files.sum, {prompt: web.short, name: short, description: Shortens a page.}]
  search: true
  promote: 4
  code: true
prompts:
  files.sum: {template: 'Sum {{text}}.', fallback: 'Sum: {{text}}'}
  web.short: {template: [{role: user, content: 'Shorten {{text}}.'}]}
  prompts.greet: {template: 'Greet {{name}}.', description: Greets a person., arguments: [{name: name,
      description: Who it is., required: false}]}
budgets:
  - {id: everything, scope: principal, window: 60, calls: 5, argBytes: 6, outputBytes: 7, wallMs: 8,
      concurrent: 9, when: {kind: [tool, resource], server: files, tool: read_*, verb: read, role: developer, profile: dev}}
caps: {bytes: 20000, lines: 900, argBytes: 9000, spillBytes: 9000, media: 9000, validateOutput: strict,
    concurrent: 4, timeoutMs: 9000}
audit:
  folder: ~/audit
  rotateBytes: 8192
  replica: gw-1
  facts: full
  recordings: {keep: 12h, maxBytes: 2097152}
  keep: {age: 90d, size: 2GB, archive: ~/archive}
  signing: {key: ~/audit.pem, every: 3, within: 5s, witness: {command: [cat],
    key: witness.example+82bca4dd+BNdamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea}}
  export: {to: 'https://siem.example.com/in', headers: {A: 'b'}, batch: 9}
approvals: {waitMs: 0, expireMs: 60000}
runs: {keep: 3h}
labels: {sticky: [untrusted]}
notices: {desktop: true, webhook: 'https://hooks.example/tollgate'}
code: {memory: 3000000, stack: 30000, timeMs: 30, output: 3000, calls: 3, parallel: 3, variables: 3, snippets: {greet: {file: greet.ts,
    description: Greets., input: {type: object}}}}
knowledge: {requests: 3, bytes: 4096, candidates: 9}
listen: {host: '::1', port: 0, replicaPort: 0, replicaHost: '::1', unreadyMs: 10, hosts: [box.internal], origins: ['https://a.example'], auth: none,
    maxBodyBytes: 2048, maxSessions: 3, maxSessionsPerPrincipal: 2, idleMs: 5000, maxConnections: 99,
    headersMs: 700, requestMs: 800, socketIdleMs: 9000,
    jwt: {issuer: 'https://login.example', audience: tollgate, resource: 'https://box.internal/mcp',
        jwks: 'https://login.example/keys', algorithms: [ES384], require: {org_id: acme}, claims: {id: email,
        role: {claim: roles, values: {admins: developer}}, groups: {claim: groups, values: {g-1: payments}},
        profiles: {claim: scope, values: {tools: harbor}}, owner: {claim: groups, values: [g-9]}}}}
limits: {servers: 7, connections: 2, calls: 64, waitingBytes: 16777216, drainMs: 5000}
schemaProfile: openai
tenants: {acme: acme/tollgate.yaml}
`;

/** The files that it names. */
export function writeFull(project: Project): void {
  for (const name of ['library', 'site']) project.write(`~/${name}/a.txt`, 'x\n');
  project.write('work/x', '');
  project.write('greet.ts', 'return 1;');
  project.write('rules.yaml', 'rules: []');
  project.write('more.yaml', 'rules: []');
  project.write('fleet.pem', 'a public key');
  project.write('mcp.json', '{"mcpServers": {"extra": {"command": "x"}}}');
}
