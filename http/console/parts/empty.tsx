import type { ComponentChildren } from 'preact';
import { Icon, type IconName } from './icon.tsx';

/** What a screen shows where there is nothing yet, and what to do about that. */
export function Empty({
  icon,
  title,
  children,
}: {
  readonly icon: IconName;
  readonly title: string;
  readonly children?: ComponentChildren;
}) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      {children}
    </div>
  );
}
