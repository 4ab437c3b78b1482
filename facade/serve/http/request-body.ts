/** Reads one request body, up to a limit. */
import type { IncomingMessage } from 'node:http';

/**
 * The body; `too-large` as soon as that is known, without the rest; `gone` if the client disconnected before its end.
 */
export type Body = Buffer | 'too-large' | 'gone';

/** Reads at most `maxBytes` (attack: unbounded body, CVE-2026-39313). Never rejects. */
export function readBody(request: IncomingMessage, maxBytes: number): Promise<Body> {
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) return Promise.resolve('too-large');
  // The client may disconnect while its token is checked.
  if (request.closed) return Promise.resolve('gone');
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    const onData = (chunk: Buffer): void => {
      bytes += chunk.length;
      if (bytes <= maxBytes) {
        chunks.push(chunk);
        return;
      }
      request.off('data', onData);
      request.resume();
      resolve('too-large');
    };
    request.on('data', onData);
    request.on('end', () => resolve(whole(chunks)));
    // A body that breaks off ends in `close` too, and reports no error where no one listens for one.
    request.on('close', () => resolve('gone'));
  });
}

/** Most bodies are one chunk and need no copy. */
function whole(chunks: readonly Buffer[]): Buffer {
  const [first] = chunks;
  return first !== undefined && chunks.length === 1 ? first : Buffer.concat(chunks);
}
