import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Icon, type IconName } from './icon.tsx';

export interface MenuEntry {
  readonly title: string;
  /** What does the same. */
  readonly keys?: string;
  /** A line above it. */
  readonly isFirst?: boolean;
  readonly run: () => void;
}

interface MenuProps {
  readonly label: string;
  /** Where it opens, in the window. */
  readonly left: number;
  readonly top: number;
  readonly entries: readonly MenuEntry[];
  /** @param isFinished the menu had the keyboard until now */
  readonly onClose: (isFinished: boolean) => void;
}

const STEPS: Readonly<Record<string, number>> = {
  ArrowDown: 1,
  ArrowUp: -1,
  Home: Number.NEGATIVE_INFINITY,
  End: Number.POSITIVE_INFINITY,
};

/** @see https://www.w3.org/WAI/ARIA/apg/patterns/menubar/ */
export function Menu({ label, left, top, entries, onClose }: MenuProps) {
  const menu = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = menu.current;
    if (element === null) return;
    const { width, height } = element.getBoundingClientRect();
    element.style.left = `${Math.max(4, Math.min(left, innerWidth - width - 4))}px`;
    element.style.top = `${Math.max(4, Math.min(top, innerHeight - height - 4))}px`;
    focusEntry(element, 0);
  }, [left, top]);
  const onKeyDown = (event: KeyboardEvent) => {
    const items = menu.current;
    const step = STEPS[event.key];
    if (items !== null && step !== undefined) {
      const now = [...items.children].indexOf(document.activeElement ?? items);
      const last = entries.length - 1;
      focusEntry(items, Number.isFinite(step) ? (now + step + entries.length) % entries.length : step < 0 ? 0 : last);
    } else if (event.key === 'Escape' || event.key === 'Tab') onClose(true);
    else if (event.key.length === 1 && items !== null) focusEntry(items, entryWith(entries, event.key));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const onFocusOut = ({ relatedTarget }: FocusEvent) => {
    if (!(relatedTarget instanceof Node && menu.current?.contains(relatedTarget))) onClose(false);
  };
  return (
    <div
      ref={menu}
      role="menu"
      class="menu"
      aria-label={label}
      tabIndex={-1}
      onKeyDown={onKeyDown}
      onFocusOut={onFocusOut}
      onContextMenu={(event) => event.preventDefault()}
    >
      {entries.map(({ title, keys, isFirst, run }) => (
        <button
          key={title}
          type="button"
          role="menuitem"
          tabIndex={-1}
          class={isFirst ? 'first' : undefined}
          onClick={() => {
            onClose(true);
            run();
          }}
        >
          <span>{title}</span>
          {keys !== undefined && <kbd>{keys}</kbd>}
        </button>
      ))}
    </div>
  );
}

function focusEntry(menu: HTMLElement, index: number): void {
  const entry = menu.children.item(index);
  if (entry instanceof HTMLElement) entry.focus();
}

function entryWith(entries: readonly MenuEntry[], letter: string): number {
  const now = entries.findIndex(({ title }) => title === document.activeElement?.firstElementChild?.textContent);
  const after = entries.findIndex(({ title }, index) => index > now && isInitial(title, letter));
  return after >= 0 ? after : entries.findIndex(({ title }) => isInitial(title, letter));
}

function isInitial(title: string, letter: string): boolean {
  return title.toLowerCase().startsWith(letter.toLowerCase());
}

interface MenuButtonProps {
  readonly label: string;
  /** What stands on the button; without it only an arrow. */
  readonly title?: string;
  readonly icon?: IconName;
  readonly kind?: 'plain' | 'primary' | 'quiet';
  readonly entries: readonly MenuEntry[];
}

const BELOW_PX = 4;

/** @see https://www.w3.org/WAI/ARIA/apg/patterns/menu-button/ */
export function MenuButton({ label, title, icon, kind = 'plain', entries }: MenuButtonProps) {
  const button = useRef<HTMLButtonElement>(null);
  const [place, setPlace] = useState<{ readonly left: number; readonly top: number }>();
  const wasOpen = useRef(false);
  const toggle = () => {
    const { left = 0, bottom = 0 } = button.current?.getBoundingClientRect() ?? {};
    setPlace(wasOpen.current ? undefined : { left, top: bottom + BELOW_PX });
    wasOpen.current = false;
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        class={`button ${kind} ${title === undefined ? 'only-icon' : ''}`}
        aria-label={label}
        title={label}
        aria-haspopup="menu"
        aria-expanded={place !== undefined}
        onPointerDown={() => {
          // The menu closes when the button takes the focus; the click is not to open it again.
          wasOpen.current = place !== undefined;
        }}
        onClick={toggle}
        onKeyDown={(event) => {
          if (event.key !== 'ArrowDown') return;
          event.preventDefault();
          toggle();
        }}
      >
        {icon !== undefined && <Icon name={icon} />}
        {title}
        <Icon name="down" />
      </button>
      {place !== undefined && (
        <Menu
          label={label}
          left={place.left}
          top={place.top}
          entries={entries}
          onClose={(isFinished) => {
            setPlace(undefined);
            if (isFinished) button.current?.focus();
          }}
        />
      )}
    </>
  );
}
