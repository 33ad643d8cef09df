import { SCREENS } from '../screens/screens.ts';
import { me } from '../session/me.ts';
import { lock, signOut } from '../session/session.ts';
import type { Command } from './palette-commands.ts';
import { goTo } from './route.ts';
import { chooseTheme } from './theme.ts';

/** What can be done wherever one is. */
export function shellCommands(): readonly Command[] {
  const screens = SCREENS.map(({ path, title, icon }): Command => ({ title, group: 'Go to', icon, run: () => goTo(path) }));
  const themes = (['light', 'dark', 'system'] as const).map(
    (theme): Command => ({ title: THEME_TITLES[theme], group: 'Theme', icon: THEME_ICONS[theme], run: () => chooseTheme(theme) }),
  );
  const docs: Command = {
    title: 'Documentation',
    group: 'Open',
    icon: 'book',
    run: () => void window.open(new URL('docs', document.baseURI)),
  };
  if (me.value === undefined) return [...themes, docs];
  return [
    ...screens,
    ...themes,
    docs,
    { title: 'Lock', group: 'Session', icon: 'lock', run: () => lock('You have locked this page.') },
    { title: 'Sign out', group: 'Session', icon: 'leave', run: () => void signOut() },
  ];
}

const THEME_ICONS = { light: 'sun', dark: 'moon', system: 'theme' } as const;
const THEME_TITLES = { light: 'Light', dark: 'Dark', system: 'As the system' } as const;
