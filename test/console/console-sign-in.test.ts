/** Tests who may use the console: codes, sessions, and the token of the page. */
import { describe, expect, it } from 'vitest';
import { CODE_MS, ConsoleSignIn } from '../../facade/serve/console/console-sign-in.ts';
import { verifies } from '../verifies.ts';

const HOUR = 3_600_000;

function atClock(): { readonly signIn: ConsoleSignIn; pass: (ms: number) => void } {
  let now = 1000;
  return { signIn: new ConsoleSignIn(() => now), pass: (ms) => (now += ms) };
}

describe('the code of the terminal', () => {
  it('works once, however it is typed' + verifies('AD-80'), () => {
    const { signIn } = atClock();
    const code = signIn.newCode();
    expect(code).toMatch(/^(?:[A-HJ-NP-Z2-9]{4}-){3}[A-HJ-NP-Z2-9]{4}$/);
    const session = signIn.signIn(code.toLowerCase().replaceAll('-', ' '));
    expect(signIn.isSignedIn(session?.cookie, session?.page)).toBe(true);
    expect(signIn.signIn(code)).toBeUndefined();
  });

  it('expires, and is replaced by the next one', () => {
    const { signIn, pass } = atClock();
    const first = signIn.newCode();
    const second = signIn.newCode();
    expect(signIn.signIn(first)).toBeUndefined();
    pass(CODE_MS + 1);
    expect(signIn.signIn(second)).toBeUndefined();
  });

  it('is used up by five wrong attempts' + verifies('AD-80'), () => {
    const { signIn } = atClock();
    const code = signIn.newCode();
    for (let attempt = 0; attempt < 5; attempt += 1) expect(signIn.signIn('AAAA-AAAA-AAAA-AAAA')).toBeUndefined();
    expect(signIn.signIn(code)).toBeUndefined();
  });
});

describe('a session', () => {
  it('needs its cookie and its page token together' + verifies('AD-80'), () => {
    const { signIn } = atClock();
    const mine = signIn.signIn(signIn.newCode());
    const other = signIn.signIn(signIn.newCode());
    expect(signIn.isSignedIn(mine?.cookie, undefined)).toBe(false);
    expect(signIn.isSignedIn(undefined, mine?.page)).toBe(false);
    expect(signIn.isSignedIn(mine?.cookie, other?.page)).toBe(false);
    expect(signIn.isSignedIn(other?.cookie, other?.page)).toBe(true);
  });

  it('ends after an hour without a request, after twelve hours, and by signing out' + verifies('AD-80'), () => {
    const { signIn, pass } = atClock();
    const idle = signIn.signIn(signIn.newCode());
    pass(HOUR + 1);
    expect(signIn.goesOn(idle?.cookie)).toBe(false);
    expect(signIn.isSignedIn(idle?.cookie, idle?.page)).toBe(false);
    const busy = signIn.signIn(signIn.newCode());
    for (let hour = 0; hour < 12; hour += 1) {
      pass(HOUR - 1);
      expect(signIn.isSignedIn(busy?.cookie, busy?.page)).toBe(true);
    }
    pass(HOUR - 1);
    expect(signIn.isSignedIn(busy?.cookie, busy?.page)).toBe(false);
    const left = signIn.signIn(signIn.newCode());
    expect(signIn.goesOn(left?.cookie)).toBe(true);
    signIn.signOut(left?.cookie);
    expect(signIn.goesOn(left?.cookie)).toBe(false);
    expect(signIn.isSignedIn(left?.cookie, left?.page)).toBe(false);
  });

  it('ends for the oldest of more than sixteen', () => {
    const { signIn } = atClock();
    const first = signIn.signIn(signIn.newCode());
    for (let more = 0; more < 16; more += 1) signIn.signIn(signIn.newCode());
    expect(signIn.isSignedIn(first?.cookie, first?.page)).toBe(false);
  });
});
