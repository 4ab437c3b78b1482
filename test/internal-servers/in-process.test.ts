/** Tests the adapter of internal servers, and the kill switch over it. */
import { describe, expect, it } from 'vitest';
import type { UpstreamCall } from '../../adapters/port.ts';
import { createInProcessServer, withKillSwitch } from '../../adapters/primitives/workspace/in-process-server.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { createKnowledge } from '../../facade/internal-servers/knowledge-server.ts';
import { createManagement } from '../../facade/internal-servers/management-server.ts';
import { serveOffline } from '../../facade/runtime/servers/offline-servers.ts';
import { withProject } from '../config/project.ts';

const CALL: UpstreamCall = {
  tool: 'say',
  args: { text: '{}', value: {}, exact: true },
  scope: 's',
  signal: new AbortController().signal,
  timeoutMs: 1,
  hardTimeoutMs: 1,
};

describe('an internal server', () => {
  it('answers with a text, and returns its labels next to it', async () => {
    let closed = 0;
    const server = createInProcessServer({
      name: 'own',
      tools: [],
      answer: () => ({ text: 'hello', labels: ['secret'], hits: 2 }),
      close: () => (closed += 1),
    });
    expect(await server.start()).toMatchObject({ name: 'tollgate-own' });
    expect([await server.listTools(), server.health().state, server.info()?.version]).toEqual([[], 'healthy', '1']);
    expect(await server.call(CALL)).toEqual({
      text: '{"content":[{"type":"text","text":"hello"}]}',
      value: { content: [{ type: 'text', text: 'hello' }] },
      exact: true,
      labels: ['secret'],
      hits: 2,
    });
    server.onToolsChanged(() => undefined);
    await server.stop();
    expect(closed).toBe(1);
  });

  it('does not run a call that was cancelled', async () => {
    const server = createInProcessServer({ name: 'own', tools: [], answer: () => expect.fail('it was asked') });
    await expect(server.call({ ...CALL, signal: AbortSignal.abort() })).rejects.toMatchObject({ code: 'CANCELLED' });
    await server.stop();
  });

  it('is stopped and refuses calls while the switch is off', async () => {
    let thrown: TollgateError | undefined;
    let closed = 0;
    const server = withKillSwitch(
      createInProcessServer({ name: 'own', tools: [], answer: () => ({ text: '' }), close: () => (closed += 1) }),
      () => thrown,
    );
    await server.call(CALL);
    thrown = new TollgateError('SERVER_UNAVAILABLE');
    await expect(server.call(CALL)).rejects.toBe(thrown);
    expect([server.health().state, closed, server.name, server.info()?.name, await server.listTools()]).toEqual([
      'disabled',
      1,
      'own',
      'tollgate-own',
      [],
    ]);
    server.halt(undefined);
    expect(server.health().state).toBe('healthy');
    thrown = undefined;
    await server.call(CALL);
    await server.endScope?.('s');
    await server.start();
    server.onToolsChanged(() => undefined);
    await server.stop();
  });
});

describe('an internal server that needs the identity of its caller', () => {
  it('refuses a call without an identity', async () => {
    const knowledge = createKnowledge({
      store: () => expect.fail('it was opened'),
      caps: () => ({ requests: 1, bytes: 1, candidates: 1 }),
      now: () => 0,
    });
    expect(() => knowledge(CALL)).toThrow(expect.objectContaining({ code: 'INTERNAL' }) as Error);
    const unused = (): never => expect.fail('it was called');
    const management = createManagement({
      state: {} as never,
      audit: {} as never,
      consentOf: unused,
      now: unused,
      attention: unused,
      config: unused,
    });
    await expect(management(CALL)).rejects.toMatchObject({ code: 'INTERNAL' });
  });

  it('gets no call from a facade that only lists its tools', async () => {
    await withProject(async (project) => {
      project.write('tollgate.yaml', 'version: 1\nprofiles: {default: {servers: [knowledge]}}\n');
      const served = serveOffline(loadConfig(project.file, { env: {}, home: project.home }));
      expect([...served.keys()]).toEqual(['workspace', 'knowledge']);
      expect(served.get('knowledge')?.semanticsOf('kb_search')).toEqual({ verb: 'read' });
      expect(served.get('knowledge')?.semanticsOf('unheard-of')).toEqual({ verb: 'destructive' });
      await expect(served.get('knowledge')?.adapter.call(CALL)).rejects.toMatchObject({ code: 'SERVER_UNAVAILABLE' });
    });
  });
});
