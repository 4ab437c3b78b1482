/** The rules for names of servers: legal names, reserved names, and the legal form of a client's name. */
import { SHIPPED } from '../../../catalogs/servers/shipped-servers.ts';

/** A legal name of a server (HA-04). It comes before a dot in ids of tools, in file names and in metrics. */
export const SERVER_NAME = /^[a-z][a-z0-9-]{0,63}$/;

/** The internal server that serves the primitives by default. */
export const WORKSPACE = 'workspace';

const RESERVED: ReadonlySet<string> = new Set([WORKSPACE, ...SHIPPED.keys(), 'spill']);

/** Returns why `name` cannot be a server's name, and what to write; undefined if it can. */
export function nameFault(name: string): string | undefined {
  if (RESERVED.has(name)) return `the name is reserved for Tollgate; write another, for example my-${name}`;
  if (name.startsWith('tollgate-'))
    return 'names that begin with tollgate- are reserved for Tollgate; write another name';
  if (SERVER_NAME.test(name)) return undefined;
  return `a server name is lower-case letters, digits and hyphens, and begins with a letter; write ${toSlug(name)}`;
}

/**
 * Returns the legal name nearest to a name of a client: `github-work` for `GitHub (work)`. Does not change reserved
 * names, so the caller must refuse them.
 */
export function toSlug(name: string): string {
  const plain = name
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '');
  const led = /^[a-z]/.test(plain) ? plain : `server-${plain}`.replace(/-$/, '');
  return led.slice(0, 64).replace(/-+$/, '');
}

/**
 * Returns `server` and `tool` of an id like `files.read_*`; undefined if it is not one. The server part may contain no
 * `*`.
 */
export function splitToolId(id: string): { readonly server: string; readonly tool: string } | undefined {
  const dot = id.indexOf('.');
  const server = id.slice(0, Math.max(dot, 0));
  const tool = id.slice(dot + 1);
  return SERVER_NAME.test(server) && /^[A-Za-z0-9_./*-]{1,128}$/.test(tool) ? { server, tool } : undefined;
}
