/**
 * The decisions that people make beforehand, besides the policy: the master switch, upgrades and grants. They are asked
 * for each list and each call.
 */
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Effect, ListTool, Principal } from '../../policies/port.ts';
import type { KeyedBudget } from '../budget/budget-claims.ts';
import type { Caller, OpenSession } from '../call/identify.ts';

/** What a principal may see before the policy is asked. */
export interface PreconditionView {
  /** Changes whenever the rest of the view does. Tables are cached by it. */
  readonly revision: string;
  /** Lists are empty, and calls are refused with this. */
  readonly off?: TollgateError;
  /** A list is refused with this. */
  readonly unlisted?: TollgateError;
  /** Tools that do not exist for this principal. */
  readonly hides: (tool: Pick<ListTool, 'server' | 'tool' | 'primitive'>) => boolean;
  /** Tools that are not shown; a call of one is refused with its reason by `judge`. Absent: none. */
  readonly withholds?: (tool: Pick<ListTool, 'server' | 'tool'>) => boolean;
  /** Servers that may be started for this principal. Absent: all. */
  readonly mayStart?: (server: string) => boolean;
}

/** The session that asks; absent if no client is connected. */
export type RequestSession = Pick<OpenSession, 'id' | 'tab'>;

/** The answer for one call. */
export interface CallPreconditions {
  /** Id of the grant that answers an ask of the policy. It never overrides a deny. */
  readonly grant?: string;
  /** Budgets in addition to those of the policy. */
  readonly budgets: readonly KeyedBudget[];
  /** Folders outside the workspace that are open to this call, real. Absent: none. */
  readonly beyond?: readonly string[];
}

/** A call as the sources see it: `args` are those of the tool that is really called. */
export interface PreconditionCall {
  readonly caller: Caller;
  readonly effect: Effect;
  readonly args: Readonly<Record<string, unknown>>;
}

/** One source of such decisions. Each throws STATE_FAILED if its decision cannot be known. */
export interface Precondition {
  view(principal: Principal, from?: RequestSession): PreconditionView;
  /** Throws the refusal. */
  judge(call: PreconditionCall): Partial<CallPreconditions>;
}

/** The usual view, and the usual answer. */
export const OPEN_VIEW: PreconditionView = { revision: '', hides: () => false };
export const NO_PRECONDITIONS: Partial<CallPreconditions> = {};
const NO_BUDGETS: CallPreconditions = { budgets: [] };

/** Combines all sources: the first refusal counts, budgets add up, the first grant answers. */
export function joinPreconditions(sources: readonly Precondition[]): {
  view(principal: Principal, from?: RequestSession): PreconditionView;
  judge(call: PreconditionCall): CallPreconditions;
} {
  // Views do not change, and usually the same ones come again.
  let last: { readonly views: readonly PreconditionView[]; readonly joined: PreconditionView } | undefined;
  return {
    view: (principal, from) => {
      const views = sources.map((source) => source.view(principal, from));
      if (last === undefined || views.some((view, index) => view !== last?.views[index]))
        last = { views, joined: joinViews(views) };
      return last.joined;
    },
    judge: (call) => {
      const found = sources.map((source) => source.judge(call)).filter((one) => one !== NO_PRECONDITIONS);
      if (found.length === 0) return NO_BUDGETS;
      const grant = found.find((one) => one.grant !== undefined)?.grant;
      const beyond = found.find((one) => one.beyond !== undefined)?.beyond;
      return {
        budgets: found.flatMap(({ budgets = [] }) => budgets),
        ...(grant !== undefined && { grant }),
        ...(beyond !== undefined && { beyond }),
      };
    },
  };
}

function joinViews(views: readonly PreconditionView[]): PreconditionView {
  const off = views.find((view) => view.off !== undefined)?.off;
  const unlisted = views.find((view) => view.unlisted !== undefined)?.unlisted;
  return {
    // Revisions contain no line ends.
    revision: views.map((view) => view.revision).join('\n'),
    hides: (tool) => views.some((view) => view.hides(tool)),
    withholds: (tool) => views.some((view) => view.withholds?.(tool) === true),
    mayStart: (server) => views.every((view) => view.mayStart?.(server) !== false),
    ...(off !== undefined && { off }),
    ...(unlisted !== undefined && { unlisted }),
  };
}

/** Asks all sources for a call and for a list. */
export type Preconditions = ReturnType<typeof joinPreconditions>;
