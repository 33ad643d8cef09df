import type { ComponentChildren } from 'preact';

export interface ScreenProps {
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
