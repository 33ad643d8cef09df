import { useId, useRef } from 'preact/hooks';
import { Icon, type IconName } from '../../../parts/icon.tsx';

export interface MenuItem {
  readonly title: string;
  readonly icon?: IconName;
  readonly keys?: string;
  readonly isDisabled?: boolean;
  readonly run: () => void;
}

export interface MenuButtonProps {
  readonly label: string;
  /** What stands on the button; without it only its icon. */
  readonly title?: string;
  readonly icon?: IconName;
  readonly kind?: 'plain' | 'primary' | 'quiet';
  readonly class?: string;
  readonly isDisabled?: boolean;
  readonly items: readonly MenuItem[];
}

const BELOW_PX = 4;

/** A button that opens a menu over everything else. @see https://www.w3.org/WAI/ARIA/apg/patterns/menu-button/ */
export function MenuButton({ label, title, icon = 'down', kind = 'plain', items, ...props }: MenuButtonProps) {
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const menu = useRef<HTMLDivElement>(null);
  const entries = () => [...(menu.current?.querySelectorAll<HTMLElement>('[role=menuitem]:not(:disabled)') ?? [])];
  const onToggle = () => {
    const isOpen = menu.current?.matches(':popover-open') ?? false;
    button.current?.setAttribute('aria-expanded', String(isOpen));
    if (!isOpen || menu.current === null || button.current === null) return;
    const { left, bottom, right } = button.current.getBoundingClientRect();
    const width = menu.current.offsetWidth;
    menu.current.style.left = `${Math.max(BELOW_PX, Math.min(left, innerWidth - width - BELOW_PX, Math.max(left, right - width)))}px`;
    menu.current.style.top = `${Math.min(bottom + BELOW_PX, innerHeight - menu.current.offsetHeight - BELOW_PX)}px`;
    entries()[0]?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const all = entries();
    const at = all.findIndex((one) => one.matches(':focus'));
    const next = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === 'Tab') menu.current?.hidePopover();
    if (next === undefined) return;
    event.preventDefault();
    all[next % all.length]?.focus();
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        class={`button ${kind} ${title === undefined ? 'only-icon' : ''} ${props.class ?? ''}`}
        aria-label={label}
        title={label}
        aria-haspopup="menu"
        aria-expanded={false}
        disabled={props.isDisabled}
        popovertarget={id}
      >
        {title !== undefined && icon !== 'down' && <Icon name={icon} />}
        {title}
        <Icon name={title === undefined ? icon : 'down'} />
      </button>
      <div
        ref={menu}
        id={id}
        class="menu"
        role="menu"
        aria-label={label}
        tabIndex={-1}
        popover="auto"
        onToggle={onToggle}
        onKeyDown={onKeyDown}
      >
        {items.map((item) => (
          <button
            type="button"
            key={item.title}
            role="menuitem"
            tabIndex={-1}
            disabled={item.isDisabled}
            onClick={() => {
              menu.current?.hidePopover();
              item.run();
            }}
          >
            {item.icon !== undefined && <Icon name={item.icon} />}
            <span>{item.title}</span>
            {item.keys !== undefined && <kbd>{item.keys}</kbd>}
          </button>
        ))}
      </div>
    </>
  );
}
