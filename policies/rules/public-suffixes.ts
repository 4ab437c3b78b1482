/** Recognizes host patterns that anyone can match by registering a name. Knows the common public suffixes only. */
import { wordSet } from '../../catalogs/text/word-set.ts';

/** Top-level names that no public registry gives out (RFC 2606, RFC 6762, RFC 8375, ICANN's `internal`). */
const PRIVATE = wordSet('internal local localhost test example invalid lan corp home intranet private');
/** Second levels under which country registries give out names: `co.uk`, `com.au`. */
const SECOND_LEVELS = wordSet('ac co com edu go gob gov ltd me ne net nom or org plc sch');
/** Hosting services that give each customer a name below these. */
const HOSTERS = wordSet(`
  amazonaws.com appspot.com azurewebsites.net blogspot.com cloudfront.net deno.dev firebaseapp.com
  fly.dev github.io gitlab.io glitch.me herokuapp.com netlify.app ngrok.app ngrok.io ngrok-free.app
  onrender.com pages.dev railway.app repl.co run.app s3.amazonaws.com surge.sh trycloudflare.com
  vercel.app web.app windows.net workers.dev wordpress.com
`);

/** Whether anyone can get a matching host: true for `*.com`, `*.co.uk`, `*.github.io`; false for a plain `*`. */
export function isWideHost(pattern: string): boolean {
  if (!pattern.startsWith('*.')) return false;
  const suffix = pattern.slice(2);
  const [first = '', second, ...more] = suffix.split('.');
  if (second === undefined) return !PRIVATE.has(first);
  return HOSTERS.has(suffix) || (more.length === 0 && second.length === 2 && SECOND_LEVELS.has(first));
}
