/** Owns the one spelling in which URLs are compared; refuses to give one to a URL that two readers may take for two places. */

/** A URL as rules read it. Both are empty where it cannot be read. */
export interface ReadUrl {
  /** Lower case, without port and without the dot that may end a name. */
  readonly host: string;
  /** `scheme://host:port/path` with the port always written (0: the scheme has none), without user, query and fragment. */
  readonly address: string;
}

const PORTS: ReadonlyMap<string, number> = new Map([['http', 80], ['https', 443], ['ws', 80], ['wss', 443], ['ftp', 21]]);

/** The port of a scheme, 0 where it has none of its own. */
export function portOf(scheme: string): number {
  return PORTS.get(scheme) ?? 0;
}

/** Reads a URL as browsers do (WHATWG): default ports, dots in paths and strange spellings of addresses are resolved. */
export function readUrl(text: string): ReadUrl {
  if (!URL.canParse(text)) return { host: '', address: '' };
  const { protocol, hostname, port, pathname } = new URL(text);
  const [scheme, host] = [protocol.slice(0, -1), hostname.toLowerCase().replace(/\.$/, '')];
  const path = canonicalPath(pathname === '' ? '/' : pathname);
  const isPlain = host !== '' && path.startsWith('/') && !isAmbiguous(path);
  return { host, address: isPlain ? `${scheme}://${host}:${port === '' ? portOf(scheme) : port}${path}` : '' };
}

/** Letters that need no escape stand without one, all others with capitals (RFC 3986 §6.2.2). */
export function canonicalPath(path: string): string {
  return path.replace(/%([0-9a-f]{2})/gi, (whole, hex: string) => {
    const letter = String.fromCharCode(Number.parseInt(hex, 16));
    return /[A-Za-z0-9._~-]/.test(letter) ? letter : whole.toUpperCase();
  });
}

/** Slashes in disguise, escapes of escapes, empty segments and dots with parameters are read one way here and another way there. */
function isAmbiguous(path: string): boolean {
  return /%(2F|5C|00|25)|\/\/|\\|\/\.{1,2}(;|\/|$)/.test(path);
}
