/**
 * Which file tests which row of the fault and attack matrix, parts A to D; docs/threat-model.md has the rows of A, E, F and G one by one.
 * Rows that say "approval" are in test/consent, those that say "sandbox" in test/sandbox and test/egress; text that steers a model is never
 * judged by Tollgate, which test/corpora/facade.test.ts asserts as a documented miss.
 *
 * A  1, 3, 12, 15, 25  prose in definitions        corpora/catalogs: passes, is never quarantined; 16, 21, 23 approval
 *    2, 4 to 10        hidden, bidi, padded text   catalogs/audit, corpora/catalogs, corpora/facade (alone, others stay)
 *    11, 22            oversize, schema DoS        catalogs/audit, catalogs/projection, adapters/stdio, corpora/facade
 *    13, 14            names                       catalogs/names, catalogs/audit, security/definitions, security/names
 *    17 to 19          rug pull, alternation       security/definitions, corpora/facade; 20 sleeper: sandbox
 *    24                annotation lies             security/definitions
 * B  26, 28            paths, leading dash         corpora/paths, workspace/attacks; 27, 30 security/callers, workspace/attacks
 *    29                shell in arguments          call/shell, corpora/facade; 31 (SSRF): host facts in call/effect, sandbox
 *    32, 33            secrets, chains in arguments corpora/facade: documented miss
 *    34, 35, 38        steering results            corpora/facade: documented miss; words in our name: security/results
 *    36, 37            hidden characters, links    output/shape, corpora/facade, security/results
 *    39, 40            size, media                 output/shape, properties/spill, security/results
 *    41                output schema               stories/pipeline (liar), output/shape
 *    42                secrets in results          output/redact, properties/spill, security/results
 *    43, 45            requests and noise of servers rpc/peer, corpora/wire, security/results
 *    44                call storm                  properties/limits, security/callers
 * paths that are swapped, files with several names: security/opened
 * C  46 to 51, 53      bytes of messages           rpc/json, corpora/wire, corpora/front, wire/dispatch, properties/passing
 *    52                line without end            rpc/framing, wire/stdio, adapters/stdio; line breaks within: security/smuggling
 *    54                ids of two clients          security/callers, wire/http; 55 needs resources; 56 wire/http
 * D  57, 58            rebinding, no token         wire/gate, wire/auth, wire/http
 *    59                token passthrough           security/callers, adapters/remote
 *    60                session of another          wire/http, wire/sessions; spills of another: security/callers, output/shape
 *    61                era of 2026-07-28           later
 *    URLs and addresses that two programs read differently: security/readings; a tunnel that carries requests for another host: security/tunnels
 *    62                addresses of OAuth          oauth/sign-in; a browser without a shell: oauth/cli
 *    runs, sessions, counts of another: security/principals
 * E  63 to 74            approval, supply chain    security/faults, which reads the table of docs/threat-model.md
 * F, G 75 to 113       sandbox, reliability        security/faults, which reads the table of docs/threat-model.md
 */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';

const tests = path.join(import.meta.dirname, '..');
const table = /\/\*\*[\s\S]*?\*\//.exec(readFileSync(import.meta.filename, 'utf8'))?.[0] ?? '';

describe('the table above', () => {
  it('names files that are there, and all files of this folder', () => {
    const named = new Set(
      [
        ...table.matchAll(
          /\b(?:adapters|call|catalogs|corpora|oauth|output|properties|rpc|security|stories|wire|workspace)\/[a-z]+(?:-[a-z]+)?\b/g,
        ),
      ].map(([file]) => file),
    );
    expect(named.size).toBeGreaterThan(25);
    for (const file of named) expect(existsSync(path.join(tests, `${file}.test.ts`)), file).toBe(true);
    for (const file of ['smuggling', 'definitions', 'results', 'callers']) expect(named).toContain(`security/${file}`);
  });

  it('leaves out no row of parts A to D', () => {
    const rows = [...table.matchAll(/(\d+) to (\d+)|\b(\d+)\b/g)].flatMap(([, from, to, one]) =>
      one === undefined
        ? Array.from({ length: Number(to) - Number(from) + 1 }, (_, n) => Number(from) + n)
        : [Number(one)],
    );
    expect(Array.from({ length: 62 }, (_, n) => n + 1).filter((row) => !rows.includes(row))).toEqual([]);
  });
});
