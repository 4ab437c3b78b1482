/** Owns the version that Tollgate tells its clients; refuses to guess when the package file is missing. */
import { existsSync, readFileSync } from 'node:fs';

/** From the sources the package file is two folders up, from `dist/` three. */
const PLACES = ['../../package.json', '../../../package.json'];

function readVersion(): string {
  for (const place of PLACES) {
    const url = new URL(place, import.meta.url);
    if (!existsSync(url)) continue;
    const found = JSON.parse(readFileSync(url, 'utf8')) as { readonly name?: unknown; readonly version?: unknown };
    if (found.name === 'tollgate' && typeof found.version === 'string') return found.version;
  }
  throw new Error('the package.json of tollgate is not where it was installed');
}

/** The version of package.json. */
export const VERSION: string = readVersion();
