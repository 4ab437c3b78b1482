/** Makes the entry of Tollgate in a client's file. It has no token, only the place where the client finds the token. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Plain } from './changes/edit-json.ts';
import type { ServerChange } from './client-file-edit.ts';
import { asTheirs, type ClientFormat } from './client-formats.ts';

/** The name of Tollgate's entry. */
export const OWN_NAME = 'tollgate';

/** The variable with the access token, if the client fills in variables. */
export const TOKEN_VARIABLE = 'TOLLGATE_TOKEN';

const INPUT = { id: 'tollgate-token', description: 'Access token of Tollgate (tollgate serve prints it)' };

/** A program that the client starts, or an address that it connects to. `auth`: the address needs a token. */
export type EntryTarget = { readonly words: readonly string[] } | { readonly url: string; readonly auth: boolean };

/**
 * Returns the entry, and what else the file needs for it. Throws USAGE for a client that cannot reach an address
 * without a token in its file.
 */
export function ownEntry(client: ClientFormat, target: EntryTarget): Pick<ServerChange, 'add' | 'input'> {
  if ('words' in target) return { add: { name: OWN_NAME, value: program(client, target.words) } };
  const { url, auth } = target;
  if (client.address === undefined || (auth && client.token === undefined)) {
    throw new TollgateError('USAGE', {
      detail: `${client.title} cannot reach an address with a token that is stored outside its file.`,
      next: 'Omit --http; then it starts Tollgate itself.',
    });
  }
  const type = client.types === undefined ? {} : { type: client.types.http };
  const value = { ...type, [client.address]: url, ...(auth && credentials(client)) };
  return { add: { name: OWN_NAME, value }, ...(auth && client.token === 'input' && { input: INPUT }) };
}

function program({ types, oneList, extra }: ClientFormat, words: readonly string[]): Plain {
  const [command = '', ...args] = words;
  const type = types === undefined ? {} : { type: types.stdio };
  return oneList === true ? { ...type, command: words } : { ...extra, ...type, command, args };
}

function credentials({ token, interpolation }: ClientFormat): Plain {
  if (token === 'named') return { bearer_token_env_var: TOKEN_VARIABLE };
  const reference = token === 'input' ? `\${input:${INPUT.id}}` : asTheirs(TOKEN_VARIABLE, interpolation);
  return { headers: { Authorization: `Bearer ${reference}` } };
}
