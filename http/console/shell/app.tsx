import { type ComponentChildren, type ComponentType, Fragment } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { asApiError } from '../api/client.ts';
import { useLoad } from '../api/use-load.ts';
import { Button } from '../parts/button.tsx';
import { Dialog } from '../parts/dialog.tsx';
import { Icon } from '../parts/icon.tsx';
import { Loading } from '../parts/loaded.tsx';
import { ProblemNotice } from '../parts/notice.tsx';
import { FIRST_SCREEN, SCREENS, type Screen } from '../screens/screens.ts';
import { KeyForm, SignInScreen } from '../screens/sign-in/sign-in-screen.tsx';
import { enterOnce, isSignedIn, lock, lockedBecause, me, refusedAddress, resume, signOut, takeSignInToken } from '../session/session.ts';
import { isPaletteOpen, Palette } from './command-palette.tsx';
import { goTo, hrefOf, route } from './route.ts';
import { chooseTheme, type Theme, theme } from './theme.ts';
import { say, sayError, Toasts } from './toasts.tsx';

export function App() {
  return (
    <>
      <Content />
      <UnlockDialog />
      <Palette />
      <Toasts />
    </>
  );
}

function Content() {
  const { isLoading, error, reload } = useLoad(async () => {
    await resume();
    return true;
  });
  if (isLoading && !isSignedIn.value) return <Loading />;
  if (error !== undefined) return <ProblemNotice error={error} onRetry={reload} />;
  return isSignedIn.value ? <CurrentScreen /> : <SignInScreen />;
}

function CurrentScreen() {
  const { screen: path, rest } = route.value;
  const screen = SCREENS.find((one) => one.path === path);
  useEffect(() => {
    if (screen === undefined) goTo(FIRST_SCREEN);
    else document.title = `${screen.title} · Postern`;
  }, [screen]);
  if (screen === undefined) return null;
  return (
    <Frame>
      <LazyScreen key={screen.path} screen={screen} rest={rest} />
    </Frame>
  );
}

/** The code of a screen is loaded when it is first shown. */
const loaded = new Map<string, ComponentType<{ readonly rest: string }>>();

function LazyScreen({ screen, rest }: { readonly screen: Screen; readonly rest: string }) {
  const { error, reload } = useLoad(async () => {
    const [component] = await Promise.all([screen.load(), screen.path === FIRST_SCREEN ? undefined : loadScreensStyle()]);
    loaded.set(screen.path, component);
    return true;
  }, [screen]);
  const Known = loaded.get(screen.path);
  if (Known !== undefined) return <Known rest={rest} />;
  return error === undefined ? <Loading /> : <ProblemNotice error={error} onRetry={reload} />;
}

const GROUPS: readonly Screen['group'][] = ['Data', 'Operation', 'Access'];

/** Side navigation, and beside it the screen. On a phone the navigation opens over the screen. */
function Frame({ children }: { readonly children: ComponentChildren }) {
  const [isOpen, setOpen] = useState(false);
  const { screen, rest } = route.value;
  useEffect(() => setOpen(false), [screen, rest]);
  return (
    <div class="frame">
      <button type="button" class="skip" onClick={focusMain}>
        To the screen
      </button>
      <header class="topbar">
        <Button kind="quiet" icon="menu" label="Menu" expanded={isOpen} onClick={() => setOpen(!isOpen)} />
        <strong>{me.value?.orgName}</strong>
        <Button kind="quiet" icon="search" label="Commands" onClick={openPalette} />
      </header>
      <nav class={isOpen ? 'nav open' : 'nav'} aria-label="Screens">
        <Whose />
        <Button class="palette-button" icon="search" onClick={openPalette}>
          Go to … <kbd>Ctrl K</kbd>
        </Button>
        <div class="nav-links">
          {GROUPS.filter((group) => SCREENS.some((one) => one.group === group)).map((group) => (
            <Fragment key={group}>
              <h2>{group}</h2>
              <ul>
                {SCREENS.filter((one) => one.group === group).map((one) => (
                  <li key={one.path}>
                    <a href={hrefOf(one.path)} aria-current={one.path === screen ? 'page' : undefined}>
                      <Icon name={one.icon} />
                      {one.title}
                    </a>
                  </li>
                ))}
              </ul>
            </Fragment>
          ))}
        </div>
        <div class="nav-end">
          <ThemeSwitch />
          <Button kind="quiet" icon="lock" label="Lock" onClick={() => lock('You have locked this page.')} />
          <Button kind="quiet" icon="leave" label="Sign out" onClick={() => void signOut()} />
        </div>
      </nav>
      {isOpen && <button type="button" class="nav-shade" aria-label="Close the menu" onClick={() => setOpen(false)} />}
      <main id="main" tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}

/** The fragment names the screen, so a link to an element would leave it. */
function focusMain(): void {
  document.getElementById('main')?.focus();
}

function openPalette(): void {
  isPaletteOpen.value = true;
}

function Whose() {
  const whose = me.value;
  if (whose === undefined) return null;
  return (
    <div class="whose">
      <Icon name="postern" />
      <div>
        <strong>{whose.orgName}</strong>
        <span class="muted">
          {whose.key.scope} · {whose.key.name}
        </span>
      </div>
    </div>
  );
}

const NEXT: Readonly<Record<Theme, Theme>> = { system: 'light', light: 'dark', dark: 'system' };
const THEMES: Readonly<Record<Theme, string>> = { system: 'as the system', light: 'light', dark: 'dark' };

function ThemeSwitch() {
  const label = `Theme: ${THEMES[theme.value]}`;
  const icons = { system: 'theme', light: 'sun', dark: 'moon' } as const;
  return <Button kind="quiet" icon={icons[theme.value]} label={label} onClick={() => chooseTheme(NEXT[theme.value])} />;
}

/** Asks for a key over the screen, which stays as it is. */
function UnlockDialog() {
  const reason = lockedBecause.value;
  if (reason === undefined) return null;
  return (
    <Dialog title={`Key for ${me.value?.orgName ?? 'the organization'}`} class="unlock">
      <p>{reason} What you have typed is kept.</p>
      <KeyForm action="Go on" />
      <Button kind="quiet" onClick={() => void signOut()}>
        Sign out, and forget everything
      </Button>
    </Dialog>
  );
}

/** The address of a page may be one that signs in; and somebody may paste one into the address of a page that is open. */
export function followSignInAddresses(): void {
  takeSignInToken();
  addEventListener('hashchange', () => {
    if (takeSignInToken()) void signIn();
  });
}

async function signIn(): Promise<void> {
  if (isSignedIn.value && lockedBecause.value === undefined) return say('You are signed in already.');
  try {
    await enterOnce();
    // Where nobody is signed in, the screen shows it.
    if (isSignedIn.value && refusedAddress.value !== undefined) sayError(refusedAddress.value);
  } catch (error) {
    sayError(asApiError(error), () => void signIn());
  }
}

let loading: Promise<void> | undefined;

/** The style sheet of all screens but the first; it is loaded once. */
function loadScreensStyle(): Promise<void> {
  loading ??= load().catch((error) => {
    loading = undefined;
    throw error;
  });
  return loading;
}

function load(): Promise<void> {
  const href = document.querySelector<HTMLMetaElement>('meta[name=screens-style]')?.content ?? '';
  const link = Object.assign(document.createElement('link'), { rel: 'stylesheet', href });
  return new Promise((resolve, reject) => {
    link.addEventListener('load', () => resolve());
    link.addEventListener('error', () => {
      link.remove();
      reject(new Error('Postern cannot be reached.'));
    });
    document.head.append(link);
  });
}
