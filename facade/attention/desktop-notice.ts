/**
 * Shows a notice on the desktop of the owner. It contains the names of a server, a tool and a principal, and nothing
 * else. No program reads a name as an option, a markup or a script.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { findHelper, HELPER_PATH } from '../../catalogs/programs/helper-programs.ts';

/** The environment and the home of the owner. */
interface DesktopUser {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
}

/** A program that shows notices, and the arguments that come before the text. */
interface NoticeProgram {
  readonly file: string;
  readonly before: readonly string[];
}

/** Sends one notice. Never throws, and does not wait. */
export type SendNotice = (text: string) => void;

const TITLE = 'Tollgate';
/** Characters of a notice. */
const MAX_TEXT = 160;
/** Milliseconds after which a program that does not end is ended. */
const TIMEOUT_MS = 10_000;
/** The variables that such a program needs to find the session of the desktop. */
const VARIABLES = ['DBUS_SESSION_BUS_ADDRESS', 'XDG_RUNTIME_DIR', 'DISPLAY', 'WAYLAND_DISPLAY'] as const;

/** Shows its arguments. The script is fixed, and the text is an argument of it. */
const SCRIPT = ['on run argv', 'display notification (item 2 of argv) with title (item 1 of argv)', 'end run'] as const;

/** Returns the function that sends notices; undefined if this machine or session cannot show any. */
export function desktopNotice(
  { env, home }: DesktopUser,
  platform: NodeJS.Platform = process.platform,
): SendNotice | undefined {
  const program = platform === 'darwin' ? appleScript() : notifySend(env);
  if (program === undefined) return undefined;
  const given = Object.fromEntries(VARIABLES.flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]])));
  return (text) => {
    spawn(program.file, [...program.before, TITLE, plainText(text)], {
      env: { ...given, PATH: HELPER_PATH, HOME: home },
      shell: false,
      stdio: 'ignore',
      timeout: TIMEOUT_MS,
    })
      .on('error', () => undefined)
      .unref();
  };
}

function appleScript(): NoticeProgram {
  return { file: '/usr/bin/osascript', before: SCRIPT.flatMap((line) => ['-e', line]) };
}

function notifySend(env: DesktopUser['env']): NoticeProgram | undefined {
  const { DBUS_SESSION_BUS_ADDRESS: bus, XDG_RUNTIME_DIR: folder } = env;
  if (bus === undefined && (folder === undefined || !existsSync(path.join(folder, 'bus')))) return undefined;
  const file = findHelper('notify-send');
  return file === undefined ? undefined : { file, before: ['--app-name=Tollgate', '--'] };
}

/** Keeps letters, digits and a few signs. Notices may otherwise read markup (`<`, `&`) or escapes (`\`) in a text. */
function plainText(text: string): string {
  return text.slice(0, MAX_TEXT).replace(/[^A-Za-z0-9 _.,:@/-]/g, '?');
}
