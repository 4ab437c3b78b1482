/**
 * Runs `approve`: an owner agrees to two screens separately, at a terminal or by naming the hash of each. One yes never
 * answers two questions.
 */
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { reviewTools, type StartReview, type ToolReview } from '../../consent/servers/consent-review.ts';
import { findUnknownNames } from '../../exposure/tool-name-check.ts';
import type { CheckPolicy } from '../../runtime/assembled-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json } from '../print.ts';
import {
  ANY,
  type ApproveOptions,
  agrees,
  type ConsentDialogue,
  checkHash,
  checkWords,
  print,
  tell,
} from './consent-dialogue.ts';
import { startScreen, toolsScreen } from './consent-screens.ts';
import { type ConsentWiring, serverNamed, withOwnerContext } from './owner-context.ts';
import { findOrProbe } from './probe-consent.ts';
import { lookAtStart } from './start-screen.ts';

/**
 * Asks for both steps; what was approved and has not changed is not asked again. Exit code 7 when a person must still
 * agree.
 * Throws USAGE, IDENTITY, CONFIG_INVALID, PIN_MISMATCH for another hash or for a start that another process replaced
 * meanwhile, and what a start throws.
 */
export async function runApproveServer(
  options: ApproveOptions,
  io: Io,
  wiring: ConsentWiring & { readonly check: CheckPolicy },
): Promise<number> {
  checkWords(options);
  return withOwnerContext(options, { io, wiring }, async (desk) => {
    const server = serverNamed(desk.config, options.name);
    if (server.unusable !== undefined)
      throw new TollgateError('SERVER_UNAVAILABLE', {
        detail: `Server "${server.name}" cannot be used: ${server.unusable}`,
        next: 'Correct its entry; `tollgate check` shows it.',
      });
    const hearing: ConsentDialogue = { server, desk, options, io, shown: { server: server.name } };
    const start = await lookAtStart(server, desk, io);
    showStart(hearing, start);
    const code = options.anyTools === true ? await agreeToAny(hearing, start) : await agreeToTools(hearing, start);
    if (code === EXIT.ok) await tellUnshown(hearing, wiring.check);
    if (options.json === true) io.stdout(json({ ...hearing.shown, approved: code === EXIT.ok }));
    return code;
  });
}

/**
 * Checks Rego of the owner that shows tools against the definitions, which are known from here on. Without such Rego
 * nothing is compiled.
 */
async function tellUnshown(hearing: ConsentDialogue, check: CheckPolicy): Promise<void> {
  const { config } = hearing.desk;
  if (config.policies.every(({ kind }) => kind === 'yaml')) return;
  try {
    for (const line of (await check(config, {})).unshown) tell(hearing, line);
  } catch (thrown) {
    // The approval stands. The commands that check the policy report what is wrong with it.
    tell(hearing, `The policy does not fit these tools: ${asTollgateError(thrown).message} See: tollgate check`);
  }
}

function showStart(hearing: ConsentDialogue, start: StartReview): void {
  const { server, options, shown } = hearing;
  const { facts, hash, changed, remarks, approved } = start;
  shown.start = {
    hash,
    approved: approved !== undefined,
    changed,
    remarks,
    facts: { ...facts, env: stars(facts.env), headers: stars(facts.headers) },
  };
  print(hearing, startScreen(server, start));
  checkHash(hearing, { named: options.yes?.[0], actual: hash, what: 'start' });
}

/**
 * Here start and tools are one question, because no look comes between them. Without a terminal, both must be named.
 */
async function agreeToAny(hearing: ConsentDialogue, { facts, hash, approved }: StartReview): Promise<number> {
  const { server, desk, options } = hearing;
  const { consent } = desk.consents.statusOf(server.name);
  if (
    approved !== undefined &&
    consent?.tools !== undefined &&
    consent.tools.set === undefined &&
    consent.tools.hints === server.trustHints
  )
    return done(hearing, 'Approved already, with any tools.');
  const question =
    approved === undefined
      ? 'Let it start as shown above, with all tools that it lists, now and later?'
      : 'Let agents use all tools that it lists, now and later, without looking at them?';
  if (!(await agrees(hearing, { named: options.yes?.[1], question, next: [hash, ANY] }))) return EXIT.approval;
  if (approved === undefined) {
    desk.record({ event: 'start-approved', server: server.name, outcome: 'allow', approved: hash });
    await desk.consents.approveStart({ facts, by: desk.by, at: desk.now() });
  }
  desk.consents.store.checkStart(server.name, hash);
  desk.record({ event: 'any-tools-approved', server: server.name, outcome: 'allow' });
  await desk.consents.approveAnyTools(server.name, {
    start: hash,
    hints: server.trustHints,
    by: desk.by,
    at: desk.now(),
  });
  return done(hearing, 'Approved, with any tools: no one will be asked when they change.');
}

async function agreeToTools(hearing: ConsentDialogue, start: StartReview): Promise<number> {
  const { server, desk, options, shown } = hearing;
  const looked = await findOrProbe(hearing, start);
  if (looked === undefined) return EXIT.approval;
  const { consent } = desk.consents.statusOf(server.name);
  const review = reviewTools(server, looked, {
    before: desk.consents.lastSet(server.name),
    others: desk.consents.toolsOfOthers(server.name),
  });
  shown.tools = dataOf(review);
  print(hearing, toolsScreen(server, review));
  checkHash(hearing, { named: options.yes?.[1], actual: review.hash, what: 'tools' });
  if (consent?.tools?.set === review.hash) return done(hearing, 'Approved already, and nothing has changed.');
  if (
    !(await agrees(hearing, {
      named: options.yes?.[1],
      question: 'Let agents see and call these tools, as policy allows?',
      next: [start.hash, review.hash],
    }))
  )
    return EXIT.approval;
  // Another process may have approved another start while this one was read.
  desk.consents.store.checkStart(server.name, start.hash);
  desk.record({
    event: 'tools-approved',
    server: server.name,
    outcome: 'allow',
    approved: review.hash,
    tools: review.tools.length,
  });
  await desk.consents.approveTools(server.name, review.set, { start: start.hash, by: desk.by, at: desk.now() });
  const unknown = findUnknownNames(desk.config, server.name, review.set.tools);
  for (const { file, line, column, message, binds } of unknown)
    tell(
      hearing,
      `${file}:${line}:${column}: ${message}${binds === undefined ? '' : ' Until it is corrected, the calls that it concerns are refused.'}`,
    );
  return done(hearing, 'Approved.');
}

function dataOf({ hash, set, version, tools, removed, texts }: ToolReview): unknown {
  return {
    hash,
    version,
    removed,
    texts,
    hints: set.hints,
    tools: tools.map(({ tool, semantics, audit, state, changes }) => ({
      name: tool.name,
      semantics,
      ...(state !== undefined && { state }),
      ...audit,
      changes,
      definition: tool,
    })),
  };
}

function stars(values: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.keys(values).map((name) => [name, '***']));
}

function done(hearing: ConsentDialogue, words: string): number {
  tell(hearing, `${hearing.server.name}: ${words} Withdraw it with: tollgate revoke ${hearing.server.name}`);
  return EXIT.ok;
}
