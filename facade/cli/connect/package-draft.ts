/** Drafts the connection of a package that a person names: npm:…, pypi:…, oci:…, git:… or a folder. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { parseDomain } from '../../../catalogs/readers/domains.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { distinctFolders, namedFiles } from '../../clients/folder-arguments.ts';
import type { ServerCopy } from '../../clients/import-plan.ts';
import { quote } from '../../config/config-problems.ts';
import { isSecretArgument, isSecretName, isToken } from '../../config/servers/secret-shapes.ts';
import { knownOf, knownUse, packageServer, writesToFolders } from '../../packages/package-server.ts';
import type { PackageSpec } from '../../packages/package-spec.ts';
import type { PinnedPackage } from '../../packages/pinned-package.ts';
import type { ConnectionDraft, NeededSecret, Wish } from './connection-draft.ts';

/** What a person gives with the name of a package. */
export interface PackageRequest {
  /** After `--`. */
  readonly args: readonly string[];
  /** NAME=VALUE. */
  readonly env: readonly string[];
  readonly hosts: readonly string[];
  /** Absolute. */
  readonly workspace: string;
  readonly home: string;
}

/** Returns the name that a server of a package gets, before it is made a legal one. */
export function serverNameOf(spec: PackageSpec): string {
  const whole =
    spec.kind === 'oci'
      ? spec.image.replace(/@.*$/, '').replace(/:[^/:]*$/, '')
      : spec.kind === 'git'
        ? spec.url.replace(/\.git$/, '')
        : spec.kind === 'folder'
          ? spec.folder
          : spec.name;
  const last = whole.split(/[/:]/).findLast((part) => part !== '') ?? '';
  const bare = last.replace(/^(?:mcp[-_])?(?:server[-_])?/i, '').replace(/(?:[-_]mcp)?(?:[-_]server)?$/i, '');
  return bare === '' ? last : bare;
}

/**
 * Returns the draft of a pinned package. A package of the catalog gets the labels, semantics, hosts and limits of the
 * catalog. Throws USAGE for a variable or an argument that contains a credential, and for a host that is none.
 */
export function draftPackage(pinned: PinnedPackage, wish: Wish, request: PackageRequest): ConnectionDraft {
  const known = knownOf(pinned);
  const { args, hosts, workspace, home } = request;
  const env = Object.fromEntries(request.env.map(readVariable));
  refuseSecrets(args);
  for (const host of hosts) refuseHost(host);
  const secrets = [...wish.given]
    .filter((variable) => /^[A-Za-z_]\w*$/.test(variable))
    .map((variable): NeededSecret => secretOf(variable, wish.name, known?.credentials ?? []));
  const added = known === undefined ? undefined : knownUse(known, { args, env });
  const access = writesToFolders(known) ? 'write' : 'read';
  const folders = distinctFolders([
    ...(added?.folders ?? []),
    ...namedFiles([...args, ...Object.values(env)], { workspace, home }).map((folder) => ({ folder, access }) as const),
  ]);
  const references = Object.fromEntries(secrets.map(({ env: name = '', name: at }) => [name, `\${secret:${at}}`]));
  const entry = packageServer(
    pinned,
    { name: wish.name, profile: wish.profile, ...(known !== undefined && { known }) },
    {
      args: args.map(escaped),
      env: { ...mapped(env, escaped), ...added?.env, ...references },
      hosts: [...hosts, ...(added?.hosts ?? [])],
      folders,
    },
  );
  const outside = folders.filter(({ folder }) => path.isAbsolute(folder) && !isPathWithin(folder, workspace));
  return {
    name: wish.name,
    title: known?.title ?? pinned.name,
    entry,
    secrets,
    package: pinned,
    notes: [
      ...pinned.notes,
      ...(added?.open ?? []),
      ...outside.map(({ folder, access: may }) => `It ${may}s ${quote(folder)}, outside the workspace.`),
      ...(pinned.kind === 'oci' && hosts.length > 0 ? ['To reach its hosts, the image needs sh and socat.'] : []),
      ...(known === undefined
        ? ['It is not in the catalog, so all its tools count as destructive until you describe them (semantics).']
        : []),
    ],
  };
}

function secretOf(variable: string, server: string, credentials: readonly NeededSecretForm[]): NeededSecret {
  const known = credentials.find(({ env }) => env === variable);
  const name = `${server}.${variable}`;
  return known === undefined
    ? { env: variable, title: 'Credential', get: 'its provider', example: 'credential', name }
    : { ...known, name };
}

type NeededSecretForm = Omit<NeededSecret, 'name'>;

function readVariable(text: string): readonly [name: string, value: string] {
  const [, name, value = ''] = /^([A-Za-z_]\w*)=(.*)$/s.exec(text) ?? [];
  if (name === undefined)
    throw new TollgateError('USAGE', {
      detail: '--env is not given as NAME=VALUE.',
      next: 'Write for example --env LOG_LEVEL=debug.',
    });
  if ((isSecretName(name) && value !== '') || isToken(value))
    throw new TollgateError('USAGE', {
      detail: `The value of --env ${name} looks like a credential, which every user of the machine can read now.`,
      next: `Give it with --credential ${name}=env:VARIABLE, and replace it, because it is in your shell history.`,
    });
  return [name, value];
}

function refuseSecrets(args: readonly string[]): void {
  if (!args.some((arg, index) => isSecretArgument(arg, args[index - 1]))) return;
  throw new TollgateError('USAGE', {
    detail: 'An argument looks like a credential. Process lists show arguments to every user of the machine.',
    next: 'If the server can read it from a variable, give it with --credential NAME=env:VARIABLE.',
  });
}

function refuseHost(host: string): void {
  const domain = parseDomain(host);
  if (!('fault' in domain)) return;
  throw new TollgateError('USAGE', {
    detail: `--host ${quote(host)} is ${domain.fault}.`,
    next: 'Write for example --host api.example.org.',
  });
}

/** In tollgate.yaml, `$` begins a variable. */
function escaped(text: string): string {
  return text.replaceAll('$', '$$$$');
}

function mapped(values: Readonly<Record<string, string>>, change: (value: string) => string): Record<string, string> {
  return Object.fromEntries(Object.entries(values).map(([key, value]) => [key, change(value)]));
}

/**
 * Returns the connection of a server that was copied from a client's file. `carryOut` takes the values of its secrets
 * apart: `new Map(copy.secrets.map(({ name, value }) => [name, value]))`.
 */
export function draftOfCopy(name: string, { server, pinned, known, unkept }: ServerCopy): ConnectionDraft {
  return {
    name,
    title: known?.title ?? pinned?.name ?? name,
    entry: server,
    secrets: [],
    ...(pinned !== undefined && { package: pinned }),
    notes: [...(pinned?.notes ?? []), ...unkept],
  };
}
