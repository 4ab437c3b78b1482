/**
 * Chooses the server for a call of a primitive that has several; refuses a file whose names lead to different servers.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { matchesGlobs } from '../../../catalogs/readers/path-globs.ts';
import type { PathFact, Reason } from '../../../policies/port.ts';
import type { Route } from '../../config/config.ts';
import { isOpen } from '../../config/servers/configured-routes.ts';
import { HiddenBy } from '../../exposure/exposed-tool.ts';

/**
 * What chooses a route: every name of the files that the call names, real and relative to the workspace, and the labels
 * of its run.
 */
export interface RoutedCall {
  readonly paths: readonly Pick<PathFact, 'path' | 'inside'>[];
  readonly labels: readonly string[];
}

/** The path of a call that names no path: it starts in the workspace. */
const WORKSPACE_ITSELF: RoutedCall['paths'] = [{ path: '.', inside: true }];

/** Returns true for a primitive whose calls need a choice. */
export function isRouted(routes: readonly Route[] | undefined): routes is readonly Route[] {
  return routes !== undefined && (routes.length > 1 || !routes.every(isOpen));
}

/**
 * Returns the server of the first route that fits; undefined if none does. Throws DENIED for a file whose names lead to
 * different servers.
 */
export function routedServer(routes: readonly Route[], { paths, labels }: RoutedCall): string | undefined {
  const open = routes.filter(
    (route) => route.labels === undefined || route.labels.some((label) => labels.includes(label)),
  );
  const facts = paths.length === 0 ? WORKSPACE_ITSELF : paths;
  const [server, ...others] = new Set(facts.map((fact) => open.find((route) => fits(route, fact))?.server));
  if (others.length === 0) return server;
  throw new TollgateError('DENIED', {
    detail: 'The file has several names, and different servers serve them.',
    next: 'Use a file that has one name, or ask the user to remove the others.',
  });
}

/** A path outside the workspace, or one that could not be resolved, matches no route with paths. */
function fits({ paths }: Route, { path, inside }: RoutedCall['paths'][number]): boolean {
  return paths === undefined || (inside && matchesGlobs(paths, path));
}

/**
 * Returns the refusal of a call that no server serves. It is the same where policy hides the server; `hidden` says why,
 * for the audit only.
 */
export function unservedError(primitive: string, hidden?: readonly Reason[]): TollgateError {
  return new TollgateError('NOT_SUPPORTED', {
    detail:
      `No server that you can use serves this call of ${primitive}: ` +
      'the owner lets it serve other paths, or runs with other labels',
    next: 'Use another path, or tell the user.',
    ...(hidden !== undefined && { cause: new HiddenBy(hidden) }),
  });
}
