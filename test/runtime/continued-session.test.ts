/** Tests what a replica does with a session that another one has served: its lists, its log level, its labels. */
import { afterEach, describe, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { configure, Reloadable, rules } from './edited-project.ts';

let project: Reloadable | undefined;
afterEach(() => project?.close());

const READ = { path: 'README.md' };

async function start(): Promise<Reloadable> {
  project = new Reloadable({
    'tollgate.yaml': configure(),
    'rules.yaml': rules({ id: 'all', outcome: 'allow', when: {} }),
    'workspace/README.md': '# Hello\n',
  });
  return project.start();
}

describe('a session that another replica has served', () => {
  it('knows its client and the lists that it has' + verifies('FL-07'), async () => {
    const { assembled, list, call, open } = bound(await start());
    const first = open();
    first.client = { roots: {} };
    assembled.gateway.setLogLevel(first, 'error');
    await list(first);
    const saved = assembled.gateway.save(first);
    expect(Object.keys(saved.lists)).toEqual(['tools/list']);
    const next = open();
    await assembled.gateway.restore(next, JSON.parse(JSON.stringify(saved)) as typeof saved);
    expect([next.client, next.logLevel]).toEqual([{ roots: {} }, 'error']);
    expect((await call(next, 'read', READ)).text).toContain('Hello');
  });

  it('must list again if a list is another one now' + verifies('FL-07'), async () => {
    const { assembled, list, call, open } = bound(await start());
    const next = open();
    await assembled.gateway.restore(next, { client: {}, lists: { 'tools/list': 'another' } });
    expect((await call(next, 'read', READ)).code).toBe('PIN_MISMATCH');
    await list(next);
    expect((await call(next, 'read', READ)).text).toContain('Hello');
  });

  it('is recorded as continued and released, and keeps what is stored for it', async () => {
    const { assembled, open } = bound(await start());
    const first = open();
    await assembled.gateway.closeSession(first, 'released');
    const next = assembled.gateway.openSession(first.principal, 'http', { id: first.id, isContinued: true });
    expect(next.id).toBe(first.id);
    await assembled.gateway.closeSession(next);
    const events = project?.records('session').map(({ event, session }) => [event, session]);
    expect(events).toEqual(['opened', 'released', 'continued', 'closed'].map((event) => [event, first.id]));
  });
});

/** Returns the methods of a project that the tests use. */
function bound(of: Reloadable): {
  readonly assembled: Reloadable['assembled'];
  readonly list: Reloadable['list'];
  readonly call: Reloadable['call'];
  readonly open: () => ReturnType<Reloadable['open']>;
} {
  const [{ id = '' } = {}] = of.assembled.config.principals;
  return {
    assembled: of.assembled,
    list: (session) => of.list(session),
    call: (...asked) => of.call(...asked),
    open: () => of.open(id),
  };
}
