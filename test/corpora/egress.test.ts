/** Owns the proof that the way out of a sandbox answers the recorded attacks as a facade must; refuses to pass where the cases are missing. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from 'node:net';
import { afterAll, describe, expect, it } from 'vitest';
import { Allowlist } from '../../adapters/egress/allowlist.ts';
import { PROXY_LIMITS } from '../../adapters/egress/proxy.ts';
import { parseAuthority } from '../../catalogs/hosts.ts';
import { askPage, askTunnel, NOWHERE, openProxy } from '../egress/bench.ts';
import type { ProxyBench } from '../egress/bench.ts';
import { runJailed } from '../egress/jailed.ts';
import { verifies } from '../verifies.ts';

const CORPORA = process.env['TOLLGATE_CORPORA'] ?? '../shared/corpora';

interface EgressCase {
  readonly id: string;
  readonly kind: 'CONNECT' | 'HTTP' | 'RESOLVE' | 'REDIRECT' | 'DIRECT' | 'SLOW';
  readonly request: string & Readonly<Record<string, string>>;
  readonly resolve: readonly string[] | null;
  readonly expected: 'allow' | 'deny' | 'unreachable' | 'timeout';
  readonly note: string;
}

const { allowlist, cases } = JSON.parse(readFileSync(path.join(CORPORA, 'attacks', 'egress_cases.json'), 'utf8').replaceAll('{{+}}', '')) as { allowlist: readonly string[]; cases: readonly EgressCase[] };
const of = (...kinds: readonly EgressCase['kind'][]): readonly EgressCase[] => cases.filter(({ kind }) => kinds.includes(kind));

/** Refused by a rule. What passed the rules ends at the name server, which has no address for any name here. */
function isDenied({ status, refusal }: { readonly status: number; readonly refusal?: string }): boolean {
  return refusal !== 'unresolved' && refusal !== 'unreachable' && status !== 200;
}

const benches: ProxyBench[] = [];
afterAll(async () => Promise.all(benches.map((bench) => bench.close())));

async function proxy(...given: Parameters<typeof openProxy>): Promise<string> {
  const bench = await openProxy(...given);
  benches.push(bench);
  return bench.socket;
}

describe('egress cases', () => {
  it('are there, and of kinds that are judged below', () => {
    expect(cases.length).toBeGreaterThanOrEqual(41);
    expect(of('CONNECT', 'HTTP', 'RESOLVE', 'REDIRECT', 'DIRECT', 'SLOW')).toHaveLength(cases.length);
  });

  it.each(of('CONNECT'))('$id CONNECT $note: $expected' + verifies('PF-03'), async ({ request, expected }) => {
    const verdict = await askTunnel(await proxy(allowlist, { lookup: NOWHERE }), request);
    expect(isDenied(verdict)).toBe(expected === 'deny');
  });

  it.each(of('HTTP'))('$id HTTP $note: $expected' + verifies('PF-03'), async ({ request, expected }) => {
    const verdict = await askPage(await proxy(allowlist, { lookup: NOWHERE }), request['target'] ?? '', `Host: ${request['host']}\r\n`);
    expect(isDenied(verdict)).toBe(expected === 'deny');
  });

  it.each(of('RESOLVE'))('$id RESOLVE $note: $expected' + verifies('PF-03'), async ({ request, resolve, expected }) => {
    const target = parseAuthority(`${request['host']}:443`);
    const addresses = resolve ?? [];
    expect(target !== undefined && addresses.every((address) => new Allowlist(allowlist).admits(target, address))).toBe(expected === 'allow');
    // A public address would be dialled in earnest.
    if (expected === 'deny') expect(await askTunnel(await proxy(allowlist, { lookup: async () => addresses }), `${request['host']}:443`)).toEqual({ status: 403, refusal: 'private-address' });
  });

  it.each(of('REDIRECT'))('$id REDIRECT $note: $expected' + verifies('PF-03'), async ({ request, expected }) => {
    const socket = await proxy(allowlist, { lookup: NOWHERE });
    expect(isDenied(await askPage(socket, request['from'] ?? '', ''))).toBe(false);
    expect(isDenied(await askPage(socket, request['to'] ?? '', ''))).toBe(expected === 'deny');
  });

  it.each(of('DIRECT'))('$id DIRECT $note: $expected' + verifies('PF-03'), async ({ request, expected }) => {
    const [, host = '', port = ''] = /^(.*):(\d+)$/.exec(request['dial'] ?? '') ?? [];
    const place = request['abstract'] === undefined ? { host, port: Number(port) } : { path: `\0${request['abstract'].slice(1)}` };
    const inner = `require('node:net').connect(${JSON.stringify(place)}).on('connect', () => console.log('reached')).on('error', () => console.log('unreachable'))`;
    const { out } = await runJailed(`process.stdout.write(require('node:child_process').execFileSync(process.execPath, ['-e', ${JSON.stringify(inner)}], { env: {} }))`, allowlist);
    expect(out.trim()).toBe(expected);
  });

  it.each(of('SLOW'))('$id SLOW $note: $expected' + verifies('PF-03'), async ({ request, expected }) => {
    const bound = Math.max(PROXY_LIMITS.headersMs, PROXY_LIMITS.idleMs);
    expect(bound).toBeLessThan(Number(request['slowloris_s']) * 1000);
    // The same in small: a byte now and then does not keep a request open.
    const client = connect(await proxy(allowlist, { lookup: NOWHERE, limits: { headersMs: 300 } })).on('error', () => undefined);
    const closed = new Promise<string>((resolve) => client.once('close', () => resolve('timeout')));
    for (const letter of 'CONNECT allowed.test:443 HTTP/1.1\r\nX-Slow: ') {
      if (client.writable) client.write(letter);
      await sleep(40);
    }
    expect(await closed).toBe(expected);
  });
});
