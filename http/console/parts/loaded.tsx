import type { ComponentChildren } from 'preact';
import type { Load } from '../api/use-load.ts';
import { ProblemNotice } from './notice.tsx';

/** Appears only when it takes long enough to be noticed. */
export function Loading() {
  return (
    <p class="loading" role="status">
      Loading …
    </p>
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
