/** Connects packages as a script does: three runs of `connect`, each with the hashes that the run before printed. */
import { type Answer, dataOf } from '../cli/terminal.ts';

interface Data {
  readonly data: {
    readonly start: { readonly hash: string };
    readonly tools?: { readonly hash: string };
  };
  /** The names of the tools that the policy asks about. */
  readonly reach: { readonly asks: readonly string[] };
}

/** Returns the tools of the approved server. `connect` runs `tollgate connect` with words. */
export async function connectFully(
  connect: (...words: string[]) => Promise<Answer>,
  words: readonly string[],
): Promise<Data['reach']> {
  const [service = '', ...rest] = words;
  const json = async (...more: string[]): Promise<Data> => {
    const { out, err } = await connect(service, '--yes', '--json', ...more, ...rest);
    if (out === '') throw new Error(err);
    return dataOf<Data>(out);
  };
  const { hash } = (await json()).data.start;
  const tools = (await json('--approve', hash)).data.tools?.hash ?? '';
  return (await json('--approve', hash, tools)).reach;
}
