/** Runs `console`: opens the window of the admin in a browser of this machine, for the owner who started it. */
import { ConsoleCommands } from '../../serve/console/console-commands.ts';
import { type ConsoleServer, serveConsole } from '../../serve/console/console-listener.ts';
import { consoleRoutes } from '../../serve/console/console-routes.ts';
import { CODE_MS, ConsoleSignIn } from '../../serve/console/console-sign-in.ts';
import { type OwnerOptions, readDecider } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { configFile } from '../config-file.ts';
import { reportError } from '../failure-report.ts';
import { isInteractive } from '../terminal-prompt.ts';
import type { Wiring } from '../wiring.ts';
import { openConsoleSources } from './console-sources.ts';

/** Options of `console`. */
export interface ConsoleCommandOptions extends OwnerOptions {
  readonly port?: number;
}

/** Opens the console until a signal comes. Throws IDENTITY, CONFIG_INVALID, CONSOLE_UNAVAILABLE. */
export async function runConsole(options: ConsoleCommandOptions, io: Io, wiring: Wiring): Promise<number> {
  const server = await openConsole(options, io, wiring);
  await io.stopped;
  await server.close();
  return EXIT.ok;
}

/**
 * Starts the console, and prints its address with a code that works once. At a terminal, Enter prints a new one. Throws
 * as `runConsole`.
 */
export async function openConsole(
  options: ConsoleCommandOptions,
  io: Io,
  wiring: Pick<Wiring, 'inspect'>,
): Promise<ConsoleServer> {
  const { by } = readDecider(options, 'opens the console', io);
  const config = configFile(options.config, io);
  const commands = new ConsoleCommands({ self: io.self, config, cwd: io.cwd, env: io.env });
  const sources = await openConsoleSources({ ...options, config, as: by }, io, wiring);
  const signIn = new ConsoleSignIn(() => performance.now());
  const server = await serveConsole({
    port: options.port ?? 0,
    signIn,
    routes: consoleRoutes(sources, commands, by),
    onFault: (thrown) => void reportError(thrown, { json: false, io }),
  });
  const url = `http://127.0.0.1:${server.port}/`;
  const tell = (): void => {
    const code = signIn.newCode();
    if (options.json === true) io.stdout(`${JSON.stringify({ url, code })}\n`);
    else
      io.stderr(
        `Console: ${url}#${code}\nThe code works once, within ${CODE_MS / 60_000} minutes.` +
          `${isInteractive(io) ? ' Press Enter for a new one; Ctrl-C ends the console.' : ''}\n`,
      );
  };
  tell();
  const onKey = (): void => tell();
  if (isInteractive(io)) io.stdin.on('data', onKey);
  return {
    port: server.port,
    close: async () => {
      io.stdin.off('data', onKey);
      if (isInteractive(io)) io.stdin.pause();
      await server.close();
      await sources.close();
    },
  };
}
