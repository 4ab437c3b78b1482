/** Reads the routes of primitives: which servers serve them. Refuses routes that no call can take. */
import { loadMapping, MAPPINGS } from '../../../catalogs/primitives/primitive-mapping.ts';
import { globProblem, matchesGlobs } from '../../../catalogs/readers/path-globs.ts';
import { SHIPPED } from '../../../catalogs/servers/shipped-servers.ts';
import type { ProfileConfig, Route } from '../config.ts';
import { didYouMean, type Path, type ProblemReport, quote } from '../config-problems.ts';
import type { WrittenConfig, WrittenExpose, WrittenRoutes } from '../written-config.ts';
import { WORKSPACE } from './server-names.ts';

/** What routes are checked against. */
export interface RouteContext {
  readonly report: ProblemReport;
  readonly servers: NonNullable<WrittenConfig['servers']>;
  /** Absent: labels may come from a policy in a separate file, and are not checked. */
  readonly labels: ReadonlySet<string> | undefined;
  /** Reports a server that does not exist. */
  readonly server: (name: string, path: Path) => void;
}

/** Returns the routes of each primitive with the short forms expanded. */
export function buildPrimitives(primitives: WrittenExpose['primitives'] = WORKSPACE): ProfileConfig['primitives'] {
  if (typeof primitives !== 'string')
    return Object.fromEntries(Object.entries(primitives).map(([name, routes]) => [name, routesOf(routes)]));
  const routes = routesOf(primitives);
  return { read: routes, write: routes, edit: routes, bash: routes };
}

/** Returns the servers that an `expose` names for its primitives; none if it leaves them to the default. */
export function backendsOf(expose: WrittenExpose | undefined): readonly string[] {
  return expose?.primitives === undefined ? [] : backendsIn(buildPrimitives(expose.primitives));
}

/** Returns each server behind one of the primitives, once. */
export function backendsIn(primitives: ProfileConfig['primitives']): readonly string[] {
  return [
    ...new Set(
      Object.values(primitives)
        .flat()
        .map(({ server }) => server),
    ),
  ];
}

/** Reports servers that cannot serve a primitive, and routes that no call can take. */
export function checkRoutes(
  primitives: NonNullable<WrittenExpose['primitives']>,
  path: Path,
  context: RouteContext,
): void {
  if (typeof primitives === 'string') return checkBackend(primitives, path, context);
  for (const [primitive, written] of Object.entries(primitives)) {
    if (typeof written === 'string') checkBackend(written, [...path, primitive], context);
    else
      written.forEach((_, index) =>
        checkRoute(written, { primitive, index, at: [...path, primitive, index] }, context),
      );
  }
}

function routesOf(written: WrittenRoutes): readonly Route[] {
  return typeof written === 'string'
    ? [{ server: written }]
    : written
        .filter((route) => route !== undefined)
        .map((route) => (typeof route === 'string' ? { server: route } : route));
}

interface RoutePlace {
  readonly primitive: string;
  readonly index: number;
  readonly at: Path;
}

function checkRoute(
  written: Exclude<WrittenRoutes, string>,
  { primitive, index, at }: RoutePlace,
  context: RouteContext,
): void {
  const { report, servers, labels: known } = context;
  const [route] = routesOf(written.slice(index, index + 1));
  if (route === undefined) return;
  const { server, paths = [], labels = [] } = route;
  const place = typeof written[index] === 'string' ? at : [...at, 'server'];
  checkBackend(server, place, context);
  if (!serves(servers[server]?.mapping, primitive))
    report.refuse(
      place,
      `server ${quote(server)} cannot serve ${primitive}, so each call of this route would be refused; name ` +
        'another server, or remove the route',
    );
  paths.forEach((glob, step) => {
    const problem = glob.startsWith('/')
      ? `${quote(glob)} is absolute, and the primitives work in the workspace; write it relative to the workspace`
      : globProblem(glob);
    if (problem !== undefined) report.refuse([...at, 'paths', step], problem);
  });
  labels.forEach((label, step) => {
    if (known?.has(label) === false)
      report.refuse(
        [...at, 'labels', step],
        `label ${quote(label)}: no server and no rule adds it, so no call takes this route; ` +
          `${didYouMean(label, known)}`,
      );
  });
  const earlier = routesOf(written.slice(0, index)).find((other) => covers(other, route));
  if (earlier === undefined) return;
  const todo = isOpen(earlier)
    ? 'put the entry without a condition last, and write only one'
    : 'put this one before it, or remove it';
  report.refuse(
    at,
    `no call takes this route: one before it, of server ${quote(earlier.server)}, takes all its calls; ${todo}`,
  );
}

function checkBackend(name: string, path: Path, { report, servers, server: checkServer }: RouteContext): void {
  if (name === WORKSPACE) return;
  if (SHIPPED.has(name))
    return report.refuse(path, `server ${quote(name)} has its own tools and no primitives; write workspace`);
  checkServer(name, path);
  const server = servers[name];
  if (server !== undefined && server.mapping === undefined)
    report.refuse(
      path,
      `server ${quote(name)} has no mapping, so it cannot serve primitives; add mapping to it, or write workspace`,
    );
}

/** Returns whether a mapping serves a primitive. True for an unknown one, which has a problem of its own. */
function serves(mapping: string | undefined, primitive: string): boolean {
  const known = MAPPINGS.find((name) => name === mapping);
  return (
    known === undefined ||
    [...loadMapping(known).actions].some(
      ([key, action]) => key.split('.', 1)[0] === primitive && !('missing' in action),
    )
  );
}

/** Returns whether a route takes every call. */
export function isOpen({ paths, labels }: Route): boolean {
  return paths === undefined && labels === undefined;
}

/** Returns whether `route` takes every call that the later route `other` could take. */
function covers(route: Route, other: Route): boolean {
  const byPath =
    route.paths === undefined ||
    other.paths?.every((glob) => samplesOf(glob).every((path) => matchesGlobs(route.paths ?? [], path))) === true;
  return (
    byPath && (route.labels === undefined || other.labels?.every((label) => route.labels?.includes(label)) === true)
  );
}

/** Returns paths that a glob matches, with names that no other glob contains: `**` as zero to three folders. */
function samplesOf(glob: string): readonly string[] {
  const name = '\u0001';
  return [[], [name], [name, name], [name, name, name]].map((folders) =>
    glob
      .split('/')
      .flatMap((segment) => (segment === '**' ? folders : [segment.replaceAll('*', name)]))
      .join('/'),
  );
}
