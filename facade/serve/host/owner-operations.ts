/** The operations by which an owner's host sees what needs attention, and acts on principals and budgets. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Principal } from '../../../policies/port.ts';
import type { SetupEntry } from '../../audit/audit-entry.ts';
import { readBudgetStates, resetBudget } from '../../budget/budget-report.ts';
import { resumePrincipal, type SuspensionParts, suspendPrincipal } from '../../consent/switch/suspensions.ts';
import type { HostOperations } from './host-api-description.ts';
import type { HostParts } from './server-registration.ts';

/** Throws IDENTITY unless the principal is an owner. */
export function requireOwner({ id, owner }: Principal): void {
  if (owner !== true)
    throw new TollgateError('IDENTITY', {
      detail: `${id} is no owner, and only an owner decides or speaks for origins.`,
      next: 'Use the token of a principal that has `owner: true`.',
    });
}

/** Returns the operations. */
export function ownerOperations(parts: HostParts): HostOperations {
  const acting = (): SuspensionParts => ({
    suspensions: parts.suspensions,
    config: parts.config,
    append: (entry) => void parts.deps.audit.append(entry),
  });
  return {
    attention: async ({ principal }) => {
      requireOwner(principal);
      return { items: await parts.attention() };
    },
    listBudgets: async ({ principal }) => {
      requireOwner(principal);
      return { budgets: await readBudgetStates(parts) };
    },
    resetBudget: async ({ principal, input: asked }) => {
      requireOwner(principal);
      const { budget, key } = asked as { readonly budget: string; readonly key?: string };
      const { config, state, deps } = parts;
      const append = (entry: SetupEntry): void => void deps.audit.append(entry);
      return { reset: await resetBudget({ config, state, append }, { budget, key, by: principal.id }) };
    },
    listSuspensions: async ({ principal }) => {
      requireOwner(principal);
      return { suspensions: parts.suspensions.list() };
    },
    suspend: async ({ principal, input: asked }) => {
      requireOwner(principal);
      const { principal: whom, forMs } = asked as { readonly principal: string; readonly forMs?: number };
      return { suspended: await suspendPrincipal(acting(), { principal: whom, by: principal.id, forMs }) };
    },
    resume: async ({ principal, input: asked }) => {
      requireOwner(principal);
      return { resumed: await resumePrincipal(acting(), { principal: String(asked.principal), by: principal.id }) };
    },
  };
}
