/**
 * The entry of the bundle, which facade/cli/launcher.ts starts. It loads only the code that a command needs. Only this
 * file, facade/app.ts and facade/runtime/servers/offline-servers.ts import implementations.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { IssuerKeys, SignIns } from '../adapters/port.ts';
import type { Authoring } from '../policies/authoring/authoring-port.ts';
import type { Io } from './cli/command-io.ts';
import type { CommandProcess } from './cli/command-process.ts';
import type { Wiring } from './cli/wiring.ts';
import type { AssembleFacade, CheckPolicy, ServeOffline } from './runtime/assembled-facade.ts';

/** The tools of policy authors, loaded when needed. */
export const authoring: Authoring = {
  test: async (request) => (await import('../policies/authoring/testing/test-run.ts')).runTests(request),
  explain: async (parts, input) =>
    (await import('../policies/authoring/why/call-explanation.ts')).explainCall(parts, input),
  effectOf: async (parts, request) =>
    (await import('../policies/authoring/testing/test-suite.ts')).readRequest(parts, request),
  readsOf: async (parts, ids) => (await import('../policies/authoring/why/call-explanation.ts')).readsOf(parts, ids),
  replay: async function* (parts, calls) {
    yield* (await import('../policies/authoring/call-replay.ts')).replayCalls(parts, calls);
  },
  suggest: async (parts, request) =>
    (await import('../policies/authoring/suggest/rule-suggestions.ts')).suggestRules(parts, request),
  check: async (parts) => (await import('../policies/authoring/policy-check.ts')).checkSources(parts),
  rules: async (parts) => (await import('../policies/authoring/policy-check.ts')).listRules(parts),
  build: async (request) => (await import('../policies/authoring/bundle-build.ts')).buildBundle(request),
  format: async (request) => (await import('../policies/authoring/rego-format.ts')).formatRego(request),
  diff: async (request) => (await import('../policies/authoring/policy-diff.ts')).diffPolicies(request),
  draft: async (request) => (await import('../policies/authoring/policy-draft.ts')).draftPolicy(request),
  inputText: async (input) =>
    (await import('../policies/engine/policy-input.ts')).callInputText(input, { project: false }),
};

/** Assembles a facade from a configuration (see AssembleFacade in facade/runtime/assembled-facade.ts). */
export const assembleOnDemand: AssembleFacade = async (config, options) =>
  (await import('./app.ts')).assembleFacade(config, options);

/** Adapters without processes (see ServeOffline in facade/runtime/assembled-facade.ts). */
export const serveOfflineOnDemand: ServeOffline = async (config) =>
  (await import('./runtime/servers/offline-servers.ts')).serveOffline(config);

/** Returns the part of a line that both checks share, so that each unapproved server is reported once. */
function noticeOf(line: string): string {
  return /: (\S+ is not approved yet)/.exec(line)?.[1] ?? line;
}

