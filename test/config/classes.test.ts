/** Tests the defaults of internal and external servers. */
import { describe, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { withProject } from './project.ts';

describe('the default class of a server' + verifies('CY-01'), () => {
  it('is external and less strict; an internal server must be declared and list its tools', () => {
    withProject((project) => {
      const { servers } = project.config(
        'servers: {others: {command: x}, own: {command: y, trust: internal, tools: {allow: [find]}}}',
      );
      expect(servers.get('others')?.trust).toBeUndefined();
      expect(servers.get('others')?.validateOutput).toBeUndefined();
      expect(servers.get('own')).toMatchObject({ trust: 'internal', validateOutput: 'strict' });
      const { problems } = project.load('servers: {own: {command: y, trust: internal}}');
      expect(problems.map(({ message }) => message).join()).toContain('tools');
      // An internal server may not be at a network address.
      expect(
        project.load('servers: {own: {url: "https://a.example/mcp", trust: internal, tools: {allow: [find]}}}')
          .problems,
      ).not.toEqual([]);
    });
  });
});
