/**
 * Runs `approve`: an owner agrees to the start of a server and to its tools, at a terminal or by the hash of each
 * screen. One yes never answers two questions.
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
  checkHashes,
  checkPresence,
  print,
  tell,
} from './consent-dialogue.ts';
import { startScreen, toolsScreen } from './consent-screens.ts';
import { type ConsentWiring, serverNamed, withOwnerContext } from './owner-context.ts';
import { findOrProbe } from './probe-consent.ts';
import { startReviewOf } from './start-screen.ts';

/**
 * Asks for both approvals, except for one that exists and still matches. Exit code 7 if a person must still agree.
 * Throws USAGE, IDENTITY, CONFIG_INVALID, what a start throws, and PIN_MISMATCH for another hash or for a start that
 * another process has replaced.
 */
export async function runApproveServer(
  options: ApproveOptions,
  io: Io,
  wiring: ConsentWiring & { readonly check: CheckPolicy },
): Promise<number> {
  checkHashes(options);
  return withOwnerContext(options, { io, wiring }, async (owner) => {
    const server = serverNamed(owner.config, options.name);
    if (server.unusable !== undefined)
      throw new TollgateError('SERVER_UNAVAILABLE', {
        detail: `Server "${server.name}" cannot be used: ${server.unusable}`,
        next: 'Correct its entry; `tollgate check` shows it.',
      });
    const dialogue: ConsentDialogue = { server, owner, options, io, shown: { server: server.name } };
    const start = await startReviewOf(server, owner, io);
    showStart(dialogue, start);
    const code = options.anyTools === true ? await agreeToAny(dialogue, start) : await agreeToTools(dialogue, start);
    if (code === EXIT.ok) await checkPolicyAgain(dialogue, wiring.check);
    if (options.json === true) io.stdout(json({ ...dialogue.shown, approved: code === EXIT.ok }));
    return code;
  });
}

/** Checks the owner's Rego against the definitions, which are known now. Without Rego it compiles nothing. */
async function checkPolicyAgain(dialogue: ConsentDialogue, check: CheckPolicy): Promise<void> {
  const { config } = dialogue.owner;
  if (config.policies.every(({ kind }) => kind === 'yaml')) return;
  try {
    for (const line of (await check(config, {})).unshown) tell(dialogue, line);
  } catch (thrown) {
    // The approval stays. `tollgate check` reports what is wrong with the policy.
    tell(dialogue, `The policy does not fit these tools: ${asTollgateError(thrown).message} See: tollgate check`);
  }
}

function showStart(dialogue: ConsentDialogue, start: StartReview): void {
  const { server, options, shown } = dialogue;
  const { facts, hash, changed, changes, remarks, approved } = start;
  shown.start = {
    hash,
    approved: approved !== undefined,
    changed,
    changes,
    remarks,
    facts: {
      ...facts,
      env: masked(facts.env),
      headers: masked(facts.headers),
      ...(facts.environments !== undefined && {
        environments: Object.fromEntries(
          Object.entries(facts.environments).map(([profile, one]) => [profile, { ...one, env: masked(one.env) }]),
        ),
      }),
    },
  };
  print(dialogue, startScreen(server, start));
  checkHash(dialogue, { named: options.yes?.[0], actual: hash, what: 'start' });
}

/** Start and tools are one question here, because no probe is between them. Without a terminal, --yes needs both. */
async function agreeToAny(dialogue: ConsentDialogue, start: StartReview): Promise<number> {
  checkPresence(dialogue, start);
  const { facts, hash, approved } = start;
  const { server, owner, options } = dialogue;
  const { consent } = owner.consents.statusOf(server.name);
  if (
    approved !== undefined &&
    consent?.tools !== undefined &&
    consent.tools.set === undefined &&
    consent.tools.hints === server.trustHints
  )
    return finish(dialogue, 'Approved already, with any tools.');
  const question =
    approved === undefined
      ? 'Let it start as shown above, with all tools that it lists, now and later?'
      : 'Let agents use all tools that it lists, now and later, without a review?';
  if (!(await agrees(dialogue, { named: options.yes?.[1], question, next: [hash, ANY] }))) return EXIT.approval;
  if (approved === undefined) {
    owner.record({ event: 'start-approved', server: server.name, outcome: 'allow', approved: hash });
    await owner.consents.approveStart({ facts, by: owner.by, at: owner.now() });
  }
  owner.consents.store.checkStart(server.name, hash);
  owner.record({ event: 'any-tools-approved', server: server.name, outcome: 'allow' });
  await owner.consents.approveAnyTools(server.name, {
    start: hash,
    hints: server.trustHints,
    by: owner.by,
    at: owner.now(),
  });
  return finish(dialogue, 'Approved, with any tools: no one is asked when they change.');
}

async function agreeToTools(dialogue: ConsentDialogue, start: StartReview): Promise<number> {
  const { server, owner, options, shown } = dialogue;
  const probed = await findOrProbe(dialogue, start);
  if (probed === undefined) return EXIT.approval;
  const { consent } = owner.consents.statusOf(server.name);
  const review = reviewTools(server, probed, {
    before: owner.consents.lastSet(server.name),
    others: owner.consents.toolsOfOthers(server.name),
  });
  shown.tools = toolsData(review);
  print(dialogue, toolsScreen(server, review));
  checkHash(dialogue, { named: options.yes?.[1], actual: review.hash, what: 'tools' });
  if (consent?.tools?.set === review.hash) return finish(dialogue, 'Approved already, and nothing has changed.');
  if (
    !(await agrees(dialogue, {
      named: options.yes?.[1],
      question: 'Let agents see and call these tools, as policy allows?',
      next: [start.hash, review.hash],
    }))
  )
    return EXIT.approval;
  // Another process may have approved another start while the person read this one.
  owner.consents.store.checkStart(server.name, start.hash);
  owner.record({
    event: 'tools-approved',
    server: server.name,
    outcome: 'allow',
    approved: review.hash,
    tools: review.tools.length,
  });
  await owner.consents.approveTools(server.name, review.set, { start: start.hash, by: owner.by, at: owner.now() });
  const unknown = findUnknownNames(owner.config, server.name, review.set.tools);
  for (const { file, line, column, message, binds } of unknown) {
    const effect = binds === undefined ? '' : ' Until it is corrected, the calls that it concerns are refused.';
    tell(dialogue, `${file}:${line}:${column}: ${message}${effect}`);
  }
  return finish(dialogue, 'Approved.');
}

function toolsData({ hash, set, version, tools, removed, texts }: ToolReview): unknown {
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

function masked(values: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.keys(values).map((name) => [name, '***']));
}

function finish(dialogue: ConsentDialogue, result: string): number {
  const { name } = dialogue.server;
  tell(dialogue, `${name}: ${result} Withdraw it with: tollgate revoke ${name}`);
  return EXIT.ok;
}
