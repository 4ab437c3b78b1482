/**
 * Owns the facts of a call that is only written down: the same lowering as a real call, without a server; refuses names
 * that nothing stands behind.
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
 * A call as a person writes it. `tool` is a primitive, `server.tool`, or the name under which a tool is shown; `labels`
 * are those of its run.
 */
export interface WrittenCall {
  readonly labels?: readonly string[];
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
}

/** What calls are drafted against; the servers are those of the configuration and need not run. */
export interface DraftContext {
  readonly config: Pick<Config, 'profiles' | 'workspace'>;
  readonly served: ReadonlyMap<string, ServedServer>;
}

/** The part of the policy's input that comes from the call itself. */
export type DraftedCall = Pick<CallInput, 'effect' | 'argsText'>;

/**
 * What the policy would be told of a call: pins applied, the arguments of primitives checked and lowered to their
 * backend. Arguments of other tools are taken as they are, since no server was asked for their schema. Reads the file
 * system to resolve symlinks, and nothing else. Throws UNKNOWN_TOOL, ARGS_INVALID, NOT_SUPPORTED, and CONFIG_INVALID
 * for a profile that is not there.
 */
export function draftCall(world: DraftContext, principal: Pick<Principal, 'profiles'>, call: WrittenCall): DraftedCall {
  const doing = nameTool(world, principal, call.tool).doing(call.args, call.labels ?? []);
  return { effect: effectOf(doing, world.config.workspace), argsText: JSON.stringify(doing.args) };
}

/**
 * What a list would be asked about a tool: a primitive stands for several tools of its backends. Throws UNKNOWN_TOOL,
 * CONFIG_INVALID.
 */
export function draftTools(
  world: DraftContext,
  principal: Pick<Principal, 'profiles'>,
  tool: string,
): readonly ListTool[] {
  return nameTool(world, principal, tool).tools;
}

interface Named {
  readonly tools: readonly ListTool[];
  readonly doing: (args: WrittenCall['args'], labels: readonly string[]) => EffectSource;
}

function nameTool(world: DraftContext, principal: Pick<Principal, 'profiles'>, written: string): Named {
  const profile = mergeProfiles(world.config, principal.profiles);
  const primitive = PRIMITIVES.find((name) => name === written || `${WORKSPACE}.${name}` === written);
  if (primitive !== undefined)
    return namePrimitive(
      world,
      primitive,
      primitive === written ? (profile.primitives[primitive] ?? []) : [{ server: WORKSPACE }],
    );
  const { served, tool, pins } = findTool(world, profile, written);
  const semantics = served.semanticsOf(tool);
  return {
    tools: [{ server: served.name, tool, ...listToolFacts(semantics) }],
    doing: (args) => ({ server: served.name, tool, semantics, args: applyPins(args, pins).args }),
  };
}

function namePrimitive({ config, served }: DraftContext, primitive: Primitive, routes: readonly Route[]): Named {
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
    doing: (args, labels) => {
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

interface Found {
  readonly served: ServedServer;
  readonly tool: string;
  readonly pins: Readonly<Record<string, unknown>>;
}

function findTool({ served }: DraftContext, { expose }: ProfileConfig, written: string): Found {
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

/** The name that Tollgate makes of server and tool; a server's name holds no underscore. */
function splitShown(written: string): { readonly server: string; readonly tool: string } | undefined {
  const found = /^([^_]+)_(.+)$/.exec(written);
  return found === null ? undefined : { server: found[1] ?? '', tool: found[2] ?? '' };
}

/** Of the exposures of a tool without the name of one of them: the first that shows it. */
function pinsOf(
  expose: ProfileConfig['expose'],
  { server, tool }: { readonly server: string; readonly tool: string },
): Found['pins'] {
  return expose.find(({ tool: pattern }) => toolMatcher(pattern)(`${server}.${tool}`))?.pins ?? {};
}
