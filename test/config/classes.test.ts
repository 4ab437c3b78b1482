/** Tests the two classes of servers: what an internal and an external one get where nothing more is written. */
import { describe, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { withProject } from './project.ts';

describe('servers of which nothing more is written' + verifies('CY-01'), () => {
  it('are external, and judged less strictly; an internal one must be declared and name its tools', () => {
    withProject((project) => {
      const { servers } = project.config(
        'servers: {others: {command: x}, own: {command: y, trust: internal, tools: {allow: [find]}}}',
      );
      expect(servers.get('others')?.trust).toBeUndefined();
      expect(servers.get('others')?.validateOutput).toBeUndefined();
      expect(servers.get('own')).toMatchObject({ trust: 'internal', validateOutput: 'strict' });
      const { problems } = project.load('servers: {own: {command: y, trust: internal}}');
      expect(problems.map(({ message }) => message).join()).toContain('tools');
      // A network address is no place for a server of one's own.
      expect(
        project.load('servers: {own: {url: "https://a.example/mcp", trust: internal, tools: {allow: [find]}}}')
          .problems,
      ).not.toEqual([]);
    });
  });
});
