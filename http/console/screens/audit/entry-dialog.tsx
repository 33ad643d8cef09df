import { formatBytes, formatCount, formatDuration, formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock } from '../../parts/copying/code-block.tsx';
import { CopyButton } from '../../parts/copying/copy-button.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import type { AuditEntry } from './audit-calls.ts';

export interface EntryDialogProps {
  readonly entry: AuditEntry;
  readonly onClose: () => void;
  /** Shows all entries of the same request. */
  readonly onRequest: (requestId: string) => void;
}

/** Everything that the log has of one entry. */
export function EntryDialog({ entry, onClose, onRequest }: EntryDialogProps) {
  const { seq, action, statement, requestId } = entry;
  return (
    <Dialog title={`#${formatCount(seq)} ${action}`} class="wide" onClose={onClose}>
      {statement !== undefined && <CodeBlock text={statement.sql} label={labelOf(statement)} />}
      <dl class="facts">
        {factsOf(entry).map(([term, text]) => (
          <div key={term}>
            <dt>{term}</dt>
            <dd>{text}</dd>
          </div>
        ))}
        {hashesOf(entry).map(([term, text]) => (
          <div key={term}>
            <dt>{term}</dt>
            <dd>
              <code>{text}</code>
              <CopyButton text={text} label={`Copy ${term}`} isSmall />
            </dd>
          </div>
        ))}
      </dl>
      <footer>
        {requestId !== null && <Button onClick={() => onRequest(requestId)}>All of this request</Button>}
        <CopyButton text={JSON.stringify(entry, undefined, 2)} label="Copy as JSON" />
      </footer>
    </Dialog>
  );
}

/** Longer texts are cut at that in the log. */
const SQL_CUT_AT_CHARACTERS = 2_000;

function labelOf({ sql, paramCount }: NonNullable<AuditEntry['statement']>): string {
  const parameters = paramCount ? `, with ${paramCount} ${paramCount === 1 ? 'parameter' : 'parameters'}` : '';
  return `SQL${parameters}${sql.length >= SQL_CUT_AT_CHARACTERS ? '; its beginning' : ''}`;
}

/** Those that the entry has. */
function factsOf({ outcome, session, actor, ...entry }: AuditEntry): readonly (readonly [string, string])[] {
  const { status, sqlstate, httpStatus, rowCount, durationMs } = outcome;
  const facts: readonly (readonly [string, string | null | undefined])[] = [
    ['Time', `${formatTime(entry.occurredAt)} (${entry.occurredAt})`],
    ['Outcome', [status, sqlstate, httpStatus === null ? null : `HTTP ${httpStatus}`].filter(Boolean).join(' · ')],
    ['Rows', rowCount === null ? null : formatCount(rowCount)],
    ['Duration', durationMs === null ? null : formatDuration(durationMs)],
    ['Door', entry.surface],
    ['Key', actor.keyId === null ? null : `${actor.keyPrefix ?? ''}… · ${actor.keyId}`],
    ['Address', entry.sourceIp],
    ['Program', [entry.applicationName, entry.userAgent].filter(Boolean).join(' · ')],
    ['Statements', session && formatCount(session.statements)],
    ['Bytes', session && `${formatBytes(session.bytesIn)} in, ${formatBytes(session.bytesOut)} out`],
    ['Ended', session?.reason],
  ];
  return facts.flatMap(([term, text]) => (text ? [[term, text] as const] : []));
}

function hashesOf({ id, requestId, statement, hash, prevHash }: AuditEntry): readonly (readonly [string, string])[] {
  const ids: readonly (readonly [string, string | null | undefined])[] = [
    ['Entry id', id],
    ['Request id', requestId],
    ['SQL hash', statement?.sqlHash],
    ['Hash', hash],
    ['Hash before', prevHash],
  ];
  return ids.flatMap(([term, text]) => (text ? [[term, text] as const] : []));
}
