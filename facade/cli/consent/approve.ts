/** Owns `approve`: both screens, each agreed to by itself, at a terminal or by naming its hash; refuses a hash of anything else than what is shown. */
import { TollgateError } from '../../../catalogs/errors.ts';
import { discover, type Openness } from '../../consent/discovery.ts';
import { refuseOther, reviewTools, type StartReview, type ToolReview } from '../../consent/review.ts';
import type { ServerConfig } from '../../config/config.ts';
import { EXIT, type Io } from '../io.ts';
import { json } from '../print.ts';
import { askYes, isInteractive } from '../prompt.ts';
import { inRows } from '../rows.ts';
import { atDesk, serverNamed, type ConsentOptions, type ConsentWiring, type Desk } from './desk.ts';
import { startScreen, toolsScreen } from './screens.ts';
import { lookAtStart } from './start.ts';

/** What `approve` is told. */
export interface ApproveOptions extends ConsentOptions, Openness {
  readonly name: string;
  /** Hashes of what is agreed to: of the start, then of the tools. */
  readonly yes?: readonly string[];
  readonly anyTools?: true;
}

/** One run of the command. */
interface Hearing {
  readonly server: ServerConfig;
  readonly desk: Desk;
  readonly options: ApproveOptions;
  readonly io: Io;
  /** What has been shown so far, for `--json`. */
  readonly shown: Record<string, unknown>;
}

/**
 * Walks through both steps; what was agreed to and has not changed is not asked again. Exit code 7 when a person must still agree.
 * Throws USAGE, IDENTITY, CONFIG_INVALID, PIN_MISMATCH for a hash of something else, and what a start throws.
 */
export async function runApprove(options: ApproveOptions, io: Io, wiring: ConsentWiring): Promise<number> {
  return atDesk(options, { io, wiring }, async (desk) => {
    const server = serverNamed(desk.config, options.name);
    if (server.unusable !== undefined) throw new TollgateError('SERVER_UNAVAILABLE', { detail: `Server "${server.name}" cannot be used: ${server.unusable}`, next: 'Mend its entry; `tollgate check` shows it.' });
    const hearing: Hearing = { server, desk, options, io, shown: { server: server.name } };
    const start = await lookAtStart(server, desk, io);
    const code = (await agreeToStart(hearing, start)) ?? (options.anyTools === true ? await agreeToAny(hearing, start) : await agreeToTools(hearing, start));
    if (options.json === true) io.stdout(json({ ...hearing.shown, approved: code === EXIT.ok }));
    return code;
  });
}

/** Undefined when it may go on. */
async function agreeToStart(hearing: Hearing, start: StartReview): Promise<number | undefined> {
  const { server, desk, options, shown } = hearing;
  const { facts, shown: seen, hash, changed, remarks, approved } = start;
  shown['start'] = { hash, approved: approved !== undefined, changed, remarks, facts: { ...seen, env: stars(facts.env), headers: stars(facts.headers) } };
  print(hearing, startScreen(server, start));
  checkHash(hearing, { named: options.yes?.[0], actual: hash, what: 'start' });
  if (approved !== undefined) return undefined;
  const question = options.anyTools === true ? 'Let it start as it is above, with whatever tools it lists, now and later?' : 'Let it start once as it is above, closed in, to list its tools?';
  if (!(await agrees(hearing, { named: options.yes?.[0], question, next: [hash] }))) return EXIT.approval;
  desk.record({ event: 'start-approved', server: server.name, outcome: 'allow', approved: hash });
  await desk.consents.approveStart({ facts, by: desk.by, at: desk.now() });
  return undefined;
}

async function agreeToAny(hearing: Hearing, { hash, approved }: StartReview): Promise<number> {
  const { server, desk, options } = hearing;
  const { consent } = await desk.consents.statusOf(server.name);
  const isKnown = consent?.tools !== undefined && consent.tools.set === undefined && consent.tools.hints === server.trustHints;
  // Where the start was asked after, the question was about both.
  const isAsked = approved === undefined;
  if (!isKnown && !isAsked && !(await agrees(hearing, { named: options.yes?.[0], question: 'Let agents use whatever tools it lists, now and later, unseen?', next: [hash] }))) return EXIT.approval;
  desk.record({ event: 'any-tools-approved', server: server.name, outcome: 'allow' });
  await desk.consents.approveAnyTools(server.name, { hints: server.trustHints, by: desk.by, at: desk.now() });
  return done(hearing, 'Approved, with any tools: nobody will be asked when they change.');
}

