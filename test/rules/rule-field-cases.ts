/** Cases for every field of a YAML rule: calls that match the rule, and calls that do not. */
import { type AskFact, EFFECT_KINDS, type EffectKind } from '../../policies/port.ts';
import type { CallOf } from '../engine/policy-fixture.ts';

/** `when` of one rule, with the calls that match and those that do not, by outcome. */
export interface FieldCase {
  readonly name: string;
  readonly when: Readonly<Record<string, unknown>>;
  /** Calls that match with every outcome. */
  readonly fires?: readonly CallOf[];
  /** Calls that match with no outcome. */
  readonly rests?: readonly CallOf[];
  /** Calls that match only a deny or ask, because a fact is unknown or only partly known. */
  readonly strict?: readonly CallOf[];
  /** Outcomes that a rule with this field may have. Default: all. */
  readonly outcomes?: readonly string[];
}

const bash = (commands: CallOf['commands'], starts = false): CallOf => ({
  server: 'workspace',
  tool: 'bash',
  verb: 'execute',
  commands: commands ?? [],
  starts,
});
const resource = (uri: string): CallOf => ({ kind: 'resource', tool: 'resources/read', uri });
const asks = (kind: EffectKind, fact: AskFact): CallOf => ({ kind, asks: fact });
const args = (value: unknown): CallOf => ({ args: value });
const long = { tollgate_long: true, bytes: 100_000, sha256: '', head: 'a' };

