import type { ComponentType, JSX } from 'preact';
import { useLoad } from '../api/use-load.ts';
import { Loading } from '../parts/loaded.tsx';
import { ProblemNotice } from '../parts/notice.tsx';

/** A component whose code is loaded when it is first shown. @param load with a dynamic import */
export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): (props: P) => JSX.Element {
  let Known: ComponentType<P> | undefined;
  return function Lazy(props: P) {
    const { error, reload } = useLoad(async () => {
      Known ??= await load();
      return true;
    });
    if (Known !== undefined) return <Known {...props} />;
    return error === undefined ? <Loading /> : <ProblemNotice error={error} onRetry={reload} />;
  };
}
