/** The configuration of the conformance runs: everything of the fixture by rules that decide, nothing by default. */
import type { Offer } from './fixture-server.ts';
import { PRINCIPALS } from './gateway.ts';

/** The name of the fixture behind Tollgate. */
export const FIXTURE = 'fixture';

/** What tools of the fixture do, by pattern. The first match applies. */
const SEMANTICS = {
  '*sampling*': 'execute',
  '*capability*': 'execute',
  '*elicitation*': 'write',
  '*trigger*': 'write',
  'test_*': 'read',
  'json_schema_*': 'read',
} as const;

/** Rules by verb, path and host. What no rule allows is refused. */
const RULES = [
  { id: 'reads', outcome: 'allow', when: { servers: [FIXTURE], verbs: ['read'] } },
  { id: 'writes', outcome: 'allow', when: { servers: [FIXTURE], verbs: ['write'], roles: ['tester'] } },
  { id: 'executes', outcome: 'allow', when: { tools: [`${FIXTURE}.test_*`], verbs: ['execute'], roles: ['tester'] } },
  { id: 'no-secrets', outcome: 'deny', message: 'Files with secrets stay closed.', when: { paths: ['**/.env'] } },
  { id: 'no-metadata', outcome: 'deny', message: 'Metadata stays closed.', when: { hosts: ['169.254.169.254'] } },
] as const;

/** Returns tollgate.yaml for the fixture. `upstream`: how Tollgate reaches it. */
export function fixtureConfig(upstream: Readonly<Record<string, unknown>>, offer: Offer): Record<string, unknown> {
  return {
    version: 1,
    workspace: './work',
    state: './state',
    servers: { [FIXTURE]: { ...upstream, semantics: SEMANTICS } },
    principals: PRINCIPALS,
    profiles: { suite: { servers: [FIXTURE], expose: { primitives: {}, tools: toolsOf(offer) } } },
    schemaProfile: 'faithful',
    rules: RULES,
    limits: { drainMs: 1000 },
  };
}

/** Every tool under its own name. */
function toolsOf({ tools }: Offer): readonly unknown[] {
  return tools.map((name) => ({ tool: `${FIXTURE}.${name}`, name }));
}