export const FIELDS: readonly FieldCase[] = [
  { name: 'no condition', when: {}, fires: [{}, { server: 'mail', tool: 'x', verb: 'destructive' }] },

  {
    name: 'tools: exact',
    when: { tools: ['git.status'] },
    fires: [{}],
    rests: [{ tool: 'push' }, { tool: 'status2' }, { server: 'mail' }],
  },
  {
    name: 'tools: names with dots',
    when: { tools: ['git.log.all'] },
    fires: [{ tool: 'log.all' }],
    rests: [{ tool: 'log' }, { tool: 'log_all' }],
  },
  {
    name: 'tools: prefix',
    when: { tools: ['git.get_*'] },
    fires: [{ tool: 'get_a' }, { tool: 'get_' }],
    rests: [{ tool: 'get' }, { tool: 'forget_a' }, { server: 'mail', tool: 'get_a' }],
  },
  {
    name: 'tools: all of a server',
    when: { tools: ['mail.*'] },
    fires: [{ server: 'mail', tool: 'send' }],
    rests: [{ tool: 'mail.send' }],
  },
  {
    name: 'tools: one name everywhere',
    when: { tools: ['*.search'] },
    fires: [{ tool: 'search' }, { server: 'mail', tool: 'search' }],
    rests: [{ tool: 'research' }, { tool: 'a.search' }],
  },
  {
    name: 'tools: stars in the middle',
    when: { tools: ['git.a*b*c'] },
    fires: [{ tool: 'abc' }, { tool: 'a1b2c' }],
    rests: [{ tool: 'acb' }, { tool: 'abcd' }],
  },
  {
    name: 'tools: several',
    when: { tools: ['git.push', 'mail.*'] },
    fires: [{ tool: 'push' }, { server: 'mail' }],
    rests: [{}],
  },
  {
    name: 'tools: characters of regular expressions',
    when: { tools: ['git.a+*(x)*.y'] },
    fires: [{ tool: 'a+1(x)2.y' }],
    rests: [{ tool: 'aa1(x)2.y' }, { tool: 'a+1(x)2zy' }],
  },

  { name: 'servers', when: { servers: ['mail'] }, fires: [{ server: 'mail' }], rests: [{}] },
  {
    name: 'one tool in exceptTools',
    when: { exceptTools: ['git.push'] },
    fires: [{ tool: 'get' }, { server: 'mail', tool: 'push' }],
    rests: [{ tool: 'push' }],
    outcomes: ['deny', 'ask'],
  },
  {
    name: 'exceptTools',
    when: { exceptTools: ['mail.*'], verbs: ['read'] },
    fires: [{}],
    rests: [{ server: 'mail' }, { verb: 'write' }],
    outcomes: ['deny', 'ask'],
  },
  {
    name: 'verbs',
    when: { verbs: ['write', 'execute'] },
    fires: [{ verb: 'write' }, { verb: 'execute' }],
    rests: [{}, { verb: 'destructive' }],
  },
  {
    name: 'servers and verbs together',
    when: { servers: ['git'], verbs: ['write'] },
    fires: [{ verb: 'write' }],
    rests: [{}, { server: 'mail', verb: 'write' }],
  },

  { name: 'roles', when: { roles: ['developer'] }, fires: [{}], rests: [{ principal: { role: 'guest' } }] },
  {
    name: 'groups: any of the principal’s',
    when: { groups: ['web', 'ops'] },
    fires: [{}, { principal: { groups: ['ops'] } }],
    rests: [{ principal: { groups: [] } }, { principal: { groups: ['staff'] } }],
  },
  { name: 'principals', when: { principals: ['mia'] }, fires: [{}], rests: [{ principal: { id: 'tom' } }] },
  {
    name: 'origins',
    when: { origins: ['editor'] },
    fires: [{}],
    rests: [{ principal: { origin: 'https://evil.example' } }],
  },
  { name: 'profiles', when: { profiles: ['work'] }, fires: [{}], rests: [] },
  {
    name: 'owner: true',
    when: { owner: true },
    fires: [{ principal: { owner: true } }],
    rests: [{}, { principal: { owner: false } }],
  },
  {
    name: 'owner: false',
    when: { owner: false },
    fires: [{}, { principal: { owner: false } }],
    rests: [{ principal: { owner: true } }],
  },
  {
    name: 'trust: internal',
    when: { trust: ['internal'] },
    fires: [{ server: 'workspace', tool: 'read' }],
    rests: [{}, { server: 'mail' }],
  },
  {
    name: 'trust: external',
    when: { trust: ['external'] },
    fires: [{}, { server: 'mail' }],
    rests: [{ server: 'workspace', tool: 'read' }],
  },
  {
    name: 'trust: both',
    when: { trust: ['internal', 'external'] },
    fires: [{}, { server: 'workspace', tool: 'read' }],
  },
  {
    name: '__proto__ is a name like any other',
    when: { roles: ['__proto__'] },
    fires: [{ principal: { role: '__proto__' } }],
    rests: [{}, { principal: { role: 'constructor' } }],
  },

  {
    name: 'labels',
    when: { labels: ['secret', 'internal'] },
    fires: [{ labels: ['secret'] }, { labels: ['internal', 'secret'] }],
    strict: [{ labels: ['secret', 'public'] }],
    rests: [{}, { labels: ['public'] }],
  },

  {
    name: 'paths: exact',
    when: { paths: ['a/b.txt'] },
    fires: [{ inside: ['a/b.txt'] }],
    rests: [{}, { inside: ['a/b.txt.bak'] }, { inside: ['b.txt'] }, { outside: ['/a/b.txt'] }],
  },
  {
    name: 'paths: a folder',
    when: { paths: ['src/**'] },
    fires: [{ inside: ['src/a'] }, { inside: ['src/a/b'] }, { inside: ['src'] }],
    rests: [{ inside: ['source'] }, { inside: ['x/src/a'] }, { outside: ['/src/a'] }],
  },
  {
    name: 'paths: a star stays in its segment',
    when: { paths: ['src/*.ts'] },
    fires: [{ inside: ['src/a.ts'] }],
    rests: [{ inside: ['src/a/b.ts'] }, { inside: ['src/a.tsx'] }],
  },
  {
    name: 'paths: an ending at any depth',
    when: { paths: ['**/*.pem'] },
    fires: [{ inside: ['a.pem'] }, { inside: ['x/y/a.pem'] }],
    strict: [{ outside: ['/etc/a.pem'] }],
    rests: [{ inside: ['a.pem/x'] }, { inside: ['a.pem2'] }],
  },
  {
    name: 'paths: a name at any depth',
    when: { paths: ['**/.env'] },
    fires: [{ inside: ['.env'] }, { inside: ['a/.env'] }],
    strict: [{ outside: ['/root/.env'] }],
    rests: [{ inside: ['a.env'] }, { inside: ['.env/a'] }],
  },
  {
    name: 'paths: a folder at any depth',
    when: { paths: ['**/.git/**'] },
    fires: [{ inside: ['.git'] }, { inside: ['.git/config'] }, { inside: ['a/.git/b/c'] }],
    strict: [{ outside: ['/x/.git/y'] }],
    rests: [{ inside: ['.gitignore'] }, { inside: ['a.git/b'] }],
  },
  {
    name: 'paths: stars on both sides',
    when: { paths: ['**/test/*_spec.*'] },
    fires: [{ inside: ['test/a_spec.rb'] }, { inside: ['x/test/_spec.'] }],
    strict: [{ outside: ['/y/test/a_spec.rb'] }],
    rests: [{ inside: ['test/a/b_spec.rb'] }, { inside: ['latest/a_spec.rb'] }],
  },
  {
    name: 'paths: ** in the middle',
    when: { paths: ['a/**/z'] },
    fires: [{ inside: ['a/z'] }, { inside: ['a/b/c/z'] }],
    rests: [{ inside: ['az'] }, { inside: ['a/bz'] }, { inside: ['b/a/z'] }],
  },
  {
    name: 'paths: everything',
    when: { paths: ['**'] },
    fires: [{ inside: ['x'] }, { inside: ['.'] }],
    strict: [{ outside: ['/x'] }],
    rests: [{}],
  },
  {
    name: 'paths: absolute, outside',
    when: { paths: ['/etc/**'] },
    fires: [{ outside: ['/etc/passwd'] }, { outside: ['/etc'] }],
    rests: [{ inside: ['etc/passwd'] }, { outside: ['/var/etc/x'] }],
  },
  {
    name: 'paths: absolute, but inside the workspace',
    when: { paths: ['/home/me/project/secret/**'] },
    fires: [{ inside: ['secret/a'] }],
    rests: [{ inside: ['a'] }, { outside: ['/home/me/other'] }],
  },
  {
    name: 'paths: absolute, around the workspace',
    when: { paths: ['/home/**'] },
    fires: [{ inside: ['a'] }, { outside: ['/home/tom/x'] }],
    rests: [{ outside: ['/etc/x'] }],
  },
  {
    name: 'paths: absolute with ** before the workspace',
    when: { paths: ['/**/project/keys/*'] },
    fires: [{ inside: ['keys/a'] }, { outside: ['/srv/project/keys/a'] }],
    rests: [{ inside: ['keys/a/b'] }],
  },
  {
    name: 'paths: every one to allow, any to deny',
    when: { paths: ['src/**'] },
    fires: [{ inside: ['src/a', 'src/b'] }],
    strict: [{ inside: ['src/a', 'docs/b'] }, { inside: ['src/a'], outside: ['/etc/passwd'] }],
    rests: [],
  },
  {
    name: 'paths: written so that it cannot be located',
    when: { paths: ['src/**'] },
    strict: [
      { outside: ['../src/a'] },
      { outside: ['/ws/../x'] },
      { outside: ['//x'] },
      { outside: ['/a/./b'] },
      { outside: ['/a/..'] },
    ],
    rests: [{ outside: ['/a/..b'] }, { outside: ['/a/.b'] }],
  },

  {
    name: 'insideWorkspace: true',
    when: { insideWorkspace: true },
    fires: [{ inside: ['a'] }],
    strict: [{ inside: ['a'], outside: ['/b'] }],
    rests: [{}, { outside: ['/b'] }],
  },
  {
    name: 'insideWorkspace: false',
    when: { insideWorkspace: false },
    fires: [{ outside: ['/b'] }],
    strict: [{ inside: ['a'], outside: ['/b'] }],
    rests: [{}, { inside: ['a'] }],
  },
  {
    name: 'paths and insideWorkspace: of the same path',
    when: { paths: ['**/.env'], insideWorkspace: true },
    fires: [{ inside: ['.env'] }],
    rests: [{ inside: ['a'], outside: ['/x/.env'] }],
  },

  {
    name: 'except: some of the paths',
    when: { paths: ['secrets/**', '**/.env*'], except: ['secrets/public/**', '**/.env.example'] },
    fires: [{ inside: ['secrets/a'] }, { inside: ['secrets/public2'] }, { inside: ['a/.env'] }],
    strict: [
      { inside: ['secrets/public/a', 'secrets/a'] },
      { outside: ['/x/.env'] },
      // An exception of a deny opens as little as an allow, so nothing outside the workspace.
      { outside: ['/x/.env.example'] },
      { outside: ['../secrets/public/a'] },
    ],
    rests: [{}, { inside: ['secrets/public/a'] }, { inside: ['a/.env.example'] }, { inside: ['src/a'] }],
  },
  {
    name: 'except: of all paths of the workspace',
    when: { insideWorkspace: true, except: ['secrets/**'] },
    fires: [{ inside: ['a'] }, { inside: ['.'] }],
    strict: [{ inside: ['a', 'secrets/b'] }, { inside: ['a'], outside: ['/b'] }],
    rests: [{}, { inside: ['secrets/b'] }, { inside: ['secrets'] }, { outside: ['/b'] }],
  },
  {
    name: 'except: absolute',
    when: { paths: ['/etc/**'], except: ['/etc/hosts', '/etc/ssl/**'] },
    fires: [{ outside: ['/etc/passwd'] }],
    strict: [{ outside: ['/etc/passwd', '/etc/hosts'] }, { inside: ['a'], outside: ['/etc/x'] }],
    rests: [{ outside: ['/etc/hosts'] }, { outside: ['/etc/ssl/a'] }, { inside: ['etc/passwd'] }],
  },
  {
    name: 'commands: first word',
    when: { commands: ['git'] },
    fires: [bash([['git', 'status']]), bash([['git']])],
    strict: [bash([['git'], ['ls']]), bash('opaque'), bash([['/usr/bin/git']])],
    rests: [{}, bash([]), bash([['gitk']]), bash([['ls', 'git']])],
  },
  {
    name: 'commands: more words',
    when: { commands: ['git log'] },
    fires: [bash([['git', 'log', '-f']])],
    strict: [bash('opaque'), bash([['git', '-C', '.', 'log']])],
    rests: [
      bash([['git', 'pull']]),
      bash([['git']]),
      bash([['git', '-C', '.', 'pull']]),
      bash([['git', 'commit', '-m', 'log']]),
    ],
  },
  {
    name: 'commands: an option among the words',
    when: { commands: ['docker compose down'], opaque: true },
    fires: [bash([['docker', 'compose', 'down']], true)],
    strict: [bash([['docker', 'compose', '-f', 'x', 'down']], true)],
    rests: [bash([['docker', 'compose', '-f', 'x', 'up']], true)],
  },
  {
    name: 'commands: several',
    when: { commands: ['git status', 'git diff', 'ls'] },
    fires: [
      bash([
        ['git', 'diff'],
        ['ls', '-l'],
      ]),
    ],
    strict: [
      bash([
        ['git', 'diff'],
        ['rm', 'x'],
      ]),
    ],
    rests: [bash([['rm']])],
  },
  {
    name: 'commands: of a line that starts other programs',
    when: { commands: ['git'] },
    strict: [bash([['git', 'push']], true), bash([['git', 'push'], ['ls']], true)],
    rests: [bash([['make']], true)],
  },
  {
    name: 'commands: of such a line, allowed by name',
    when: { commands: ['npm test', 'tail'], opaque: true },
    fires: [
      bash([['npm', 'test']], true),
      bash(
        [
          ['npm', 'test', '-s'],
          ['tail', '-5'],
        ],
        true,
      ),
    ],
    strict: [
      bash(
        [
          ['npm', 'test'],
          ['curl', 'x'],
        ],
        true,
      ),
      bash('opaque'),
    ],
    rests: [{}, bash([['tail']]), bash([['npm', 'publish']], true)],
  },
  {
    name: 'opaque: true, with words',
    when: { opaque: true },
    fires: [bash([['make']], true)],
    rests: [bash([['ls']])],
  },
  {
    name: 'commands: a program by its path',
    when: { commands: ['/usr/bin/git push'] },
    outcomes: ['deny', 'ask'],
    fires: [
      bash([['git', 'push']]),
      bash([['/usr/bin/git', 'push']]),
      bash([['/opt/git', 'push', '-f']]),
      bash([['git', '-C', '.', 'push']]),
    ],
    rests: [bash([['git', 'pull']]), bash([['gitk', 'push']])],
  },
  {
    name: 'commands: a program by its path, allowed by that path alone',
    when: { commands: ['/usr/bin/git status'] },
    outcomes: ['allow'],
    fires: [bash([['/usr/bin/git', 'status']])],
    rests: [bash([['git', 'status']]), bash([['./usr/bin/git', 'status']])],
  },
  {
    name: 'commands: a path, behind a program that starts others',
    when: { commands: ['/usr/bin/git push'] },
    outcomes: ['deny'],
    fires: [bash([['linux64', 'git', 'push']], true), bash([['linux64', '/bin/git', 'push']], true)],
    rests: [bash([['linux64', 'git', 'pull']], true)],
  },
  {
    name: 'commands: behind a program that starts others',
    when: { commands: ['git push'] },
    outcomes: ['deny'],
    fires: [
      bash([['linux64', 'git', 'push']], true),
      bash([['ld.so', '/usr/bin/git', '-C', '.', 'push']], true),
      bash('opaque'),
    ],
    rests: [
      bash([['echo', 'git', 'push']]),
      bash([['linux64', './git', 'push']], true),
      bash([['linux64', 'git', 'pull']], true),
    ],
  },
  {
    name: 'commands: of a program that starts others, for a person',
    when: { commands: ['git push'] },
    outcomes: ['ask'],
    fires: [bash([['git', 'push']], true), bash('opaque')],
    rests: [bash([['linux64', 'git', 'push']], true)],
  },
  {
    name: 'exceptCommands',
    when: { exceptCommands: ['npm test', 'ls'] },
    outcomes: ['deny', 'ask'],
    fires: [
      bash([['npm', 'publish']], true),
      bash([['npm', 'test'], ['x']], true),
      bash([['rm']]),
      bash([['/tmp/ls']]),
      bash([['./npm', 'test']], true),
      bash('opaque'),
    ],
    rests: [{}, bash([['npm', 'test', '-s'], ['ls']], true), bash([['ls', '-l']])],
  },
  {
    name: 'readable: true',
    when: { readable: true },
    fires: [bash([['ls']]), bash([['make']], true)],
    rests: [{}, bash('opaque')],
  },
  {
    name: 'readable: false',
    when: { readable: false },
    fires: [bash('opaque')],
    rests: [{}, bash([['ls']]), bash([['make']], true)],
  },
  { name: 'opaque: true', when: { opaque: true }, fires: [bash('opaque')], rests: [{}, bash([['ls']])] },
  { name: 'opaque: false', when: { opaque: false }, fires: [bash([['ls']])], rests: [{}, bash('opaque')] },
  {
    name: 'commands that can be read only',
    when: { commands: ['rm'], opaque: false },
    fires: [bash([['rm', 'x']])],
    rests: [bash('opaque')],
  },

  {
    name: 'hosts: exact',
    when: { hosts: ['api.example.org'] },
    fires: [{ hosts: ['api.example.org'] }],
    strict: [{ hosts: ['api.example.org', 'evil.example'] }, { hosts: [''] }],
    rests: [{}, { hosts: ['example.org'] }, { hosts: ['xapi.example.org'] }],
  },
  {
    name: 'hosts: subdomains',
    when: { hosts: ['*.example.org'] },
    fires: [{ hosts: ['a.example.org'] }, { hosts: ['a.b.example.org'] }],
    strict: [{ hosts: [''] }],
    rests: [{ hosts: ['example.org'] }, { hosts: ['badexample.org'] }, { hosts: ['example.org.evil.example'] }],
  },
  { name: 'hosts: any', when: { hosts: ['*'] }, fires: [{ hosts: ['x.y'] }], strict: [{ hosts: [''] }], rests: [{}] },

  {
    name: 'hosts: by schemes that nobody named',
    when: { hosts: ['a.b'] },
    fires: [{ urls: ['http://a.b/'] }, { urls: ['https://a.b:8443/x'] }],
    strict: [
      { urls: ['gopher://a.b/'] },
      { urls: ['javascript://a.b/%0aalert(1)'] },
      { urls: ['file://a.b/etc/passwd'] },
      { urls: ['https://a.b/', 'ftp://a.b/'] },
    ],
    rests: [{ urls: ['gopher://c.d/'] }],
  },
  {
    name: 'hosts: by one scheme',
    when: { hosts: ['a.b'], schemes: ['wss'] },
    fires: [{ urls: ['wss://a.b/'] }],
    strict: [{ urls: ['wss://a.b/', 'https://a.b/'] }],
    rests: [{ urls: ['https://a.b/'] }, { urls: ['wss://c.d/'] }, { urls: ['wss://c.d/', 'https://a.b/'] }],
  },
  {
    name: 'schemes',
    when: { schemes: ['https', 'wss'] },
    fires: [{ urls: ['https://a.b/'] }, { urls: ['wss://a.b/', 'HTTPS://c.d'] }],
    strict: [
      { urls: ['https://a.b/', 'http://a.b/'] },
      { urls: ['file:///etc/passwd'] },
      { urls: ['javascript:alert(1)'] },
    ],
    rests: [{}, { urls: ['http://a.b/'] }],
  },
  {
    name: 'hosts: an address within another',
    when: { hosts: ['169.254.169.254'] },
    fires: [
      { urls: ['http://[::ffff:169.254.169.254]/'] },
      { urls: ['http://[64:ff9b::a9fe:a9fe]/'] },
      { urls: ['http://[2002:a9fe:a9fe::1]/'] },
      { urls: ['http://[::169.254.169.254]/'] },
    ],
    strict: [{ urls: ['http://0xa9fea9fe/'] }, { urls: ['http://a.b\\@169.254.169.254/'] }],
    rests: [{ urls: ['http://[2001:db8::1]/'] }],
  },

  {
    name: 'urls: all of a host',
    when: { urls: ['https://a.b'] },
    fires: [{ urls: ['https://a.b'] }, { urls: ['HTTPS://A.b:443/x?y#z'] }],
    strict: [
      { urls: ['HTTPS://user@A.b:443/'] },
      { urls: ['https://a.b./'] },
      { urls: ['https://a.b/x', 'https://c.d/'] },
      { urls: ['no url'] },
      { urls: ['https://a.b/x%2Fy'] },
      { urls: ['https://c.d//x'] },
    ],
    rests: [
      {},
      { urls: ['http://a.b/'] },
      { urls: ['https://a.b:444/'] },
      { urls: ['https://x.a.b/'] },
      { urls: ['https://a.b.evil/'] },
      { urls: ['https://evil/?https://a.b/'] },
    ],
  },
  {
    name: 'urls: a folder of paths',
    when: { urls: ['https://a.b/v1/**'] },
    fires: [
      { urls: ['https://a.b/v1/x/y'] },
      { urls: ['https://a.b/v1'] },
      { urls: ['https://a.b/%761/x'] },
      { urls: ['https://a.b/v2/../v1/x'] },
    ],
    strict: [{ urls: ['https://a.b/v1/..;/admin'] }],
    rests: [
      { urls: ['https://a.b/v1/../admin'] },
      { urls: ['https://a.b/v1/%2e%2E/admin'] },
      { urls: ['https://a.b/v12'] },
      { urls: ['https://a.b/x/v1/y'] },
    ],
  },
  {
    name: 'urls: one path, the root, stars within a segment',
    when: { urls: ['https://a.b/x', 'https://c.d/', 'https://e.f/*/get*'] },
    fires: [{ urls: ['https://a.b/x?q=1'] }, { urls: ['https://c.d'] }, { urls: ['https://e.f/1/get_it'] }],
    rests: [{ urls: ['https://a.b/x/y'] }, { urls: ['https://c.d/y'] }, { urls: ['https://e.f/1/2/get'] }],
  },
  {
    name: 'urls: subdomains, ports, other schemes',
    when: { urls: ['https://*.a.b:8443/x/**', 'wss://*', 'http://localhost:*/**', 'http://[::1]:9/'] },
    fires: [
      { urls: ['https://c.a.b:8443/x/y'] },
      { urls: ['wss://any.where/'] },
      { urls: ['http://localhost:3000/z'] },
      { urls: ['http://[::1]:9/'] },
    ],
    rests: [
      { urls: ['https://a.b:8443/x/y'] },
      { urls: ['https://c.a.b/x/y'] },
      { urls: ['ws://any.where/'] },
      { urls: ['https://localhost:3000/'] },
    ],
  },

  {
    name: 'kind: one',
    when: { kind: 'resource' },
    fires: [resource('docs://a')],
    rests: [{}, { kind: 'prompt', tool: 'resources/read' }],
  },
  {
    name: 'kind: several, with tools',
    when: { kind: ['tool', 'prompt'] },
    fires: [{}, { kind: 'prompt', tool: 'brief' }],
    rests: [resource('docs://a'), { kind: 'roots', tool: 'roots/list' }],
  },
  {
    name: 'kind: absent, in a rule that denies or asks',
    when: { servers: ['git'] },
    outcomes: ['deny', 'ask'],
    fires: [{}, ...EFFECT_KINDS.map((kind) => ({ kind }))],
  },
  {
    name: 'kind: absent, in a rule that allows',
    when: { servers: ['git'] },
    outcomes: ['allow'],
    fires: [{}, { kind: 'tool' }],
    rests: EFFECT_KINDS.filter((kind) => kind !== 'tool').map((kind) => ({ kind })),
  },
  {
    name: 'kind: absent, and a file of a resource',
    when: { paths: ['**/.env'] },
    outcomes: ['deny', 'ask'],
    fires: [{ ...resource('file:///home/me/project/a/.env'), inside: ['a/.env'] }],
    rests: [{ ...resource('file:///home/me/project/a/env'), inside: ['a/env'] }],
  },

  {
    name: 'uri: a folder, one URI, a segment',
    when: { kind: 'resource', uri: ['docs://manual/**', 'mem:one', 'db://*/rows'] },
    fires: [
      resource('docs://manual/a/b'),
      resource('docs://manual'),
      resource('DOCS://manual/%61'),
      resource('mem:one'),
      resource('db://x/rows'),
    ],
    strict: [
      resource('docs://other/../manual/a'),
      resource('docs://manual/%2e%2e/other'),
      resource('docs://other//a'),
      resource('docs://other/a%2Fb'),
      resource('no uri'),
      resource('docs://other/\u00e9'),
      resource('file://host/a'),
    ],
    rests: [
      {},
      { kind: 'resource' },
      resource('docs://manuals/a'),
      resource('mem:one/two'),
      resource('db://x/y/rows'),
      resource('docs://MANUAL/a'),
    ],
  },
  {
    name: 'uri: one, without kind',
    when: { uri: 'docs://a' },
    outcomes: ['deny', 'ask'],
    fires: [resource('docs://a'), { ...resource('docs://a'), kind: 'completion' }],
    rests: [{}, resource('docs://b')],
  },

  {
    name: 'asks: mode',
    when: { kind: 'elicitation', asks: { mode: 'url' } },
    fires: [asks('elicitation', { mode: 'url' })],
    strict: [asks('elicitation', {}), { kind: 'elicitation' }],
    rests: [{}, asks('elicitation', { mode: 'form' }), asks('sampling', {})],
  },
  {
    name: 'asks: fields',
    when: { kind: 'elicitation', asks: { fields: ['name', 'e*mail'] } },
    fires: [asks('elicitation', { mode: 'form', fields: ['name', 'e-mail'] })],
    strict: [
      asks('elicitation', { mode: 'form', fields: ['name', 'password'] }),
      asks('elicitation', { mode: 'form' }),
      asks('elicitation', { mode: 'form', fields: ['', 'x'] }),
      { kind: 'elicitation' },
    ],
    rests: [
      asks('elicitation', { mode: 'form', fields: ['password'] }),
      asks('elicitation', { mode: 'form', fields: [] }),
      asks('elicitation', { mode: 'url' }),
    ],
  },
  {
    name: 'asks: maxTokens',
    when: { kind: 'sampling', asks: { maxTokens: { min: 10, max: 20 } } },
    fires: [asks('sampling', { maxTokens: 10 }), asks('sampling', { maxTokens: 20 })],
    strict: [asks('sampling', {}), { kind: 'sampling' }],
    rests: [{}, asks('sampling', { maxTokens: 9 }), asks('sampling', { maxTokens: 21 }), asks('elicitation', {})],
  },

  {
    name: 'time: hours of working days',
    when: { time: { days: ['mon-fri'], from: '09:00', to: '18:00', zone: 'Europe/Berlin' } },
    fires: [{ time: '2026-11-20T10:00:00Z' }, { time: '2026-11-20T08:00:00Z' }, { time: '2026-11-20T16:59:59Z' }],
    rests: [{ time: '2026-11-20T07:59:59Z' }, { time: '2026-11-20T17:00:00Z' }, { time: '2026-11-21T10:00:00Z' }],
    strict: [{ time: '' }],
  },
  {
    name: 'time: over midnight, and over the end of the week',
    when: { time: { days: ['fri', 'sun'], from: '22:00', to: '06:00', zone: 'UTC' } },
    fires: [
      { time: '2026-11-20T22:00:00Z' },
      { time: '2026-11-21T05:59:00Z' },
      { time: '2026-11-22T23:00:00Z' },
      { time: '2026-11-23T05:00:00Z' },
    ],
    rests: [
      { time: '2026-11-20T21:59:00Z' },
      { time: '2026-11-21T06:00:00Z' },
      { time: '2026-11-21T23:00:00Z' },
      { time: '2026-11-20T05:00:00Z' },
    ],
  },
  {
    name: 'time: whole days, in a range over the end of the week',
    when: { time: { days: ['sat-mon'], zone: 'America/New_York' } },
    fires: [{ time: '2026-11-22T10:00:00Z' }, { time: '2026-11-23T10:00:00Z' }],
    rests: [{ time: '2026-11-21T03:00:00Z' }, { time: '2026-11-24T05:00:00Z' }],
  },
  {
    name: 'time: every day until its end',
    when: { time: { from: '20:00', to: '24:00', zone: 'Asia/Kolkata' } },
    fires: [{ time: '2026-11-20T14:30:00Z' }, { time: '2026-11-20T18:29:00Z' }],
    rests: [{ time: '2026-11-20T14:29:00Z' }, { time: '2026-11-20T18:30:00Z' }],
  },
  {
    name: 'time: the clock goes forward, and back',
    when: { time: { days: ['sun'], from: '02:00', to: '03:00', zone: 'Europe/Berlin' } },
    fires: [{ time: '2026-10-25T00:30:00Z' }, { time: '2026-10-25T01:30:00Z' }],
    rests: [{ time: '2026-03-29T00:30:00Z' }, { time: '2026-03-29T01:30:00Z' }, { time: '2026-10-25T02:00:00Z' }],
  },

  {
    name: 'args: equals',
    when: { args: { mode: { equals: 'fast' } } },
    fires: [args({ mode: 'fast' })],
    strict: [args({ mode: ['slow', 'fast'] }), args({ mode: long })],
    rests: [args({}), args({ mode: 'slow' }), args({ mode: null })],
  },
  {
    name: 'args: equals false',
    when: { args: { force: { equals: false } } },
    fires: [args({ force: false })],
    rests: [args({}), args({ force: true }), args({ force: 0 })],
  },
  {
    name: 'args: equals null',
    when: { args: { x: { equals: null } } },
    fires: [args({ x: null })],
    rests: [args({}), args({ x: 0 })],
  },
  {
    name: 'args: equals an object',
    when: { args: { x: { equals: { a: [1] } } } },
    fires: [args({ x: { a: [1] } })],
    rests: [args({ x: { a: [1, 2] } })],
  },
  {
    name: 'args: in',
    when: { args: { n: { in: [1, 'two'] } } },
    fires: [args({ n: 1 }), args({ n: 'two' })],
    rests: [args({ n: 2 }), args({ n: '1' })],
  },
  {
    name: 'args: prefix',
    when: { args: { ref: { prefix: 'refs/' } } },
    fires: [args({ ref: 'refs/x' })],
    strict: [args({ ref: 5 }), args({ ref: { a: 1 } }), args({ ref: long })],
    rests: [args({}), args({ ref: 'x' }), args({ ref: null })],
  },
  {
    name: 'args: pattern',
    when: { args: { to: { pattern: '^[a-z]+@example\\.org$' } } },
    fires: [args({ to: 'a@example.org' })],
    strict: [args({ to: true })],
    rests: [args({ to: 'a@example.org.evil' }), args({ to: '1@example.org' })],
  },
  {
    name: 'args: pattern with alternatives',
    when: { args: { to: { pattern: '^a|b$' } } },
    fires: [args({ to: 'a' }), args({ to: 'b' })],
    strict: [args({ to: 'abc' }), args({ to: 'cab' })],
    rests: [args({ to: 'c' })],
  },
  {
    name: 'args: min and max',
    when: { args: { n: { min: 1, max: 10 } } },
    fires: [args({ n: 1 }), args({ n: 10 }), args({ n: 2.5 })],
    strict: [args({ n: '5' }), args({ n: {} }), args({ n: [3, 50] })],
    rests: [args({}), args({ n: 0 }), args({ n: 10.1 })],
  },
  {
    name: 'args: numbers beyond a double',
    // biome-ignore lint/correctness/noPrecisionLoss: the case is about the loss
    when: { args: { n: { min: 9007199254740993 } } },
    fires: [{ argsText: '{"n":9007199254740994}' }],
    rests: [{ argsText: '{"n":9007199254740991}' }],
  },
  {
    name: 'args: present',
    when: { args: { force: { present: true } } },
    fires: [args({ force: false }), args({ force: null })],
    rests: [args({})],
  },
  {
    name: 'args: not present',
    when: { args: { force: { present: false } } },
    fires: [args({})],
    rests: [args({ force: null })],
  },
  {
    name: 'args: present within lists',
    when: { args: { 'list.key': { present: true } } },
    strict: [args({ list: [{ key: 1 }] })],
    fires: [args({ list: { key: 1 } })],
    rests: [args({ list: [] })],
  },
  {
    name: 'args: not present, but within lists',
    when: { args: { 'list.key': { present: false } } },
    strict: [args({ list: [{ key: 1 }] })],
    fires: [args({ list: [{}] }), args({})],
    rests: [args({ list: { key: 1 } })],
  },
  {
    name: 'args: dotted',
    when: { args: { 'a.b': { equals: 1 } } },
    fires: [args({ a: { b: 1 } })],
    strict: [args({ a: [{ b: 1 }] }), args({ a: [[{ b: 1 }]] })],
    rests: [args({ a: { b: 2 } }), args({ b: 1 }), args({ 'a.b': 1 })],
  },
  {
    name: 'args: several',
    when: { args: { a: { equals: 1 }, b: { equals: 2 } } },
    fires: [args({ a: 1, b: 2 })],
    rests: [args({ a: 1 }), args({ b: 2 })],
  },
];
