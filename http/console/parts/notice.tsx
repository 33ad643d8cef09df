import type { ComponentChildren } from 'preact';
import { type ApiError, asApiError } from '../api/client.ts';
import { Button } from './button.tsx';
import { Icon, type IconName } from './icon.tsx';

export type Tone = 'info' | 'good' | 'warning' | 'bad';

const ICONS: Readonly<Record<Tone, IconName>> = { info: 'bulb', good: 'check', warning: 'warning', bad: 'warning' };

/** A few sentences that belong to what stands below them. */
export function Notice({
  tone,
  children,
  actions,
}: {
  readonly tone: Tone;
  readonly children: ComponentChildren;
  readonly actions?: ComponentChildren;
}) {
  return (
    <div class={`notice ${tone}`} role={tone === 'bad' ? 'alert' : undefined}>
      <Icon name={ICONS[tone]} />
      <div class="notice-text">{children}</div>
      {actions !== undefined && <div class="notice-actions">{actions}</div>}
    </div>
  );
}

/** What went wrong, with what PostgreSQL says besides, and how to go on. */
export function ProblemNotice({ error, onRetry }: { readonly error: unknown; readonly onRetry?: () => void }) {
  const apiError: ApiError = asApiError(error);
  const { postgres, hint, sqlstate, code, requestId } = apiError.problem;
  const retry = onRetry !== undefined && <Button onClick={onRetry}>Retry</Button>;
  return (
    <Notice tone="bad" actions={retry || undefined}>
      <p class="notice-title">{apiError.message}</p>
      {postgres?.detail !== undefined && <p>{postgres.detail}</p>}
      {(hint ?? postgres?.hint) !== undefined && <p>{hint ?? postgres?.hint}</p>}
      {postgres?.where !== undefined && <p class="muted mono">{postgres.where}</p>}
      {requestId !== undefined && (
        <p class="muted">
          {sqlstate === undefined ? code : `${code} · ${sqlstate}`} · request {requestId}
        </p>
      )}
    </Notice>
  );
}
