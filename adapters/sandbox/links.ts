/** Owns mounts whose place in the sandbox is a link of the host; refuses to ask bubblewrap for a mount on a link, which fails. */
import { realpathSync } from 'node:fs';
import path from 'node:path';
import type { Mount } from './bubblewrap.ts';
import { isWithin } from './closed.ts';

/**
 * Where a link stands in a folder that is mounted itself, as a `node_modules` that was linked: the link is there already, so what it
 * leads to is mounted under its own name. Writable mounts stay: they were judged as they are.
 */
export function throughLinks(mounts: readonly Mount[]): readonly Mount[] {
  return mounts.map((mount) => {
    const { from, to, writable } = mount;
    const holder = mounts.find((other) => other.to !== to && isWithin(to, other.to));
    if (writable || from !== to || holder === undefined) return mount;
    const real = realpathSync(from);
    return real === path.join(realpathSync(holder.from), path.relative(holder.to, to))
      ? mount
      : { from: real, to: real, writable };
  });
}
