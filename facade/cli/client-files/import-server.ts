/** Imports one server from a TOML file. An existing name, and a server that Tollgate would not load, are refused. */
import path from 'node:path';
import { stringify } from 'yaml';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Config } from '../../config/config.ts';
import { loadConfig } from '../../config/load-config.ts';
import { readText } from '../../config/reading/text-files.ts';
import { SERVER_FOLDER, serverFileOf } from '../../config/servers/server-files.ts';
import { nameFault, toSlug } from '../../config/servers/server-names.ts';
import type { CommonOptions } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { readServerToml } from '../connect/server-toml.ts';
import { json, printable } from '../print.ts';
import { applyConfirmed, type ConfirmOptions, confirmWrite } from './client-files.ts';

const MAX_BYTES = 64 * 1024;

/** What the import works with. `text`: see serverText. */
interface Importing {
  readonly text: string;
  readonly options: ImportOptions & { readonly file: string };
  readonly config: Config;
  readonly io: Io;
}

/** Returns the text of a TOML file with one server (`[server]`); undefined for any other file. */
export function serverText(file: string): string | undefined {
  const read = file.endsWith('.toml') ? readText(file, MAX_BYTES) : undefined;
  return read?.ok === true && /^[ \t]*\[[ \t]*server[ \t]*\]/m.test(read.text) ? read.text : undefined;
}

/** Writes `servers/NAME.yaml` after a preview; `tollgate import --undo` removes it. Throws USAGE with every error. */
export async function importServer({ text, options, config, io }: Importing): Promise<number> {
  const shown = path.basename(options.file);
  const read = readServerToml(text);
  if (!read.ok)
    throw new TollgateError('USAGE', {
      detail: `${shown} cannot be imported: ${read.problems.join('; ')}.`,
      next: 'Correct it, and import it again.',
    });
  const name = read.name === undefined ? toSlug(path.basename(shown, '.toml')) : read.name;
  const fault = nameFault(name) ?? (config.servers.has(name) ? 'there is a server of this name already' : undefined);
  if (fault !== undefined)
    throw new TollgateError('USAGE', {
      detail: `${shown} cannot be imported as ${JSON.stringify(name)}: ${fault}.`,
      next: 'Change its name, or remove the other one.',
    });
  const source = shown.replace(/[^\w.-]/g, '_');
  const head = `# Imported from ${source}; it starts once it is approved: tollgate approve ${name}\n`;
  const after = head + stringify({ ...read.entry, profiles: ['default'] }, { lineWidth: 0 });
  loadConfig(config.file, { env: io.env, home: io.home }, { servers: new Map([[name, after]]) });
  if (options.json !== true)
    io.stderr(
      [
        ...read.remarks,
        `Writes ${SERVER_FOLDER}/${name}.yaml:`,
        ...after
          .trimEnd()
          .split('\n')
          .map((line) => `  + ${line}`),
        '',
      ]
        .map(printable)
        .join('\n'),
    );
  const isDone = await confirmWrite(options, io);
  const of = { clients: ['file'], servers: [name] };
  const changes = [{ file: serverFileOf(config.folder, name), after }];
  if (isDone) await applyConfirmed({ changer: 'import', changes, of }, { config, io });
  const next = [...read.secrets.map((secret) => `tollgate secret set ${secret}`), `tollgate approve ${name}`];
  if (options.json === true)
    io.stdout(json({ server: name, written: isDone, secrets: read.secrets, remarks: read.remarks, next }));
  else if (isDone)
    io.stderr(`Written. Next:\n${next.map((line) => `  ${line}\n`).join('')}To undo: tollgate import --undo\n`);
  return EXIT.ok;
}
/** Options of the command. */
export interface ImportOptions extends CommonOptions, ConfirmOptions {
  readonly file?: string;
  readonly from?: string;
  readonly all?: true;
  /** Names, separated by commas. */
  readonly only?: string;
  readonly copy?: true;
  readonly secrets?: 'vault' | 'env';
  readonly undo?: true;
}
