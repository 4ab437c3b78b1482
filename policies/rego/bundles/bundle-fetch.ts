/** Sends one request to a server of bundles. Limits size, time and redirects. */
import type { BundleServer } from '../../port.ts';

/** Maximum size of a packed bundle in bytes. */
const MAX_BYTES = 64 * 1024 * 1024;
/** Milliseconds until the response must begin, and until it must end. */
const ANSWER_MS = 10_000;
const WHOLE_MS = 60_000;
const MAX_REDIRECTS = 3;

/** A fetched bundle. */
interface FetchedBundle {
  readonly bytes: Uint8Array;
  readonly etag?: string;
}

/**
 * Fetches a bundle; undefined if the one with `etag` is current. Throws Error with a reason that contains neither query
 * nor token.
 */
export async function fetchBundle(
  server: BundleServer,
  { etag, stop }: { readonly etag?: string; readonly stop: AbortSignal },
): Promise<FetchedBundle | undefined> {
  const late = new AbortController();
  const timers = [setTimeout(() => late.abort(), WHOLE_MS)];
  const slow = setTimeout(() => late.abort(), ANSWER_MS);
  try {
    const response = await ask(new URL(server.url), {
      server,
      signal: AbortSignal.any([late.signal, stop]),
      ...(etag === undefined ? {} : { etag }),
    });
    clearTimeout(slow);
    if (response.status === 304 && etag !== undefined) return undefined;
    if (response.status !== 200) {
      await response.body?.cancel();
      throw new Error(`the server answered with status ${response.status}`);
    }
    const tag = response.headers.get('etag');
    return { bytes: await readAll(response), ...(tag === null ? {} : { etag: tag }) };
  } catch (thrown) {
    if (late.signal.aborted) throw new Error('the server took too long', { cause: thrown });
    throw thrown instanceof TypeError
      ? new Error(`the server cannot be reached${reasonOf(thrown)}`, { cause: thrown })
      : thrown;
  } finally {
    for (const timer of [...timers, slow]) clearTimeout(timer);
  }
}

interface RequestOptions {
  readonly server: BundleServer;
  readonly signal: AbortSignal;
  readonly etag?: string;
}

/** Follows a few redirects, but not to a less safe URL. The token is sent only to the origin of `server.url`. */
async function ask(url: URL, { server, signal, etag }: RequestOptions): Promise<Response> {
  const first = url;
  for (let hop = 0; hop <= MAX_REDIRECTS; hop += 1) {
    const token =
      server.token !== undefined && url.origin === first.origin ? { authorization: `Bearer ${server.token}` } : {};
    const response = await fetch(url, {
      // A bundle is already compressed. If it were decompressed in transfer, it would not be the file that was signed.
      headers: { 'accept-encoding': 'identity', ...(etag === undefined ? {} : { 'if-none-match': etag }), ...token },
      redirect: 'manual',
      signal,
    });
    const to = response.headers.get('location');
    if (response.status < 300 || response.status === 304 || response.status >= 400 || to === null) return response;
    await response.body?.cancel();
    if (!URL.canParse(to, url)) throw new Error('the server redirects to an invalid URL');
    url = new URL(to, url);
    if (url.protocol !== 'https:' && url.origin !== first.origin)
      throw new Error('the server redirects to a URL without https');
  }
  throw new Error(`the server redirects more than ${MAX_REDIRECTS} times`);
}

async function readAll(response: Response): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    chunks.push(chunk as Uint8Array);
    size += (chunk as Uint8Array).byteLength;
    if (size > MAX_BYTES) throw new Error(`it is larger than ${MAX_BYTES} bytes`);
  }
  return Buffer.concat(chunks);
}

/** Returns the error code of the system, such as ECONNREFUSED. */
function reasonOf({ cause }: Error): string {
  const code = (cause as { readonly code?: unknown } | undefined)?.code;
  return typeof code === 'string' && /^[A-Z_0-9]+$/.test(code) ? ` (${code})` : '';
}
