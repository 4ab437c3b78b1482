#!/usr/bin/env node
/** Owns the start of the process, and which code is loaded for what is asked: only this file, facade/wiring.ts and facade/offline.ts know implementations. */
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import * as nodeModule from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { SignIns } from '../adapters/port.ts';
import type { Authoring } from '../policies/authoring.ts';
import type { Assemble, Check, ServeOffline } from './assembled.ts';
import type { Wiring } from './cli/program.ts';

/** What authors use; loaded when it is asked for. */
export const authoring: Authoring = {
  test: async (request) => (await import('../policies/authoring/test.ts')).runTests(request),
  explain: async (parts, input) => (await import('../policies/authoring/why.ts')).explainCall(parts, input),
  readsOf: async (parts, ids) => (await import('../policies/authoring/why.ts')).readsOf(parts, ids),
  replay: async function* (parts, calls) {
    yield* (await import('../policies/authoring/replay.ts')).replayCalls(parts, calls);
  },
  check: async (parts) => (await import('../policies/authoring/check.ts')).checkSources(parts),
  build: async (request) => (await import('../policies/authoring/build.ts')).buildBundle(request),
  format: async (request) => (await import('../policies/authoring/fmt.ts')).formatRego(request),
  diff: async (request) => (await import('../policies/authoring/diff.ts')).diffPolicies(request),
  draft: async (request) => (await import('../policies/authoring/init.ts')).draftPolicy(request),
  inputText: async (input) => (await import('../policies/input.ts')).callInputText(input, { project: false }),
};

/** Wires a configuration (see Assemble in facade/assembled.ts). */
export const assemble: Assemble = async (config, options) => (await import('./wiring.ts')).assemble(config, options);

/** Adapters without processes (see ServeOffline in facade/assembled.ts). */
export const serveOffline: ServeOffline = async (config) => (await import('./offline.ts')).serveOffline(config);

/** What a line says, without its place: of each server it is said once. */
function told(line: string): string {
  return /: (\S+ is not approved yet)/.exec(line)?.[1] ?? line;
}

/** Compiles the policy and keeps nothing (see Check in facade/assembled.ts). */
export const checkPolicy: Check = async (config, options) => {
  const [
    { findUnjudgedNames, findUnknownNames },
    { TollgateError },
    { compileParts, startPolicy },
    { findUnjudged },
    { formatProblem },
    { controlRule, policyParts },
    { findUnbound },
    { approvedOffer },
    { findUnshown },
  ] = await Promise.all([
    import('./tool-names.ts'),
    import('../catalogs/errors.ts'),
    import('../policies/engine.ts'),
    import('../policies/offered.ts'),
    import('../policies/problems.ts'),
    import('./policy-parts.ts'),
    import('./unbound.ts'),
    import('./consent/approved-offer.ts'),
    import('./wanted.ts'),
  ]);
  const cache = mkdtempSync(path.join(tmpdir(), 'tollgate-check-'));
  try {
    const offered = await approvedOffer(config);
    const unknown = [...offered].flatMap(([server, tools]) =>
      tools === 'any' ? [] : findUnknownNames(config, server, tools),
    );
    const faults = unknown.filter(({ binds }) => binds !== undefined);
    const file = path.basename(config.file);
    if (faults.length > 0)
      throw new TollgateError('CONFIG_INVALID', {
        detail: `${file} names what approved servers do not have.`,
        data: { problems: faults.map(({ file: at, line, column, message }) => ({ file: at, line, column, message })) },
      });
    const compiled = await compileParts({ ...policyParts(config, { ...options, cache }), offered });
    const policy = await startPolicy(compiled);
    const [unbound, unshown] = await Promise.all([
      findUnbound(config, policy),
      findUnshown(config, policy, offered),
    ]).finally(() => policy.close());
    const unjudged = findUnjudged(
      compiled.rules.rules,
      [...config.servers.keys()].filter((name) => !offered.has(name)),
    ).map(formatProblem);
    const named = [...unknown, ...findUnjudgedNames(config, offered)]
      .map(formatProblem)
      .filter((line) => !unjudged.some((said) => told(said) === told(line)));
    return {
      revision: policy.revision,
      rules: policy.rules - controlRule(config).value.rules.length,
      unbound,
      unjudged: [...unjudged, ...named],
      unshown,
    };
  } finally {
    rmSync(cache, { recursive: true, force: true });
  }
};

/** Signing in to remote servers. */
const signIns: SignIns = {
  signIn: async (parts) => (await import('../adapters/oauth/sign-in.ts')).signIns.signIn(parts),
  signOut: async (parts) => (await import('../adapters/oauth/sign-in.ts')).signIns.signOut(parts),
};

/** Looking at servers before anybody agreed to them. */
const inspect: Wiring['inspect'] = async (...asked) => (await import('../adapters/inspect.ts')).inspectStart(...asked);
const openLook: Wiring['openLook'] = async (config, parts) => (await import('./wiring.ts')).openLook(config, parts);

/** What answers at an address. */
const probe: Wiring['probe'] = async (address, addresses) =>
  (await import('../adapters/internal/fetch/probe.ts')).probe(address, addresses);

/** What the commands are given. */
export const WIRING: Wiring = {
  assemble,
  check: checkPolicy,
  authoring,
  serveOffline,
  examine: async (needs) => (await import('../adapters/sandbox/doctor.ts')).examine(needs),
  signIns,
  probe,
  inspect,
  openLook,
};

/**
 * Node 22 and later can keep what it compiled. The folder is that of the code itself: whoever can write there could change the code
 * too, which is not so for a folder of temporary files. Where we cannot write, nothing is kept.
 */
function keepCompiled(): void {
  const { enableCompileCache } = nodeModule as { readonly enableCompileCache?: (folder: string) => unknown };
  enableCompileCache?.(path.join(import.meta.dirname, '..', '.compiled'));
}

if (process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  keepCompiled();
  const [{ runCli }, { processIo }] = await Promise.all([import('./cli/program.ts'), import('./cli/process.ts')]);
  const code = await runCli(process.argv.slice(2), processIo(process), WIRING);
  process.exitCode ??= code;
}
