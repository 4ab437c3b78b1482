/** Tests `oauth` of a server in tollgate.yaml: defaults, and settings that could leak a secret or a token. */
import { afterAll, describe, expect, it } from 'vitest';
import { secretUses } from '../../facade/secrets/secret-uses.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';

const project = new Project();
afterAll(() => project.remove());
const yaml = (server: string): string => `version: 1\nworkspace: .\nstate: ~/state\nservers:\n  s: ${server}\n`;
const at = (oauth: string, url = 'https://mcp.example.org/mcp'): string => yaml(`{url: '${url}', oauth: ${oauth}}`);

describe('the oauth settings of a server', () => {
  it('keep the reference to the secret, and have a default grant' + verifies('HA-30', 'PF-04'), () => {
    const config = project.config(
      at(
        "{issuer: 'https://login.example.org', clientId: '${env:CLIENT}', clientSecret: '${secret:s.client}', " +
          "scopes: [read, 'files:write'], callbackPort: 7311}",
      ),
      { CLIENT: 'team-a' },
    );
    expect(config.servers.get('s')?.oauth).toEqual({
      grant: 'authorization_code',
      issuer: 'https://login.example.org',
      clientId: 'team-a',
      clientSecret: '${secret:s.client}',
      scopes: ['read', 'files:write'],
      callbackPort: 7311,
    });
    expect([...secretUses(config)]).toEqual([['s.client', ['s']]]);
    expect(config.secrets).toEqual([]);
  });

  it('hide a secret in the file or from a variable, and warn of one in the file', () => {
    const text = (secret: string): string =>
      at(`{issuer: 'https://login.example.org', clientId: a, clientSecret: '${secret}'}`);
    const literal = project.config(text('sesame-open'));
    expect(literal.secrets).toEqual(['sesame-open']);
    expect(literal.warnings.map(({ message }) => message).join()).toContain('clientSecret is in the file in clear');
    const variable = project.config(text('${env:X}'), { X: 'sesame-open' });
    expect(variable.secrets).toEqual(['sesame-open']);
    expect(variable.warnings).toEqual([]);
  });

  it.each([
    ['a program', yaml('{command: node, oauth: {scopes: [read]}}'), 'oauth is only for a url'],
    [
      'an address without https',
      at('{scopes: [read]}', 'http://mcp.example.org/mcp'),
      'others on the network could read the token',
    ],
    [
      'a header next to it',
      yaml("{url: 'https://a.test/mcp', headers: {authorization: x}, oauth: {scopes: [read]}}"),
      'both oauth and a header',
    ],
    ['a secret without a client', at("{issuer: 'https://a.test', clientSecret: x}"), 'clientSecret without a client'],
    ['a secret without an issuer', at('{clientId: a, clientSecret: x}'), 'add issuer'],
    ['an issuer without https', at("{issuer: 'http://a.test', clientId: a}"), 'not an https address'],
    ['a machine without a secret', at('{grant: client_credentials, clientId: a}'), 'needs a client with a secret'],
    ['a secret as the public client id', at("{clientId: '${secret:x}'}"), 'others would see it there'],
    ['an unknown key', at('{clientID: a}'), 'clientId'],
    ['nothing', at('{}'), 'oauth'],
    ['a scope of two words', at('{scopes: [read write]}'), 'scopes'],
    ['a privileged port', at('{callbackPort: 80}'), 'callbackPort'],
    [
      'a client for a server of another file',
      'version: 1\nworkspace: .\nstate: ~/state\ninclude: [mcp.json]\nservers: {s: {oauth: {clientId: a}}}\n',
      'cannot be redefined in part',
    ],
  ])('refuse %s', (_what, text, message) => {
    project.write('mcp.json', '{"mcpServers": {"s": {"url": "https://a.test/mcp"}}}');
    const { problems } = project.load(text);
    expect(problems.map((problem) => problem.message).join('\n')).toContain(message);
  });

  it('accept an issuer and a server of this machine without https', () => {
    expect(project.load(at("{issuer: 'http://127.0.0.1:9/', clientId: a}", 'http://localhost:1/mcp')).problems).toEqual(
      [],
    );
  });
});
