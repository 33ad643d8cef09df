import { ApiError } from '../../../api/api-error.ts';
import { formatCount } from '../../../format.ts';
import { Button } from '../../../parts/button.tsx';
import { Notice, ProblemNotice } from '../../../parts/notice.tsx';
import { ImportError } from './run-import.ts';

export type RunState =
  | { readonly step: 'running'; readonly rows: number /** Of the file, from 0 to 1. */; readonly share: number }
  | { readonly step: 'ended'; readonly rows: number; readonly error: unknown; readonly isCanceled: boolean };

interface RunningProps {
  readonly state: Extract<RunState, { readonly step: 'running' }>;
  readonly onCancel: () => void;
}

export function Running({ state: { rows, share }, onCancel }: RunningProps) {
  return (
    <>
      <p aria-live="polite">{formatCount(rows)} rows imported …</p>
      <progress max={1} {...(share > 0 ? { value: share } : {})} aria-label="How much of the file is imported" />
      <footer>
        <Button icon="stop" onClick={onCancel}>
          Cancel
        </Button>
      </footer>
    </>
  );
}

interface OutcomeProps {
  readonly state: Extract<RunState, { readonly step: 'ended' }>;
  readonly onGoOn: () => void;
  readonly onClose: () => void;
}

/** How far an import came that has not come to its end. */
export function Outcome({ state: { rows, error, isCanceled }, onGoOn, onClose }: OutcomeProps) {
  const stored = rows === 0 ? 'Nothing is imported.' : `The first ${formatCount(rows)} rows are imported; those after them are not.`;
  const cause = error instanceof ImportError ? error.cause : error;
  const mayGoOn = isCanceled || (cause instanceof ApiError && (cause.isRetryable || cause.problem.code === 'unreachable'));
  return (
    <>
      {isCanceled ? (
        <Notice tone="info">
          <p class="notice-title">Canceled.</p>
          <p>{stored} If the part that was on its way had just been stored, it is there too; to go on does not import it twice.</p>
        </Notice>
      ) : (
        <>
          {error instanceof ImportError && error.lines !== undefined && <h3>{placeOf(error.lines)}</h3>}
          <ProblemNotice error={cause} />
          <p>{stored}</p>
        </>
      )}
      <footer>
        {mayGoOn && <Button onClick={onGoOn}>Go on</Button>}
        <Button kind="primary" onClick={onClose}>
          Close
        </Button>
      </footer>
    </>
  );
}

function placeOf([first, last]: readonly [number, number]): string {
  return first === last
    ? `Line ${formatCount(first)} of the file`
    : `Between the lines ${formatCount(first)} and ${formatCount(last)} of the file`;
}
