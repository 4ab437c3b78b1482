/** Owns which host patterns are open to the whole world: suffixes below which anybody can have a name; knows the common ones only. */

/** Endings that no registry gives out (RFC 2606, RFC 6762, RFC 8375, ICANN's `internal`). */
const PRIVATE: ReadonlySet<string> = new Set([
  'internal',
  'local',
  'localhost',
  'test',
  'example',
  'invalid',
  'lan',
  'corp',
  'home',
  'intranet',
  'private',
]);
/** Second levels under which country registries give out names: `co.uk`, `com.au`. */
const SECOND_LEVELS: ReadonlySet<string> = new Set([
  'ac',
  'co',
  'com',
  'edu',
  'go',
  'gob',
  'gov',
  'ltd',
  'me',
  'ne',
  'net',
  'nom',
  'or',
  'org',
  'plc',
  'sch',
]);
/** Hosters that give every customer a name of the same ending. */
const HOSTERS: ReadonlySet<string> = new Set([
  'amazonaws.com',
  'appspot.com',
  'azurewebsites.net',
  'blogspot.com',
  'cloudfront.net',
  'deno.dev',
  'firebaseapp.com',
  'fly.dev',
  'github.io',
  'gitlab.io',
  'glitch.me',
  'herokuapp.com',
  'netlify.app',
  'ngrok.app',
  'ngrok.io',
  'ngrok-free.app',
  'onrender.com',
  'pages.dev',
  'railway.app',
  'repl.co',
  'run.app',
  's3.amazonaws.com',
  'surge.sh',
  'trycloudflare.com',
  'vercel.app',
  'web.app',
  'windows.net',
  'workers.dev',
  'wordpress.com',
]);

/** True for `*.com`, `*.co.uk`, `*.github.io`; not for `*`, which says plainly what it means. */
export function isWideHost(pattern: string): boolean {
  if (!pattern.startsWith('*.')) return false;
  const suffix = pattern.slice(2);
  const [first = '', second, ...more] = suffix.split('.');
  if (second === undefined) return !PRIVATE.has(first);
  return HOSTERS.has(suffix) || (more.length === 0 && second.length === 2 && SECOND_LEVELS.has(first));
}
