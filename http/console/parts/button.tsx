import type { ComponentChildren } from 'preact';
import { Icon, type IconName } from './icon.tsx';

export interface ButtonProps {
  /** At most one primary button a screen; danger for what cannot be undone. */
  readonly kind?: 'plain' | 'primary' | 'quiet' | 'danger';
  readonly icon?: IconName;
  /** What it says where it has only an icon. */
  readonly label?: string;
  readonly type?: 'button' | 'submit';
  readonly isDisabled?: boolean;
  readonly isBusy?: boolean;
  /** For what can be on or off. */
  readonly pressed?: boolean;
  readonly expanded?: boolean;
  readonly title?: string;
  readonly class?: string;
  readonly onClick?: (event: MouseEvent) => void;
  readonly children?: ComponentChildren;
}

export function Button(props: ButtonProps) {
  const { kind = 'plain', icon, label, type = 'button', isDisabled = false, isBusy = false, children } = props;
  const only = children === undefined ? 'only-icon' : '';
  return (
    <button
      type={type}
      class={`button ${kind} ${only} ${props.class ?? ''}`}
      disabled={isDisabled || isBusy}
      aria-busy={isBusy || undefined}
      aria-label={label}
      aria-pressed={props.pressed}
      aria-expanded={props.expanded}
      title={props.title ?? label}
      onClick={props.onClick}
    >
      {icon !== undefined && <Icon name={icon} />}
      {children}
    </button>
  );
}
