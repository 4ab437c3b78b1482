/**
 * Runs `tollgate connect`: shows what will be done, does all of it or nothing, and then asks for the approval. It takes
 * no value from the command line.
 */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { IMPORTED } from '../../clients/import-plan.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { loadConfig } from '../../config/load-config.ts';
import { captureWrites } from '../../config/reading/file-replacement.ts';
import { SERVER_FOLDER } from '../../config/servers/server-files.ts';
import { confirmWrite } from '../client-files/client-files.ts';
import { readConfig, readOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { recordActs, signed } from '../command-state.ts';
import { accepting, acceptWritten } from '../configuration/configuration-acceptance.ts';
import { commandLine, json, printable } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { approveConnected, type ConnectOptions, type Consented, reachLines, reachOf } from './connect-consent.ts';
import { collect, openConnectVault, readSources, secretPlaceOf, tellOrigin, unlike } from './connect-credentials.ts';
import { findTarget } from './connect-target.ts';
import { runUndo } from './connect-undo.ts';
import { previewOf, serverFileText } from './connected-server-file.ts';
import type { ConnectionDraft } from './connection-draft.ts';
import { readJournal, readServerFile } from './connection-journal.ts';
import { carryOut, type Done, textFor } from './connection-steps.ts';
import { isSameService } from './same-service.ts';

/** One run. */
interface Run {
  readonly options: ConnectOptions;
  readonly io: Io;
  readonly wiring: Wiring;
}

/**
 * Connects a service. Exit code 7 if only its approval is missing, 5 if it could not be looked at. Throws USAGE,
 * IDENTITY, CONFIG_INVALID, INSTALL_FAILED, VAULT_FAILED, CANCELLED; then nothing of it was left behind.
 */
export async function runConnect(
  options: ConnectOptions & { readonly undo?: true },
  io: Io,
  wiring: Wiring,
): Promise<number> {
  if (options.undo === true) return accepting(options, io, () => runUndo(options, io, wiring));
  const config = readConfig(options, io);
  const by = readOwner(config, { as: options.as, act: 'connects servers' }, io);
  if (!config.profiles.has(options.profile))
    throw new TollgateError('USAGE', {
      detail: `There is no profile ${quote(options.profile)}, so nothing was done.`,
      next: `Give --profile an existing one; ${didYouMean(options.profile, config.profiles.keys())}`,
    });
  const sources = readSources(options.credential ?? []);
  const vault = await openConnectVault(config, io);
  const draft = await findTarget(options, { io, sources, known: vault.names, probe: wiring.probe });
  const unused = [...sources.keys()].find((name) => !draft.secrets.some((secret) => secretPlaceOf(secret) === name));
  if (unused !== undefined)
    throw new TollgateError('USAGE', {
      detail: `${draft.name} takes no credential ${unused}.`,
      next:
        draft.secrets.length === 0
          ? 'Leave --credential out.'
          : `It takes ${draft.secrets.map(secretPlaceOf).join(', ')}.`,
    });
  const former = checkFree(draft, config) ? config.servers.get(draft.name)?.source : undefined;
  const places = { state: config.state, folder: config.folder };
  const text = textFor(draft, places);
  // A file that would not load is reported before anything is asked or installed.
  if (!config.servers.has(draft.name) || former !== undefined)
    loadConfig(config.file, { env: io.env, home: io.home }, { servers: new Map([[draft.name, text]]) });
  const preview = previewOf(readServerFile(places, draft.name), text);
  if (options.json !== true) io.stderr(planText(draft, preview, { known: vault.names, former }));
  const isAgreed = await confirmWrite(options, io, 'Do this?');
  if (!isAgreed) return told({ options, io, wiring }, draft, { preview, text });
  const values = await collect({ secrets: draft.secrets, sources, known: vault.names }, io);
  for (const place of unlike(draft.secrets, values))
    io.stderr(
      `${place} does not have the form of a credential of ${draft.title}. If it is another key, connect again with --credential.\n`,
    );
  const stop = new AbortController();
  void io.stopped.then(() => stop.abort());
  if (draft.package !== undefined) io.stderr(`Installing ${draft.package.name} ${draft.package.version} …\n`);
  const origin = vault.places.vault.origin();
  const { result: done, writes } = await captureWrites(() =>
    carryOut(draft, values, {
      ...places,
      vault: vault.places.vault,
      install: { env: io.env, say: (line) => io.stderr(`${printable(line)}\n`), signal: stop.signal },
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
 * An existing name, or a file that someone else wrote, stays unchanged. The same package, imported or in an included
 * file, is replaced: the preview shows the former file, and undoing restores it. Returns true then.
 */
function checkFree({ name, ...draft }: ConnectionDraft, { servers, state, folder, file }: Config): boolean {
  const there = servers.get(name);
  const own = `${SERVER_FOLDER}/${name}.yaml`;
  const isSame = there !== undefined && isSameService(draft, there);
  if (there !== undefined && there.source !== own && (!isSame || there.source === path.basename(file)))
    throw new TollgateError('USAGE', {
      detail: `There is a server ${name} already, in ${path.basename(there.source)}.`,
      next: 'Give this one another name with --name.',
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
  const lines = [
    `${title} becomes the server ${name}:`,
    ...(pkg === undefined
      ? []
      : [`  installs ${pkg.name} ${pkg.version} into the state folder, without running its scripts`]),
    ...secrets.map(
      (secret) =>
        `  stores ${secretPlaceOf(secret)} in the vault as ${secret.name}${known.has(secret.name) ? ' (there already)' : ''}`,
    ),
    `  reaches ${reach.length === 0 ? 'no network' : reach.join(', ')}`,
    ...(former === undefined
      ? []
      : [
          `  replaces ${name} from ${former}, the same ${pkg === undefined ? 'address' : 'package'}; undoing restores that`,
        ]),
    ...notes.map((note) => `  note: ${note}`),
    ...(preview.some((line) => !line.startsWith(' '))
      ? [`  writes ${SERVER_FOLDER}/${name}.yaml:`, ...preview.map((line) => `    ${line}`)]
      : [`  ${SERVER_FOLDER}/${name}.yaml stays unchanged`]),
  ];
  return `${lines.map(printable).join('\n')}\n`;
}

function told(
  { options, io }: Run,
  { name }: ConnectionDraft,
  { preview, text }: { readonly preview: readonly string[]; readonly text: string },
): number {
  if (options.json === true) io.stdout(json({ server: name, written: false, preview, text }));
  else io.stderr('Nothing was done.\n');
  return EXIT.ok;
}

async function finish(run: Run, draft: ConnectionDraft, done: Done): Promise<number> {
  const { options, io } = run;
  const { name } = draft;
  if (draft.login === true) return awaitLogin(run, draft, done);
  const consented = await approveConnected(draft, run);
  const reach = consented.code === EXIT.ok ? await reachOf(name, run) : undefined;
  if (options.json === true)
    io.stdout(
      json({
        server: name,
        ...done,
        approved: consented.code === EXIT.ok,
        ...consented,
        ...(reach !== undefined && { reach }),
      }),
    );
  else if (reach !== undefined)
    io.stderr(
      `${[`Connected: ${draft.title} is the server ${name}. Its results are labelled ${(draft.entry.labels ?? []).join(', ')}.`, ...reachLines(name, reach)].map(printableLines).join('\n')}\n`,
    );
  else io.stderr(openEnd(run, draft, consented));
  return consented.code;
}

/** What was done stays, and starts nothing. The person is told how to continue and how to undo. */
function openEnd({ io, options }: Run, { name, package: pkg, entry }: ConnectionDraft, { failure }: Consented): string {
  const verb = entry.command === undefined ? 'is not reached' : 'starts nothing';
  const command = (...words: string[]): string =>
    commandLine([...io.self, ...words, ...(options.config === 'tollgate.yaml' ? [] : ['--config', options.config])]);
  return `${failure === undefined ? '' : `${printable(failure)}\n`}${name} is ${pkg === undefined ? '' : 'installed and '}configured, and ${verb} until it is approved.\n  continue: ${command('approve', name)}\n  undo:     ${command('connect', '--undo', name)}\n`;
}

function awaitLogin({ options, io }: Run, { name }: ConnectionDraft, done: Done): number {
  const next = [commandLine([...io.self, 'login', name]), commandLine([...io.self, 'approve', name, '--with-secrets'])];
  if (options.json === true) io.stdout(json({ server: name, ...done, approved: false, next }));
  else
    io.stderr(
      `${name} is configured, and needs a sign-in before it lists its tools:\n${next.map((line) => `  ${line}\n`).join('')}`,
    );
  return EXIT.approval;
}

function printableLines(text: string): string {
  return text.split('\n').map(printable).join('\n');
}
