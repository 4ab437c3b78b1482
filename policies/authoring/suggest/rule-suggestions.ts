/**
 * Suggests the smallest changes of a policy that allow what owners approve again and again. Each suggestion is verified
 * by deciding all recorded calls again; one that fails is reported, and not suggested.
 */
import { TimeSlices } from '../../../catalogs/text/time-slices.ts';
import type { PolicyParts } from '../../engine/compiled-parts.ts';
import { compileParts, loadPolicy, startPolicy } from '../../engine/policy-loader.ts';
import type { CallInput, Policy } from '../../port.ts';
import { inTemporaryFolder } from '../../rego/temporary-folder.ts';
import type { YamlRule } from '../../rules/rule-schema.ts';
import { REPLAY_DEADLINE_MS, type Replayed, replayCall } from '../call-replay.ts';
import { ApprovedCalls, type ApprovedGroup, type JudgedRecording, type Unsuggested } from './approved-calls.ts';
import {
  type ChangeDraft,
  concerns,
  controlGlobs,
  draftChanges,
  nextTo,
  type RuleException,
  toolIds,
  VERBS,
  withChanges,
} from './suggested-changes.ts';

/** What is suggested from. `calls` is read several times, and gives the same calls each time. */
export interface SuggestionRequest {
  readonly calls: () => Iterable<JudgedRecording>;
  /** How often an owner must have approved, at least 1. */
  readonly min: number;
}

/** A suggested change, verified. */
export interface Suggestion extends Pick<ApprovedGroup, 'evidence'> {
  /** The tool, with its paths or its command. */
  readonly what: string;
  /** Exceptions to add to rules of the policy. */
  readonly exceptions: readonly RuleException[];
  /** Rules to add: what keeps asking, and what allows. */
  readonly rules: readonly YamlRule[];
  /** Recorded calls that no owner approved and that it would allow, with their number. */
  readonly also: readonly { readonly what: string; readonly calls: number }[];
}

/** All suggestions, those with the most approvals first. */
export interface SuggestionReport {
  readonly suggestions: readonly Suggestion[];
  readonly unsuggested: readonly Unsuggested[];
  readonly calls: number;
  /** Recorded calls that an owner approved one by one. */
  readonly approved: number;
  /** Calls that cannot be decided again. */
  readonly skipped: number;
}

/** How many groups of calls are looked at, those with the most approvals. */
const MOST = 20;
/** A suggestion that would allow more different calls that no owner approved is refused. */
const MOST_ALSO = 10;

/**
 * Returns the suggestions for the present policy. Throws the same as `loadPolicy`, before the first call.
 */
export async function suggestRules(parts: PolicyParts, request: SuggestionRequest): Promise<SuggestionReport> {
  return inTemporaryFolder('suggest', async (cache) => {
    const search = new SuggestionSearch({ ...parts, cache, deadlineMs: REPLAY_DEADLINE_MS }, request);
    return search.run();
  });
}

/** A draft with its policy. */
interface Candidate {
  readonly draft: ChangeDraft;
  readonly allows: readonly YamlRule[];
  readonly policy: Policy;
  readonly also: Map<string, number>;
  fault: string | undefined;
}

/** Both decisions on a call. `also` counts the calls that are allowed now and that no owner approved. */
interface ChangedCall {
  readonly before: Replayed;
  readonly after: Replayed;
  readonly also: Map<string, number>;
}

class SuggestionSearch {
  readonly #parts: PolicyParts;
  readonly #request: SuggestionRequest;
  readonly #slices = new TimeSlices();
  readonly #unsuggested: Unsuggested[] = [];
  readonly #counts = { calls: 0, approved: 0, skipped: 0 };

  constructor(parts: PolicyParts, request: SuggestionRequest) {
    this.#parts = parts;
    this.#request = request;
  }

