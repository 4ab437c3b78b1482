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

/** Rules by kind, verb, name, URI, path and host. What no rule allows is refused. */
const RULES = [
  { id: 'reads', outcome: 'allow', when: { servers: [FIXTURE], verbs: ['read'] } },
  { id: 'writes', outcome: 'allow', when: { servers: [FIXTURE], verbs: ['write'], roles: ['tester'] } },
  { id: 'executes', outcome: 'allow', when: { tools: [`${FIXTURE}.test_*`], verbs: ['execute'], roles: ['tester'] } },
  { id: 'resources', outcome: 'allow', when: { kind: 'resource', servers: [FIXTURE], uri: ['test://**'] } },
  { id: 'prompts', outcome: 'allow', when: { kind: ['prompt', 'completion'], servers: [FIXTURE] } },
  { id: 'forms', outcome: 'allow', when: { kind: 'elicitation', servers: [FIXTURE], asks: { mode: 'form' } } },
  {
    id: 'samples',
    outcome: 'allow',
    when: { kind: 'sampling', servers: [FIXTURE], asks: { maxTokens: { max: 1000 } } },
  },
  { id: 'roots', outcome: 'allow', when: { kind: 'roots', servers: [FIXTURE] } },
  { id: 'no-secrets', outcome: 'deny', message: 'Files with secrets stay closed.', when: { paths: ['**/.env'] } },
  { id: 'no-metadata', outcome: 'deny', message: 'Metadata stays closed.', when: { hosts: ['169.254.169.254'] } },
] as const;

/** What the prompts of the fixture say. Any other text is refused. */
const PROMPTS = {
  test_simple_prompt: 'This is a simple prompt for testing.',
  test_prompt_with_arguments: "Prompt with arguments: arg1='{{arg1}}', arg2='{{arg2}}'",
  test_prompt_with_embedded_resource: [
    {
      role: 'user',
      content: {
        type: 'resource',
        resource: {
          uri: '{{resourceUri}}',
          mimeType: 'text/plain',
          text: 'Embedded resource content for testing.',
        },
      },
    },
    { role: 'user', content: 'Please process the embedded resource above.' },
  ],
  test_prompt_with_image: [
    { role: 'user', content: { type: 'image', data: '{{*media}}', mimeType: 'image/png' } },
    { role: 'user', content: 'Please analyze the image above.' },
  ],
  test_input_required_result_prompt: 'Use the following context: {{*}}',
} as const;

/** Returns tollgate.yaml for the fixture. `upstream`: how Tollgate reaches it. */
export function fixtureConfig(upstream: Readonly<Record<string, unknown>>, offer: Offer): Record<string, unknown> {
  const asks = ['sampling', 'elicitation', 'roots'];
  return {
    version: 1,
    workspace: './work',
    state: './state',
    servers: { [FIXTURE]: { ...upstream, semantics: SEMANTICS, uri: 'own', asks } },
    principals: PRINCIPALS,
    profiles: { suite: { servers: [FIXTURE], expose: exposureOf(offer) } },
    prompts: Object.fromEntries(
      Object.entries(PROMPTS).map(([name, template]) => [`${FIXTURE}.${name}`, { template }]),
    ),
    schemaProfile: 'faithful',
    rules: RULES,
    limits: { drainMs: 1000 },
  };
}

/** Everything under its own name. */
function exposureOf({ tools, prompts }: Offer): Readonly<Record<string, unknown>> {
  return {
    primitives: {},
    tools: tools.map((name) => ({ tool: `${FIXTURE}.${name}`, name })),
    resources: [FIXTURE],
    prompts: prompts.map((name) => ({ prompt: `${FIXTURE}.${name}`, name })),
  };
}
