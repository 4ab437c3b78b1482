/**
 * Lowers a call that a person has written down, in the same way as a real call but without a server. It refuses names
 * that no server or exposure has.
 */
import { PRIMITIVES, type Primitive } from '../../../adapters/port.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { normalizeArguments } from '../../../catalogs/primitives/argument-spellings.ts';
import { PRIMITIVE_SEMANTICS } from '../../../catalogs/primitives/primitive-semantics.ts';
import { shownName } from '../../../catalogs/tools/exposed-names.ts';
import type { CallInput, ListTool, Principal } from '../../../policies/port.ts';
import type { Config, ProfileConfig, Route } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { mergeProfiles } from '../../config/profiles.ts';
import { splitToolId, WORKSPACE } from '../../config/servers/server-names.ts';
import type { ServedServer } from '../../exposure/served-server.ts';
import { toolMatcher } from '../../exposure/served-server.ts';
import { applyPins } from '../validate.ts';
import { type EffectSource, effectOf, listToolFacts } from './call-effect.ts';
import { routedServer, unservedError } from './primitive-routes.ts';

/**
 * A call as a person writes it. `tool` is a primitive, `server.tool`, or the name under which a tool is shown. `labels`
 * are those of its run.
 */
export interface WrittenCall {
  readonly labels?: readonly string[];
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
}

/** The configuration that a call is drafted for. Its servers need not run. */
export interface DraftContext {
  readonly config: Pick<Config, 'profiles' | 'workspace'>;
  readonly served: ReadonlyMap<string, ServedServer>;
}

/** The part of the policy's input that comes from the call itself. */
export type DraftedCall = Pick<CallInput, 'effect' | 'argsText'>;

/**
 * Returns the policy's input for a call. Pins are applied, and the arguments of primitives are checked and lowered to
 * their backend. Arguments of other tools are not checked, because no server was asked for their schema. Reads the file
 * system only to resolve symbolic links. Throws UNKNOWN_TOOL, ARGS_INVALID, NOT_SUPPORTED, and CONFIG_INVALID for an
 * unknown profile.
 */
export function draftCall(
  context: DraftContext,
  principal: Pick<Principal, 'profiles'>,
  call: WrittenCall,
): DraftedCall {
  const source = draftedTool(context, principal, call.tool).source(call.args, call.labels ?? []);
  return { effect: effectOf(source, context.config.workspace), argsText: JSON.stringify(source.args) };
}

/**
 * Returns the policy's input for the listing of a tool. A primitive has several tools of its backends. Throws
 * UNKNOWN_TOOL and CONFIG_INVALID.
 */
export function draftTools(
  context: DraftContext,
  principal: Pick<Principal, 'profiles'>,
  tool: string,
): readonly ListTool[] {
  return draftedTool(context, principal, tool).tools;
}

interface DraftedTool {
  readonly tools: readonly ListTool[];
  readonly source: (args: WrittenCall['args'], labels: readonly string[]) => EffectSource;
}

function draftedTool(context: DraftContext, principal: Pick<Principal, 'profiles'>, written: string): DraftedTool {
  const profile = mergeProfiles(context.config, principal.profiles);
  const primitive = PRIMITIVES.find((name) => name === written || `${WORKSPACE}.${name}` === written);
  if (primitive !== undefined)
    return draftedPrimitive(
      context,
      primitive,
      primitive === written ? (profile.primitives[primitive] ?? []) : [{ server: WORKSPACE }],
    );
  const { served, tool, pins } = findTool(context, profile, written);
  const semantics = served.semanticsOf(tool);
  return {
    tools: [{ server: served.name, tool, ...listToolFacts(semantics) }],
    source: (args) => ({ server: served.name, tool, semantics, args: applyPins(args, pins).args }),
  };
}

function draftedPrimitive(
  { config, served }: DraftContext,
  primitive: Primitive,
  routes: readonly Route[],
): DraftedTool {
  const backends = new Map(
    routes.flatMap(({ server }) => {
      const backend = served.get(server)?.backend;
      return backend === undefined ? [] : [[server, backend] as const];
    }),
  );
  if (backends.size === 0)
    throw new TollgateError('UNKNOWN_TOOL', {
      detail: `No profile of this principal has ${primitive}.`,
      next: 'Write a tool that it has, or another principal.',
    });
  return {
    tools: [...backends.values()].flatMap((backend) =>
      (backend.serves().get(primitive) ?? []).map(({ tool, semantics }) => ({
        server: backend.name,
        tool,
        ...listToolFacts(semantics),
        primitive,
      })),
    ),
    source: (args, labels) => {
      const { paths } = effectOf(
        {
          server: '',
          tool: primitive,
          semantics: PRIMITIVE_SEMANTICS.get(primitive) ?? { verb: 'destructive' },
          args: normalizeArguments(primitive, args).args,
        },
        config.workspace,
      );
      const backend = backends.get(routedServer(routes, { paths, labels }) ?? '');
      if (backend === undefined) throw unservedError(primitive);
      return { server: backend.name, ...backend.lower(primitive, args) };
    },
  };
}

interface FoundTool {
  readonly served: ServedServer;
  readonly tool: string;
  readonly pins: Readonly<Record<string, unknown>>;
}

function findTool({ served }: DraftContext, { expose }: ProfileConfig, written: string): FoundTool {
  const shown = expose
    .filter(({ tool }) => !tool.includes('*'))
    .flatMap(({ tool, name, pins }) => {
      const id = splitToolId(tool);
      return id === undefined
        ? []
        : [{ ...id, pins, name: shownName({ ...id, ...(name === undefined ? {} : { alias: name }) }) }];
    });
  const byName = shown.find(({ name }) => name === written);
  const id = byName ?? splitToolId(written) ?? splitShown(written);
  const server = id === undefined ? undefined : served.get(id.server);
  if (id === undefined || server === undefined) {
    const known = [
      ...PRIMITIVES,
      ...shown.map(({ name }) => name),
      ...[...served.keys()].filter((name) => name !== WORKSPACE).map((name) => `${name}.${id?.tool ?? 'tool'}`),
    ];
    throw new TollgateError('UNKNOWN_TOOL', {
      detail: `There is no tool ${quote(written)}; ${didYouMean(written, known)}`,
      next: 'Write a primitive, server.tool, or a name that `tollgate tools` shows.',
    });
  }
  if (server.name === WORKSPACE)
    throw new TollgateError('UNKNOWN_TOOL', {
      detail: `The workspace has no tool ${quote(id.tool)}; ${didYouMean(id.tool, PRIMITIVES)}`,
    });
  return { served: server, tool: id.tool, pins: byName?.pins ?? pinsOf(expose, id) };
}

/** Splits a name that Tollgate has made from server and tool. The name of a server contains no underscore. */
function splitShown(written: string): { readonly server: string; readonly tool: string } | undefined {
  const found = /^([^_]+)_(.+)$/.exec(written);
  return found === null ? undefined : { server: found[1] ?? '', tool: found[2] ?? '' };
}

/** Returns the pins of the first exposure that shows a tool. */
function pinsOf(
  expose: ProfileConfig['expose'],
  { server, tool }: { readonly server: string; readonly tool: string },
): FoundTool['pins'] {
  return expose.find(({ tool: pattern }) => toolMatcher(pattern)(`${server}.${tool}`))?.pins ?? {};
}