  async run(): Promise<SuggestionReport> {
    const compiled = await compileParts(this.#parts);
    const base = await startPolicy(compiled, this.#parts.deadlineMs);
    const candidates: Candidate[] = [];
    try {
      const rules = new Map(compiled.rules.rules.map((one) => [one.rule.id, one]));
      const groups = await this.#groups(base, controlGlobs(rules));
      const context = { settings: this.#parts.settings, rules, taken: new Set(rules.keys()) };
      for (const group of groups) {
        const draft = draftChanges(group, context);
        const found = typeof draft === 'string' ? draft : await this.#candidate(draft, base);
        if (typeof found === 'string') this.#refuse(group, found);
        else candidates.push(found);
      }
      await this.#verify(base, candidates);
      const sound = withoutCovered(candidates.filter(({ fault }) => fault === undefined));
      for (const { draft, fault } of candidates) if (fault !== undefined) this.#refuse(draft.group, fault);
      return { ...this.#counts, suggestions: await this.#together(base, sound), unsuggested: this.#unsuggested };
    } finally {
      for (const { policy } of candidates) policy.close();
      base.close();
    }
  }

  #refuse(group: ApprovedGroup, why: string): void {
    this.#unsuggested.push({ what: describeGroup(group), approved: group.evidence.approved, why });
  }

  /** Decides all calls with the present policy, and collects what owners approved and refused. */
  async #groups(base: Policy, control: readonly string[]): Promise<readonly ApprovedGroup[]> {
    const approved = new ApprovedCalls(control);
    for await (const { call, replayed } of this.#decided(base)) {
      this.#counts.calls += 1;
      if (replayed.class === 'not-replayable') this.#counts.skipped += 1;
      if (call.decision?.outcome === 'deny' || call.verdict?.outcome === 'refused') approved.refuse(call.input);
      if (call.verdict?.outcome !== 'approved') continue;
      this.#counts.approved += 1;
      const { argsText } = call.input;
      if (outcomeOf(replayed) !== 'ask' || argsText === undefined) continue;
      const asks = (replayed.after?.reasons ?? []).map(({ id }) => id);
      approved.add({ id: call.id, input: { ...call.input, argsText } }, asks, call.verdict.by);
    }
    const { min } = this.#request;
    this.#unsuggested.push(...approved.unfit(min));
    const groups = approved.groups(min);
    for (const group of groups.slice(MOST))
      this.#refuse(group, `only the ${MOST} with the most approvals are looked at`);
    return groups.slice(0, MOST);
  }

  async *#decided(policy: Policy): AsyncGenerator<{ readonly call: JudgedRecording; readonly replayed: Replayed }> {
    for (const call of this.#request.calls()) {
      if (this.#slices.isDue) await this.#slices.rest();
      yield { call, replayed: await replayCall(policy, call) };
    }
  }

  /** Returns the draft with as few rules as allow its sample, or why it does not allow it. */
  async #candidate(draft: ChangeDraft, base: Policy): Promise<Candidate | string> {
    const { samples } = draft.group;
    for (const allows of [[], [draft.allow]]) {
      const policy = await this.#load(draft, allows);
      if (typeof policy === 'string') return policy;
      const outcomes = new Set<string>();
      for (const sample of samples) outcomes.add((await policy.call(sample)).outcome);
      const isAllowed = outcomes.size === 1 && outcomes.has('allow');
      const wide = isAllowed ? await widerThan(draft.group, { base, policy }) : undefined;
      if (isAllowed && wide === undefined) return { draft, allows, policy, also: new Map(), fault: undefined };
      policy.close();
      if (wide !== undefined) return `another rule would then allow ${wide} without a question`;
    }
    return 'the calls would not be allowed by an exception and a rule';
  }

  async #load(draft: ChangeDraft, allows: readonly YamlRule[]): Promise<Policy | string> {
    try {
      return await loadPolicy(withChanges(this.#parts, [draft], allows));
    } catch (thrown) {
      const { code, data } = thrown as {
        readonly code?: string;
        readonly data?: { readonly problems?: readonly { readonly message: string }[] };
      };
      if (code !== 'POLICY_INVALID') throw thrown;
      return `the changed policy would be refused: ${data?.problems?.[0]?.message ?? 'it is invalid'}`;
    }
  }

  /** Decides the calls that a candidate concerns under its policy, and notes what it must not change. */
  async #verify(base: Policy, candidates: readonly Candidate[]): Promise<void> {
    if (candidates.length === 0) return;
    for await (const { call, replayed } of this.#decided(base)) {
      for (const candidate of candidates) {
        if (candidate.fault !== undefined || !concerns(candidate.draft.group.shape, call.input)) continue;
        const after = await replayCall(candidate.policy, call);
        candidate.fault = this.#faultOf([candidate], call, { before: replayed, after, also: candidate.also });
      }
    }
  }

  /**
   * Returns what is wrong with a decision under the policy with these candidates. Counts a call that would be allowed
   * unapproved.
   */
  #faultOf(candidates: readonly Candidate[], call: JudgedRecording, changed: ChangedCall): string | undefined {
    return candidates.some(({ draft }) => draft.group.ids.has(call.id)) && outcomeOf(changed.after) !== 'allow'
      ? `${describeCall(call.input)} would still not be allowed, although it was approved`
      : this.#unwanted(call, changed);
  }