async function agreeToTools(hearing: Hearing, start: StartReview): Promise<number> {
  const { server, desk, options, io, shown } = hearing;
  const stop = new AbortController();
  void io.stopped.then(() => stop.abort());
  tell(hearing, lookWords(server, options));
  const looked = await discover(server, options, { look: await desk.look(), signal: stop.signal, consent: () => refuseOther(server, start, desk.consents) });
  const { consent } = await desk.consents.statusOf(server.name);
  const review = reviewTools(server, looked, { before: await desk.consents.lastSet(server.name), others: await desk.consents.toolsBeside(server.name) });
  shown['tools'] = dataOf(review);
  print(hearing, toolsScreen(server, review));
  checkHash(hearing, { named: options.yes?.[1], actual: review.hash, what: 'tools' });
  if (consent?.tools?.set === review.hash) return done(hearing, 'Approved already, and nothing has changed.');
  if (!(await agrees(hearing, { named: options.yes?.[1], question: 'Let agents see and call these tools, as policy allows?', next: [start.hash, review.hash] }))) return EXIT.approval;
  desk.record({ event: 'tools-approved', server: server.name, outcome: 'allow', approved: review.hash, tools: review.tools.length });
  await desk.consents.approveTools(server.name, review.set, { by: desk.by, at: desk.now() });
  return done(hearing, 'Approved.');
}

/** By its hash, or by a person at a terminal; otherwise says what to type. */
async function agrees(hearing: Hearing, { named, question, next }: { readonly named: string | undefined; readonly question: string; readonly next: readonly string[] }): Promise<boolean> {
  const { io, options, server, shown } = hearing;
  if (named !== undefined) return true;
  if (isInteractive(io) && io.isTTY && options.json !== true && options.yes === undefined) {
    if (await askYes(io, question)) return true;
    tell(hearing, 'Not approved.');
    return false;
  }
  const flags = [...(options.anyTools === true ? ['--any-tools'] : []), ...(options.withSecrets === true ? ['--with-secrets'] : []), ...(options.withNetwork === true ? ['--with-network'] : []), ...(options.ownIsolation === true ? ['--own-isolation'] : [])];
  const command = ['tollgate approve', server.name, ...flags, '--yes', ...next].join(' ');
  shown['next'] = command;
  tell(hearing, `A person must agree to this. Whoever has read it types:\n  ${command}`);
  return false;
}

/** A hash that was copied from another screen is no consent to this one. */
function checkHash({ io, options, shown }: Hearing, { named, actual, what }: { readonly named: string | undefined; readonly actual: string; readonly what: 'start' | 'tools' }): void {
  if (named === undefined || named === actual) return;
  if (options.json === true) io.stdout(json({ ...shown, approved: false }));
  throw new TollgateError('PIN_MISMATCH', { detail: `The ${what} hash that was named is not that of what is there now${what === 'tools' ? '; the start hash is' : ''}.`, next: `Read what is shown above, and name its ${what} hash: all 64 digits of it.` });
}

function lookWords({ transport, isolation = 'sandbox', name }: ServerConfig, { ownIsolation }: Openness): string {
  if (transport !== 'stdio') return `Reaching ${name} once to list its tools …`;
  const other = isolation === 'sandbox' || ownIsolation === true ? '' : ` (it is configured ${isolation}; it is looked at in a sandbox first)`;
  return `Starting ${name} once to list its tools${ownIsolation === true ? ` at its own isolation (${isolation})` : `, in a sandbox${other}`} …`;
}

function dataOf({ hash, set, version, tools, removed, texts }: ToolReview): unknown {
  return {
    hash, version, removed, texts, hints: set.hints,
    tools: tools.map(({ tool, semantics, audit, state, changes }) => ({ name: tool.name, semantics, ...(state !== undefined && { state }), ...audit, changes, definition: tool })),
  };
}

function stars(values: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.keys(values).map((name) => [name, '***']));
}

function done(hearing: Hearing, words: string): number {
  tell(hearing, `${hearing.server.name}: ${words} Take it back with: tollgate revoke ${hearing.server.name}`);
  return EXIT.ok;
}

function print({ io, options }: Hearing, text: string): void {
  if (options.json !== true) io.stdout(inRows(io, text));
}

function tell({ io, options }: Hearing, text: string): void {
  if (options.json !== true) io.stderr(`${text}\n`);
}
