/** Tests by property that lists of resources and prompts agree with requests of them, under any rules. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { RESOURCES, startProtocol } from './protocol-facade.ts';

const SERVERS = ['docs', 'mail'] as const;
const resource = (uri: string) => ({ uri, name: uri });
const prompt = (name: string) => ({ name });
const SERVER = {
  capabilities: { ...RESOURCES, prompts: {} },
  answers: {
    'resources/list': { raw: JSON.stringify({ resources: [resource('x://a'), resource('file:///srv/k.pem')] }) },
    'resources/templates/list': { raw: '{"resourceTemplates":[{"uriTemplate":"x://{id}","name":"t"}]}' },
    'resources/read': { raw: '{"contents":[]}' },
    'prompts/list': { raw: JSON.stringify({ prompts: [prompt('sum'), prompt('ask')] }) },
    'prompts/get': { raw: '{"messages":[{"role":"user","content":{"type":"text","text":"T"}}]}' },
  },
};
const some = <T>(values: readonly T[]): fc.Arbitrary<T[]> =>
  fc.uniqueArray(fc.constantFrom(...values), { minLength: 1, maxLength: 2 });
const when = fc.record(
  {
    kind: some(['tool', 'resource', 'prompt', 'completion']),
    servers: some(SERVERS),
    verbs: some(['read', 'write']),
    roles: some(['dev', 'guest']),
    paths: some(['**/*.pem', '/srv/**']),
  },
  { requiredKeys: [] },
);
const rule = fc.record({ outcome: fc.constantFrom('allow', 'allow', 'deny', 'ask'), when });
const setups = fc.record({
  rules: fc.array(rule, { maxLength: 4 }),
  resources: fc.uniqueArray(fc.constantFrom(...SERVERS)),
  prompts: fc.uniqueArray(fc.constantFrom('docs.*', 'docs.sum', 'mail.ask')),
  role: fc.constantFrom('dev', 'guest'),
});
const TEMPLATES = Object.fromEntries(
  SERVERS.flatMap((server) => ['sum', 'ask'].map((name) => [`${server}.${name}`, { template: 'T' }])),
);
const URIS = SERVERS.flatMap((server) => [`${server}+x://a`, `${server}+file:///srv/k.pem`, `${server}+x://unlisted`]);
const NAMES = SERVERS.flatMap((server) => [`${server}_sum`, `${server}_ask`]);
type Listed = {
  readonly uri?: string;
  readonly name: string;
  readonly _meta?: { readonly 'tollgate/verdict'?: string };
};
const codeOf = (answer: Readonly<Record<string, unknown>>): string | undefined =>
  (answer.error as { readonly data?: { readonly code?: string } } | undefined)?.data?.code;

describe('lists of resources and prompts agree with requests' + verifies('PR-22'), () => {
  it('listed ones exist, unlisted ones do not, and none that is listed as always is refused', async () => {
    await fc.assert(
      fc.asyncProperty(setups, async ({ rules, resources, prompts, role }) => {
        const facade = await startProtocol(
          { docs: SERVER, mail: SERVER },
          {
            principals: [
              { id: 'me', role, profiles: ['p'], stdio: true },
              { id: 'x', role: 'guest', profiles: [] },
              { id: 'y', role: 'dev', profiles: [] },
            ],
            profiles: { p: { servers: SERVERS, expose: { primitives: {}, resources, prompts } } },
            rules: rules.map((one, at) => ({ id: `r${at}`, message: 'M.', ...one })),
            prompts: TEMPLATES,
          },
        ).catch(() => undefined);
        fc.pre(facade !== undefined);
        try {
          const client = await facade.connect();
          const listOf = async (method: string, key: string): Promise<readonly Listed[]> =>
            ((await client.request(method)).result as Record<string, Listed[]>)[key] ?? [];
          const shown = new Map((await listOf('resources/list', 'resources')).map((one) => [one.uri, one]));
          const servers = new Set([...shown.keys()].map((uri) => uri?.split('+')[0]));
          for (const uri of URIS) {
            const code = codeOf(await client.request('resources/read', { uri }));
            expect([uri, code === 'UNKNOWN_RESOURCE']).toEqual([uri, !servers.has(uri.split('+')[0])]);
            const isSure = shown.has(uri) && shown.get(uri)?._meta === undefined;
            if (isSure) expect([uri, code]).toEqual([uri, undefined]);
          }
          const named = new Map((await listOf('prompts/list', 'prompts')).map((one) => [one.name, one]));
          for (const name of NAMES) {
            const code = codeOf(await client.request('prompts/get', { name }));
            expect([name, code === 'UNKNOWN_PROMPT']).toEqual([name, !named.has(name)]);
            if (named.has(name) && named.get(name)?._meta === undefined)
              expect([name, code]).toEqual([name, undefined]);
          }
        } finally {
          await facade.close();
        }
      }),
      { numRuns: roundsOf(25, 8) },
    );
  }, 120_000);
});
