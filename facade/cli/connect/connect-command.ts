/**
 * Runs `tollgate connect`: shows what it will do, does all of it or nothing, and then asks for the approval. No
 * credential is read from the command line.
 */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { IMPORTED } from '../../clients/import-plan.ts';
import type { PinWorld } from '../../clients/package-copies.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { loadConfig } from '../../config/load-config.ts';
import { captureWrites } from '../../config/reading/file-replacement.ts';
import { SERVER_FOLDER, serverFileOf } from '../../config/servers/server-files.ts';
import { withArchives } from '../../packages/package-source.ts';
import { removePackages } from '../../packages/pinned-package.ts';
import { signInEntry } from '../../secrets/sign-ins.ts';
import { confirmWrite } from '../client-files/client-files.ts';
import { type CommonOptions, readConfig, readOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { recordActs, signed } from '../command-state.ts';
import { DEFAULT_CONFIG } from '../config-file.ts';
import { accepting, acceptWritten } from '../configuration/configuration-acceptance.ts';
import { refuseBroken } from '../configuration/configuration-preview.ts';
import { runLogout } from '../configuration/login-actions.ts';
import { commandLine, json, printable, printResult } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import {
  approveConnected,
  type ConnectOptions,
  type Consented,
  reachLines,
  reachOf,
  withdraw,
} from './connect-consent.ts';
import {
  collectCredentials,
  openConnectVault,
  readSources,
  secretPlaceOf,
  tellOrigin,
  unusualCredentials,
} from './connect-credentials.ts';
import { findTarget } from './connect-target.ts';
import type { ConnectionDraft } from './connection-draft.ts';
import { checkUntouched, connectedNames, type Journal, readJournal, readServerFile } from './connection-journal.ts';
import { carryOut, type Done, installWorldOf, serverFileText, takeBack, textFor } from './connection-steps.ts';
import { isSameService } from './same-service.ts';
import { offerTrial } from './trial-call.ts';

/** One run. */
interface Run {
  readonly options: ConnectOptions;
  readonly io: Io;
  readonly wiring: Wiring;
}

/** What connecting works with. */
interface Connecting {
  readonly io: Io;
  readonly wiring: Wiring;
  readonly packages: PinWorld;
}

/**
 * Connects a service. Exit code 7 if only its approval is missing, 5 if the probe failed, 6 if the
 * test call failed. Throws USAGE, IDENTITY,
 * CONFIG_INVALID, INSTALL_FAILED, VAULT_FAILED, CANCELLED, and then has changed nothing.
 */
export async function runConnect(
  options: ConnectOptions & { readonly undo?: true },
  io: Io,
  wiring: Wiring,
): Promise<number> {
  if (options.undo === true) return accepting(options, io, () => undoOne(options, io, wiring));
  return withArchives((into) => connect(options, { io, wiring, packages: { ...installWorldOf(io, wiring), into } }));
}

async function connect(options: ConnectOptions, { io, wiring, packages }: Connecting): Promise<number> {
  const config = readConfig(options, io);
  const by = readOwner(config, { as: options.as, act: 'connects servers' }, io);
  if (!config.profiles.has(options.profile))
    throw new TollgateError('USAGE', {
      detail: `There is no profile ${quote(options.profile)}, so nothing was done.`,
      next: `Give --profile an existing one; ${didYouMean(options.profile, config.profiles.keys())}`,
    });
  const sources = readSources(options.credential ?? []);
  const vault = await openConnectVault(config, io);
  const draft = await findTarget(options, { io, sources, known: vault.names, probe: wiring.probe, config, packages });
  const unused = [...sources.keys()].find((name) => !draft.secrets.some((secret) => secretPlaceOf(secret) === name));
  if (unused !== undefined)
    throw new TollgateError('USAGE', {
      detail: `${draft.name} takes no credential ${unused}.`,
      next:
        draft.secrets.length === 0 ? 'Omit --credential.' : `It takes ${draft.secrets.map(secretPlaceOf).join(', ')}.`,
    });
  const former = checkFree(draft, config) ? config.servers.get(draft.name)?.source : undefined;
  const places = { state: config.state, folder: config.folder };
  const text = textFor(draft, places);
  // Reports a file that would not load before it asks or installs anything.
  if (!config.servers.has(draft.name) || former !== undefined)
    loadConfig(config.file, { env: io.env, home: io.home }, { servers: new Map([[draft.name, text]]) });
  const preview = previewOf(readServerFile(places, draft.name), text);
  if (options.json !== true) io.stderr(planText(draft, preview, { known: vault.names, former }));
  if (!(await confirmWrite(options, io, 'Do this?'))) {
    printResult({ io, options }, { server: draft.name, written: false, preview, text }, 'Nothing was done.');
    return EXIT.ok;
  }
  const values = await collectCredentials({ secrets: draft.secrets, sources, known: vault.names }, io);
  for (const place of unusualCredentials(draft.secrets, values))
    io.stderr(
      `${place} does not have the form of a credential of ${draft.title}.\n` +
        'If it is another key, connect again with --credential.\n',
    );
  if (draft.package !== undefined) io.stderr(`Installing ${draft.package.name} ${draft.package.version} …\n`);
  const origin = vault.places.vault.origin();
  const { result: done, writes } = await captureWrites(() =>
    carryOut(draft, values, {
      ...places,
      vault: vault.places.vault,
      install: packages,
      reload: () => void readConfig(options, io),
    }),
  );
  await acceptWritten(options, io, writes);
  tellOrigin(vault.places, origin, io);
  await recordActs(config.audit, [
    signed({ type: 'server', server: draft.name, event: 'connect', outcome: 'allow', by }, io),
  ]);
  return finish({ options, io, wiring }, draft, done);
}

/**
 * Throws USAGE for an existing name, and for a file that connect did not write. Returns true if the existing server is
 * the same service, imported or in an included file. It is then replaced, and undoing restores it.
 */
function checkFree({ name, ...draft }: ConnectionDraft, { servers, state, folder, file }: Config): boolean {
  const existing = servers.get(name);
  const own = `${SERVER_FOLDER}/${name}.yaml`;
  const isSame = existing !== undefined && isSameService(draft, existing);
  if (existing !== undefined && existing.source !== own && (!isSame || existing.source === path.basename(file)))
    throw new TollgateError('USAGE', {
      detail: `There is a server ${name} already, in ${path.basename(existing.source)}.`,
      next: 'Give the new one another name with --name.',
    });
  const text = readServerFile({ state, folder }, name);
  if (text === undefined) return isSame;
  if (text === serverFileText({ name, ...draft }) || readJournal({ state, folder }, name) !== undefined) return false;
  if (isSame && text.startsWith(IMPORTED)) return true;
  throw new TollgateError('USAGE', {
    detail: `${own} exists, and connect did not write it.`,
    next: `Approve it as it is with \`tollgate approve ${name}\`, remove it, or give another name with --name.`,
  });
}

function planText(
  { name, title, package: pkg, secrets, entry, notes }: ConnectionDraft,
  preview: readonly string[],
  { known, former }: { readonly known: ReadonlySet<string>; readonly former: string | undefined },
): string {
  const reach = entry.sandbox?.network?.allowedDomains ?? (entry.url === undefined ? [] : [new URL(entry.url).host]);
  const isStored = ({ name: secret }: { readonly name: string }): string =>
    known.has(secret) ? ' (there already)' : '';
  const same = pkg === undefined ? 'address' : 'package';
  const lines = [
    `${title} becomes the server ${name}:`,
    ...(pkg === undefined
      ? []
      : [`  installs ${pkg.name} ${pkg.version} into the state folder, without running its scripts`]),
    ...secrets.map((secret) => `  stores ${secretPlaceOf(secret)} in the vault as ${secret.name}${isStored(secret)}`),
    `  reaches ${reach.length === 0 ? 'no network' : reach.join(', ')}`,
    ...(former === undefined ? [] : [`  replaces ${name} from ${former}, the same ${same}; undoing restores that`]),
    ...notes.map((note) => `  note: ${note}`),
    ...(preview.some((line) => !line.startsWith(' '))
      ? [`  writes ${SERVER_FOLDER}/${name}.yaml:`, ...preview.map((line) => `    ${line}`)]
      : [`  ${SERVER_FOLDER}/${name}.yaml stays unchanged`]),
  ];
  return `${lines.map(printable).join('\n')}\n`;
}

async function finish(run: Run, draft: ConnectionDraft, done: Done): Promise<number> {
  const { options, io } = run;
  const { name, title, entry } = draft;
  const consented = await approveConnected(draft, run);
  const approved = consented.code === EXIT.ok;
  const reach = approved ? await reachOf(name, run) : undefined;
  if (options.json === true) {
    const test = approved ? await offerTrial(name, run) : undefined;
    const more = { ...(reach !== undefined && { reach }), ...(test !== undefined && { test: test.data }) };
    io.stdout(json({ server: name, ...done, approved, ...consented, ...more }));
    return test?.code ?? consented.code;
  }
  if (reach === undefined) io.stderr(unapprovedText(run, draft, consented));
  else {
    const labels = (entry.labels ?? []).join(', ');
    const summary = `Connected: ${title} is the server ${name}. Its results are labelled ${labels}.`;
    io.stderr([summary, ...reachLines(name, reach)].map((line) => `${printable(line)}\n`).join(''));
    return (await offerTrial(name, run))?.code ?? consented.code;
  }
  return consented.code;
}

/** Tells how to continue and how to undo. The configured server starts nothing until it is approved. */
function unapprovedText(
  { io, options }: Run,
  { name, package: pkg, entry, openness }: ConnectionDraft,
  { failure }: Consented,
): string {
  const done = pkg === undefined ? 'configured' : 'installed and configured';
  const verb = entry.command === undefined ? 'is not reached' : 'starts nothing';
  const command = (...words: string[]): string =>
    commandLine([...io.self, ...words, ...(options.config === DEFAULT_CONFIG ? [] : ['--config', options.config])]);
  const flags = [
    ...(openness?.withSecrets === true ? ['--with-secrets'] : []),
    ...(openness?.withNetwork === true ? ['--with-network'] : []),
  ];
  return [
    ...(failure === undefined ? [] : [printable(failure)]),
    `${name} is ${done}, and ${verb} until it is approved.`,
    `  continue: ${command('approve', name, ...flags)}`,
    `  undo:     ${command('connect', '--undo', name)}`,
    '',
  ].join('\n');
}

/** Returns the change line by line: `+` is added, `-` is removed, two spaces stay. */
function previewOf(before: string | undefined, after: string): readonly string[] {
  const old = before === undefined ? [] : before.trimEnd().split('\n');
  const fresh = after.trimEnd().split('\n');
  let head = 0;
  while (head < old.length && head < fresh.length && old[head] === fresh[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < fresh.length - head && old.at(-1 - tail) === fresh.at(-1 - tail)) tail += 1;
  const same = (lines: readonly string[]): readonly string[] => lines.map((line) => `  ${line}`);
  return [
    ...same(old.slice(0, head)),
    ...old.slice(head, old.length - tail).map((line) => `- ${line}`),
    ...fresh.slice(head, fresh.length - tail).map((line) => `+ ${line}`),
    ...same(old.slice(old.length - tail)),
  ];
}

/** Undoes one connection. Throws USAGE, IDENTITY, CONFIG_INVALID, POLICY_INVALID, VAULT_FAILED, STATE_FAILED. */
async function undoOne(options: ConnectOptions, io: Io, wiring: Wiring): Promise<number> {
  const config = readConfig(options, io);
  readOwner(config, { as: options.as, act: 'connects servers' }, io);
  const name = options.name ?? options.service;
  const places = { state: config.state, folder: config.folder };
  const journal = /^[a-z][a-z0-9-]*$/.test(name) ? readJournal(places, name) : undefined;
  if (journal === undefined) {
    const names = connectedNames(places);
    throw new TollgateError('USAGE', {
      detail: `${quote(name)} was not connected here, so there is nothing to undo.`,
      next:
        names.length === 0
          ? '`connect` has added no server. Remove other servers by hand in tollgate.yaml.'
          : `Connected servers: ${names.join(', ')}.`,
    });
  }
  const given = options.config === DEFAULT_CONFIG ? [] : ['--config', options.config];
  const owner = options.as === undefined ? [] : ['--as', options.as];
  const again = commandLine([...io.self, 'connect', '--undo', name, ...given, ...owner]);
  const all = commandLine([...io.self, 'setup', '--undo', ...given, ...owner]);
  const file = serverFileOf(config.folder, name);
  await refuseBroken(new Map([[file, journal.before ?? undefined]]), {
    options,
    io,
    wiring,
    again: journal.bySetup === true ? `${again} (or take back all that setup added: ${all})` : again,
  });
  checkUntouched(places, journal);
  const { secrets, hadPackage } = await undoConnection(journal, { options, io, wiring });
  const deleted = secrets.length === 0 ? '' : ` Deleted: ${secrets.join(', ')}. ${REVOKE_THERE}`;
  printResult(
    { io, options },
    { undone: name, secrets, package: hadPackage },
    `Undone: ${name} is no longer connected.${deleted}`,
  );
  return EXIT.ok;
}

/** Secrets that the undo of a connection deletes may still be valid at their provider. */
export const REVOKE_THERE = 'Revoke them at the provider too if no one else uses them.';

/**
 * Removes consent, sign-in, file, secrets and package of a connected server, in this order. `secrets`: the deleted
 * ones. Check before that the configuration loads without the server. Throws USAGE, IDENTITY, VAULT_FAILED,
 * STATE_FAILED.
 */
export async function undoConnection(
  journal: Journal,
  {
    options,
    io,
    wiring,
  }: { readonly options: CommonOptions & Pick<ConnectOptions, 'as'>; readonly io: Io; readonly wiring: Wiring },
): Promise<{ readonly secrets: readonly string[]; readonly hadPackage: boolean }> {
  const config = readConfig(options, io);
  const by = readOwner(config, { as: options.as, act: 'connects servers' }, io);
  const { server: name, secrets } = journal;
  // The consent goes first, so that no call reaches the server even if a later step fails.
  await withdraw(options, name, { io, wiring });
  const { places, names } = await openConnectVault(config, io);
  // The sign-in of the server that was there before stays.
  if (journal.before === null && names.has(signInEntry(name)))
    await runLogout({ config: options.config, server: name }, io, wiring).catch(async () => {
      await places.vault.remove(signInEntry(name));
      io.stderr(`The tokens of ${printable(name)} were deleted, not revoked: revoke them in your account there.\n`);
    });
  await takeBack(journal, { state: config.state, folder: config.folder, vault: places.vault });
  // The server that was there before may be a copy that runs an installed package.
  const isUsed = journal.before?.includes(`/packages/${name}/`) === true;
  const hadPackage = !isUsed && removePackages(config.state, name);
  await recordActs(config.audit, [
    signed({ type: 'server', server: name, event: 'connect.undone', outcome: 'allow', by }, io),
  ]);
  return { secrets, hadPackage };
}
