/**
 * Lists the test file of each row of the fault and attack matrix, parts A to D. docs/threat-model.md lists the rows of
 * A, E, F and G. Rows with "approval" are in test/consent, rows with "sandbox" in test/sandbox and test/egress. Tollgate
 * does not judge text that steers a model; test/corpora/facade.test.ts asserts that as a documented miss.
 *
 * A  1, 3, 12, 15, 25  prose in definitions        corpora/catalogs: passes, is never quarantined; 16, 21, 23 approval
 *    2, 4 to 10        hidden, bidi, padded text   lint/definition-audit, corpora/catalogs, corpora/facade (alone,
 *                                              others stay)
 *    11, 22            oversize, schema DoS        lint/definition-audit, projection/schema-projection,
 *                                              stdio/stdio-connection, corpora/facade
 *    13, 14            names                       tools/exposed-names, lint/definition-audit,
 *                                              security/definition-attacks, security/ambiguous-names
 *    17 to 19          rug pull, alternation       security/definition-attacks, corpora/facade; 20 sleeper: sandbox
 *    24                annotation lies             security/definition-attacks
 * B  26, 28            paths, leading dash         corpora/paths, workspace/workspace-attacks; 27, 30
 *                                              security/caller-attacks, workspace/workspace-attacks
 *    29                shell in arguments          call/command-facts, corpora/facade; 31 (SSRF): host facts in
 *                                              call/call-effect, sandbox
 *    32, 33            secrets, chains in arguments corpora/facade: documented miss
 *    34, 35, 38        steering results            corpora/facade: documented miss; words in our name:
 *                                              security/result-attacks
 *    36, 37            hidden characters, links    output/result-shape, corpora/facade, security/result-attacks
 *    39, 40            size, media                 output/result-shape, properties/cut-and-spill,
 *                                              security/result-attacks
 *    41                output schema               stories/pipeline (liar), output/result-shape
 *    42                secrets in results          output/redactor, properties/cut-and-spill, security/result-attacks
 *    43, 45            requests and noise of servers rpc/peer, corpora/wire, security/result-attacks
 *    44                call storm                  properties/limits, security/caller-attacks
 * paths that are swapped, files with several names: security-sandbox/path-open-race
 * C  46 to 51, 53      bytes of messages           rpc/message-parser, corpora/wire, corpora/transports,
 *                                              serve/session-dispatch, properties/byte-fidelity
 *    52                line without end            rpc/framing, serve/stdio-transport, stdio/stdio-connection; line
 *                                              breaks within: security/smuggling
 *    54                ids of two clients          security/caller-attacks, serve/http-listener; 55 needs resources;
 *                                              56 serve/http-listener
 * D  57, 58            rebinding, no token         serve/origin-check, serve/token-authentication, serve/http-listener
 *    59                token passthrough           security/caller-attacks, http/remote-connection
 *    60                session of another          serve/http-listener, serve/http-sessions; spills of another:
 *                                              security/caller-attacks, output/result-shape
 *    61                era of 2026-07-28           stories/stateless-stories, test/modern
 *    URLs and addresses that two programs read differently: security-sandbox/ambiguous-addresses; a tunnel that
 *                                              carries requests for another host: security-sandbox/connect-tunnels
 *    62                addresses of OAuth          oauth/sign-in; a browser without a shell: oauth/sign-in-commands
 *    runs, sessions, counts of another: security/principal-attacks
 * E  63 to 74            approval, supply chain    security/threat-model, which reads the table of docs/threat-model.md
 * F, G 75 to 113       sandbox, reliability        security/threat-model, which reads the table of docs/threat-model.md
 */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';

const tests = path.join(import.meta.dirname, '..');
const table = /\/\*\*[\s\S]*?\*\//.exec(readFileSync(import.meta.filename, 'utf8'))?.[0] ?? '';

describe('the table above', () => {
  it('names existing files, and all files of this folder', () => {
    const named = new Set(
      [
        ...table.matchAll(
          /\b(?:call|corpora|http|lint|oauth|output|projection|properties|rpc|security|security-sandbox|serve|stdio|stories|tools|workspace)\/[a-z]+(?:-[a-z]+)*\b/g,
        ),
      ].map(([file]) => file),
    );
    expect(named.size).toBeGreaterThan(25);
    for (const file of named) expect(existsSync(path.join(tests, `${file}.test.ts`)), file).toBe(true);
    for (const file of ['smuggling', 'definition-attacks', 'result-attacks', 'caller-attacks'])
      expect(named).toContain(`security/${file}`);
  });

  it('omits no row of parts A to D', () => {
    const rows = [...table.matchAll(/(\d+) to (\d+)|\b(\d+)\b/g)].flatMap(([, from, to, one]) =>
      one === undefined
        ? Array.from({ length: Number(to) - Number(from) + 1 }, (_, n) => Number(from) + n)
        : [Number(one)],
    );
    expect(Array.from({ length: 62 }, (_, n) => n + 1).filter((row) => !rows.includes(row))).toEqual([]);
  });
});
