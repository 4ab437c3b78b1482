/**
 * The facts that bind an approval to one call: caller, effect, bytes to send, policy and definition. A similar call is
 * another call.
 */
import { isDeepStrictEqual } from 'node:util';
import type { ApprovalScope, Effect, Principal, Reason } from '../../../policies/port.ts';

/** All facts that a call must share with the approved call. The name that the caller used is not one of them. */
export interface ApprovalBinding {
  readonly principal: Omit<Principal, 'owner'>;
  readonly effect: Effect;
  /**
   * Keyed digest of the arguments as the policy saw them and as they will be sent. It covers the texts, so type, order,
   * spelling and defaults matter.
   */
  readonly args: string;
  readonly revision: string;
  /** The pin of the tool's definition. */
  readonly pin: string;
  /** The caller's session, if the arguments name something in it: `s1` is another shell in another session. */
  readonly session?: string;
  /** The run of code and the number of its call, if it is not known whether the call ran before. */
  readonly again?: string;
}

/** What a binding is made from. */
export interface BindableCall {
  readonly principal: Principal;
  readonly effect: Effect;
  readonly argsText: string;
  readonly sentText: string;
  readonly revision: string;
  readonly pin: string;
  readonly session?: string;
  readonly again?: string;
}

type Digest = (text: string) => string;

/** Returns the binding of a call. */
export function bindingOf(call: BindableCall, digest: Digest): ApprovalBinding {
  const { id, role, groups, profiles, origin } = call.principal;
  return {
    principal: { id, role, groups, profiles, origin },
    effect: call.effect,
    args: digest(`tollgate/approval/args/1\n${JSON.stringify([call.argsText, call.sentText])}`),
    revision: call.revision,
    pin: call.pin,
    ...(call.session !== undefined && { session: call.session }),
    ...(call.again !== undefined && { again: call.again }),
  };
}

/**
 * Returns the hash of a binding, 64 hex digits. A key prevents a search for another call with the same short hash. A
 * JSON list separates the parts. The first line separates this hash from other digests with the same key.
 */
export function bindingHash(
  { principal, effect, args, revision, pin, session, again }: ApprovalBinding,
  digest: Digest,
): string {
  const told = again === undefined ? [] : [again];
  const parts = [...identityOf(principal), inOrder(effect), args, revision, pin, session ?? null, ...told];
  return digest(`tollgate/approval/call/1\n${JSON.stringify(parts)}`);
}

/** What a wider approval is for: one principal and run, under one policy and one set of definitions. */
export interface ApprovalReach {
  readonly scope: Exclude<ApprovalScope, 'call'>;
  readonly run: string;
  /** The rules that asked, for `group`. */
  readonly rules: readonly string[];
  /** The hash of all definitions of the server. */
  readonly set: string;
}

/** Like `bindingHash`, for a wider approval. */
export function approvalReachHash(
  { principal, effect, revision }: ApprovalBinding,
  reach: ApprovalReach,
  digest: Digest,
): string {
  const rules = reach.scope === 'group' ? [...reach.rules].sort() : [];
  const parts = [...identityOf(principal), reach.run, effect.server, reach.scope, rules, revision, reach.set];
  return digest(`tollgate/approval/reach/1\n${JSON.stringify(parts)}`);
}

/**
 * Like `bindingHash`, for the approval of a loop: calls of one tool by one run of code, about which the same rules ask.
 */
export function loopHash(
  { principal, effect, revision, pin }: ApprovalBinding,
  { run, rules }: Pick<ApprovalReach, 'run' | 'rules'>,
  digest: Digest,
): string {
  const { server, tool, verb } = effect;
  const parts = [...identityOf(principal), run, server, tool, verb, [...rules].sort(), revision, pin];
  return digest(`tollgate/approval/loop/1\n${JSON.stringify(parts)}`);
}

function identityOf({ id, role, groups, profiles, origin }: ApprovalBinding['principal']): readonly unknown[] {
  return [id, role, groups, profiles, origin];
}

/** Returns the widest scope that an approval of this call may have: of several asking rules the narrowest counts. */
export function widestScope(reasons: readonly Reason[]): ApprovalScope {
  const words = reasons.map(({ approval = 'call' }) => approval);
  if (words.length === 0 || words.includes('call')) return 'call';
  return words.includes('group') ? 'group' : 'server';
}

/**
 * Returns the differences between two calls, in words for the caller; empty if there is none. `differencesIn` compares
 * the arguments.
 */
export function bindingDifferences(approved: ApprovalBinding, asked: ApprovalBinding): readonly string[] {
  const said: string[] = [];
  const compare = (what: string, pick: (binding: ApprovalBinding) => unknown): void => {
    if (!isDeepStrictEqual(pick(approved), pick(asked))) said.push(what);
  };
  compare('the policy has changed since', ({ revision }) => revision);
  compare('the definition of the tool has changed since', ({ pin }) => pin);
  if (approved.principal.id !== asked.principal.id) said.push('it was approved for another caller');
  else
    for (const part of ['role', 'groups', 'profiles', 'origin'] as const)
      compare(
        `the ${part} of the caller ${part.endsWith('s') ? 'differ' : 'differs'}`,
        ({ principal }) => principal[part],
      );
  compare('it addresses something of another session', ({ session }) => session);
  compare('the verb differs', ({ effect }) => effect.verb);
  compare('arguments differ', ({ args }) => args);
  // Equal arguments may now have another target: a link may have been replaced after the approval (TOCTOU).
  if (said.length === 0)
    compare('the target of the arguments differs: a link or a file was replaced', ({ effect }) => inOrder(effect));
  return said;
}

/** Returns the fields in a fixed order, whatever their order in the object. */
function inOrder(effect: Effect): readonly unknown[] {
  const { verb, server, tool, paths, urls, command, spill } = effect;
  return [
    verb,
    server,
    tool,
    paths.map(({ argument, path, inside }) => [argument, path, inside]),
    urls.map(({ argument, url, host, address }) => [argument, url, host, address ?? null]),
    command === undefined ? null : [command.text, command.opaque, command.words],
    spill === true,
  ];
}

/** Callers choose the names of keys, which appear in a refusal. */
const MAX_POINTER = 120;

/** Returns where the arguments differ: `at /to`, or how. Both are texts of JSON objects. */
export function differingPointers(approved: string, asked: string): string {
  if (approved === asked) return 'in a secret';
  const pointer = firstDifference(JSON.parse(approved), JSON.parse(asked), '');
  if (pointer !== undefined) return `at ${pointer === '' ? '/' : pointer.slice(0, MAX_POINTER)}`;
  return 'in the order of keys, the spelling of a number, or spaces';
}

function firstDifference(one: unknown, other: unknown, at: string): string | undefined {
  if (!isContainer(one) || !isContainer(other) || Array.isArray(one) !== Array.isArray(other))
    return Object.is(one, other) ? undefined : at;
  const [left, right] = [new Map(Object.entries(one)), new Map(Object.entries(other))];
  for (const key of new Set([...left.keys(), ...right.keys()])) {
    const here = `${at}/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    if (!left.has(key) || !right.has(key)) return here;
    const deeper = firstDifference(left.get(key), right.get(key), here);
    if (deeper !== undefined) return deeper;
  }
  return undefined;
}

function isContainer(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
