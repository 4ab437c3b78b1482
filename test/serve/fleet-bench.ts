/** Several listeners over one state, as replicas: each with its own mark, a facade that echoes, and its own hop. */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';
import type { ListenConfig } from '../../facade/config/config.ts';
import { followState } from '../../facade/state/state-follower.ts';
import type { State } from '../../facade/state/state-port.ts';
import { createSeals } from '../../facade/state/state-seals.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { FakeFacade } from './fake-facade.ts';
import { type Answered, type HttpBench, listen } from './http-bench.ts';

/** A replica of a fleet. */
export interface Replica extends HttpBench {
  readonly facade: FakeFacade;
  readonly mark: string;
  readonly state: State;
}

/** The replicas of one state. */
export interface Fleet {
  readonly state: State;
  readonly replicas: readonly Replica[];
  /** The marks of replicas that others take for dead. */
  readonly dead: Set<string>;
}

/** Returns the state as another process sees it: with another mark. */
function asProcess(state: State, mark: string, dead: ReadonlySet<string>): State {
  return new Proxy(state, {
    get: (target, key) => {
      if (key === 'mark') return () => mark;
      if (key === 'isAlive') return (other: string) => !dead.has(other);
      const member: unknown = Reflect.get(target, key, target);
      return typeof member === 'function' ? member.bind(target) : member;
    },
  });
}

/** Starts replicas, which end with the test. `hops: false`: a session moves to the replica that is asked. */
export async function startFleet(
  count: number,
  { hops = true, ...settings }: Partial<ListenConfig> & { readonly hops?: boolean } = {},
): Promise<Fleet> {
  const folder = temporaryFolder();
  const state = await followState(folder, () => undefined, true);
  const replicas: Replica[] = [];
  const dead = new Set<string>();
  for (let number = 0; number < count; number += 1) {
    const mark = `${number}`.repeat(32);
    const own = asProcess(state, mark, dead);
    const facade = new FakeFacade(createSeals(own, Date.now));
    facade.replica = mark;
    const bench = await listen({
      facade,
      shared: own,
      listen: { ...settings, ...(hops && { replicaPort: 0 }) },
    });
    replicas.push({ ...bench, facade, mark, state: own });
  }
  onTestFinished(async () => {
    await Promise.all(replicas.map(({ server }) => server.close()));
    await state.close();
  });
  return { state, replicas, dead };
}

/** Lets a replica look as if its machine had ended: its hop cannot be reached any more. */
export async function cutOff({ state, mark }: Replica): Promise<void> {
  await state.put('replicas', mark, '["127.0.0.1",1]');
}

/** Puts a connection between a replica and the others that `cut` ends, as its death does. */
export async function wire(replica: Replica): Promise<{ cut(): void }> {
  const [host, port] = JSON.parse(replica.state.get('replicas', replica.mark) ?? '') as [string, number];
  const sockets = new Set<Socket>();
  const proxy = createServer((near) => {
    const far = connect(port, host);
    for (const socket of [near, far]) sockets.add(socket.on('error', () => undefined));
    near.pipe(far).pipe(near);
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  await replica.state.put(
    'replicas',
    replica.mark,
    JSON.stringify(['127.0.0.1', (proxy.address() as AddressInfo).port]),
  );
  const cut = (): void => {
    proxy.close();
    for (const socket of sockets) socket.destroy();
  };
  onTestFinished(cut);
  return { cut };
}

/** Returns the code of a refusal. */
export function codeOf({ text }: Answered): unknown {
  const body = JSON.parse(text) as {
    error?: { data?: { code?: unknown } };
    result?: { _meta?: Record<string, unknown> };
  };
  return body.error?.data?.code ?? body.result?._meta?.['tollgate/code'];
}
