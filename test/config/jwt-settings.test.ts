/** Tests `listen.jwt` in tollgate.yaml: defaults, addresses that could be those of others, and names that must exist. */
import { afterAll, describe, expect, it } from 'vitest';
import { principalAfter } from '../../facade/config/stdio-identity.ts';
import { policyParts } from '../../facade/runtime/policy-parts.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import { verifies } from '../verifies.ts';
import { Project } from './project.ts';

const project = new Project();
afterAll(() => project.remove());
const yaml = (jwt: string, more = ''): string => `version: 1
workspace: .
state: ~/state
profiles: {dev: {}, desk: {host: true}}
listen: {jwt: ${jwt}}
${more}`;
const ISSUER = "issuer: 'https://login.example.org', audience: 'https://tools.example.org/mcp'";

describe('the tokens of an issuer', () => {
  it('have safe defaults: common algorithms, the subject as id, and no claim that gives anything', () => {
    expect(project.config(yaml(`{${ISSUER}}`)).listen.jwt).toEqual({
      issuer: 'https://login.example.org',
      audience: 'https://tools.example.org/mcp',
      resource: 'https://tools.example.org/mcp',
      algorithms: ['RS256', 'PS256', 'ES256', 'EdDSA'],
      claims: { id: 'sub' },
    });
  });

  it.each([
    ['an issuer without https', "{issuer: 'http://login.example.org', audience: 'https://a.test/mcp'}", 'others could'],
    ['keys without https', `{${ISSUER}, jwks: 'http://login.example.org/keys'}`, 'others could answer for it'],
    ['an audience without an address', "{issuer: 'https://login.example.org', audience: tools}", 'add resource'],
    ['no audience', "{issuer: 'https://login.example.org'}", 'audience'],
    ['algorithm none', `{${ISSUER}, algorithms: [none]}`, 'algorithms'],
    ['a symmetric algorithm', `{${ISSUER}, algorithms: [HS256]}`, 'algorithms'],
    ['no algorithm', `{${ISSUER}, algorithms: []}`, 'algorithms'],
    ['an unknown claim', `{${ISSUER}, claims: {owners: {claim: x, values: [y]}}}`, 'owners'],
    ['ownership without values', `{${ISSUER}, claims: {owner: {claim: x}}}`, 'values'],
    [
      'a profile that does not exist',
      `{${ISSUER}, claims: {profiles: {claim: x, values: {a: dv}}}}`,
      '"dv" is not under',
    ],
    ['a host profile', `{${ISSUER}, claims: {profiles: {claim: x, values: {a: desk}}}}`, 'is a host profile'],
  ])('are refused with %s' + verifies('PR-A07', 'PR-A08'), (_what, jwt, message) => {
    const { problems } = project.load(yaml(jwt));
    expect(problems.map((problem) => `${problem.message}`).join('\n')).toContain(message);
  });

  it('may be those of an issuer on this machine', () => {
    expect(
      project.load(yaml("{issuer: 'http://127.0.0.1:9', audience: 'http://localhost:7310/mcp'}")).problems,
    ).toEqual([]);
  });
});

describe('a rule about subjects', () => {
  const claims =
    'claims: {role: {claim: r, values: {a: pilot}}, groups: {claim: g, values: {b: crew}}, profiles: {claim: s, values: {c: dev}}}';
  const faults = async (when: string): Promise<string> => {
    const rules = `rules: [{id: r, outcome: deny, message: "No.", when: ${when}}]\nservers: {web: {command: web}}`;
    const config = project.config(yaml(`{${ISSUER}, ${claims}}`, rules));
    return loadPolicy(policyParts(config, {})).then(
      (policy) => {
        policy.close();
        return '';
      },
      (thrown: Error) => thrown.message,
    );
  };

  it('may name what tokens can give, and nothing else' + verifies('PR-A08'), async () => {
    for (const when of [
      '{roles: [pilot], groups: [crew]}',
      '{principals: ["jwt:login.example.org:ann"], roles: [user]}',
      '{origins: ["jwt:login.example.org:ann"]}',
    ])
      expect(await faults(when), when).toBe('');
    expect(await faults('{roles: [pilt]}')).toContain('no principal with the role "pilt"');
    expect(await faults('{groups: [crow]}')).toContain('no principal in the group "crow"');
    expect(await faults('{principals: ["jwt:other.example.org:ann"]}')).toContain('there is no principal');
    expect(await faults('{profiles: [dev], servers: [web]}')).toContain('can never match');
  });
});

describe('a subject after a reload', () => {
  const config = project.config(yaml(`{${ISSUER}}`));
  const subject = {
    id: 'jwt:login.example.org:ann',
    role: 'user',
    groups: [],
    profiles: ['default'],
    origin: 'jwt:login.example.org:ann',
    owner: false,
  };

  it('stays while the issuer and its mapping do' + verifies('PR-A12'), () => {
    const other = project.config(yaml(`{${ISSUER}, claims: {id: email}}`));
    const none = project.config('version: 1\nworkspace: .\nstate: ~/state\n');
    expect(principalAfter(subject, { before: config, after: project.config(yaml(`{${ISSUER}}`)) })).toBe(subject);
    expect(principalAfter(subject, { before: config, after: other })).toBeUndefined();
    expect(principalAfter(subject, { before: config, after: none })).toBeUndefined();
    expect(principalAfter(subject, { before: none, after: none })).toBeUndefined();
  });
});
