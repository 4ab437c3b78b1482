/**
 * Tests by property that a primitive on a mapped server and its tool under its own name have one effect, digest and
 * decision.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { effectDigest } from '../../facade/call/call-facts.ts';
import { type DraftedCall, draftCall } from '../../facade/call/lowering/draft-call.ts';
import type { Config } from '../../facade/config/config.ts';
import type { ServedServer } from '../../facade/exposure/served-server.ts';
import { serveOfflineOnDemand } from '../../facade/main.ts';
import { policyParts } from '../../facade/runtime/policy-parts.ts';
import { asPrincipal } from '../../facade/serve/http/token-authentication.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import type { Policy } from '../../policies/port.ts';
import { Project } from '../config/project.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const YAML = (mapping: string): string => `
servers: {files: {command: node, mapping: ${mapping}}}
principals: [{id: wrapped, profiles: [wrapped]}, {id: shown, profiles: [shown], token: "sha256:${'0'.repeat(64)}"}]
profiles:
  wrapped:
    expose:
      primitives: {read: files, write: files, edit: files${mapping === 'desktop-commander' ? ', bash: files' : ''}}
  shown: {servers: [files], expose: {primitives: {}, tools: ["files.*"]}}
rules:
  - {id: all, outcome: allow, when: {servers: [files]}}
  - {id: run, outcome: ask, when: {tools: [files.start_process, files.write_file], paths: ["**/*.sh"]}}
  - {id: named, outcome: ask, when: {tools: [files.start_process]}}
  - {id: out, outcome: deny, when: {insideWorkspace: false}}
  - {id: keys, outcome: deny, when: {verbs: [write, destructive], paths: ["**/*.pem"]}}
  - {id: push, outcome: deny, when: {commands: [git push]}}
`;
const paths = fc.constantFrom(
  'a',
  'src/a.ts',
  './src//a.ts',
  'k.pem',
  'x/../k.pem',
  '../out',
  '/etc/passwd',
  'run.sh',
  'ä ö',
  '~',
);
const texts = fc.constantFrom('', 'x', 'git push', '"\\\u0000', '😀\n');
const calls = fc.oneof(
  fc.record({ tool: fc.constant('read'), args: fc.record({ path: paths }) }),
  fc.record({ tool: fc.constant('read'), args: fc.record({ path: paths, action: fc.constantFrom('list', 'stat') }) }),
  fc.record({ tool: fc.constant('write'), args: fc.record({ path: paths, content: texts }) }),
  fc.record({
    tool: fc.constant('edit'),
    args: fc.record({ path: paths, old_string: fc.constantFrom('a', 'b c'), new_string: texts }),
  }),
  fc.record({
    tool: fc.constant('bash'),
    args: fc.record({ command: fc.constantFrom('ls', 'git push -f', 'echo $HOME', 'a && git push') }),
  }),
);

describe.each(['server-filesystem', 'desktop-commander'])(
  'a call of a primitive on %s, and of the same tool under its own name,',
  (mapping) => {
    const project = new Project();
    let config: Config;
    let served: ReadonlyMap<string, ServedServer>;
    let policy: Policy;
    beforeAll(async () => {
      config = project.config(YAML(mapping));
      served = await serveOfflineOnDemand(config);
      policy = await loadPolicy(policyParts(config, {}));
    });
    afterAll(() => {
      policy.close();
      project.remove();
    });

    const principalOf = (id: string) =>
      asPrincipal(config.principals.find((one) => one.id === id) as Config['principals'][number]);
    const draft = (id: string, tool: string, args: Readonly<Record<string, unknown>>): DraftedCall =>
      draftCall({ config, served }, principalOf(id), { tool, args });
    const digestOf = ({ effect, argsText }: DraftedCall): string => effectDigest(effect, argsText, (text) => text);
    const decide = (id: string, { effect, argsText }: DraftedCall): unknown =>
      policy.call({ principal: principalOf(id), run: 'r', labels: [], time: '2026-11-20T10:00:00Z', effect, argsText });

    it('is one effect with the same digest, decision and reasons' + verifies('CY-18'), async () => {
      await fc.assert(
        fc.asyncProperty(calls, async ({ tool, args }) => {
          fc.pre(tool !== 'bash' || mapping === 'desktop-commander');
          const wrapped = draft('wrapped', tool, args);
          const shown = draft(
            'shown',
            `files.${wrapped.effect.tool}`,
            JSON.parse(wrapped.argsText) as Record<string, unknown>,
          );
          // Under its own name, this tool can fetch a URL from the same argument. As a primitive it cannot.
          const fetches = wrapped.effect.tool === 'read_file' && mapping === 'desktop-commander';
          expect(fetches ? { ...shown, effect: { ...shown.effect, urls: [] } } : shown).toEqual(wrapped);
          expect(digestOf(shown) === digestOf(wrapped)).toBe(!fetches);
          expect(await decide('shown', shown)).toEqual(await decide('wrapped', wrapped));
        }),
        { numRuns: roundsOf(120, 40) },
      );
    }, 60_000);

    it('shows the policy the old and the new text of an edit, even if the server can only write whole files', () => {
      const edit = draft('wrapped', 'edit', { path: 'a.ts', old_string: 'a', new_string: 'b' });
      const write = draft('shown', 'files.write_file', { path: `${config.workspace}/a.ts`, content: 'b' });
      expect(JSON.parse(edit.argsText)).toMatchObject({ old_string: 'a', new_string: 'b' });
      expect([edit.effect.verb, edit.effect.paths.map((fact) => fact.path)]).toEqual([
        write.effect.verb,
        write.effect.paths.map((fact) => fact.path),
      ]);
      expect(digestOf(edit)).not.toBe(digestOf(write));
    });
  },
);
