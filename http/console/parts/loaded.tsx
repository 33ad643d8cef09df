import type { ComponentChildren } from 'preact';
import type { Load } from '../api/use-load.ts';
import { Icon, type IconName } from './icon.tsx';
import { ProblemNotice } from './notice.tsx';

/** Appears only when it takes long enough to be noticed. */
export function Loading() {
  return (
    <p class="loading" role="status">
      Loading …
    </p>
  );
}

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

/** Shows what was loaded, while it is loaded that, and what went wrong with a way to try again. */
export function Loaded<T>({ of, children }: { readonly of: Load<T>; readonly children: (data: T) => ComponentChildren }) {
  const { data, error, reload } = of;
  return (
    <>
      {error !== undefined && <ProblemNotice error={error} onRetry={reload} />}
      {data !== undefined ? children(data) : error === undefined && <Loading />}
    </>
  );
}