  #unwanted(call: JudgedRecording, { before, after, also }: ChangedCall): string | undefined {
    const [was, is] = [outcomeOf(before), outcomeOf(after)];
    if (was === is || was === undefined) return undefined;
    const what = describeCall(call.input);
    if (is === undefined) return `${what} could not be decided in time`;
    if (was === 'allow') return `${what} would no longer be allowed`;
    if (was === 'deny') return `${what} would no longer be denied`;
    if (is === 'deny') return `${what} would be denied instead of asked about`;
    if (call.decision?.outcome === 'deny') return `${what} was denied by a rule`;
    if (call.verdict?.outcome === 'refused') return `an owner refused ${what}`;
    if (call.verdict !== undefined) return undefined;
    also.set(what, (also.get(what) ?? 0) + 1);
    return also.size > MOST_ALSO
      ? `it would allow more than ${MOST_ALSO} different calls that no owner approved`
      : undefined;
  }

  /** Applies all suggestions together and decides all calls again. Leaves out those that fail together. */
  async #together(base: Policy, alone: readonly Candidate[]): Promise<readonly Suggestion[]> {
    const drafts = alone.map(({ draft }) => draft);
    const sound = alone.map((one) => ({ ...one, draft: nextTo(one.draft, drafts) }));
    if (sound.length === 0) return [];
    const changed = withChanges(
      this.#parts,
      sound.map(({ draft }) => draft),
      sound.flatMap(({ allows }) => allows),
    );
    const policy = await loadPolicy(changed);
    let fault: string | undefined;
    let faulty: Candidate | undefined;
    try {
      for await (const { call, replayed } of this.#decided(base)) {
        fault = this.#faultOf(sound, call, {
          before: replayed,
          after: await replayCall(policy, call),
          also: new Map(),
        });
        if (fault === undefined) continue;
        // Of those that contradict each other, the one with the fewest approvals.
        faulty = sound.findLast(({ draft }) => concerns(draft.group.shape, call.input)) ?? sound.at(-1);
        break;
      }
    } finally {
      policy.close();
    }
    if (faulty === undefined) return sound.map(suggestionOf);
    this.#refuse(faulty.draft.group, `together with the other suggestions, ${fault ?? ''}`);
    return this.#together(
      base,
      alone.filter(({ draft }) => draft.group !== faulty?.draft.group),
    );
  }
}

function suggestionOf({ draft, allows, also }: Candidate): Suggestion {
  return {
    what: describeGroup(draft.group),
    evidence: draft.group.evidence,
    exceptions: draft.exceptions,
    rules: [...draft.guards, ...allows],
    also: [...also].map(([name, calls]) => ({ what: name, calls })),
  };
}

/** A decision that failed denies. Undefined if the call cannot be decided. */
function outcomeOf({ class: found, after }: Replayed): 'allow' | 'ask' | 'deny' | undefined {
  return found === 'not-replayable' ? undefined : (after?.outcome ?? 'deny');
}

/** Returns what the changed policy would allow besides the approved calls, and the present one does not. */
async function widerThan(
  group: ApprovedGroup,
  { base, policy }: { readonly base: Policy; readonly policy: Policy },
): Promise<string | undefined> {
  if (await allowsLonger(policy, group)) return 'longer forms of the command';
  const [sample] = group.samples;
  // The verb of a tool can depend on its arguments. Rules already distinguish what the primitives do.
  if (group.shape.kind === 'command' || sample.effect.server === 'workspace') return undefined;
  for (const verb of VERBS.filter((one) => one !== sample.effect.verb)) {
    const other: CallInput = { ...sample, effect: { ...sample.effect, verb } };
    if ((await policy.call(other)).outcome === 'allow' && (await base.call(other)).outcome !== 'allow')
      return `calls of the tool that are ${verb}`;
  }
  return undefined;
}

/** Whether the changed policy allows a line that only begins with the approved words. */
async function allowsLonger(policy: Policy, { shape, samples: [sample] }: ApprovedGroup): Promise<boolean> {
  const { command } = sample.effect;
  if (shape.kind !== 'command' || command === undefined) return false;
  // Two blanks and quotes: the pattern of a guard does not find this line.
  const text = [`'${shape.words[0] ?? ''}'`, ...shape.words.slice(1), 'example'].join('  ');
  const args = { ...(JSON.parse(sample.argsText) as object), [shape.argument]: text };
  const longer: CallInput = {
    ...sample,
    argsText: JSON.stringify(args),
    effect: { ...sample.effect, command: { ...command, text, words: [[...shape.words, 'example']] } },
  };
  return (await policy.call(longer)).outcome === 'allow';
}

/** Leaves out single files of a folder that is suggested itself, for the same tools. */
function withoutCovered(candidates: readonly Candidate[]): readonly Candidate[] {
  const isFolder = ({ shape }: ApprovedGroup): boolean =>
    shape.kind === 'paths' && shape.globs[0]?.endsWith('/*') === true;
  const groups = candidates.map(({ draft }) => draft.group);
  const [folders, others] = [groups.filter(isFolder), groups.filter((group) => !isFolder(group))];
  const covered = new Set(
    others.filter(({ shape, samples }) =>
      folders.some(
        (folder) =>
          shape.kind === 'paths' &&
          concerns(folder.shape, samples[0]) &&
          toolIds(samples).every((id) => toolIds(folder.samples).includes(id)),
      ),
    ),
  );
  return candidates.filter(({ draft }) => !covered.has(draft.group));
}

function describeGroup({ shape, samples }: ApprovedGroup): string {
  const subject = shape.kind === 'paths' ? shape.globs.join(', ') : shape.kind === 'command' ? shape.text : '';
  return `${toolIds(samples).join(', ')} ${subject}`.trim();
}

function describeCall({ effect }: Pick<CallInput, 'effect'>): string {
  const { server, tool, command, paths } = effect;
  return [`${server}.${tool}`, command?.text ?? paths.map(({ path }) => path).join(', ')].join(' ').trim();
}
