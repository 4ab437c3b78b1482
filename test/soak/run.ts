/** `npm run soak`: very many calls over stdio and HTTP. Exits with 1 if the heap or the descriptors grow. */
import { parseArgs } from 'node:util';
import { soak } from './soak.ts';

const { values } = parseArgs({
  options: {
    calls: { type: 'string', default: '250000' },
    'http-calls': { type: 'string', default: '115000' },
    sessions: { type: 'string', default: '500' },
    'in-flight': { type: 'string', default: '32' },
  },
});
const [calls, httpCalls, sessions, inFlight] = [
  values.calls,
  values['http-calls'],
  values.sessions,
  values['in-flight'],
].map(Number) as [number, number, number, number];
const say = (line: string): boolean => process.stdout.write(`${line}\n`);
if (
  ![calls, httpCalls, sessions, inFlight].every((number) => Number.isSafeInteger(number) && number >= 0) ||
  sessions === 0 ||
  inFlight === 0
) {
  process.stderr.write(
    'Give whole numbers: npm run soak -- --calls 250000 --http-calls 115000 --sessions 500 --in-flight 32\n',
  );
  process.exit(2);
}

for (const [transport, count] of [
  ['stdio', calls],
  ['http', httpCalls],
] as const) {
  if (count === 0) continue;
  const grown = await soak({ transport, calls: count, sessions: transport === 'stdio' ? 1 : sessions, inFlight }, say);
  say(
    grown.length === 0
      ? `${transport}: heap and descriptors stayed flat over ${count} calls`
      : `${transport}: ${grown.join('; ')}`,
  );
  if (grown.length > 0) process.exitCode = 1;
}
