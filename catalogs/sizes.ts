/** The sizes of external input that Tollgate works on in one piece (decision 52). */

/** Most bytes of one message, one file that is read or edited, and the result of one edit. */
export const MOST_BYTES = 16 * 1_048_576;

/** What is larger is worked on in turns of the event loop of its own, a bounded amount at a time (adapters/pace.ts). */
export const LARGE_BYTES = 262_144;
