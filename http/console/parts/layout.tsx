import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import { Icon } from './icon.tsx';

interface ScreenProps {
  readonly title: string;
  /** A sentence that says what it is for. */
  readonly lead?: ComponentChildren;
  /** Buttons, beside the title. */
  readonly actions?: ComponentChildren;
  /** Uses all of the window, and scrolls inside. */
  readonly isFull?: boolean;
  /** Only those who cannot see the screen are told its title. */
  readonly hideTitle?: boolean;
  readonly children: ComponentChildren;
}

/** What every screen begins with. */
export function ScreenPage({ title, lead, actions, isFull = false, hideTitle = false, children }: ScreenProps) {
  return (
    <div class={isFull ? 'screen full' : 'screen'}>
      <header class={hideTitle ? 'unseen' : 'screen-header'}>
        <div>
          <h1>{title}</h1>
          {lead !== undefined && <p class="muted">{lead}</p>}
        </div>
        {actions !== undefined && <div class="actions">{actions}</div>}
      </header>
      {children}
    </div>
  );
}

/** A part of a screen under a heading. */
export function Section({
  title,
  actions,
  children,
}: {
  readonly title: string;
  readonly actions?: ComponentChildren;
  readonly children: ComponentChildren;
}) {
  return (
    <section class="section">
      <header>
        <h2>{title}</h2>
        {actions !== undefined && <div class="actions">{actions}</div>}
      </header>
      {children}
    </section>
  );
}

export interface Tab {
  readonly id: string;
  readonly title: ComponentChildren;
}

interface TabsProps {
  readonly label: string;
  readonly tabs: readonly Tab[];
  readonly current: string;
  readonly onChange: (id: string) => void;
  /** Makes tabs that can be closed: by a click, or by the Delete key. */
  readonly onClose?: (id: string) => void;
  /** Buttons behind the tabs. */
  readonly actions?: ComponentChildren;
  /** What the current tab shows. */
  readonly children?: ComponentChildren;
  readonly class?: string;
}

/** @see https://www.w3.org/WAI/ARIA/apg/patterns/tabs/ */
export function Tabs({ label, tabs, current, onChange, onClose, actions, children, ...props }: TabsProps) {
  const prefix = useId();
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Delete') onClose?.(current);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const next = tabs[(tabs.findIndex(({ id }) => id === current) + step + tabs.length) % tabs.length];
    if (next === undefined) return;
    onChange(next.id);
    document.getElementById(`${prefix}-${next.id}`)?.focus();
  };
  const list = (
    <div role="tablist" aria-label={label}>
      {tabs.map(({ id, title }) => (
        <button
          type="button"
          key={id}
          id={`${prefix}-${id}`}
          role="tab"
          aria-selected={id === current}
          aria-controls={`${prefix}-panel`}
          aria-keyshortcuts={onClose && 'Delete'}
          tabIndex={id === current ? 0 : -1}
          onClick={() => onChange(id)}
          onKeyDown={onKeyDown}
        >
          {title}
          {onClose !== undefined && (
            <span
              class="tab-close"
              aria-hidden="true"
              title="Close (Delete)"
              onClick={(event) => {
                event.stopPropagation();
                onClose(id);
              }}
            >
              <Icon name="close" />
            </span>
          )}
        </button>
      ))}
    </div>
  );
  return (
    <div class={`tabs ${props.class ?? ''}`}>
      {actions === undefined ? (
        list
      ) : (
        <div class="tabs-bar">
          {list}
          <div class="actions">{actions}</div>
        </div>
      )}
      <div role="tabpanel" id={`${prefix}-panel`} aria-labelledby={`${prefix}-${current}`} class="tabpanel">
        {children}
      </div>
    </div>
  );
}
