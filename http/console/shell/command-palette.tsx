import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Dialog } from '../parts/dialog.tsx';
import { Icon } from '../parts/icon.tsx';
import { SCREENS } from '../screens/screens.ts';
import { lock, me, signOut } from '../session/session.ts';
import { type Command, findCommands, screenCommands } from './palette-commands.ts';
import { goTo } from './route.ts';
import { chooseTheme } from './theme.ts';

export const isPaletteOpen = signal(false);

const SHOWN_MAX = 60;

addEventListener('keydown', (event) => {
  if (event.key.toLowerCase() !== 'k' || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
  event.preventDefault();
  isPaletteOpen.value = !isPaletteOpen.value;
});

export function Palette() {
  return isPaletteOpen.value ? <OpenPalette /> : null;
}

/** A combobox with its list: the focus stays in the text field. @see https://www.w3.org/WAI/ARIA/apg/patterns/combobox/ */
function OpenPalette() {
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const found = findCommands([...screenCommands.value, ...shellCommands()], text).slice(0, SHOWN_MAX);
  const close = () => {
    isPaletteOpen.value = false;
  };
  useEffect(() => list.current?.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' }), [at, text]);
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) setAt((at + step + found.length) % Math.max(1, found.length));
    else if (event.key !== 'Enter') return;
    else {
      close();
      found[at]?.run();
    }
    event.preventDefault();
  };
  return (
    <Dialog title="Commands" hideTitle class="palette" onClose={close}>
      <input
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={`palette-${at}`}
        aria-label="Search commands"
        placeholder="Go to, or do …"
        value={text}
        onInput={({ currentTarget }) => {
          setText(currentTarget.value);
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      <div id="palette-list" class="palette-list" role="listbox" aria-label="Commands" ref={list}>
        {found.map((command, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the text field has the keys
          <div
            key={`${command.group} ${command.title}`}
            id={`palette-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === at}
            onMouseMove={() => setAt(index)}
            onClick={() => {
              close();
              command.run();
            }}
          >
            <Icon name={command.icon ?? 'arrow'} />
            <span class="palette-title">{command.title}</span>
            <span class="muted">{command.group}</span>
            {command.keys !== undefined && <kbd>{command.keys}</kbd>}
          </div>
        ))}
        {found.length === 0 && <p class="muted">Nothing is called that.</p>}
      </div>
    </Dialog>
  );
}

/** What can be done wherever one is. */
function shellCommands(): readonly Command[] {
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
