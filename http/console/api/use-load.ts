import { useCallback, useEffect, useState } from 'preact/hooks';
import { type ApiError, asApiError, isAbort } from './client.ts';

/** What a screen has loaded. While it is loaded again, the former data stays. */
export interface Load<T> {
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly isLoading: boolean;
  readonly reload: () => void;
}

/**
 * Loads something when the component appears, and again when one of `inputs` changes.
 * @param load given up when the component goes, or when an input changes meanwhile
 */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, inputs: readonly unknown[] = []): Load<T> {
  const [state, setState] = useState<Omit<Load<T>, 'reload'>>({ data: undefined, error: undefined, isLoading: true });
  const [attempt, setAttempt] = useState(0);
  const reload = useCallback(() => setAttempt((count) => count + 1), []);
  useEffect(() => {
    const abandoned = new AbortController();
    setState(({ data }) => ({ data, error: undefined, isLoading: true }));
    load(abandoned.signal).then(
      (data) => abandoned.signal.aborted || setState({ data, error: undefined, isLoading: false }),
      (error) => isAbort(error) || setState(({ data }) => ({ data, error: asApiError(error), isLoading: false })),
    );
    return () => abandoned.abort();
  }, [attempt, ...inputs]);
  return { ...state, reload };
}
