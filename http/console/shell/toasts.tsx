import { signal } from '@preact/signals';
import { type ApiError, asApiError, isAbort } from '../api/client.ts';
import { Button } from '../parts/button.tsx';

interface Toast {
  readonly id: number;
  readonly tone: 'good' | 'bad';
  readonly text: string;
  readonly hint: string | undefined;
  readonly retry: (() => void) | undefined;
}

const SHOWN_MS = 6_000;
const toasts = signal<readonly Toast[]>([]);
let lastId = 0;

/** Says for a moment that something went well. */
export function say(text: string): void {
  const { id } = add({ tone: 'good', text, hint: undefined, retry: undefined });
  setTimeout(() => dismiss(id), SHOWN_MS);
}

/** Says what went wrong until it is dismissed. @param retry does the same again, where that may help */
export function sayError(error: unknown, retry?: () => void): void {
  if (isAbort(error)) return;
  const apiError: ApiError = asApiError(error);
  add({ tone: 'bad', text: apiError.message, hint: apiError.problem.hint, retry });
}

function add(toast: Omit<Toast, 'id'>): Toast {
  lastId += 1;
  const added = { ...toast, id: lastId };
  // The same thing said twice is shown once.
  toasts.value = [...toasts.value.filter(({ text }) => text !== toast.text).slice(-3), added];
  return added;
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, tone, text, hint, retry }) => (
        <div class={`toast ${tone}`} key={id}>
          <p>
            {text}
            {hint !== undefined && <span class="muted"> {hint}</span>}
          </p>
          {retry !== undefined && (
            <Button
              onClick={() => {
                dismiss(id);
                retry();
              }}
            >
              Retry
            </Button>
          )}
          <Button kind="quiet" label="Dismiss" icon="close" onClick={() => dismiss(id)} />
        </div>
      ))}
    </div>
  );
}
