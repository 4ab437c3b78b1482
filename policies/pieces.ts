/** Owns how long one thread is held by long work: it goes through it in pieces, and others have their turn between them; decides nothing. */
import { setImmediate as turn } from 'node:timers/promises';

/** Milliseconds of work after which others have their turn. */
const PIECE_MS = 4;

/** Goes through the items; whoever works on one of them should need no more than some milliseconds for it. */
export async function* inPieces<T>(items: Iterable<T>): AsyncGenerator<T, void, undefined> {
  let began = performance.now();
  for (const item of items) {
    yield item;
    if (performance.now() - began < PIECE_MS) continue;
    await turn();
    began = performance.now();
  }
}
