/**
 * What must be true before the policy decides: the master switch, upgrades, grants and similar decisions of people.
 * Every list and every call checks the preconditions.
 */
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Effect, ListTool, Principal } from '../../policies/port.ts';
import type { KeyedBudget } from '../budget/budget-claims.ts';
import type { Caller, OpenSession } from '../call/identify.ts';

/** What preconditions let a principal see. */
export interface PreconditionView {
  /** Changes whenever another field changes. Tables are cached by it. */
  readonly revision: string;
  /** If present, calls are refused with this error before their name is resolved. */
  readonly refused?: TollgateError;
  /** If present, lists are empty. */
  readonly listsNothing?: true;
  /** If present, a list is refused with this error. */
  readonly unlisted?: TollgateError;
  /** Tools that do not exist for this principal. */
  readonly hides: (tool: Pick<ListTool, 'server' | 'tool' | 'primitive'>) => boolean;
  /** Returns true for a tool that is not shown. `judge` throws the reason if it is called. Absent: no tool. */
  readonly withholds?: (tool: Pick<ListTool, 'server' | 'tool'>) => boolean;
  /** Returns true for a server that may be started for this principal. Absent: every server. */
  readonly mayStart?: (server: string) => boolean;
}

/** The session that asks; absent if no client is connected. */
export type RequestSession = Pick<OpenSession, 'id' | 'tab'>;

/** The answer of preconditions to one call. */
export interface CallPreconditions {
  /** Id of the grant that answers an ask of the policy. It never overrides a deny. */
  readonly grant?: string;
  /** Budgets in addition to those of the policy. */
  readonly budgets: readonly KeyedBudget[];
  /** Real paths of folders outside the workspace that are open to this call. Absent: none. */
  readonly beyond?: readonly string[];
}

/** A call as preconditions see it. `args` are those of the tool that is called at the end. */
export interface PreconditionCall {
  readonly caller: Caller;
  readonly effect: Effect;
  readonly args: Readonly<Record<string, unknown>>;
}

/** One precondition. Its methods throw STATE_FAILED if its decision cannot be read. */
export interface Precondition {
  view(principal: Principal, from?: RequestSession): PreconditionView;
  /** Throws the refusal of the call. */
  judge(call: PreconditionCall): Partial<CallPreconditions>;
}

/** The view and the answer of a precondition that restricts nothing. */
export const OPEN_VIEW: PreconditionView = { revision: '', hides: () => false };
export const NO_PRECONDITIONS: Partial<CallPreconditions> = {};
const NO_BUDGETS: CallPreconditions = { budgets: [] };

/** Combines all preconditions: the first refusal counts, budgets add up, and the first grant answers. */
export function joinPreconditions(sources: readonly Precondition[]): {
  view(principal: Principal, from?: RequestSession): PreconditionView;
  judge(call: PreconditionCall): CallPreconditions;
} {
  // A view never changes, and most lists get the same views as the list before.
  let last: { readonly views: readonly PreconditionView[]; readonly joined: PreconditionView } | undefined;
  return {
    view: (principal, from) => {
      const views = sources.map((source) => source.view(principal, from));
      if (last === undefined || views.some((view, index) => view !== last?.views[index]))
        last = { views, joined: joinViews(views) };
      return last.joined;
    },
    judge: (call) => {
      let joined = NO_BUDGETS;
      for (const source of sources) {
        const found = source.judge(call);
        if (found !== NO_PRECONDITIONS) joined = joinAnswers(joined, found);
      }
      return joined;
    },
  };
}

function joinAnswers(one: CallPreconditions, other: Partial<CallPreconditions>): CallPreconditions {
  const grant = one.grant ?? other.grant;
  const beyond = one.beyond ?? other.beyond;
  return {
    budgets: [...one.budgets, ...(other.budgets ?? [])],
    ...(grant !== undefined && { grant }),
    ...(beyond !== undefined && { beyond }),
  };
}

function joinViews(views: readonly PreconditionView[]): PreconditionView {
  const refused = views.find((view) => view.refused !== undefined)?.refused;
  const unlisted = views.find((view) => view.unlisted !== undefined)?.unlisted;
  return {
    // A revision contains no line break.
    revision: views.map((view) => view.revision).join('\n'),
    hides: (tool) => views.some((view) => view.hides(tool)),
    withholds: (tool) => views.some((view) => view.withholds?.(tool) === true),
    mayStart: (server) => views.every((view) => view.mayStart?.(server) !== false),
    ...(refused !== undefined && { refused }),
    ...(views.some((view) => view.listsNothing === true) && { listsNothing: true }),
    ...(unlisted !== undefined && { unlisted }),
  };
}

/** All preconditions of a snapshot. */
export type Preconditions = ReturnType<typeof joinPreconditions>;
