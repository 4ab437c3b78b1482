/** The version of Tollgate, from its package.json. */
import { existsSync, readFileSync } from 'node:fs';

/** Two folders up from the sources, three from `dist/`. */
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

/** The version in package.json. */
export const VERSION: string = readVersion();
