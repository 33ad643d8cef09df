import type { ComponentType } from 'preact';
import { useEffect } from 'preact/hooks';
import { useLoad } from '../api/use-load.ts';
import { Loading } from '../parts/loaded.tsx';
import { ProblemNotice } from '../parts/notice.tsx';
import { FIRST_SCREEN, SCREENS, type Screen } from '../screens/screens.ts';
import { SignInScreen } from '../screens/sign-in/sign-in-screen.tsx';
import { isSignedIn, resume } from '../session/session.ts';
import { Palette } from './command-palette.tsx';
import { Frame } from './frame.tsx';
import { loadScreensStyle } from './load-screens-style.ts';
import { goTo, route } from './route.ts';
import { Toasts } from './toasts.tsx';
import { UnlockDialog } from './unlock-dialog.tsx';

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
