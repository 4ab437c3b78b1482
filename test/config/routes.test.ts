/** Tests the routes of primitives as they are written: what they become, and what is refused with its place. */
import { describe, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { withProject } from './project.ts';

const SERVERS =
  'servers: {notes: {command: node, mapping: server-filesystem, labels: [mine]}, desk: {command: node, mapping: desktop-commander}, plain: {command: node}}\n';

/** The faults of `expose: {primitives: …}`, each from its line on. */
function faults(primitives: string, more = ''): readonly string[] {
  return withProject((project) =>
    project
      .load(`${SERVERS}${more}expose:\n  primitives: ${primitives}\n`)
      .problems.map(({ line, column, message }) => `${line}:${column} ${message}`),
  );
}

describe('the routes of a primitive', () => {
  it(
    'are taken in the order in which they stand, and their servers are servers of the profile' + verifies('ST-119'),
    () => {
      withProject((project) => {
        const { profiles } = project.config(
          `${SERVERS}expose: {primitives: {read: [{paths: ["docs/**"], server: notes}, {labels: [secret], server: desk}, workspace], bash: desk}}\n`,
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
    },
  );

  it.each([
    ['{read: [{paths: ["a/**"], server: nots}, workspace]}', /:\d+ server "nots" is not under servers; .*notes/],
    ['{read: [{paths: ["a/**"], server: plain}, workspace]}', /server "plain" has no mapping/],
    ['{read: [{paths: ["a/**"], server: tollgate}, workspace]}', /server "tollgate"/],
    ['{bash: [{labels: [secret], server: notes}, workspace]}', /server "notes" cannot serve bash/],
    ['{bash: [{paths: ["a/**"], labels: [secret], server: desk}, workspace]}', /unknown key "paths"/],
    [
      '{read: [workspace, notes]}',
      /no call takes this route: one before it, of server "workspace".*put the entry without a condition last, and write only one/,
    ],
    ['{read: [workspace, {paths: ["a/**"], server: notes}]}', /no call takes this route/],
    [
      '{read: [{paths: ["a/**"], server: notes}, {paths: ["a/b/*.md", a], server: desk}, workspace]}',
      /no call takes this route: one before it, of server "notes"/,
    ],
    [
      '{read: [{labels: [secret, mine], server: notes}, {labels: [mine], paths: ["a/**"], server: desk}, workspace]}',
      /no call takes this route/,
    ],
    ['{read: [{paths: ["/etc/**"], server: notes}, workspace]}', /"\/etc\/\*\*" is absolute/],
    ['{read: [{paths: ["../x"], server: notes}, workspace]}', /can match no path/],
    ['{read: [{paths: ["a/[bc]"], server: notes}, workspace]}', /only \* and \*\* are wildcards/],
    [
      '{read: [{labels: [secrets], server: notes}, workspace]}',
      /label "secrets": no server and no rule adds it.*secret/,
    ],
    ['{read: []}', /primitives/],
    ['{read: [{paths: ["a/**"]}]}', /server/],
    ['{read: [{paths: [], server: notes}]}', /paths/],
    ['{read: [{path: ["a/**"], server: notes}]}', /path/],
  ])('are refused where no call could take one: %s' + verifies('ST-119'), (primitives, message) => {
    const found = faults(primitives);
    expect(found, found.join('\n')).toHaveLength(1);
    expect(found[0]).toMatch(/^\d+:\d+ /);
    expect(found[0]).toMatch(message);
  });

  it('are reported with their place where a part of one is not what it must be' + verifies('ST-119'), () => {
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

  it(
    'may overlap in part, share a server, and read labels that a policy of its own may give' + verifies('ST-119'),
    () => {
      expect(
        faults(
          '{read: [{paths: ["a/b/**"], server: notes}, {paths: ["a/**"], server: desk}, {paths: ["**/*.md"], labels: [mine], server: notes}, {paths: ["**/*.md"], server: desk}, workspace]}',
        ),
      ).toEqual([]);
      expect(faults('{read: [{paths: ["a/*"], server: notes}, {paths: ["a/**"], server: desk}]}')).toEqual([]);
      expect(
        faults(
          '{read: [{labels: [odd], server: notes}, workspace]}',
          'rules: [{id: r, outcome: allow, when: {}, obligations: {labels: [odd]}}]\n',
        ),
      ).toEqual([]);
    },
  );

  it('count as behind the primitives: their servers show no other tools' + verifies('ST-119'), () => {
    withProject((project) => {
      const { problems } = project.load(
        `${SERVERS}profiles: {p: {expose: {primitives: {read: [{paths: ["a/**"], server: notes}, workspace]}, tools: ["notes.*"]}}}\n`,
      );
      expect(problems.map(({ message }) => message)).toEqual([
        expect.stringContaining('one effect could then be reached in two ways'),
      ]);
    });
  });
});
