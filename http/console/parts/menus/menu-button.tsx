import { useRef, useState } from 'preact/hooks';
import { Icon, type IconName } from '../icon.tsx';
import { Menu, type MenuEntry } from './menu.tsx';

export interface MenuButtonProps {
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
