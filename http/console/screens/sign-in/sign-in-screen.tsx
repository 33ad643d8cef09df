import { useState } from 'preact/hooks';
import { asApiError, call } from '../../api/client.ts';
import { Button } from '../../parts/button.tsx';
import { ShownKey } from '../../parts/copying.tsx';
import { Checkbox, Field } from '../../parts/fields.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Tabs } from '../../parts/layout.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { enter, refusedAddress, willStay } from '../../session/session.ts';

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

/** Takes a key, and forgets it as soon as it has one of its own. */
export function KeyForm({ action, initialKey = '' }: { readonly action: string; readonly initialKey?: string }) {
  const [apiKey, setKey] = useState(initialKey);
  const [stays, setStays] = useState(willStay());
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await enter(apiKey.trim(), stays);
      setKey('');
    } catch (thrown) {
      setError(asApiError(thrown).message);
    }
    setBusy(false);
  };
  return (
    <form class="form" onSubmit={(event) => void submit(event)}>
      <Field
        label="API key"
        type="password"
        value={apiKey}
        onInput={setKey}
        placeholder="pst_…"
        isMono
        isRequired
        error={error}
        hint="An administrator's key is exchanged for one that ends after 12 hours at most."
      />
      <Checkbox label="Stay signed in in this tab" isChecked={stays} onChange={setStays} />
      <Button kind="primary" type="submit" isBusy={isBusy}>
        {action}
      </Button>
    </form>
  );
}

function SignUpForm({ onSignedUp }: { readonly onSignedUp: (made: SignedUp) => void }) {
  const [name, setName] = useState('');
  const [email, setEmail] = useState('');
  const [invite, setInvite] = useState('');
  const [isInviteAsked, askInvite] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      onSignedUp(await signUp(name, email, invite.trim()));
    } catch (thrown) {
      const apiError = asApiError(thrown);
      if (apiError.problem.code.startsWith('invite_')) askInvite(true);
      setError(apiError.message);
    }
    setBusy(false);
  };
  return (
    <form class="form" onSubmit={(event) => void submit(event)}>
      <Field label="Name of the organization" value={name} onInput={setName} autocomplete="organization" placeholder="Acme" isRequired />
      <Field
        label="E-mail address"
        type="email"
        value={email}
        onInput={setEmail}
        autocomplete="email"
        placeholder="a@acme.test"
        isRequired
      />
      {isInviteAsked && <Field label="Invitation" value={invite} onInput={setInvite} isMono isRequired />}
      {error !== undefined && (
        <p class="bad" role="alert">
          {error}
        </p>
      )}
      <Button kind="primary" type="submit" isBusy={isBusy}>
        Sign up
      </Button>
    </form>
  );
}

/** The first key, this once. */
function NewKey({ made }: { readonly made: SignedUp }) {
  const [isKept, setKept] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const goOn = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await enter(made.apiKey, false);
    } catch (thrown) {
      setError(thrown);
      setBusy(false);
    }
  };
  const warning = `Whoever has it may do everything with ${made.orgName}'s data.`;
  return (
    <div class="form">
      <h2>{made.orgName} has a database</h2>
      <ShownKey {...made} warning={warning} isKept={isKept} onKept={setKept} />
      {error !== undefined && <ProblemNotice error={error} />}
      <Button kind="primary" isDisabled={!isKept} isBusy={isBusy} onClick={() => void goOn()}>
        Open the console
      </Button>
    </div>
  );
}

/** `POST /api/auth/signup` */
interface SignedUp {
  readonly apiKey: string;
  readonly organizationId: string;
  readonly orgName: string;
  readonly connectionString: string;
}

function signUp(orgName: string, email: string, invite: string): Promise<SignedUp> {
  return call('POST', 'api/auth/signup', { body: { orgName, email, ...(invite === '' ? {} : { invite }) } });
}
