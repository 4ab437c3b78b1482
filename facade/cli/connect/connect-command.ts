/** Owns `tollgate connect`: what would be done is shown, then done whole, then approved; refuses to do half of it, and to take a value from the command line. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { loadConfig } from '../../config/load-config.ts';
import { captureWrites } from '../../config/reading/file-replacement.ts';
import { SERVER_FOLDER } from '../../config/servers/server-files.ts';
import { agree } from '../client-files/client-files.ts';
import { IMPORTED } from '../clients/import-plan.ts';
import { readConfig, readPrincipal } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { recordActs, signed } from '../command-state.ts';
import { acceptWritten } from '../configuration/configuration-acceptance.ts';
import { commandLine, json, printable } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { approveConnected, type ConnectOptions, type Consented, reachLines, reachOf } from './connect-consent.ts';
import { collect, openConnectVault, readSources, secretPlaceOf, tellOrigin, unlike } from './connect-credentials.ts';
import { findTarget } from './connect-target.ts';
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
 * Connects a service. Exit code 7 when its approval is all that is missing, 5 when it could not be looked at. Throws USAGE, IDENTITY,
 * CONFIG_INVALID, INSTALL_FAILED, VAULT_FAILED, CANCELLED; then nothing of it was left behind.
 */
export async function runConnect(options: ConnectOptions, io: Io, wiring: Wiring): Promise<number> {
  const config = readConfig(options, io);
  const by = connectOwnerOf(config, options, io);
  if (!config.profiles.has(options.profile))
    throw new TollgateError('USAGE', {
      detail: `There is no profile ${quote(options.profile)}, so nothing was done.`,
      next: `Give --profile one that there is; ${didYouMean(options.profile, config.profiles.keys())}`,
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
  // What would not load is said before anything is asked or installed.
  if (!config.servers.has(draft.name) || former !== undefined)
    loadConfig(config.file, { env: io.env, home: io.home }, { servers: new Map([[draft.name, text]]) });
  const preview = previewOf(readServerFile(places, draft.name), text);
  if (options.json !== true) io.stderr(planText(draft, preview, { known: vault.names, former }));
  const isAgreed = await agree(options, io, 'Do this?');
  if (!isAgreed) return told({ options, io, wiring }, draft, { preview, text });
  const values = await collect({ secrets: draft.secrets, sources, known: vault.names }, io);
  for (const place of unlike(draft.secrets, values))
    io.stderr(
      `${place} does not look like those that ${draft.title} gives; if it is another key, connect again with --credential.\n`,
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

/** The owner who decides. Throws IDENTITY. */
export function connectOwnerOf(config: Config, options: Pick<ConnectOptions, 'as'>, io: Io): string {
  const { id, owner } = readPrincipal(config, options, io);
  if (owner !== true)
    throw new TollgateError('IDENTITY', {
      detail: `${id} is no owner, and only an owner connects servers.`,
      next: 'Use --as with a principal that has `owner: true`.',
    });
  return id;
}

/**
 * A name that stands for something else already, or a file that somebody else wrote, is left alone. The same package, as import wrote it or as an
 * included file has it, is taken over: the former file stands in the preview, and undoing brings it back. True then.
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
    detail: `${own} is there, and was not written by connect here.`,
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
        `  keeps ${secretPlaceOf(secret)} in the vault as ${secret.name}${known.has(secret.name) ? ' (there already)' : ''}`,
    ),
    `  reaches ${reach.length === 0 ? 'no network' : reach.join(', ')}`,
    ...(former === undefined
      ? []
      : [
          `  takes the place of ${name} from ${former}, the same ${pkg === undefined ? 'address' : 'package'}; undoing brings that back`,
        ]),
    ...notes.map((note) => `  note: ${note}`),
    ...(preview.some((line) => !line.startsWith(' '))
      ? [`  writes ${SERVER_FOLDER}/${name}.yaml:`, ...preview.map((line) => `    ${line}`)]
      : [`  ${SERVER_FOLDER}/${name}.yaml stays as it is`]),
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

/** What was done stands, and starts nothing; the person is told how to go on and how to go back. */
function openEnd({ io, options }: Run, { name, package: pkg, entry }: ConnectionDraft, { failure }: Consented): string {
  const verb = entry.command === undefined ? 'is not reached' : 'starts nothing';
  const command = (...words: string[]): string =>
    commandLine([...io.self, ...words, ...(options.config === 'tollgate.yaml' ? [] : ['--config', options.config])]);
  return `${failure === undefined ? '' : `${printable(failure)}\n`}${name} is ${pkg === undefined ? '' : 'installed and '}configured, and ${verb} until it is approved.\n  go on:   ${command('approve', name)}\n  go back: ${command('connect', '--undo', name)}\n`;
}

function awaitLogin({ options, io }: Run, { name }: ConnectionDraft, done: Done): number {
  const next = [commandLine([...io.self, 'login', name]), commandLine([...io.self, 'approve', name, '--with-secrets'])];
  if (options.json === true) io.stdout(json({ server: name, ...done, approved: false, next }));
  else
    io.stderr(
      `${name} is configured, and wants a sign-in before it says what it offers:\n${next.map((line) => `  ${line}\n`).join('')}`,
    );
  return EXIT.approval;
}

function printableLines(text: string): string {
  return text.split('\n').map(printable).join('\n');
}
