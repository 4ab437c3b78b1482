/** Owns the candidates of a table and which of several counts; refuses words of a server that pass for ours. */
import type { Primitive } from '../adapters/port.ts';
import { withoutOwnKeys } from '../catalogs/own-keys.ts';
import type { RawTool } from '../catalogs/tool.ts';
import type { Exposure, ListDecision, ListTool } from '../policies/port.ts';
import type { Served } from './catalog.ts';
import type { ToolEntry } from './tool-entry.ts';

/** One way in which a tool could be shown. */
export interface Candidate {
  readonly served: Served;
  readonly entry?: ToolEntry;
  readonly primitive?: Primitive;
  readonly asked: ListTool;
}

/** A candidate that the policy shows. */
export interface Shown {
  readonly candidate: Candidate;
  readonly decision: ListDecision;
  readonly exposure: Exposure;
}

/** What its name is made from. */
export function named(one: Shown): { server: string; tool: string; wanted?: string } {
  const { server, tool } = one.candidate.asked;
  const wanted = one.candidate.primitive ?? one.exposure.name;
  return { server, tool, ...(wanted === undefined ? {} : { wanted }) };
}

/** One tool may be shown under several names; under one name the last exposure of it counts. */
export function lastOf(shown: readonly Shown[]): readonly Shown[] {
  return [...new Map(shown.map((one) => [JSON.stringify(named(one)), one])).values()];
}

/** A primitive stands for several tools of its backend: it is as uncertain as the least certain of them. */
export function graver(before: Shown | undefined, next: Shown): Shown {
  return before === undefined || before.decision.verdict === 'always' ? next : before;
}

/** Whether an owner must look at its tool first: it takes no name, and is not shown. */
export function isPending({ candidate }: Shown): boolean {
  return candidate.entry?.pending !== undefined;
}

/** A server cannot speak for Tollgate, and its icons are addresses that a client would open without a decision. Neither is shown. */
export function withoutOurs(tool: RawTool): RawTool {
  const { icons: _, ...rest } = withoutOwnKeys(tool);
  return rest;
}
