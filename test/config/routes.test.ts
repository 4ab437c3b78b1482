/** Tests how routes of primitives are read. For refused routes see cases/routes.yaml. */
import { describe, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { withProject } from './project.ts';

const SERVERS =
  'servers: {notes: {command: node, mapping: server-filesystem, labels: [mine]}, ' +
  'desk: {command: node, mapping: desktop-commander}, plain: {command: node}}\n';

/** Returns the problems of `expose: {primitives: …}` as `line:column message`. */
function faults(primitives: string, more = ''): readonly string[] {
  return withProject((project) =>
    project
      .load(`${SERVERS}${more}expose:\n  primitives: ${primitives}\n`)
      .problems.map(({ line, column, message }) => `${line}:${column} ${message}`),
  );
}

describe('the routes of a primitive', () => {
  it('keep their order, and add their servers to the profile' + verifies('ST-119'), () => {
    withProject((project) => {
      const { profiles } = project.config(
        `${SERVERS}expose:
  primitives:
    read: [{paths: ["docs/**"], server: notes}, {labels: [secret], server: desk}, workspace]
    bash: desk
`,
      );
      expect(profiles.get('default')).toMatchObject({
        servers: ['notes', 'desk'],
        primitives: {
          read: [
            { paths: ['docs/**'], server: 'notes' },
            { labels: ['secret'], server: 'desk' },
            { server: 'workspace' },
          ],
          bash: [{ server: 'desk' }],
        },
      });
      expect(Object.keys(profiles.get('default')?.primitives ?? {})).toEqual(['read', 'bash']);
    });
  });

  it('are refused with their place if a part has a wrong type' + verifies('ST-119'), () => {
    for (const primitives of [
      '{read: [{paths: [3, "a/**"], server: notes}, {paths: [3], labels: [{}], server: desk}, workspace]}',
      '{read: [3, {server: 4}, {paths: 5, server: notes}, workspace, desk]}',
      '{read: 3, bash: [{}]}',
      '{read: [null, {paths: ["a/**", null], labels: null, server: notes}]}',
    ]) {
      const found = faults(primitives);
      expect(found.length, primitives).toBeGreaterThan(0);
      for (const one of found) expect(one).toMatch(/^3:\d+ /);
    }
  });

  it('may overlap in part, share a server, and use labels that a rule adds' + verifies('ST-119'), () => {
    expect(
      faults(
        '{read: [{paths: ["a/b/**"], server: notes}, {paths: ["a/**"], server: desk}, ' +
          '{paths: ["**/*.md"], labels: [mine], server: notes}, {paths: ["**/*.md"], server: desk}, workspace]}',
      ),
    ).toEqual([]);
    expect(faults('{read: [{paths: ["a/*"], server: notes}, {paths: ["a/**"], server: desk}]}')).toEqual([]);
    expect(
      faults(
        '{read: [{labels: [odd], server: notes}, workspace]}',
        'rules: [{id: r, outcome: allow, when: {}, obligations: {labels: [odd]}}]\n',
      ),
    ).toEqual([]);
  });

  it('are refused if the profile shows other tools of their servers' + verifies('ST-119'), () => {
    withProject((project) => {
      const { problems } = project.load(
        `${SERVERS}profiles:
  p: {expose: {primitives: {read: [{paths: ["a/**"], server: notes}, workspace]}, tools: ["notes.*"]}}
`,
      );
      expect(problems.map(({ message }) => message)).toEqual([
        expect.stringContaining('one effect could then be reached in two ways'),
      ]);
    });
  });
});
