import { signal } from '@preact/signals';
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { type ApiError, asApiError, isAbort } from '../../api/api-error.ts';

/** After each reply. An organization's processes are asked for their lists at most every 250 ms. */
const EVERY_MS = 3_000;
/** Where a call has failed, and the server does not say when to come again. */
const AFTER_FAILURE_MS = 10_000;

const isVisible = signal(document.visibilityState === 'visible');

document.addEventListener('visibilitychange', () => {
  isVisible.value = document.visibilityState === 'visible';
});

/** What is loaded again and again. A failure leaves the former data. */
export interface Polling<T> {
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly reload: () => void;
}

/** Loads something when the component appears, and every few seconds while the page can be seen and `isPaused` is false. */
export function usePolling<T>(load: (signal: AbortSignal) => Promise<T>, isPaused: boolean): Polling<T> {
  const [state, setState] = useState<Omit<Polling<T>, 'reload'>>({ data: undefined, error: undefined });
  const [attempt, setAttempt] = useState(0);
  const reload = useCallback(() => setAttempt((count) => count + 1), []);
  const lastAttempt = useRef<number | undefined>(undefined);
  const isRunning = isVisible.value && !isPaused;
  useEffect(() => {
    if (!isRunning && lastAttempt.current === attempt) return;
    lastAttempt.current = attempt;
    const abandoned = new AbortController();
    let timer: number | undefined;
    const next = async () => {
      const waitMs = await load(abandoned.signal).then(
        (data) => {
          if (!abandoned.signal.aborted) setState({ data, error: undefined });
          return EVERY_MS;
        },
        (thrown) => {
          const error = asApiError(thrown);
          if (!isAbort(thrown)) setState(({ data }) => ({ data, error }));
          return error.retryAfterS === undefined ? AFTER_FAILURE_MS : error.retryAfterS * 1_000;
        },
      );
      if (isRunning && !abandoned.signal.aborted) timer = setTimeout(() => void next(), Math.max(waitMs, EVERY_MS));
    };
    void next();
    return () => {
      abandoned.abort();
      clearTimeout(timer);
    };
  }, [attempt, isRunning]);
  return { ...state, reload };
}
