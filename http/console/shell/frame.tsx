import { type ComponentChildren, Fragment } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Button } from '../parts/button.tsx';
import { Icon } from '../parts/icon.tsx';
import { SCREENS, type Screen } from '../screens/screens.ts';
import { me } from '../session/me.ts';
import { lock, signOut } from '../session/session.ts';
import { isPaletteOpen } from './command-palette.tsx';
import { hrefOf, route } from './route.ts';
import { chooseTheme, type Theme, theme } from './theme.ts';

const GROUPS: readonly Screen['group'][] = ['Data', 'Operation', 'Access'];

/** Side navigation, and beside it the screen. On a phone the navigation opens over the screen. */
export function Frame({ children }: { readonly children: ComponentChildren }) {
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
