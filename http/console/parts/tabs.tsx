import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';

export interface Tab {
  readonly id: string;
  readonly title: ComponentChildren;
}

export interface TabsProps {
  readonly label: string;
  readonly tabs: readonly Tab[];
  readonly current: string;
  readonly onChange: (id: string) => void;
  /** What the current tab shows. */
  readonly children?: ComponentChildren;
  readonly class?: string;
}

/** @see https://www.w3.org/WAI/ARIA/apg/patterns/tabs/ */
export function Tabs({ label, tabs, current, onChange, children, ...props }: TabsProps) {
  const prefix = useId();
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const next = tabs[(tabs.findIndex(({ id }) => id === current) + step + tabs.length) % tabs.length];
    if (next === undefined) return;
    onChange(next.id);
    document.getElementById(`${prefix}-${next.id}`)?.focus();
  };
  return (
    <div class={`tabs ${props.class ?? ''}`}>
      <div role="tablist" aria-label={label}>
        {tabs.map(({ id, title }) => (
          <button
            type="button"
            key={id}
            id={`${prefix}-${id}`}
            role="tab"
            aria-selected={id === current}
            aria-controls={`${prefix}-panel`}
            tabIndex={id === current ? 0 : -1}
            onClick={() => onChange(id)}
            onKeyDown={onKeyDown}
          >
            {title}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${prefix}-panel`} aria-labelledby={`${prefix}-${current}`} class="tabpanel">
        {children}
      </div>
    </div>
  );
}