/** Compiles the policy and stores nothing (see CheckPolicy in facade/runtime/assembled-facade.ts). */
export const checkPolicy: CheckPolicy = async (config, options) => {
  const [
    { findUncheckedNames, findUnknownNames },
    { TollgateError },
    { compileParts, startPolicy },
    { findUncheckedRules },
    { formatProblem },
    { controlRule, policyParts },
    { findUnboundPrograms },
    { approvedDefinitions },
    { findUnshownExposures },
  ] = await Promise.all([
    import('./exposure/tool-name-check.ts'),
    import('../catalogs/errors/error-table.ts'),
    import('../policies/engine/policy-loader.ts'),
    import('../policies/rules/offered-tools.ts'),
    import('../policies/rules/policy-problems.ts'),
    import('./runtime/policy-parts.ts'),
    import('./runtime/unbound-programs.ts'),
    import('./consent/servers/approved-tools.ts'),
    import('./exposure/rego-exposures.ts'),
  ]);
  const cache = mkdtempSync(path.join(tmpdir(), 'tollgate-check-'));
  try {
    const offered = await approvedDefinitions(config);
    const unknown = [...offered].flatMap(([server, tools]) =>
      tools === 'any' ? [] : findUnknownNames(config, server, tools),
    );
    const faults = unknown.filter(({ binds }) => binds !== undefined);
    const file = path.basename(config.file);
    if (faults.length > 0)
      throw new TollgateError('CONFIG_INVALID', {
        detail: `${file} names tools or arguments that approved servers do not have.`,
        data: { problems: faults.map(({ file: at, line, column, message }) => ({ file: at, line, column, message })) },
      });
    const compiled = await compileParts({ ...policyParts(config, { ...options, cache }), offered });
    const policy = await startPolicy(compiled);
    const [unbound, unshown] = await Promise.all([
      findUnboundPrograms(config, policy),
      findUnshownExposures(config, policy, offered),
    ]).finally(() => policy.close());
    const unjudged = findUncheckedRules(
      compiled.rules.rules,
      [...config.servers.keys()].filter((name) => !offered.has(name)),
    ).map(formatProblem);
    const named = [...unknown, ...findUncheckedNames(config, offered)]
      .map(formatProblem)
      .filter((line) => !unjudged.some((said) => noticeOf(said) === noticeOf(line)));
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

/** Sign-in to remote servers. */
const signIns: SignIns = {
  signIn: async (parts) => (await import('../adapters/oauth/sign-in.ts')).signIns.signIn(parts),
  signOut: async (parts) => (await import('../adapters/oauth/sign-in.ts')).signIns.signOut(parts),
};

/** Keys of the issuer whose tokens clients send. They are loaded with the first token. */
const issuerKeys: Wiring['issuerKeys'] = (address) => {
  let keys: IssuerKeys | undefined;
  return async (header, token) => {
    const { openIssuerKeys } = await import('../adapters/oauth/issuer-keys.ts');
    keys ??= openIssuerKeys(address);
    return keys(header, token);
  };
};

/** Probes of servers before their approval. */
const inspect: Wiring['inspect'] = async (...asked) =>
  (await import('../adapters/stdio/start-inspection.ts')).inspectStart(...asked);
const openProbe: Wiring['openProbe'] = async (config, parts) =>
  (await import('./app.ts')).openConsentProbe(config, parts);

/** Finds out which service answers at an address. */
const probe: Wiring['probe'] = async (address, addresses) =>
  (await import('../adapters/primitives/fetch/address-probe.ts')).probeAddress(address, addresses);

const searchRegistry: Wiring['searchRegistry'] = async (registry, words) =>
  (await import('../adapters/primitives/fetch/registry-search.ts')).searchRegistry(registry, words);

/** The implementations that the commands use. */
export const APP_MODULE: Wiring = {
  assemble: assembleOnDemand,
  check: checkPolicy,
  authoring,
  serveOffline: serveOfflineOnDemand,
  examine: async (needs) => (await import('../adapters/sandbox/isolation-doctor.ts')).examineIsolation(needs),
  signIns,
  issuerKeys,
  probe,
  containerClient: async () =>
    (await (await import('../adapters/sandbox/container/container-engine.ts')).findContainerEngine()).client,
  searchRegistry,
  inspect,
  openProbe,
};

/** In a worker of `serve --workers`, signals come from the first process. */
async function ioOf(processIo: typeof import('./cli/command-process.ts').processIo): Promise<Io> {
  const slot = process.env.TOLLGATE_WORKER;
  if (process.send === undefined || slot === undefined) return processIo(process);
  delete process.env.TOLLGATE_WORKER;
  const { linkWorker } = await import('./cli/serving/worker-link.ts');
  const { link, on } = linkWorker(process, Number(slot));
  const { stdin, stdout, stderr, env, argv, execPath } = process;
  const host = {
    ...{ stdin, stdout, stderr, env, argv, execPath, on },
    cwd: () => process.cwd(),
    exit: (code?: number) => process.exit(code),
    get exitCode() {
      return process.exitCode;
    },
    set exitCode(code) {
      process.exitCode = code;
    },
  };
  return processIo(host as CommandProcess, link);
}

/** Runs the command of this process. The process then has its exit code. */
export async function runCommandLine(): Promise<void> {
  const [{ runCli }, { processIo }] = await Promise.all([
    import('./cli/program.ts'),
    import('./cli/command-process.ts'),
  ]);
  const code = await runCli(process.argv.slice(2), await ioOf(processIo), APP_MODULE);
  process.exitCode ??= code;
}
