/** The entry of the console's page: sign-in, navigation, and one component for each page. */

import type { JSX } from 'preact';
import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { LocationProvider, Route, Router, useLocation } from 'preact-iso/router';
import { AgentPage, AgentsPage } from './agents-page.tsx';
import { ApprovalPage, ApprovalsPage } from './approvals-page.tsx';
import { CallPage } from './call-page.tsx';
import { CallsPage, SessionPage } from './calls-page.tsx';
import { hasToken, signIn, signOut, whenSignedOut } from './console-client.tsx';
import { NowPage } from './now-page.tsx';
import { Problem, useKeys } from './page-parts.tsx';
import { PolicyPage } from './policy-page.tsx';
import { ProofPage } from './proof-page.tsx';
import { ServerPage, ServersPage } from './servers-page.tsx';

/** The pages: path, name, and the key that opens it after `g`. */
const PAGES = [
  ['/', 'Now', 'n'],
  ['/calls', 'Calls', 'c'],
  ['/approvals', 'Approvals', 'a'],
  ['/servers', 'Servers', 's'],
  ['/policy', 'Policy', 'p'],
  ['/agents', 'Agents', 'g'],
  ['/proof', 'Proof', 'f'],
] as const;

/** The time in which the second key of two must follow, ms. */
const SEQUENCE_MS = 1000;

function Console(): JSX.Element {
  const [isIn, setIn] = useState(hasToken() && codeInAddress() === undefined);
  useEffect(() => whenSignedOut(() => setIn(false)), []);
  if (!isIn) return <SignInPage done={() => setIn(true)} />;
  return (
    <LocationProvider>
      <div class="frame">
        <Navigation />
        <main id="main" tabIndex={-1}>
          <Router>
            <Route path="/" component={NowPage} />
            <Route path="/calls" component={CallsPage} />
            <Route path="/calls/:id" component={CallPage} />
            <Route path="/sessions/:id" component={SessionPage} />
            <Route path="/approvals" component={ApprovalsPage} />
            <Route path="/approvals/:id" component={ApprovalPage} />
            <Route path="/servers" component={ServersPage} />
            <Route path="/servers/:name" component={ServerPage} />
            <Route path="/policy" component={PolicyPage} />
            <Route path="/agents" component={AgentsPage} />
            <Route path="/agents/:id" component={AgentPage} />
            <Route path="/proof" component={ProofPage} />
            <Route default component={NoPage} />
          </Router>
        </main>
      </div>
    </LocationProvider>
  );
}

function NoPage(): JSX.Element {
  return (
    <>
      <h1>No such page</h1>
      <p>
        The console has no page at this address. <a href="/">Go to Now</a>.
      </p>
    </>
  );
}

function Navigation(): JSX.Element {
  const { path, route } = useLocation();
  const begun = useRef(Number.NEGATIVE_INFINITY);
  const help = useRef<HTMLDialogElement>(null);
  useKeys((key) => {
    const isSecond = Date.now() - begun.current < SEQUENCE_MS;
    begun.current = !isSecond && key === 'g' ? Date.now() : Number.NEGATIVE_INFINITY;
    const page = isSecond ? PAGES.find(([, , letter]) => letter === key) : undefined;
    if (page !== undefined) route(page[0]);
    else if (key === '?') help.current?.showModal();
    else if (key === '/') {
      if (path !== '/calls') route('/calls');
      // Preact has drawn the page when this runs, so no letter comes before the focus.
      queueMicrotask(() => document.querySelector<HTMLInputElement>('[type=search]')?.focus());
    } else return false;
    return true;
  });
  const current = (to: string): boolean => (to === '/' ? path === '/' : path.startsWith(to));
  useEffect(() => {
    document.title = `${PAGES.find(([to]) => current(to))?.[1] ?? 'Tollgate'} – Tollgate`;
  }, [path]);
  return (
    <nav aria-label="Pages">
      <a href="/" class="brand">
        Tollgate
      </a>
      {PAGES.map(([to, name]) => (
        <a key={to} href={to} {...(current(to) && { 'aria-current': 'page' as const })}>
          {name}
        </a>
      ))}
      <button type="button" class="end last" onClick={() => help.current?.showModal()}>
        Keys (?)
      </button>
      <button type="button" class="end" onClick={() => void signOut()}>
        Sign out
      </button>
      <dialog ref={help} aria-label="Keys">
        <h2>Keys</h2>
        <dl>
          {PAGES.map(([, name, key]) => (
            <div key={key}>
              <dt>
                <kbd>g</kbd> <kbd>{key}</kbd>
              </dt>
              <dd>{name}</dd>
            </div>
          ))}
          <div>
            <dt>
              <kbd>/</kbd>
            </dt>
            <dd>search calls</dd>
          </div>
          <div>
            <dt>
              <kbd>j</kbd> <kbd>k</kbd> <kbd>Enter</kbd>
            </dt>
            <dd>in a table: next row, row before, open</dd>
          </div>
        </dl>
        <div class="buttons">
          <button type="button" onClick={() => help.current?.close()}>
            Close
          </button>
        </div>
      </dialog>
    </nav>
  );
}

/** The code comes after `#`, which browsers send to no server. */
function codeInAddress(): string | undefined {
  return /^#([A-Z0-9-]{16,24})$/.exec(location.hash)?.[1];
}

function SignInPage({ done }: { readonly done: () => void }): JSX.Element {
  const [error, setError] = useState<Error>();
  const attempt = (code: string): void => {
    signIn(code).then(done).catch(setError);
  };
  useEffect(() => {
    const code = codeInAddress();
    if (code === undefined) return;
    history.replaceState(null, '', location.pathname + location.search);
    attempt(code);
  }, []);
  return (
    <main class="sign-in">
      <h1>Tollgate</h1>
      <p>The terminal where the console runs shows a code. It works once. For a new one, press Enter there.</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          attempt(String(new FormData(event.currentTarget).get('code')));
        }}
      >
        <label>
          Code <input name="code" autocomplete="off" spellcheck={false} required autofocus />
        </label>{' '}
        <button type="submit" class="primary">
          Sign in
        </button>
      </form>
      {error !== undefined && <Problem error={error} />}
    </main>
  );
}

const place = document.getElementById('page');
if (place !== null) render(<Console />, place);
