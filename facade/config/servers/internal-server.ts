/** Checks the rules of an internal server (CY-02): its own definition, no network, named tools, a pin. */
import path from 'node:path';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { PIN_PATTERN } from '../../../catalogs/tools/definition-pin.ts';
import { type Path, type ProblemReport, quote } from '../config-problems.ts';
import { realPath } from '../reading/text-files.ts';
import type { WrittenServer } from '../written-config.ts';
import type { SandboxBase } from './sandbox-settings.ts';

/** Longest path that the kernel accepts for a socket (unix(7), sun_path), without the zero at its end. */
const MAX_SOCKET = 107;

interface Context {
  readonly report: ProblemReport;
  readonly resolve: (path: string) => string;
  readonly base: SandboxBase;
}

/** Reports settings that contradict `trust`, and warns about an internal server without a pin. */
export function checkInternal(written: WrittenServer, at: Path, { report, resolve, base }: Context): void {
  const { trust, socket, pin } = written;
  const name = quote(String(at.at(-1)));
  if (trust === 'internal') return checkTrusted(written, at, { report, resolve, base });
  if (socket !== undefined)
    report.refuseKey(
      [...at, 'socket'],
      `server ${name}: Tollgate can neither start nor isolate a program behind a socket, so only your own ` +
        'server can be reached by one; write trust: internal, or command',
    );
  if (pin !== undefined)
    report.refuseKey(
      [...at, 'pin'],
      `server ${name}: a pin is for internal servers; write trust: internal, or remove it`,
    );
}

function checkTrusted(written: WrittenServer, at: Path, { report, resolve, base }: Context): void {
  const { command, url, socket, tools, pin, mapping, transport } = written;
  const name = quote(String(at.at(-1)));
  if (url !== undefined)
    report.refuseKey(
      [...at, 'url'],
      `internal server ${name}: others can reach an address, and others can answer there; ` +
        'write command or socket, or remove trust',
    );
  else if (command === undefined && socket === undefined)
    report.refuseKey(
      [...at, 'trust'],
      `internal server ${name}: an included file can change, so it cannot define an internal server; ` +
        'add command or socket',
    );
  if (mapping !== undefined)
    report.refuseKey([...at, 'mapping'], `internal server ${name}: a mapping is for external servers; remove it`);
  if (socket !== undefined && transport !== undefined)
    report.refuseKey([...at, 'transport'], `internal server ${name}: the socket determines the transport; remove it`);
  if ((tools?.allow ?? []).length === 0)
    report.refuseKey(
      [...at, 'trust'],
      `internal server ${name}: it has no list of tools; write tools: {allow: [name]}`,
    );
  tools?.allow?.forEach((tool, index) => {
    if (tool.includes('*'))
      report.refuse(
        [...at, 'tools', 'allow', index],
        `internal server ${name}: the pattern ${quote(tool)} would include tools that no one has seen; name each tool`,
      );
  });
  if (pin === undefined)
    report.warn(
      [...at, 'trust'],
      `internal server ${name}: without a pin none of its tools is served; ` +
        '`tollgate servers` shows the line to write',
    );
  else if (!PIN_PATTERN.test(pin))
    report.refuse(
      [...at, 'pin'],
      `internal server ${name}: a pin is sha256: and 64 hexadecimal digits; ` +
        '`tollgate servers` shows the line to write',
    );
  if (socket !== undefined) checkPlace(realPath(resolve(socket)), [...at, 'socket'], { report, base });
}

function checkPlace(file: string, at: Path, { report, base }: Pick<Context, 'report' | 'base'>): void {
  if (base.workspace !== undefined && isPathWithin(path.dirname(file), base.workspace))
    report.refuse(
      at,
      'the socket is in the workspace, where commands of the agent can reach it without the policy; put it elsewhere',
    );
  if (Buffer.byteLength(file) > MAX_SOCKET)
    report.refuse(
      at,
      `the path of the socket is longer than ${MAX_SOCKET} bytes, which the system does not accept; ` +
        'choose a shorter one',
    );
}
