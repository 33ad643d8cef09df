import { signal } from '@preact/signals';
import { formatCount, formatTime } from '../../format.ts';
import { CopyButton } from '../../parts/copying/copy-button.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { me } from '../../session/me.ts';
import { type AuditVerification, verifyAudit } from './audit-calls.ts';

type State = { readonly isBusy: true } | { readonly error: unknown } | { readonly at: string; readonly found: AuditVerification };

export const verification = signal<State | undefined>(undefined);

export async function verify(): Promise<void> {
  verification.value = { isBusy: true };
  try {
    const found = await verifyAudit(new AbortController().signal);
    verification.value = { at: new Date().toISOString(), found };
  } catch (error) {
    verification.value = { error };
  }
}

/** What came out of it, until it is done again. */
export function VerificationNotice() {
  const state = verification.value;
  if (state === undefined || 'isBusy' in state) return null;
  if ('error' in state) return <ProblemNotice error={state.error} onRetry={() => void verify()} />;
  return state.found.ok ? <Unbroken at={state.at} found={state.found} /> : <Broken at={state.at} found={state.found} />;
}

interface FoundProps {
  readonly at: string;
  readonly found: AuditVerification;
}

function Unbroken({ at, found: { count, headSeq, headHash } }: FoundProps) {
  const note = `${at} ${me.value?.organizationId} #${headSeq} ${headHash}`;
  return (
    <Notice tone="good" actions={<CopyButton text={note} label="Copy for a note" />}>
      <p class="notice-title">
        All {formatCount(count)} entries are as they were written ({formatTime(at)}).
      </p>
      <p>
        Head: #{formatCount(headSeq)} <code>{headHash}</code>
      </p>
      <p class="muted">
        Note it elsewhere. Whoever can write to the control database could write the whole chain anew, but entry #{formatCount(headSeq)}{' '}
        would then have another hash than your note.
      </p>
    </Notice>
  );
}

const REASONS: Readonly<Record<string, string>> = {
  missing: 'is missing',
  changed: 'is not as it was written',
  not_linked: 'does not have the hash of the one before it',
  head_missing: 'should be there: the record of where the log ends is missing',
  head_differs: 'is not the one that was recorded as the last',
};

function Broken({ at, found: { count, firstBad } }: FoundProps) {
  const { seq = 0, id, reason = '' } = firstBad ?? {};
  return (
    <Notice tone="bad">
      <p class="notice-title">
        The log was changed: entry #{formatCount(seq)} {REASONS[reason] ?? reason}.
      </p>
      <p>
        {formatCount(count)} entries before it are as they were written ({formatTime(at)}). Only somebody with access to the control
        database can have done that.
      </p>
      {id !== undefined && <p class="muted mono">{id}</p>}
    </Notice>
  );
}
