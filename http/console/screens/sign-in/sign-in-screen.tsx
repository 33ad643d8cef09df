import { useState } from 'preact/hooks';
import { Icon } from '../../parts/icon.tsx';
import { Tabs } from '../../parts/layout/tabs.tsx';
import { Notice } from '../../parts/notice.tsx';
import { refusedAddress } from '../../session/session.ts';
import { KeyForm } from './key-form.tsx';
import { NewKey } from './new-key.tsx';
import type { SignedUp } from './sign-up.ts';
import { SignUpForm } from './sign-up-form.tsx';

const TABS = [
  { id: 'key', title: 'I have a key' },
  { id: 'sign-up', title: 'Sign up' },
] as const;

/** Before there is a key. */
export function SignInScreen() {
  const [tab, setTab] = useState('key');
  const [made, setMade] = useState<SignedUp>();
  return (
    <main class="sign-in">
      <header>
        <Icon name="postern" />
        <h1>Postern</h1>
        <p class="muted">One PostgreSQL, two doors, one key.</p>
      </header>
      <div class="card">
        <RefusedAddress />
        {made !== undefined ? (
          <NewKey made={made} />
        ) : (
          <Tabs label="How to enter" tabs={TABS} current={tab} onChange={setTab}>
            {tab === 'key' ? <KeyForm action="Enter" /> : <SignUpForm onSignedUp={setMade} />}
          </Tabs>
        )}
      </div>
      <footer class="muted">
        <a href="docs">Documentation</a>
        <span>The key stays in this page. It is never in an address, a cookie or localStorage.</span>
      </footer>
    </main>
  );
}

/** Why the address that should have signed in did not. */
function RefusedAddress() {
  const refusal = refusedAddress.value;
  if (refusal === undefined) return null;
  const { status, hint } = refusal.problem;
  return (
    <Notice tone="warning">
      <p class="notice-title">{status === 404 ? 'This address signs in only where `postern dev` has printed it.' : refusal.message}</p>
      {hint !== undefined && status !== 404 && <p>{hint}</p>}
    </Notice>
  );
}
